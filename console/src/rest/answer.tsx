import { Fact, Terms } from "../kit/facts";
import { Notice } from "../kit/notice";
import { Advice } from "../shell/problem";
import { JsonView } from "./json-view";
import type { Answer } from "./send";

/** Maximum number of rows in a table. More would make the browser slow. */
const MOST_ROWS = 500;

/** A summary of the response. */
export function Outcome({ answer }: { answer: Answer }) {
  const { status, reason, milliseconds, bytes, range, total } = answer;
  return (
    <p className="outcome" role="status">
      <span className="badge" data-kind={status < 300 ? "good" : status < 500 ? "warning" : "error"}>{`${status} ${reason}`}</span>
      <span>{`${Math.round(milliseconds)} ms`}</span>
      <span>{sizeOf(bytes)}</span>
      {range && <span>{`rows ${range}`}</span>}
      {total !== null && <strong>{`${total.toLocaleString("en")} in total`}</strong>}
    </p>
  );
}

function sizeOf(bytes: number): string {
  return bytes < 1000 ? `${bytes} B` : `${(bytes / 1000).toLocaleString("en", { maximumFractionDigits: 1 })} kB`;
}

type Row = Record<string, unknown>;

/** The rows of a response, or null if it cannot be shown as a table. */
export function rowsOf({ json, status }: Answer): Row[] | null {
  const list = Array.isArray(json) ? (json as unknown[]) : status < 300 && isRow(json) ? [json] : [];
  return list.length > 0 && list.every(isRow) ? list : null;
}

const isRow = (value: unknown): value is Row => typeof value === "object" && value !== null && !Array.isArray(value);

/** ``directionOf`` returns null for columns that cannot be sorted. */
interface Sorting {
  directionOf: (name: string) => "" | "asc" | "desc" | null;
  sort: (name: string) => void;
}

const SORTED = { asc: "ascending", desc: "descending", "": "none" } as const;

/** ``before`` is the previous response of a live query. New rows are highlighted. */
export function AnswerTable({ answer, before, sorting }: { answer: Answer; before?: Answer | null; sorting?: Sorting | undefined }) {
  const rows = rowsOf(answer);
  if (!rows) return <Plain answer={answer} />;
  const known = before ? new Set((rowsOf(before) ?? []).map((row) => JSON.stringify(row))) : null;
  const changed = (row: Row) => (known && !known.has(JSON.stringify(row)) ? true : undefined);
  const names = [...new Set(rows.flatMap(Object.keys))];
  return (
    <>
      <div className="table-scroll" tabIndex={0} role="region" aria-label="Rows">
        <table className="table">
          <thead><tr>{names.map((name) => <Head key={name} name={name} numeric={rows.some((row) => typeof row[name] === "number")} sorting={sorting} />)}</tr></thead>
          <tbody>
            {rows.slice(0, MOST_ROWS).map((row, at) => (
              <tr key={at} data-changed={changed(row)}>{names.map((name) => <Cell key={name} value={row[name]} />)}</tr>
            ))}
          </tbody>
        </table>
      </div>
      {rows.length > MOST_ROWS && <p className="hint">{`The first ${MOST_ROWS} of ${rows.length} rows. See JSON for all.`}</p>}
    </>
  );
}

function Head({ name, numeric, sorting }: { name: string; numeric: boolean; sorting: Sorting | undefined }) {
  const direction = sorting?.directionOf(name) ?? null;
  const kind = numeric ? "number" : undefined;
  if (!sorting || direction === null) return <th scope="col" className={kind}>{name}</th>;
  return (
    <th scope="col" className={kind} aria-sort={SORTED[direction]}>
      <button type="button" className="sorter" onClick={() => sorting.sort(name)} title={`Sort by ${name}`}>{name}</button>
    </th>
  );
}

function Cell({ value }: { value: unknown }) {
  if (value === null || value === undefined) return <td className="soft">{value === null ? "null" : ""}</td>;
  if (typeof value === "number") return <td className="number">{String(value)}</td>;
  const text = typeof value === "string" ? value : JSON.stringify(value);
  return <td title={text.length > 40 ? text : undefined} className={typeof value === "string" ? undefined : "code"}>{text}</td>;
}

/** The raw response: an error, text, or nothing. */
function Plain({ answer }: { answer: Answer }) {
  const { json, status, text } = answer;
  if (status >= 300 && isRow(json) && typeof json.message === "string") {
    return (
      <Notice kind="error" title={json.message}>
        {[json.details, json.hint].filter(Boolean).map((each, at) => <p key={at}>{typeof each === "string" ? each : <code>{JSON.stringify(each)}</code>}</p>)}
        {json.code ? <p className="hint"><code>{String(json.code)}</code></p> : null}
        <Advice status={status} code={String(json.code ?? "")} />
      </Notice>
    );
  }
  if (text === "" || text === "[]") return <p className="soft nothing">{text ? "No rows." : "The response has no body."}</p>;
  return <AnswerText answer={answer} />;
}

export function AnswerText({ answer: { json, text } }: { answer: Answer }) {
  return json === undefined ? <pre className="json code" tabIndex={0} role="region" aria-label="Text">{text}</pre> : <JsonView text={text} />;
}

export function AnswerHeaders({ answer }: { answer: Answer }) {
  return (
    <div className="headers" tabIndex={0} role="region" aria-label="Headers">
      <Terms>{answer.headers.map(([name, value]) => <Fact key={name} name={name}><span className="code">{value}</span></Fact>)}</Terms>
    </div>
  );
}
