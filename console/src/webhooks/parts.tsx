import { CopyButton } from "../kit/copy-button";
import type { Delivery } from "./api";
import { BADGES, STATUS_NAMES } from "./outcome";

export function StatusBadge({ status }: { status: Delivery["status"] }) {
  return <span className="badge" data-kind={BADGES[status]}>{STATUS_NAMES[status]}</span>;
}

/** A copyable text. A click selects it. */
export function Copyable({ label, text }: { label: string; text: string }) {
  return (
    <div className="copyable">
      <label className="field">
        <span>{label}</span>
        <input className="code" value={text} readOnly spellCheck={false} onFocus={(event) => event.target.select()} />
      </label>
      <CopyButton text={text} label={label} />
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
