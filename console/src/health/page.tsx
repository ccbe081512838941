import { useEffect, useState, type ReactNode } from "react";
import { Notice } from "../kit/notice";
import { useStore } from "../kit/store";
import { identity, identityHeaders } from "../shell/identity";
import "./health.css";

/** What the daemon says of the project's health: /console/data/health. */
interface Health {
  version: string;
  project: {
    ready: boolean;
    database_available: boolean;
    generation: number | null;
    problems: string[];
    reason: string | null;
    fault: string | null;
    changes: string;
    standby: boolean;
    replicas: { server: string; available: boolean; lag: number | null }[];
    pool: { size: number; open: number; idle: number; in_use: number; waiting: number; timeouts: number };
  };
  slow: { seconds: number; within: number; requests: SlowRequest[] };
}

interface SlowRequest {
  id: string;
  at: number;
  method: string;
  path: string;
  operation: string;
  role: string;
  status: number;
  seconds: number;
  queued: number;
  database: number;
}

const EVERY = 5000;

async function load(headers: Record<string, string>, signal: AbortSignal): Promise<Health> {
  const response = await fetch("/console/data/health", { headers, signal });
  if (response.ok) return (await response.json()) as Health;
  throw new Error(((await response.json()) as { message: string }).message);
}

export default function HealthPage() {
  const who = useStore(identity);
  const [health, setHealth] = useState<Health | null>(null);
  const [problem, setProblem] = useState("");
  useEffect(() => {
    if (who.kind !== "service") return;
    const controller = new AbortController();
    const ask = () =>
      load(identityHeaders(who), controller.signal).then(
        (found) => {
          setHealth(found);
          setProblem("");
        },
        (error: Error) => controller.signal.aborted || setProblem(error.message),
      );
    void ask();
    const timer = setInterval(ask, EVERY);
    return () => {
      clearInterval(timer);
      controller.abort();
    };
  }, [who]);
  return (
    <div className="page">
      <h1>Health</h1>
      {who.kind !== "service" && <Notice kind="info" title="For service_role alone">Choose service_role at the top right.</Notice>}
      {who.kind === "service" && problem && <Notice kind="error" title="The daemon does not say">{problem}</Notice>}
      {who.kind === "service" && health && <Report health={health} />}
    </div>
  );
}

function Report({ health: { version, project, slow } }: { health: Health }) {
  const { pool } = project;
  return (
    <>
      <Notice kind={project.ready ? "info" : "error"} title={project.ready ? "Ready" : "Not ready"}>
        {project.fault ?? project.reason ?? `Version ${version}`}
      </Notice>
      <dl className="facts panel">
        <Fact name="Database">{project.database_available ? "available" : "not available"}{project.standby && ", a standby"}</Fact>
        <Fact name="Catalog">{project.generation ?? "none yet"}</Fact>
        <Fact name="Learns of changes">{project.changes}</Fact>
        <Fact name="Connections">{pool.in_use} in use, {pool.idle} idle, of {pool.size}</Fact>
        <Fact name="Waiting now">{pool.waiting}</Fact>
        <Fact name="Timeouts since the start">{pool.timeouts}</Fact>
        {project.replicas.map(({ server, available, lag }) => (
          <Fact key={server} name={`Replica ${server}`}>{available ? "available" : "not available"}{lag !== null && `, ${lag.toFixed(1)} s behind`}</Fact>
        ))}
      </dl>
      {project.problems.length > 0 && (
        <Notice kind="warning" title="Problems of the catalog">
          <ul>{project.problems.map((each) => <li key={each}>{each}</li>)}</ul>
        </Notice>
      )}
      <h2>Slow requests</h2>
      <p className="hint">Those of the last {slow.within / 60} minutes that took {slow.seconds} s or longer, of the process that answers.</p>
      {slow.requests.length > 0 ? <SlowRequests requests={slow.requests} /> : <p className="soft">None.</p>}
    </>
  );
}

function Fact({ name, children }: { name: string; children: ReactNode }) {
  return (
    <div>
      <dt>{name}</dt>
      <dd>{children}</dd>
    </div>
  );
}

function SlowRequests({ requests }: { requests: SlowRequest[] }) {
  return (
    <div className="panel table-scroll" tabIndex={0} role="region" aria-label="Slow requests">
      <table className="table">
        <thead>
          <tr>
            {["At", "Request", "Role", "Status"].map((name) => <th key={name} scope="col">{name}</th>)}
            {["Seconds", "Waiting", "Database"].map((name) => <th key={name} scope="col" className="number">{name}</th>)}
          </tr>
        </thead>
        <tbody>
          {requests.map((each) => (
            <tr key={each.id}>
              <td>{new Date(each.at * 1000).toLocaleTimeString()}</td>
              <td><code>{each.method} {each.path}</code> {each.operation}</td>
              <td>{each.role}</td>
              <td>{each.status}</td>
              {[each.seconds, each.queued, each.database].map((seconds, index) => <td key={index} className="number">{seconds.toFixed(3)}</td>)}
            </tr>
          ))}
        </tbody>
      </table>
    </div>
  );
}
