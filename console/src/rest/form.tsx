import type { FormEvent } from "react";
import { Notice } from "../kit/notice";
import { useStore } from "../kit/store";
import type { Column, Schema, Table } from "../schema/model";
import { useSettings } from "../shell/settings";
import type { Callable } from "./description";
import { change, changeMethod, changeQuery, choose, draft } from "./draft";
import { Part } from "./part";
import { parseTarget, quoted, type Pair, type Query } from "./query";
import { ADDRESS, calledBy, hasBody, pathOfCall, pathOfTable, tableOf, writes, type Method, type Preferences } from "./request";
import { RowsEditor } from "./rows-editor";
import { sourceOf, type Source } from "./source";

/** Enter in a field of the form sends the request. */
function send(event: FormEvent): void {
  event.preventDefault();
  (document.getElementById(ADDRESS) as HTMLFormElement).requestSubmit();
}

const METHODS: Method[] = ["GET", "POST", "PATCH", "PUT", "DELETE"];
const TIME_ZONES = Intl.supportedValuesOf("timeZone");

interface FormProps {
  /** The tables of the chosen schema. */
  tables: Table[];
  functions: Callable[];
  schema: Schema | null;
  /** The available schemas. */
  schemas: string[];
}

/** The form for the request. It shows and changes the URL. */
export function Form({ tables, functions, schema, schemas }: FormProps) {
  const request = useStore(draft);
  const { path, query } = parseTarget(request.target);
  const called = calledBy(path);
  const func = functions.find((each) => each.name === called);
  const table = tables.find((each) => pathOfTable(each.name) === path);
  const offered = func?.methods ?? table?.rest.methods ?? METHODS;
  const source: Source = func ? ofFunction(func, tables) : sourceOf(table);
  const answers = called === null ? request.method === "GET" || request.prefer.returned === "representation" : !func || func.returnsRows;
  const open = (next: string) => {
    const found = functions.find((each) => pathOfCall(each.name) === next);
    const method = found && !found.methods.includes("GET") ? "POST" : "GET";
    const all = found ? ["*"] : sourceOf(tables.find((each) => pathOfTable(each.name) === next)).all;
    choose(next, method, all, { limited: found?.returnsRows ?? true, body: bodyFor(method, undefined, found) });
  };
  // Keep what was typed.
  const typed = request.body !== "" && request.body !== bodyFor(request.method, table, func);
  const bodyOf = (method: Method) => (typed ? request.body : bodyFor(method, table, func));
  return (
    <form className="builder panel" aria-label="Request" onSubmit={send}>
      {schemas.length > 1 && (
        <label className="field">
          <span>Schema</span>
          <select value={request.profile ?? schemas[0]} onChange={(event) => change({ profile: event.target.value === schemas[0] ? null : event.target.value, target: "" })}>
            {schemas.map((name) => <option key={name}>{name}</option>)}
          </select>
        </label>
      )}
      <label className="field">
        <span>Table or function</span>
        <select className="code" value={path} onChange={(event) => open(event.target.value)}>
          {!table && !func && <option value={path}>{tableOf(path) || "Choose…"}</option>}
          {tables.length > 0 && <optgroup label="Tables and views">{tables.map(({ name }) => <option key={name} value={pathOfTable(name)}>{name}</option>)}</optgroup>}
          {functions.length > 0 && <optgroup label="Functions">{functions.map(({ name }) => <option key={name} value={pathOfCall(name)}>{`${name}()`}</option>)}</optgroup>}
        </select>
      </label>
      <div className="segments methods" role="group" aria-label="Method">
        {METHODS.filter((method) => called === null || method === "GET" || method === "POST").map((method) => (
          <button type="button" key={method} aria-pressed={request.method === method} disabled={!offered.includes(method)} title={offered.includes(method) ? undefined : "Not permitted for this role"}
            onClick={() => changeMethod(method, bodyOf(method), (table?.key ?? []).map(quoted))}>{method}</button>
        ))}
      </div>
      {func && request.method === "GET" && <Arguments func={func} query={query} />}
      {hasBody(request) && <Body body={request.body} query={query} single={request.method === "PUT"} />}
      {(called === null || answers) && (request.method !== "POST" || answers) && (
        <RowsEditor rows={query.rows} source={source} schema={schema} reads={!writes(request)} filters={request.method !== "POST" || called !== null} answers={answers} label={called ?? tableOf(path)}
          onChange={(rows) => changeQuery((before) => ({ ...before, rows }))} />
      )}
      <Options query={query} />
      <button type="submit" hidden>Send</button>
    </form>
  );
}

/** The columns of the rows that a function returns. */
function ofFunction(func: Callable, tables: Table[]): Source {
  const table = tables.find((each) => each.name === func.table);
  return table ? sourceOf(table) : { columns: func.columns.map((name) => ({ name: quoted(name) })), all: ["*"], table: undefined };
}

/** An initial body with the required members, or with all. */
function bodyFor(method: Method, table: Table | undefined, func: Callable | undefined): string {
  if (func) return method === "POST" ? written(func.arguments.map(({ name, type }) => [name, valueOf(type)])) : "";
  if (!table || method === "GET" || method === "DELETE") return "";
  const may = table.columns.filter((each) => each.privileges.includes(method === "PATCH" ? "UPDATE" : "INSERT"));
  const isKey = ({ name }: Column) => table.key.includes(name);
  const must = may.filter((each) => !each.nullable && each.default === null && each.identity === null && !each.generated);
  const needed = method === "PUT" ? may.filter((each) => isKey(each) || must.includes(each)) : method === "POST" ? must : [];
  const chosen = needed.length > 0 ? needed : may.filter((each) => !isKey(each)).slice(0, 1);
  return written(chosen.map(({ name, type }) => [name, valueOf(type)]));
}

const written = (members: [string, unknown][]) => JSON.stringify(Object.fromEntries(members), null, 2);

function valueOf(type: string): unknown {
  if (/^(smallint|integer|bigint|real|double|numeric|int32|int64|number)/.test(type)) return 0;
  if (type === "boolean") return false;
  if (type.endsWith("]") || type === "array") return [];
  return "";
}

function Arguments({ func, query }: { func: Callable; query: Query }) {
  if (func.arguments.length === 0) return null;
  const set = (name: string, value: string) =>
    changeQuery((before) => {
      const others = before.others.filter(([other]) => other !== name);
      return { ...before, others: value === "" ? others : [...others, [name, value] as Pair] };
    });
  return (
    <Part title="Arguments">
      {func.arguments.map(({ name, type, required }) => (
        <label className="field" key={name}>
          <span><code>{name}</code> {type}{required ? "" : ", optional"}</span>
          <input className="code" spellCheck={false} value={query.others.find(([other]) => other === name)?.[1] ?? ""} onChange={(event) => set(name, event.target.value)} />
        </label>
      ))}
    </Part>
  );
}

export function isJson(text: string): boolean {
  try {
    JSON.parse(text);
    return true;
  } catch {
    return false;
  }
}

function Body({ body, query, single }: { body: string; query: Query; single: boolean }) {
  const valid = isJson(body);
  const names = membersOf(body);
  const differ = names.length > 0 && !query.others.some(([name]) => name === "columns");
  const nameThem = () => changeQuery((before) => ({ ...before, others: [...before.others, ["columns", names.map(quoted).join(",")]] }));
  return (
    <>
      <label className="field">
        <span>Body, as JSON</span>
        <textarea className="code" rows={6} value={body} spellCheck={false} aria-invalid={!valid} onChange={(event) => change({ body: event.target.value })} />
        <small>{valid ? (single ? "An object with the whole row, including its key." : "An object, or a list of objects.") : "This is not valid JSON."}</small>
      </label>
      {differ && (
        <Notice kind="info">
          The objects have different members, so <code>columns</code> must list them. <button type="button" className="button" onClick={nameThem}>List them</button>
        </Notice>
      )}
    </>
  );
}

/** All members of the objects, or none if every object has the same members. */
function membersOf(body: string): string[] {
  const list: unknown = isJson(body) ? JSON.parse(body) : null;
  const each = (Array.isArray(list) ? list : []).map((row) => Object.keys((row as object | null) ?? {}));
  const all = [...new Set(each.flat())];
  return each.some((names) => names.length < all.length) ? all : [];
}

function Options({ query }: { query: Query }) {
  const { transactionEnd } = useSettings();
  const request = useStore(draft);
  const { method, prefer } = request;
  const set = (part: Partial<Preferences>) => change({ prefer: { ...prefer, ...part } });
  const conflict = query.others.find(([name]) => name === "on_conflict")?.[1] ?? "";
  const setConflict = (value: string) =>
    changeQuery((before) => {
      const others = before.others.filter(([name]) => name !== "on_conflict");
      return { ...before, others: value ? [...others, ["on_conflict", value]] : others };
    });
  const inserts = writes(request) && method === "POST";
  return (
    <Part title="Preferences">
      <div className="options">
        <label className="field">
          <span>Count all rows</span>
          <select value={prefer.count} onChange={(event) => set({ count: event.target.value as Preferences["count"] })}>
            <option value="">no</option>
            <option value="exact">exact</option>
            <option value="planned">planned, an estimate</option>
            <option value="estimated">estimated, exact if few</option>
          </select>
        </label>
        {writes(request) && (
          <label className="field">
            <span>Return</span>
            <select value={prefer.returned} onChange={(event) => set({ returned: event.target.value as Preferences["returned"] })}>
              <option value="">nothing (minimal)</option>
              <option value="representation">the rows (representation)</option>
              <option value="headers-only">their address (headers-only)</option>
            </select>
          </label>
        )}
        {inserts && (
          <>
            <label className="field">
              <span>Existing rows</span>
              <select value={prefer.resolution} onChange={(event) => set({ resolution: event.target.value as Preferences["resolution"] })}>
                <option value="">are an error</option>
                <option value="merge-duplicates">are updated (merge)</option>
                <option value="ignore-duplicates">are kept (ignore)</option>
              </select>
            </label>
            {prefer.resolution && (
              <label className="field"><span>Conflict columns</span><input className="code" value={conflict} placeholder="the primary key" spellCheck={false} onChange={(event) => setConflict(event.target.value)} /></label>
            )}
            <label className="field">
              <span>Missing members</span>
              <select value={prefer.missing} onChange={(event) => set({ missing: event.target.value as Preferences["missing"] })}>
                <option value="">are null</option>
                <option value="default">use the default</option>
              </select>
            </label>
          </>
        )}
        {(method === "PATCH" || method === "DELETE") && (
          <label className="field"><span>Maximum rows</span><input type="number" min={0} value={prefer.maxAffected} placeholder="any number" onChange={(event) => set({ maxAffected: event.target.value })} /></label>
        )}
        {transactionEnd && method !== "GET" && (
          <label className="field">
            <span>Transaction</span>
            <select value={prefer.tx} onChange={(event) => set({ tx: event.target.value as Preferences["tx"] })}>
              <option value="">{transactionEnd === "commit" ? "commit, as configured" : "roll back, as configured"}</option>
              <option value="commit">commit</option>
              <option value="rollback">roll back (dry run)</option>
            </select>
          </label>
        )}
        <label className="field">
          <span>Time zone</span>
          <input value={prefer.timezone} placeholder="the database's" list="time-zones" spellCheck={false} onChange={(event) => set({ timezone: event.target.value.trim() })} />
          <datalist id="time-zones">{TIME_ZONES.map((name) => <option key={name}>{name}</option>)}</datalist>
        </label>
      </div>
    </Part>
  );
}
