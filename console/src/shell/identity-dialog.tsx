import { useId, useState, type FormEvent } from "react";
import { loadData, Refused } from "../kit/data";
import { Modal } from "../kit/modal";
import { Notice } from "../kit/notice";
import { sentence } from "../kit/words";
import { adviceOn } from "./advice";
import { assume, claimsOf, identity, mint, type Claims, type Identity } from "./identity";
import { useSettings } from "./settings";

const KINDS: { kind: Identity["kind"]; title: string; about: string }[] = [
  { kind: "anonymous", title: "Anonymous", about: "Only the API key" },
  { kind: "user", title: "Signed-in user", about: "A token with claims" },
  { kind: "service", title: "service_role", about: "Bypasses row level security" },
];

const HOUR = 3600;

/** Chooses the identity for all API calls of the console. */
export function IdentityDialog({ onClose }: { onClose: () => void }) {
  const settings = useSettings();
  const before = identity.get();
  const [kind, setKind] = useState(before.kind);
  const [apiKey, setApiKey] = useState(before.apiKey);
  const [token, setToken] = useState(before.token);
  const [source, setSource] = useState<"token" | "secret">("token");
  const [secret, setSecret] = useState("");
  const [subject, setSubject] = useState(String(claimsOf(before.token)?.sub ?? "1"));
  const [role, setRole] = useState(String(claimsOf(before.token)?.role ?? "authenticated"));
  const [extra, setExtra] = useState("");
  const [problem, setProblem] = useState("");
  const title = useId();

  const claims = (): Claims => {
    const now = Math.floor(Date.now() / 1000);
    const audience = settings.token.audience ? { aud: settings.token.audience } : {};
    const common = { iat: now, exp: now + HOUR, ...audience };
    if (kind === "service") return { role: "service_role", ...common };
    return { role, sub: subject, ...common, ...(extra.trim() ? (JSON.parse(extra) as Claims) : {}) };
  };

  const save = async (event: FormEvent) => {
    event.preventDefault();
    try {
      const chosen = kind === "anonymous" ? "" : source === "token" ? token.trim() : await mint(claims(), secret.trim(), settings.token.base64);
      if (kind !== "anonymous" && !claimsOf(chosen)) throw new Error(wrongToken(chosen));
      const next = { kind, apiKey: apiKey.trim(), token: chosen };
      const refusal = await refusalFor(next);
      if (refusal) throw new Error(refusal);
      assume(next);
      onClose();
    } catch (error) {
      setProblem((error as Error).message);
    }
  };

  return (
    <Modal labelledBy={title} onClose={onClose}>
      <form onSubmit={save} autoComplete="off">
        <h2 id={title}>Call the APIs as</h2>
        <fieldset className="choices">
          <legend className="visually-hidden">Role</legend>
          {KINDS.map((each) => (
            <label key={each.kind} className="choice">
              <input type="radio" name="kind" checked={kind === each.kind} onChange={() => setKind(each.kind)} />
              <span><strong>{each.title}</strong><small>{each.about}</small></span>
            </label>
          ))}
        </fieldset>
        <label className="field">
          <span>Publishable API key{settings.keyRequired ? "" : " (optional)"}</span>
          <input className="code" value={apiKey} onChange={(event) => setApiKey(event.target.value)} placeholder="sb_publishable_…" spellCheck={false} required={settings.keyRequired} />
        </label>
        {kind !== "anonymous" && (
          <>
            {settings.token.mintable && (
              <div className="segments" role="group" aria-label="Source of the token">
                <button type="button" aria-pressed={source === "token"} onClick={() => setSource("token")}>Paste a token</button>
                <button type="button" aria-pressed={source === "secret"} onClick={() => setSource("secret")}>Sign one here</button>
              </div>
            )}
            {source === "token" ? (
              <label className="field">
                <span>Token (JWT)</span>
                <textarea className="code" rows={4} value={token} onChange={(event) => setToken(event.target.value)} placeholder="eyJ…" spellCheck={false} required />
              </label>
            ) : (
              <>
                <label className="field">
                  <span>JWT secret</span>
                  <input className="code" type="password" value={secret} onChange={(event) => setSecret(event.target.value)} autoComplete="off" required />
                  <small>Signs a token in this browser, valid for an hour. The secret is not stored.</small>
                </label>
                {kind === "user" && (
                  <>
                    <div className="field-row">
                      <label className="field"><span>sub</span><input className="code" value={subject} onChange={(event) => setSubject(event.target.value)} required /></label>
                      <label className="field"><span>role</span><input className="code" value={role} onChange={(event) => setRole(event.target.value)} required /></label>
                    </div>
                    <label className="field">
                      <span>Additional claims, as JSON</span>
                      <input className="code" value={extra} onChange={(event) => setExtra(event.target.value)} placeholder='{"email": "ada@example.org"}' spellCheck={false} />
                    </label>
                  </>
                )}
              </>
            )}
            {kind === "service" && (
              <Notice kind="info" title="Requires a token, not a secret key">
                The daemon rejects secret API keys (sb_secret_…) from browsers. {settings.token.mintable ? "Paste" : "Get"} a token (JWT)
                with the role service_role{settings.token.mintable ? ", or sign one here with the project's JWT secret" : " from the issuer of the project's tokens"}.
              </Notice>
            )}
          </>
        )}
        <p className="hint">Keys and tokens are stored only in this tab, until it is closed.</p>
        {problem && <Notice kind="error">{problem}</Notice>}
        <div className="actions">
          <button type="button" className="button" onClick={onClose}>Cancel</button>
          <button type="submit" className="button primary">Use it</button>
        </div>
      </form>
    </Modal>
  );
}

/** Return why the daemon rejects an identity, with advice, or "" if it does not or cannot be reached. */
async function refusalFor(who: Identity): Promise<string> {
  try {
    await loadData("identity", who);
    return "";
  } catch (error) {
    if (!(error instanceof Refused) || (error.status !== 401 && error.status !== 403)) return "";
    return `${sentence(error.message)} ${adviceOn(error.status, error.code) || sentence(error.hint)}`;
  }
}

function wrongToken(text: string): string {
  return text.startsWith("sb_secret_")
    ? "This is a secret API key, which the daemon rejects from browsers. Paste a token with the role service_role, or sign one with the JWT secret."
    : "This is not a JWT: it needs three parts, separated by dots.";
}
