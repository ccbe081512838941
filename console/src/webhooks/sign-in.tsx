import { useState, type FormEvent } from "react";
import { Notice } from "../kit/notice";
import { useSettings } from "../shell/settings";
import { Refusal } from "./api";
import { ended, signInWith } from "./session";

/** Asks for a personal access token, and learns what it gives access to. */
export function SignIn() {
  const { project } = useSettings();
  const [token, setToken] = useState("");
  const [problem, setProblem] = useState(ended.get);
  const [busy, setBusy] = useState(false);
  const submit = async (event: FormEvent) => {
    event.preventDefault();
    setBusy(true);
    setProblem("");
    try {
      await signInWith(token.trim(), ({ organization_slug }) =>
        organization_slug === null ? "This is an operator's token, which is for programs. Take a token of the organization." : "",
      );
    } catch (error) {
      setProblem(inWords(error as Error));
      setBusy(false);
    }
  };
  return (
    <form className="panel sign-in" onSubmit={(event) => void submit(event)} autoComplete="off">
      <h2>Sign in</h2>
      <label className="field">
        <span>Personal access token</span>
        <input className="code" type="password" value={token} onChange={(event) => setToken(event.target.value)} placeholder="dapat_…" autoComplete="off" spellCheck={false} required />
        <small>It stays in this tab, and is gone when the tab is closed.</small>
      </label>
      {problem && <Notice kind="error">{problem}</Notice>}
      <button type="submit" className="button primary" disabled={busy}>{busy ? "Signing in…" : "Sign in"}</button>
      <details>
        <summary>How to get a token</summary>
        <p className="hint">
          The demo prints one. Elsewhere, the operator of the daemon makes it, for an organization that has early access to webhooks and the
          project {project}:
        </p>
        <pre className="code">dataapi token create --organization SLUG \{"\n"}  --permission webhooks:read --permission webhooks:write</pre>
      </details>
    </form>
  );
}

function inWords(error: Error): string {
  if (!(error instanceof Refusal)) return error.message;
  if (error.status === 401) return "This token is unknown, has expired or was revoked. Take another one; below it says how to get one.";
  if (error.code === "access_disabled") return "The token's organization has no early access to webhooks.";
  if (error.status === 503) return "Webhooks do not work now: /ready of the admin listener says why.";
  if (error.status === 403) return "The token does not permit webhooks:read.";
  return error.message;
}
