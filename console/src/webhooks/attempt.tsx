import type { ReactNode } from "react";
import { CopyButton } from "../kit/copy-button";
import type { DeliveredEvent, Delivery, Endpoint } from "./api";
import { bodyOf, duration, explain, moment, pretty, requestHeaders } from "./outcome";
import { Pairs, StatusBadge } from "./parts";

type AttemptProps = { delivery: Delivery; event: DeliveredEvent | undefined; endpoint: Endpoint | undefined; open?: boolean };

const TRIGGERS = { automatic: "", manual: "Manual retry", test: "Test" };

/** An attempt: its outcome, time and duration, request and response. */
export function Attempt({ delivery, event, endpoint, open }: AttemptProps) {
  const hidden = !endpoint && delivery.endpoint_scope === "organization";
  const { status, response_code, response_headers, response_body, duration_ms, attempt_timestamp } = delivery;
  return (
    <article className="attempt" data-status={status} aria-label={`Attempt ${delivery.attempt_number}`}>
      <header>
        <strong>{TRIGGERS[delivery.trigger] || `Attempt ${delivery.attempt_number}`}</strong>
        <StatusBadge status={status} />
        {response_code > 0 && <span className="badge">{response_code}</span>}
        {duration_ms !== null && <span className="hint">{duration(duration_ms)}</span>}
        <time className="hint" dateTime={attempt_timestamp ?? delivery.created_at}>{moment(attempt_timestamp ?? delivery.created_at)}</time>
      </header>
      <p>{explain(delivery)}</p>
      <details open={open}>
        <summary>Request and response</summary>
        <div className="exchange">
          <Side title="Request">
            {attempt_timestamp === null ? <p className="hint">Not sent yet.</p> : (
              <>
                <Pairs pairs={requestHeaders(delivery, endpoint)} />
                <Body text={event ? bodyOf(event) : ""} label="Request body" />
                <p className="hint">The custom headers are the current ones, and the signed body has no line breaks.</p>
              </>
            )}
          </Side>
          <Side title="Response">
            {response_code === 0 ? <p className="hint">None.</p> : (
              <>
                <Pairs pairs={[["status", String(response_code)], ...Object.entries(response_headers ?? {})]} />
                {response_body ? <Body text={pretty(response_body)} label="Response body" /> : <p className="hint">{hidden ? "Only the organization can see this response." : "No body."}</p>}
              </>
            )}
          </Side>
        </div>
      </details>
    </article>
  );
}

function Side({ title, children }: { title: string; children: ReactNode }) {
  return (
    <section>
      <h3>{title}</h3>
      {children}
    </section>
  );
}

function Body({ text, label }: { text: string; label: string }) {
  return (
    <div className="copyable-body">
      <pre className="code body" tabIndex={0} role="region" aria-label={label}>{text}</pre>
      <CopyButton text={text} label={label} />
    </div>
  );
}
