import type { Table } from "../schema/model";
import { quoted } from "./query";

/** Columns by their names in the URL, with their types if known. */
export interface Source {
  columns: { name: string; type?: string; comment?: string | null }[];
  /** The value of `select` for all readable columns. */
  all: string[];
  table: Table | undefined;
}

export function sourceOf(table: Table | undefined): Source {
  const readable = table?.columns.filter((each) => each.privileges.includes("SELECT")) ?? [];
  const columns = readable.map(({ name, type, comment }) => ({ name: quoted(name), type, comment }));
  return { columns, all: !table || table.rest.star ? ["*"] : columns.map(({ name }) => name), table };
}

type NameSelectProps = { name: string; source: Source; related: string[]; label: string; onChange: (name: string) => void };

/** Selects a column or an embedded table. Unknown names in the URL are kept. */
export function NameSelect({ name, source, related, label, onChange }: NameSelectProps) {
  const known = source.columns.map((each) => each.name);
  return (
    <select className="code" aria-label={label} value={name} onChange={(event) => onChange(event.target.value)}>
      {!known.includes(name) && !related.includes(name) && <option>{name}</option>}
      {known.map((each) => <option key={each}>{each}</option>)}
      {related.length > 0 && <optgroup label="Related: is null, not is null">{related.map((each) => <option key={each}>{each}</option>)}</optgroup>}
    </select>
  );
}
