import { useState, type FormEvent } from "react";
import { Notice } from "../kit/notice";
import { Refusal, type Endpoint } from "./api";
import { Attempt } from "./attempt";
import { Dialog } from "./dialog";
import { useDelivery } from "./use-delivery";
import { useWorkspace } from "./workspace";

/** Sends a test event, and shows its result. */
export function TestDialog({ endpoint, onClose }: { endpoint: Endpoint; onClose: () => void }) {
  const { management, types } = useWorkspace();
  const subscribed = endpoint.event_types.map(({ type }) => type);
  const offered = types.filter(({ type }) => subscribed.includes("*") || subscribed.includes(type));
  const [type, setType] = useState(offered[0]?.type ?? "");
  const [sent, setSent] = useState("");
  const [problem, setProblem] = useState("");
  const about = offered.find((each) => each.type === type);
  const submit = (event: FormEvent) => {
    event.preventDefault();
    setProblem("");
    setSent("");
    management.test(endpoint.id, type).then(({ delivery_id }) => setSent(delivery_id), (error: Error) => setProblem(inWords(error)));
  };
  return (
    <Dialog title="Send a test event" onClose={onClose} wide>
      <form onSubmit={submit}>
        <p><code className="long">{endpoint.url}</code></p>
        <label className="field">
          <span>Event type</span>
          <select value={type} onChange={(event) => setType(event.target.value)}>
            {offered.map((each) => <option key={each.type} value={each.type}>{each.type}</option>)}
          </select>
          <small>{about?.description} The payload is the type's example, with is_test.</small>
        </label>
        {problem && <Notice kind="error">{problem}</Notice>}
        <div aria-live="polite">{sent && <Result key={sent} id={sent} endpoint={endpoint} />}</div>
        <div className="actions">
          <button type="button" className="button" onClick={onClose}>Close</button>
          <button type="submit" className="button primary">{sent ? "Send another" : "Send"}</button>
        </div>
      </form>
    </Dialog>
  );
}

function Result({ id, endpoint }: { id: string; endpoint: Endpoint }) {
  const { value, problem } = useDelivery(id);
  if (problem) return <Notice kind="error" title="The result cannot be read">{problem}</Notice>;
  if (!value || value.status === "pending") return <Notice kind="info" title="Sending…">Waiting for the receiver.</Notice>;
  return <Attempt delivery={value} event={value.event} endpoint={endpoint} open />;
}

/** Return the message of an error, with the time to wait if there were too many requests. */
export function inWords(error: Error): string {
  if (error instanceof Refusal && error.status === 429) {
    return `An endpoint accepts 10 tests and retries per minute. Try again in ${error.retryAfter ?? 60} seconds.`;
  }
  return error.message;
}
