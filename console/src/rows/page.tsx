import { useEffect, useMemo, useState, type FormEvent } from "react";
import { useData } from "../kit/data";
import { Notice } from "../kit/notice";
import { useStore } from "../kit/store";
import { AnswerTable } from "../rest/answer";
import { Filters } from "../rest/filters";
import { pagesOf } from "../rest/paging";
import { everything } from "../rest/query";
import type { Answer } from "../rest/send";
import { sourceOf } from "../rest/source";
import { idOf, labelOf, type Schema, type Table } from "../schema/model";
import { ChooseRole } from "../shell/choose-role";
import { identity } from "../shell/identity";
import { Problem } from "../shell/problem";
import { setParameters, useParameters } from "../shell/router";
import { filtered, opened, SIZES, sorted, viewOf, type View } from "./address";
import { refusal } from "./cells";
import { add, blame, counted, forget, give, idOfRow, insist, NOTHING, remove, undo, type History } from "./edits";
import { Grid, type Actions, type Line } from "./grid";
import { saveCsv, saveEdits, useRows, type Found, type Saved } from "./load";
import { change, usePending } from "./pending";
import "../rest/rest.css";
import "./rows.css";

export default function RowsPage() {
  const { data: schema, problem } = useData<Schema>("schema");
  const { table: named } = useParameters();
  if (problem) return <div className="page"><Problem title="The tables cannot be listed" error={problem} /></div>;
  if (!schema) return <div className="waiting" role="status">Loading…</div>;
  const tables = schema.tables.filter(({ rest }) => rest.methods.includes("GET"));
  const table = named ? tables.find((each) => labelOf(schema, each) === named) : tables[0];
  return (
    <div className="rows-page">
      <h1 className="visually-hidden">Rows</h1>
      {table ? <Browser key={idOf(table)} schema={schema} tables={tables} table={table} /> : (
        <Notice kind="info" title={named ? `${schema.role} may read no table ${named}` : `${schema.role} may read no table`}>
          <p>Choose another role{tables.length > 0 && " or another table"}, or grant this one privileges.</p>
          <div className="bar"><ChooseRole />{tables.length > 0 && <Tables schema={schema} tables={tables} table={null} />}</div>
        </Notice>
      )}
    </div>
  );
}

type TablesProps = { schema: Schema; tables: Table[]; table: Table | null };

function Tables({ schema, tables, table }: TablesProps) {
  const pending = usePending();
  const open = (id: string) => setParameters(opened(schema, tables.find((each) => idOf(each) === id)!));
  return (
    <select className="code table-choice" aria-label="Table" value={table ? idOf(table) : ""} onChange={(event) => open(event.target.value)}>
      {!table && <option value="">Choose…</option>}
      {tables.map((each) => {
        const count = pending[idOf(each)]?.edits.length;
        return <option key={idOf(each)} value={idOf(each)}>{labelOf(schema, each)}{count ? ` (${count} pending)` : ""}</option>;
      })}
    </select>
  );
}

/** The rows of a table, with pending changes. */
function Browser({ schema, tables, table }: TablesProps & { table: Table }) {
  const parameters = useParameters();
  const view = useMemo(() => viewOf(parameters), [parameters]);
  const { loaded, problem, loading, reload } = useRows(schema, table, view);
  const id = idOf(table);
  const history = usePending()[id] ?? NOTHING;
  const [filtering, setFiltering] = useState(view.filters.filters.length + view.filters.logic.length > 0);
  const columns = useMemo(() => table.columns.filter(({ privileges }) => privileges.includes("SELECT") || privileges.includes("INSERT")), [table]);
  const rows = loaded?.rows;
  const lines = useMemo(() => linesOf(table, rows ?? [], history, Number(view.offset)), [table, rows, history, view]);
  const actions = useMemo<Actions>(() => ({
    give: (line, name, value) => change(id, (before) => give(before, { id: line.id, base: line.found.row }, name, value)),
    remove: (line) => change(id, (before) => remove(before, { id: line.id, base: line.found.row })),
    forget: (line) => {
      change(id, (before) => forget(before, line.id));
      if (line.edit?.problem?.now) reload();
    },
    insist: (line) => change(id, (before) => insist(before, line.id)),
    sort: (name) => setParameters(sorted(view, name)),
  }), [id, view, reload]);
  const count = view.filters.filters.length + view.filters.logic.length;
  const whyNoInsert = refusal(schema, table, "INSERT");
  const refused = loaded && loaded.answer.status >= 300;
  return (
    <>
      <div className="bar tools">
        <Tables schema={schema} tables={tables} table={table} />
        <button type="button" className="button" aria-expanded={filtering} onClick={() => setFiltering(!filtering)}>Filter{count > 0 && <span className="badge" data-kind="good">{count}</span>}</button>
        <button type="button" className="button" disabled={whyNoInsert !== ""} title={whyNoInsert || undefined} onClick={() => change(id, add)}>Add a row</button>
        <SaveCsv schema={schema} table={table} view={view} />
        <button type="button" className="button" onClick={reload} aria-busy={loading}>Refresh</button>
        {loaded && !refused && <Pager view={view} answer={loaded.answer} />}
      </div>
      {table.comment && <p className="hint comment">{table.comment}</p>}
      {filtering && <FilterForm key={parameters.filter ?? ""} table={table} view={view} />}
      <PendingBar schema={schema} table={table} history={history} onSaved={reload} />
      {problem && <Problem title="The rows cannot be read" error={problem} />}
      {refused ? <section className="results panel"><AnswerTable answer={loaded.answer} /></section> : (
        <div className="panel grid-scroll" aria-busy={loading}>
          {loaded || lines.length > 0 ? <Grid {...{ schema, table, columns, view, lines, actions }} /> : !problem && <div className="waiting" role="status">Loading…</div>}
          {loaded && lines.length === 0 && <p className="soft no-rows">{count > 0 ? "No rows match the filters." : Number(view.offset) > 0 ? "This page has no rows." : "There are no rows, or policies hide them."}</p>}
        </div>
      )}
      <p className="hint keys">Arrow keys move, Enter edits, Escape cancels, Delete sets null. Ctrl+Enter opens the referenced row.</p>
    </>
  );
}

/** New rows, changed rows of other pages, and the rows of this page. */
function linesOf(table: Table, rows: Found[], { edits }: History, offset: number): Line[] {
  const byId = new Map(edits.map((edit) => [edit.id, edit]));
  const keyed = table.key.length > 0;
  const own = rows.map((found, index): Line => {
    const id = keyed ? idOfRow(table, found.row) : `row ${index}`;
    return { id, number: offset + index + 1, found, edit: byId.get(id) };
  });
  const shown = new Set(own.map(({ id }) => id));
  const others = edits.filter(({ id }) => !shown.has(id)).map((edit): Line => ({ id: edit.id, number: null, found: { row: edit.base, labels: {} }, edit }));
  return [...others, ...own];
}

/** The filter form. Filters are stored in the URL when applied. */
function FilterForm({ table, view }: { table: Table; view: View }) {
  const [draft, setDraft] = useState({ ...everything(), ...view.filters });
  const applied = JSON.stringify(view.filters) === JSON.stringify({ filters: draft.filters, logic: draft.logic });
  const apply = (event: FormEvent) => {
    event.preventDefault();
    setParameters(filtered(draft));
  };
  return (
    <form className="builder panel filter-form" aria-label="Filters" onSubmit={apply}>
      <Filters rows={draft} source={sourceOf(table)} label={table.name} onChange={(part) => setDraft({ ...draft, ...part })} />
      <div className="bar"><button type="submit" className="button primary" disabled={applied}>Apply</button></div>
    </form>
  );
}

function Pager({ view, answer }: { view: View; answer: Answer }) {
  const total = view.count === "exact" ? answer.total : null;
  const { previous, next } = pagesOf(view, { range: answer.range, total });
  const [first, last] = (answer.range ?? "").split("-").map((each) => (Number(each) + 1).toLocaleString("en"));
  const all = answer.total === null ? "" : ` of ${view.count === "exact" ? "" : "about "}${answer.total.toLocaleString("en")}`;
  return (
    <div className="pager">
      <span className="hint" role="status">{answer.range ? `${first} to ${last}${all}` : `0${all}`}</span>
      <select aria-label="How rows are counted" value={view.count} onChange={(event) => setParameters({ count: event.target.value === "exact" ? "" : event.target.value })}>
        <option value="exact">exact count</option>
        <option value="planned">estimated</option>
      </select>
      <select aria-label="Rows of a page" value={view.limit} onChange={(event) => setParameters({ limit: event.target.value, offset: "" })}>
        {SIZES.map((size) => <option key={size} value={size}>{`${size} rows`}</option>)}
      </select>
      <nav aria-label="Pages of rows" className="turns">
        <button type="button" className="button" disabled={previous === null} onClick={() => setParameters({ offset: previous! })}>Previous</button>
        <button type="button" className="button" disabled={next === null} onClick={() => setParameters({ offset: next! })}>Next</button>
      </nav>
    </div>
  );
}

function SaveCsv({ schema, table, view }: { schema: Schema; table: Table; view: View }) {
  const [said, setSaid] = useState("");
  const [busy, setBusy] = useState(false);
  useEffect(() => setSaid(""), [view]);
  const save = async () => {
    setBusy(true);
    setSaid(await saveCsv(schema, table, view, identity.get()).catch((error: Error) => `The file could not be saved: ${error.message}`));
    setBusy(false);
  };
  return (
    <>
      <button type="button" className="button" aria-busy={busy} disabled={busy} onClick={() => void save()}>{busy ? "Saving…" : "Save as CSV"}</button>
      {said && <span className="csv-note" role="alert">{said}</span>}
    </>
  );
}

/** Maximum number of requests in a batch. */
const MOST = 100;

type PendingProps = { schema: Schema; table: Table; history: History; onSaved: () => void };

/** The bar for saving or discarding pending changes. */
function PendingBar({ schema, table, history, onSaved }: PendingProps) {
  const who = useStore(identity);
  const [busy, setBusy] = useState(false);
  const [said, setSaid] = useState<{ edits: History["edits"]; saved: Saved | Error; done: string } | null>(null);
  const { edits, past } = history;
  const id = idOf(table);
  const save = async () => {
    setBusy(true);
    const saved = await saveEdits(schema, table, edits, who).catch((error: Error) => error);
    setBusy(false);
    setSaid({ edits, saved, done: counted(edits) });
    if (saved instanceof Error) return;
    if (saved.done) {
      // Keep changes that were made while saving.
      change(id, (now) => ({ ...NOTHING, edits: now.edits.filter((each) => !edits.includes(each)), added: now.added }));
      onSaved();
    } else if (saved.edit) change(id, (now) => blame(now, saved.edit!.id, saved.conflict));
  };
  useEffect(() => {
    const onKey = (event: KeyboardEvent) => {
      if (!(event.ctrlKey || event.metaKey) || event.target instanceof HTMLInputElement || event.target instanceof HTMLTextAreaElement) return;
      if (event.key === "s" && edits.length > 0 && !busy) void save();
      else if (event.key === "z" && past.length > 0) change(id, undo);
      else return;
      event.preventDefault();
    };
    addEventListener("keydown", onKey);
    return () => removeEventListener("keydown", onKey);
  });
  if (edits.length === 0) return <p className="saved hint" role="status">{said && !(said.saved instanceof Error) && said.saved.done ? `Saved: ${said.done}.` : ""}</p>;
  const failed = said?.saved;
  return (
    <div className="pending" role="group" aria-label="Pending changes">
      <p role="status"><strong>{edits.length === 1 ? "1 row" : `${edits.length} rows`} pending</strong>: {counted(edits)}</p>
      <span className="actions">
        <button type="button" className="button" disabled={past.length === 0} onClick={() => change(id, undo)}>Undo</button>
        <button type="button" className="button" onClick={() => change(id, (now) => ({ ...now, edits: [], past: [...now.past, now.edits] }))}>Discard all</button>
        <button type="button" className="button primary" disabled={busy || edits.length > MOST} aria-busy={busy} onClick={() => void save()}>{busy ? "Saving…" : "Save"}</button>
      </span>
      {edits.length > MOST && <p className="note">At most {MOST} rows can be saved together. Undo some changes.</p>}
      {failed && <SaveProblem saved={failed} />}
    </div>
  );
}

function SaveProblem({ saved }: { saved: Saved | Error }) {
  if (saved instanceof Error) return <div className="note" role="alert">Nothing was saved: the daemon could not be reached, or did not answer. {saved.message}</div>;
  if (saved.done) return null;
  return saved.edit ? <p className="note">Nothing was saved, because one row was rejected. See the message at the row.</p> : <div className="note"><p>Nothing was saved.</p><AnswerTable answer={saved.answer} /></div>;
}
