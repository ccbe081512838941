import { useEffect, useState } from "react";
import { Notice } from "../kit/notice";
import { useStore } from "../kit/store";
import { Refusal } from "../webhooks/api";
import { Hooks } from "../webhooks/hooks";
import { session, signInWith, signOut } from "../webhooks/session";
import { paint } from "./color";

/** The token of the link that was opened, "" for none; the address keeps it no longer. */
function takeToken(): string {
  const token = location.hash.slice(1);
  if (token) history.replaceState(null, "", location.pathname + location.search);
  return token;
}

/** The webhooks that a link leads to, for a platform's customers. */
export function Portal() {
  const current = useStore(session);
  const [problem, setProblem] = useState("");
  const [busy, setBusy] = useState(true);
  useEffect(() => {
    const open = () => {
      const token = takeToken();
      if (!token) {
        setBusy(false);
        return;
      }
      // Whatever was shown before is another link's.
      signOut();
      setProblem("");
      setBusy(true);
      signInWith(token, ({ portal }) => (portal ? "" : "This is no link to this page."))
        .catch((error: Error) => setProblem(inWords(error)))
        .finally(() => setBusy(false));
    };
    open();
    // A page that frames this one may give it another link without loading it again.
    addEventListener("hashchange", open);
    return () => removeEventListener("hashchange", open);
  }, []);
  const name = current?.portal?.name;
  const color = current?.portal?.color ?? null;
  useEffect(() => {
    document.title = name ? `${name} · Webhooks` : "Webhooks";
    paint(color);
  }, [name, color]);
  return (
    <main className="portal">
      <div className="page webhooks">
        {current ? <Hooks key={current.token} title={current.portal?.name ?? ""} current={current} receivers={false} />
          : busy ? <div className="waiting" role="status">Loading…</div>
          : <Notice kind="info" title="This page needs a link">{problem || "The link has ended, or there was none. Open the page again from where you came."}</Notice>}
      </div>
    </main>
  );
}

function inWords(error: Error): string {
  if (!(error instanceof Refusal)) return error.message;
  if (error.status === 401) return "The link has ended. Open the page again from where you came.";
  if (error.code === "access_disabled") return "Webhooks are not available to you.";
  if (error.status === 503) return "Webhooks do not work now. Try again in a moment.";
  return error.message;
}
