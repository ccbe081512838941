import { useState } from "react";
import { Notice } from "../kit/notice";
import type { Endpoint } from "./api";
import { EndpointForm } from "./endpoint-form";
import { DeleteDialog, RecoverDialog, RotateDialog, SecretDialog } from "./endpoint-dialogs";
import { byEndpoint, lastDays, percent, successRate, type EndpointTotals } from "./statistics";
import { TestDialog } from "./test-dialog";
import { useLoad } from "./use-load";
import { useWorkspace } from "./workspace";

type Opened =
  | { what: "create" }
  | { what: "created"; endpoint: Endpoint; secret: string }
  | { what: "edit" | "rotate" | "delete" | "test" | "recover"; endpoint: Endpoint };

/** The endpoints and their actions. */
export function Endpoints({ toReceiver }: { toReceiver: (() => void) | undefined }) {
  const { management, endpoints, reload, secrets } = useWorkspace();
  const [opened, setOpened] = useState<Opened | null>(null);
  const [now] = useState(Date.now);
  const statistics = useLoad(management.base, (signal) => management.statistics(`${lastDays(now)[0]}T00:00:00Z`, signal));
  const totals = statistics.value && byEndpoint(statistics.value, endpoints);
  const close = () => setOpened(null);
  const done = () => {
    close();
    reload();
  };
  return (
    <>
      <div className="hooks-bar">
        <p className="hint" role="status">{endpoints.length === 1 ? "1 endpoint" : `${endpoints.length} endpoints`}</p>
        {secrets && <button type="button" className="button primary" onClick={() => setOpened({ what: "create" })}>New endpoint</button>}
      </div>
      {endpoints.length === 0 && (
        <Notice kind="info" title="There are no endpoints yet">
          An endpoint is a URL that receives a signed POST request for each event of the chosen types.
          {toReceiver && <> To see deliveries without a program of your own, <button type="button" className="link" onClick={toReceiver}>try the receiver</button>.</>}
        </Notice>
      )}
      <ul className="endpoints">
        {endpoints.map((endpoint) => (
          <li key={endpoint.id} className="panel">
            <Card
              endpoint={endpoint}
              totals={totals?.find(({ id }) => id === endpoint.id)}
              open={(what) => setOpened({ what, endpoint })}
            />
          </li>
        ))}
      </ul>
      {opened?.what === "create" && (
        <EndpointForm
          onClose={close}
          onSaved={(endpoint, secret) => {
            reload();
            setOpened({ what: "created", endpoint, secret });
          }}
        />
      )}
      {opened?.what === "created" && <SecretDialog title="The endpoint was created" secret={opened.secret} onClose={close} />}
      {opened?.what === "edit" && <EndpointForm endpoint={opened.endpoint} onClose={close} onSaved={done} />}
      {opened?.what === "rotate" && <RotateDialog endpoint={opened.endpoint} onClose={done} />}
      {opened?.what === "delete" && <DeleteDialog endpoint={opened.endpoint} onClose={close} onDeleted={done} />}
      {opened?.what === "test" && <TestDialog endpoint={opened.endpoint} onClose={close} />}
      {opened?.what === "recover" && <RecoverDialog endpoint={opened.endpoint} onClose={close} />}
    </>
  );
}

/** ``totals`` is undefined until loaded. */
type CardProps = { endpoint: Endpoint; totals: EndpointTotals | undefined; open: (what: "edit" | "rotate" | "delete" | "test" | "recover") => void };

/** Maximum number of event types that a card lists. */
const NAMED = 4;

function Card({ endpoint, totals, open }: CardProps) {
  const { management, reload, writable, secrets, listDeliveries } = useWorkspace();
  const [problem, setProblem] = useState("");
  const [busy, setBusy] = useState(false);
  const types = endpoint.event_types.map(({ type }) => type);
  const headers = Object.keys(endpoint.custom_headers).length;
  const [kind, state] = stateOf(endpoint);
  const turn = async () => {
    setBusy(true);
    setProblem("");
    try {
      await management.change(endpoint.id, { enabled: !endpoint.enabled });
      reload();
    } catch (error) {
      setProblem((error as Error).message);
    }
    setBusy(false);
  };
  return (
    <article aria-label={endpoint.url}>
      <div className="endpoint-head">
        <h2><code>{endpoint.url}</code></h2>
        <span className="badge" data-kind={kind}>{state}</span>
      </div>
      {endpoint.disabled_since && (
        <Notice kind="warning" title="Disabled by the service">
          All attempts have failed since {day(endpoint.failing_since ?? endpoint.disabled_since)}. When the receiver works again, resume the endpoint and recover the skipped deliveries.
        </Notice>
      )}
      {endpoint.description && <p>{endpoint.description}</p>}
      <p className="types">
        <span className="visually-hidden">Event types: </span>
        {types.slice(0, NAMED).map((type) => <code key={type} className="badge">{type === "*" ? "* all types" : type}</code>)}
        {types.length > NAMED && <span className="badge">and {types.length - NAMED} more</span>}
        {headers > 0 && <span className="hint">{headers === 1 ? "1 custom header" : `${headers} custom headers`}</span>}
      </p>
      <div className="endpoint-foot">
        <button type="button" className="link" onClick={() => listDeliveries({ endpoint: endpoint.id })}>Deliveries</button>
        <span className="hint totals">
          {totals && sentence(totals)}
          {totals && totals.failed > 0 && (
            <>, <button type="button" className="link" onClick={() => listDeliveries({ endpoint: endpoint.id, status: "failed" })}>{totals.failed.toLocaleString()} failed</button></>
          )}
        </span>
        {writable && (
          <div className="actions" role="group" aria-label={`Actions on ${endpoint.url}`}>
            <button type="button" className="button" disabled={!endpoint.enabled} onClick={() => open("test")}>Test</button>
            <button type="button" className="button" onClick={() => open("edit")}>Edit</button>
            <button type="button" className="button" disabled={busy} onClick={() => void turn()}>{endpoint.enabled ? "Pause" : "Resume"}</button>
            {secrets && <button type="button" className="button" onClick={() => open("rotate")}>New secret</button>}
            <button type="button" className="button" disabled={!endpoint.enabled} onClick={() => open("recover")}>Recover</button>
            <button type="button" className="button danger" onClick={() => open("delete")}>Delete</button>
          </div>
        )}
      </div>
      {problem && <Notice kind="error">{problem}</Notice>}
    </article>
  );
}

/** The kind and text of an endpoint's badge. */
function stateOf(endpoint: Endpoint): [string, string] {
  if (endpoint.disabled_reason) return ["error", "Disabled"];
  if (!endpoint.enabled) return ["warning", "Paused"];
  return endpoint.failing_since ? ["warning", `Failing since ${day(endpoint.failing_since)}`] : ["good", "Enabled"];
}

function day(time: string): string {
  return new Date(time).toLocaleDateString(undefined, { dateStyle: "medium" });
}

function sentence(totals: EndpointTotals): string {
  const rate = successRate(totals);
  return rate === null ? "No attempts in 14 days" : `In 14 days ${percent(rate)} of attempts succeeded`;
}
