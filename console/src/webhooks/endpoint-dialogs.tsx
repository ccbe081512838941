import { useState, type FormEvent } from "react";
import { Notice } from "../kit/notice";
import type { Endpoint } from "./api";
import { Dialog } from "./dialog";
import { fromLocal, toLocal } from "./filters";
import { Copyable } from "./parts";
import { newSecret } from "./secrets";
import { useWorkspace } from "./workspace";

type Closing = { onClose: () => void };

/** Shows a secret once. */
export function SecretDialog({ title, secret, onClose }: { title: string; secret: string } & Closing) {
  return (
    <Dialog title={title} onClose={onClose}>
      <div className="dialog-body">
        <Copyable label="Signing secret" text={secret} />
        <Notice kind="warning">Copy the secret to the receiver now. It cannot be shown again.</Notice>
        <div className="actions"><button type="button" className="button primary" onClick={onClose}>Done</button></div>
      </div>
    </Dialog>
  );
}

const GRACES = [[0, "no time (it ends immediately)"], [3600, "an hour"], [86_400, "a day"], [604_800, "a week"]] as const;

/** Changes the secret of an endpoint. */
export function RotateDialog({ endpoint, onClose }: { endpoint: Endpoint } & Closing) {
  const { management } = useWorkspace();
  const [secret] = useState(newSecret);
  const [grace, setGrace] = useState(86_400);
  const [changed, setChanged] = useState(false);
  const [problem, setProblem] = useState("");
  const rotate = () =>
    management.change(endpoint.id, { signing_secret: secret, grace_seconds: grace }).then(() => setChanged(true), (error: Error) => setProblem(error.message));
  if (changed) return <SecretDialog title="The secret was changed" secret={secret} onClose={onClose} />;
  return (
    <Dialog title="New signing secret" onClose={onClose}>
      <div className="dialog-body">
        <p>While the old secret is valid, every attempt is signed with both secrets, so you can update the receiver at any time.</p>
        <Copyable label="New signing secret" text={secret} />
        <label className="field">
          <span>The old secret stays valid for</span>
          <select value={grace} onChange={(event) => setGrace(Number(event.target.value))}>
            {GRACES.map(([seconds, name]) => <option key={seconds} value={seconds}>{name}</option>)}
          </select>
        </label>
        {problem && <Notice kind="error">{problem}</Notice>}
        <div className="actions">
          <button type="button" className="button" onClick={onClose}>Cancel</button>
          <button type="button" className="button primary" onClick={() => void rotate()}>Change the secret</button>
        </div>
      </div>
    </Dialog>
  );
}

/** Deletes an endpoint after confirmation. */
export function DeleteDialog({ endpoint, onClose, onDeleted }: { endpoint: Endpoint; onDeleted: () => void } & Closing) {
  const { management } = useWorkspace();
  const [problem, setProblem] = useState("");
  const remove = () => management.remove(endpoint.id).then(onDeleted, (error: Error) => setProblem(error.message));
  return (
    <Dialog title="Delete the endpoint?" onClose={onClose}>
      <div className="dialog-body">
        <p><code className="long">{endpoint.url}</code></p>
        <p>Its events and deliveries are deleted as well, and pending ones are not sent. This cannot be undone. You can pause the endpoint instead.</p>
        {problem && <Notice kind="error">{problem}</Notice>}
        <div className="actions">
          <button type="button" className="button" onClick={onClose}>Keep it</button>
          <button type="button" className="button danger" onClick={() => void remove()}>Delete permanently</button>
        </div>
      </div>
    </Dialog>
  );
}

const DAY = 86_400_000;

/** Sends permanently failed deliveries of a period again. */
export function RecoverDialog({ endpoint, onClose }: { endpoint: Endpoint } & Closing) {
  const { management, listDeliveries } = useWorkspace();
  const [since, setSince] = useState(() => toLocal(Date.now() - DAY));
  const [until, setUntil] = useState("");
  const [matched, setMatched] = useState<number | null>(null);
  const [problem, setProblem] = useState("");
  const submit = (event: FormEvent) => {
    event.preventDefault();
    setProblem("");
    management.recover(endpoint.id, fromLocal(since)!, fromLocal(until)).then(
      (found) => setMatched(found.matched),
      (error: Error) => setProblem(error.message),
    );
  };
  return (
    <Dialog title="Recover failed deliveries" onClose={onClose}>
      <form onSubmit={submit}>
        <p>Every event that failed permanently or was skipped in this period is sent again, unless it has been delivered since.</p>
        <div className="field-row wrap">
          <label className="field"><span>From</span><input type="datetime-local" value={since} onChange={(event) => setSince(event.target.value)} required /></label>
          <label className="field"><span>To (now if empty)</span><input type="datetime-local" value={until} onChange={(event) => setUntil(event.target.value)} /></label>
        </div>
        {problem && <Notice kind="error">{problem}</Notice>}
        {matched !== null && (
          <Notice kind="info" title={matched === 1 ? "1 delivery is sent again" : `${matched} deliveries are sent again`}>
            {matched === 0 ? "Nothing failed permanently or was skipped in this period." : (
              <button type="button" className="link" onClick={() => listDeliveries({ endpoint: endpoint.id })}>Show them</button>
            )}
          </Notice>
        )}
        <div className="actions">
          <button type="button" className="button" onClick={onClose}>Close</button>
          <button type="submit" className="button primary">Recover</button>
        </div>
      </form>
    </Dialog>
  );
}
