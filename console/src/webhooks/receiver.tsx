import { useState } from "react";
import { Notice } from "../kit/notice";
import { sentence } from "../kit/words";
import type { Endpoint } from "./api";
import { clock, pretty } from "./outcome";
import { Copyable, Pairs } from "./parts";
import { ANSWERS, createReceiver, forgetReceiver, keptReceiver, readReceiver, tellReceiver, type NewReceiver, type Received } from "./receiver-api";
import { inWords } from "./test-dialog";
import { useEvery, useLoad } from "./use-load";
import { useWorkspace } from "./workspace";

const EVERY = 1500;

/** A receiver inside the daemon, for trying webhooks without writing a program. */
export function ReceiverPanel() {
  const [receiver, setReceiver] = useState(keptReceiver);
  const [problem, setProblem] = useState("");
  const create = () => createReceiver().then(setReceiver, (error: Error) => setProblem(error.message));
  const forget = () => {
    forgetReceiver();
    setReceiver(null);
  };
  if (receiver) return <Panel key={receiver.name} receiver={receiver} onForget={forget} />;
  return (
    <section className="panel try" aria-label="Test receiver">
      <h2>Test receiver</h2>
      <p>The daemon can receive deliveries itself, at an address of this machine. It verifies their signatures and shows the last 20 here. The receiver is deleted after an hour without use.</p>
      {problem && <Notice kind="error">{problem}</Notice>}
      <div><button type="button" className="button primary" onClick={() => void create()}>Create a receiver</button></div>
    </section>
  );
}

function Panel({ receiver, onForget }: { receiver: NewReceiver; onForget: () => void }) {
  const { value, problem, reload } = useLoad(receiver.name, (signal) => readReceiver(receiver.name, signal));
  const gone = value === "gone";
  const state = gone ? null : value;
  useEvery(EVERY, !gone, reload);
  return (
    <>
      <section className="panel try" aria-label="The receiver">
        <h2>Your receiver</h2>
        <Copyable label="URL" text={receiver.url} />
        <Copyable label="Signing secret" text={receiver.secret} />
        <div className="try-actions">
          {!gone && <Connect receiver={receiver} />}
          {state && (
            <label className="check">
              Response status
              <select value={state.answer} onChange={(event) => void tellReceiver(receiver.name, Number(event.target.value)).then(reload)}>
                {ANSWERS.map((each) => <option key={each} value={each}>{each}</option>)}
              </select>
            </label>
          )}
          <button type="button" className="button" onClick={onForget}>Forget it</button>
        </div>
        {problem && <Notice kind="error">{problem}</Notice>}
      </section>
      <section aria-label="What it received">
        {gone && <Notice kind="warning" title="The receiver is gone">It was not used for an hour, was replaced by newer receivers, or the daemon was restarted. Forget it, and create another one.</Notice>}
        <p className="hint received-count" role="status">{state && counted(state.received.length)}</p>
        <ul className="received">
          {state?.received.map((each) => <li key={`${each.at} ${each.headers["webhook-id"]}`} className="panel"><Item received={each} /></li>)}
        </ul>
      </section>
    </>
  );
}

const ALLOW = "allow-addresses = 127.0.0.1, ::1";

/** Creates an endpoint for the receiver, and sends test events to it. */
function Connect({ receiver }: { receiver: NewReceiver }) {
  const { management, endpoints, reload } = useWorkspace();
  const [problem, setProblem] = useState("");
  const [busy, setBusy] = useState(false);
  const check = useLoad(receiver.url, (signal) => management.checkUrl(receiver.url, signal));
  const endpoint = endpoints.find(({ url }) => url === receiver.url);
  const attempt = async (act: () => Promise<unknown>) => {
    setBusy(true);
    setProblem("");
    try {
      await act();
    } catch (error) {
      setProblem(inWords(error as Error));
    }
    setBusy(false);
  };
  const create = () =>
    attempt(async () => {
      await management.create({ url: receiver.url, event_types: [{ type: "*" }], signing_secret: receiver.secret, description: "The console's receiver" });
      reload();
    });
  const test = (to: Endpoint) => attempt(() => management.test(to.id, ""));
  if (check.value && !check.value.accepted) {
    return (
      <Notice kind="warning" title="Deliveries to this machine are not allowed">
        {sentence(check.value.message ?? "")} On a development machine, the operator can allow it in the section [webhooks] of the configuration:
        <pre className="code">{ALLOW}</pre>
      </Notice>
    );
  }
  return (
    <>
      {endpoint
        ? <button type="button" className="button primary" disabled={busy || !endpoint.enabled} onClick={() => void test(endpoint)}>Send a test event</button>
        : <button type="button" className="button primary" disabled={busy || !check.value} onClick={() => void create()}>Create an endpoint for it</button>}
      {problem && <Notice kind="error">{problem}</Notice>}
    </>
  );
}

function Item({ received }: { received: Received }) {
  const { headers, body, length, problem, answer } = received;
  const cut = new TextEncoder().encode(body).length < length;
  return (
    <article aria-label={`Received at ${clock(new Date(received.at * 1000).toISOString())}`}>
      <header className="endpoint-head">
        <h3>{typeOf(body)}</h3>
        <span className="badge" data-kind={problem ? "error" : "good"}>{problem ? "Signature not valid" : "Signature valid"}</span>
        <span className="badge" data-kind={answer === 200 ? "" : "warning"}>status {answer}</span>
        <time className="hint">{clock(new Date(received.at * 1000).toISOString())}</time>
      </header>
      {problem && <p>{problem}</p>}
      <details>
        <summary>Headers and body</summary>
        <div className="exchange">
          <Pairs pairs={Object.entries(headers)} />
          <pre className="code body" tabIndex={0} role="region" aria-label="Body">{cut ? body : pretty(body)}</pre>
        </div>
        {cut && <p className="hint">Only the beginning of {length.toLocaleString()} bytes is stored.</p>}
      </details>
    </article>
  );
}

function counted(number: number): string {
  if (number === 0) return "Nothing received yet.";
  return number === 1 ? "1 delivery received." : `${number} deliveries received, newest first.`;
}

function typeOf(body: string): string {
  try {
    return String((JSON.parse(body) as { type?: unknown }).type ?? "Not an event");
  } catch {
    return "Not JSON";
  }
}
