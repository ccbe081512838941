import { useState, type FormEvent } from "react";
import { Notice } from "../kit/notice";
import { Refusal, type Endpoint, type EndpointAttributes } from "./api";
import { Dialog } from "./dialog";
import { HeadersField } from "./headers-field";
import { newSecret, secretProblem } from "./secrets";
import { TypesField } from "./types-field";
import { UrlField } from "./url-field";
import { useWorkspace } from "./workspace";

type EndpointFormProps = { endpoint?: Endpoint; onClose: () => void; onSaved: (endpoint: Endpoint, secret: string) => void };

/** Creates an endpoint, or changes one. */
export function EndpointForm({ endpoint, onClose, onSaved }: EndpointFormProps) {
  const { management, types } = useWorkspace();
  const [url, setUrl] = useState(endpoint?.url ?? "");
  const [description, setDescription] = useState(endpoint?.description ?? "");
  const [chosen, setChosen] = useState(endpoint?.event_types.map(({ type }) => type) ?? ["*"]);
  const [headers, setHeaders] = useState(Object.entries(endpoint?.custom_headers ?? {}).map(([name, value]): [string, string] => [name, value ?? ""]));
  const [rate, setRate] = useState(endpoint?.max_per_second?.toString() ?? "");
  const [secret, setSecret] = useState(newSecret);
  const [problem, setProblem] = useState<string[]>([]);
  const [busy, setBusy] = useState(false);
  const submit = async (event: FormEvent) => {
    event.preventDefault();
    const wrong = chosen.length === 0 ? "Choose at least one event type." : endpoint ? "" : secretProblem(secret);
    if (wrong) {
      setProblem([wrong]);
      return;
    }
    setBusy(true);
    const attributes: Partial<EndpointAttributes> = {
      url,
      description: description || null,
      event_types: chosen.map((type) => ({ type })),
      custom_headers: Object.fromEntries(headers),
      max_per_second: rate ? Number(rate) : null,
    };
    try {
      if (endpoint) onSaved(await management.change(endpoint.id, attributes), "");
      else onSaved(await management.create({ ...attributes, signing_secret: secret }), secret);
    } catch (error) {
      setProblem(problemsOf(error as Error));
      setBusy(false);
    }
  };
  return (
    <Dialog title={endpoint ? "Edit the endpoint" : "New endpoint"} onClose={onClose}>
      <form onSubmit={(event) => void submit(event)} autoComplete="off">
        <UrlField value={url} onChange={setUrl} />
        <label className="field">
          <span>Description (optional)</span>
          <input value={description} onChange={(event) => setDescription(event.target.value)} maxLength={512} />
        </label>
        <TypesField types={types} chosen={chosen} onChange={setChosen} />
        {!endpoint && (
          <div>
            <div className="copyable">
              <label className="field">
                <span>Signing secret</span>
                <input className="code" value={secret} onChange={(event) => setSecret(event.target.value)} maxLength={64} spellCheck={false} required />
              </label>
              <button type="button" className="button" onClick={() => setSecret(newSecret())}>Another</button>
            </div>
            <p className="hint">The receiver verifies deliveries with this secret. It is shown once more after the endpoint is created, and never again.</p>
          </div>
        )}
        <HeadersField headers={headers} onChange={setHeaders} />
        <label className="field">
          <span>Maximum attempts per second (optional)</span>
          <input type="number" min={1} max={1000} step={1} value={rate} onChange={(event) => setRate(event.target.value)} />
        </label>
        {problem.length > 0 && <Notice kind="error">{problem.map((each) => <p key={each}>{each}</p>)}</Notice>}
        <div className="actions">
          <button type="button" className="button" onClick={onClose}>Cancel</button>
          <button type="submit" className="button primary" disabled={busy}>{endpoint ? "Save" : "Create"}</button>
        </div>
      </form>
    </Dialog>
  );
}

/** Problems, each with its attribute. */
function problemsOf(error: Error): string[] {
  if (!(error instanceof Refusal) || error.issues.length === 0) return [error.message];
  return error.issues.map(({ message, meta }) => {
    const place = meta?.pointer?.replace("/data/attributes/", "").replaceAll("~1", "/").replaceAll("~0", "~");
    return place ? `${place}: ${message}` : message;
  });
}
