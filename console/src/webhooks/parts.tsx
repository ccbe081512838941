import { useEffect, useRef, useState } from "react";
import type { Delivery } from "./api";
import { BADGES, STATUS_NAMES } from "./outcome";

export function StatusBadge({ status }: { status: Delivery["status"] }) {
  return <span className="badge" data-kind={BADGES[status]}>{STATUS_NAMES[status]}</span>;
}

/** A text that can be copied; what cannot be is selected instead. */
export function Copyable({ label, text }: { label: string; text: string }) {
  const field = useRef<HTMLInputElement>(null);
  const [copied, setCopied] = useState(false);
  useEffect(() => {
    const timer = copied ? setTimeout(() => setCopied(false), 2000) : undefined;
    return () => clearTimeout(timer);
  }, [copied]);
  const copy = async () => {
    field.current?.select();
    // Browsers have no clipboard for pages that came unencrypted from elsewhere.
    await navigator.clipboard?.writeText(text);
    setCopied(Boolean(navigator.clipboard));
  };
  return (
    <div className="copyable">
      <label className="field">
        <span>{label}</span>
        <input ref={field} className="code" value={text} readOnly spellCheck={false} onFocus={(event) => event.target.select()} />
      </label>
      <button type="button" className="button" onClick={() => void copy()} aria-label={`Copy: ${label}`}>
        <span aria-live="polite">{copied ? "Copied" : "Copy"}</span>
      </button>
    </div>
  );
}

/** Names and values, such as headers. */
export function Pairs({ pairs }: { pairs: [string, string][] }) {
  return (
    <dl className="pairs">
      {pairs.map(([name, value]) => (
        <div key={name}>
          <dt>{name}:</dt>{" "}
          <dd>{value}</dd>
        </div>
      ))}
    </dl>
  );
}
