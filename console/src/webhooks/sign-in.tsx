import { useState, type FormEvent } from "react";
import { Notice } from "../kit/notice";
import { useSettings } from "../shell/settings";
import { Refusal } from "./api";
import { ended, signInWith } from "./session";

/** The sign-in form for a personal access token. */
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
        organization_slug === null ? "This is an operator token, which is for programs. Use a token of the organization." : "",
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
        <small>It is stored only in this tab, until it is closed.</small>
      </label>
      {problem && <Notice kind="error">{problem}</Notice>}
      <button type="submit" className="button primary" disabled={busy}>{busy ? "Signing in…" : "Sign in"}</button>
      <details>
        <summary>How to get a token</summary>
        <p className="hint">
          The demo prints one. Otherwise, the operator of the daemon creates it, for an organization with early access to webhooks
          and the project {project}:
        </p>
        <pre className="code">dataapi token create --organization SLUG \{"\n"}  --permission webhooks:read --permission webhooks:write</pre>
      </details>
    </form>
  );
}

function inWords(error: Error): string {
  if (!(error instanceof Refusal)) return error.message;
  if (error.status === 401) return "This token is unknown, has expired or was revoked. See below how to get another one.";
  if (error.code === "access_disabled") return "The token's organization has no early access to webhooks.";
  if (error.status === 503) return "Webhooks are unavailable. See /ready of the admin listener for the reason.";
  if (error.status === 403) return "The token does not have the permission webhooks:read.";
  return error.message;
}
