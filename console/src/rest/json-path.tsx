import { pathOf } from "./query";
import { kindOf } from "./operators";

type JsonPathProps = { name: string; type: string | undefined; label: string; onChange: (name: string) => void };

/** Selects a path in a JSON column. Empty for other columns, unless the URL contains a path. */
export function JsonPath({ name, type, label, onChange }: JsonPathProps) {
  const { column, arrow, steps } = pathOf(name);
  if (arrow === "" && (type === undefined || kindOf(type) !== "json")) return null;
  return (
    <div className="json-path">
      <select aria-label={`Part of ${label}`} value={arrow} onChange={(event) => onChange(column + event.target.value + (event.target.value && steps))}>
        <option value="">the whole value</option>
        <option value="->>">{"->> as text"}</option>
        <option value="->">{"-> as JSON"}</option>
      </select>
      {arrow && (
        <input className="code" aria-label={`Path of ${label}`} value={steps} placeholder="address->>zip" spellCheck={false} onChange={(event) => onChange(column + arrow + event.target.value)} />
      )}
    </div>
  );
}
