import { useData } from "../kit/data";
import { Fact, Facts } from "../kit/facts";
import { Notice } from "../kit/notice";
import { useStore } from "../kit/store";
import { ChooseRole } from "../shell/choose-role";
import { identity } from "../shell/identity";
import { Problem } from "../shell/problem";
import { Advisor } from "./advisor";

/** Health of the project, from /console/data/health. */
interface Health {
  version: string;
  project: {
    ready: boolean;
    database_available: boolean;
    generation: number | null;
    problems: string[];
    reason: string | null;
    fault: string | null;
    changes: keyof typeof CHANGES;
    standby: boolean;
    replicas: { server: string; available: boolean; lag: number | null }[];
    pool: { size: number; open: number; idle: number; in_use: number; waiting: number; timeouts: number };
  };
  /** null if the daemon is a single process. */
  workers: Workers | null;
  /** null if webhooks are disabled. */
  webhooks: { ready: boolean; reason: string | null } | null;
  slow: { seconds: number; within: number; requests: SlowRequest[] };
}

interface Workers {
  own: number;
  configured: number;
  serving: number[];
  stuck: number[];
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

/** How the daemon detects schema changes. */
const CHANGES = { notified: "notified", polled: "polled", "on request": "only on reload" };

export default function HealthPage() {
  const asked = useStore(identity).kind === "service";
  const { data, problem } = useData<Health>("health", { every: EVERY, skip: !asked });
  return (
    <div className="page">
      <h1>Health</h1>
      {!asked && (
        <Notice kind="info" title="Only for service_role">
          <p>Choose service_role to see the state of the project, slow requests, and problems in the schema.</p>
          <ChooseRole />
        </Notice>
      )}
      {problem && <Problem title="The health cannot be read" error={problem} />}
      {data && <Report health={data} />}
      {asked && <Advisor />}
    </div>
  );
}

function Report({ health: { version, project, workers, webhooks, slow } }: { health: Health }) {
  const { pool } = project;
  return (
    <>
      <Notice kind={project.ready ? "good" : "error"} title={project.ready ? "Ready" : "Not ready"}>
        {project.fault ?? project.reason ?? "The project serves requests."}
      </Notice>
      <Facts className="panel">
        <Fact name="Version">{version}</Fact>
        <Fact name="Database">{project.database_available ? "available" : "not available"}{project.standby && ", a standby"}</Fact>
        <Fact name="Catalog">{project.generation === null ? "not loaded yet" : project.generation === 1 ? "loaded once" : `loaded ${project.generation} times`}</Fact>
        <Fact name="Schema changes">{CHANGES[project.changes]}</Fact>
        <Fact name="Connections">{pool.in_use} in use, {pool.idle} idle, of {pool.size}</Fact>
        <Fact name="Waiting for a connection">{pool.waiting === 1 ? "1 request" : `${pool.waiting} requests`}</Fact>
        <Fact name="Timed out waiting">{pool.timeouts === 1 ? "1 request" : `${pool.timeouts} requests`}</Fact>
        <Fact name="Workers">{workers ? workersText(workers) : "one process"}</Fact>
        {webhooks && <Fact name="Webhooks">{webhooks.ready ? "working" : `not working: ${webhooks.reason}`}</Fact>}
        {project.replicas.map(({ server, available, lag }) => (
          <Fact key={server} name={`Replica ${server}`}>{available ? "available" : "not available"}{lag !== null && `, ${lag.toFixed(1)} s behind`}</Fact>
        ))}
      </Facts>
      {project.problems.length > 0 && (
        <Notice kind="warning" title="Problems in the catalog">
          <ul>{project.problems.map((each) => <li key={each}>{each}</li>)}</ul>
        </Notice>
      )}
      <h2>Slow requests</h2>
      <p className="hint">
        Requests of the last {slow.within / 60} minutes that took {slow.seconds} s or longer{workers && `, in worker ${workers.own}, which handled this request`}.
      </p>
      {slow.requests.length > 0 ? <SlowRequests requests={slow.requests} /> : <p className="soft">None.</p>}
    </>
  );
}

function workersText({ configured, serving, stuck }: Workers): string {
  const waiting = configured - serving.length - stuck.length;
  const parts = [
    `${serving.length} of ${configured} serving`,
    stuck.length > 0 && `${stuck.length} not responding`,
    waiting > 0 && `${waiting} not started`,
  ];
  return parts.filter(Boolean).join(", ");
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
