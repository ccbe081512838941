import { useEffect, useState } from "react";
import { Notice } from "../kit/notice";
import { useStore } from "../kit/store";
import { Refusal } from "../webhooks/api";
import { Hooks } from "../webhooks/hooks";
import { session, signInWith, signOut } from "../webhooks/session";
import { paint } from "./color";

/** Return the token in the URL, or "", and remove it from the URL. */
function takeToken(): string {
  const token = location.hash.slice(1);
  if (token) history.replaceState(null, "", location.pathname + location.search);
  return token;
}

/** The webhooks page for customers, opened with a portal link. */
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
      // The previous session belongs to another link.
      signOut();
      setProblem("");
      setBusy(true);
      signInWith(token, ({ portal }) => (portal ? "" : "This is not a link to this page."))
        .catch((error: Error) => setProblem(inWords(error)))
        .finally(() => setBusy(false));
    };
    open();
    // A page that embeds this one may change the link without reloading it.
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
          : <Notice kind="info" title="This page requires a link">{problem || "The link has expired or is missing. Open the page again from the application."}</Notice>}
      </div>
    </main>
  );
}

function inWords(error: Error): string {
  if (!(error instanceof Refusal)) return error.message;
  if (error.status === 401) return "The link has expired. Open the page again from the application.";
  if (error.code === "access_disabled") return "Webhooks are not available to you.";
  if (error.status === 503) return "Webhooks are unavailable at the moment. Try again later.";
  return error.message;
}
