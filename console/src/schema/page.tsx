import { useMemo, useRef, useState, type FormEvent } from "react";
import { flushSync } from "react-dom";
import { useData } from "../kit/data";
import { Notice } from "../kit/notice";
import { ChooseRole } from "../shell/choose-role";
import { Problem } from "../shell/problem";
import { setParameters, useParameters } from "../shell/router";
import { useSettings } from "../shell/settings";
import { Diagram, usePlaced } from "./diagram";
import { asMermaid, asSvg, save } from "./export";
import { idOf, labelOf, neighbourhood, partOf, search, type Schema, type Table, type TableId } from "./model";
import { Panel, Problems } from "./panel";
import "../kit/columns.css";
import "./schema.css";

export default function SchemaPage() {
  const { data: schema, problem } = useData<Schema>("schema");
  if (problem) return <div className="page"><Problem title="The schema cannot be shown" error={problem} /></div>;
  if (!schema) return <div className="waiting" role="status">Loading…</div>;
  if (schema.tables.length === 0) {
    return (
      <div className="page">
        <Notice kind="info" title={`${schema.role} may use no table`}><p>Choose another role, or grant this one privileges.</p><ChooseRole /></Notice>
      </div>
    );
  }
  return <Explorer schema={schema} />;
}

/** The number of problems of a table, without name clashes, which may be intended. */
function Mistakes({ table }: { table: Table }) {
  const count = table.problems?.filter(({ clash }) => !clash).length ?? 0;
  return count > 0 && <span className="badge" data-kind="warning">{count}<span className="visually-hidden"> problems</span></span>;
}

function Explorer({ schema }: { schema: Schema }) {
  const { project } = useSettings();
  const [text, setText] = useState("");
  const { table: chosen } = useParameters();
  const table = schema.tables.find((each) => labelOf(schema, each) === chosen);
  const selected = table ? idOf(table) : null;
  const drawing = useRef<SVGSVGElement>(null);
  const [near, setNear] = useState(false);
  const drawn = useMemo(() => (near && selected ? partOf(schema, neighbourhood(schema, selected)) : schema), [schema, near, selected]);
  const { placed, placing } = usePlaced(drawn);
  const [whole, setWhole] = useState(false);
  const found = useMemo(() => search(schema, text), [schema, text]);
  const ids = useMemo(() => new Set(found.map(idOf)), [found]);
  const select = (id: TableId | null) => {
    const next = schema.tables.find((each) => idOf(each) === id);
    setParameters({ table: next ? labelOf(schema, next) : "" });
  };
  const choose = (event: FormEvent) => {
    event.preventDefault();
    if (found[0]) select(idOf(found[0]));
  };
  const saveSvg = () => {
    flushSync(() => setWhole(true));
    save(`${project}.svg`, "image/svg+xml", asSvg(drawing.current!, placed.width, placed.height));
    setWhole(false);
  };
  return (
    <div className="schema-page columns" data-details={table ? "" : undefined}>
      <h1 className="visually-hidden">Schema</h1>
      <div className="tables">
        <form role="search" onSubmit={choose}>
          <input
            type="search"
            aria-label="Search tables and columns"
            placeholder="Search tables and columns"
            value={text}
            onChange={(event) => {
              setText(event.target.value);
              setParameters({ table: "" }, { replace: true });
            }}
          />
        </form>
        <label className="check">
          <input type="checkbox" checked={near} onChange={(event) => setNear(event.target.checked)} /> Neighbours only
        </label>
        <p className="hint" role="status">{found.length} of {schema.tables.length} tables, as {schema.role}</p>
        <ul>
          {found.map((each) => (
            <li key={idOf(each)}>
              <button type="button" aria-current={idOf(each) === selected || undefined} onClick={() => select(idOf(each))}>
                {labelOf(schema, each)}
                <Mistakes table={each} />
              </button>
            </li>
          ))}
        </ul>
        <div className="exports">
          <button type="button" className="button" disabled={placing} onClick={saveSvg}>
            Save as SVG
          </button>
          <button type="button" className="button" onClick={() => save(`${project}.mmd`, "text/plain", asMermaid(schema))}>
            Save as Mermaid
          </button>
        </div>
        {schema.problems && schema.problems.length > 0 && (
          <details>
            <summary>{schema.problems.length} problems elsewhere</summary>
            <Problems problems={schema.problems} />
          </details>
        )}
      </div>
      <Diagram
        schema={drawn}
        drawing={drawing}
        placed={placed}
        placing={placing}
        whole={whole}
        found={ids}
        selected={selected}
        focus={selected ?? (text.trim() && found[0] ? idOf(found[0]) : null)}
        onSelect={select}
      />
      {table && <Panel schema={schema} table={table} onSelect={select} />}
    </div>
  );
}
