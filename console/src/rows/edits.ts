/** Unsaved changes of a table, and the requests that save them. */
import { everything, quoted, targetOf } from "../rest/query";
import { pathOfTable } from "../rest/request";
import type { Column, Table } from "../schema/model";
import { asJson, condition, readable, type Row, type Value } from "./cells";

/** A pending change of a row. */
export interface Edit {
  /** The key of an existing row, or a number for a new one. */
  id: string;
  kind: "change" | "insert" | "delete";
  /** The row as it was read. Empty for a new row. */
  base: Row;
  /** The changed values. In a new row, other columns get their defaults. */
  values: Row;
  problem: Conflict | null;
}

/** Why a row was not saved. ``now`` is the current row if someone else has changed it. */
export interface Conflict {
  message: string;
  now?: Row;
}

/** The edits of a table, with an undo history. */
export interface History {
  edits: Edit[];
  past: Edit[][];
  /** Number of added rows, for their ids. */
  added: number;
}

export const NOTHING: History = { edits: [], past: [], added: 0 };

export const idOfRow = (table: Table, row: Row): string => JSON.stringify(table.key.map((name) => row[name] ?? null));

function step(history: History, edits: Edit[]): History {
  return { ...history, edits, past: [...history.past, history.edits] };
}

function put(edits: Edit[], edit: Edit): Edit[] {
  return edits.some(({ id }) => id === edit.id) ? edits.map((each) => (each.id === edit.id ? edit : each)) : [...edits, edit];
}

/** Set a cell. ``undefined`` means the default of a new row. Setting the value that was read removes the change. */
export function give(history: History, row: { id: string; base: Row }, name: string, value: Value | undefined): History {
  const found = history.edits.find(({ id }) => id === row.id);
  const edit: Edit = { ...(found ?? { id: row.id, kind: "change", base: row.base, values: {} }), problem: null };
  const { [name]: _before, ...others } = edit.values;
  const same = edit.kind === "insert" ? value === undefined : value === edit.base[name];
  const values = same || value === undefined ? others : { ...others, [name]: value };
  if (edit.kind === "change" && Object.keys(values).length === 0) return found ? forget(history, edit.id) : history;
  return step(history, put(history.edits, { ...edit, values }));
}

export function add(history: History): History {
  const edit: Edit = { id: `new ${history.added}`, kind: "insert", base: {}, values: {}, problem: null };
  return { ...step(history, [edit, ...history.edits]), added: history.added + 1 };
}

export function remove(history: History, { id, base }: { id: string; base: Row }): History {
  const found = history.edits.find((each) => each.id === id);
  return step(history, put(history.edits, { id, base: found?.base ?? base, kind: "delete", values: {}, problem: null }));
}

/** Discard the changes of a row. */
export function forget(history: History, id: string): History {
  return step(history, history.edits.filter((each) => each.id !== id));
}

/** Undo the last step. */
export function undo({ past, added }: History): History {
  return { edits: past.at(-1) ?? [], past: past.slice(0, -1), added };
}

/** Mark one row with the reason why it was not saved, and clear all others. */
export function blame(history: History, id: string, problem: Conflict): History {
  return { ...history, edits: history.edits.map((each) => ({ ...each, problem: each.id === id ? problem : null })) };
}

/** Accept the current row in the database as the base, so that the next save overwrites it. */
export function insist(history: History, id: string): History {
  return step(history, history.edits.map((each) => (each.id === id ? { ...each, base: each.problem?.now ?? each.base, problem: null } : each)));
}

/** Summarize the number of new, changed and deleted rows. */
export function counted(edits: Edit[]): string {
  const count = (kind: Edit["kind"], word: string) => {
    const found = edits.filter((each) => each.kind === kind).length;
    return found ? [`${found} ${word}`] : [];
  };
  return new Intl.ListFormat("en").format([...count("insert", "new"), ...count("change", "changed"), ...count("delete", "deleted")]);
}

/** The conditions that identify the row of an edit. */
export function keyConditions(table: Table, base: Row): string[] {
  return table.columns.filter(({ name }) => table.key.includes(name)).map((column) => condition(column, base[column.name] ?? null) ?? "");
}

/**
 * The batch that saves edits, as JSON. Each request identifies its row by the key and by the old values of the changed columns.
 * If a request does not match exactly one row, the whole batch fails and nothing changes.
 */
export function batchOf(table: Table, edits: Edit[]): string {
  return `{"requests":[${edits.map((edit) => requestOf(table, edit)).join(",")}]}`;
}

const METHODS = { insert: "POST", change: "PATCH", delete: "DELETE" };

function requestOf(table: Table, edit: Edit): string {
  const given = table.columns.filter(({ name }) => name in edit.values);
  const path = `/${pathOfTable(table.rest.name)}`;
  const profile: Record<string, string> = table.rest.profile ? { "Content-Profile": table.rest.profile } : {};
  const body = `{${given.map((column) => `${JSON.stringify(column.name)}:${asJson(column, edit.values[column.name] ?? null)}`).join(",")}}`;
  const method = JSON.stringify(METHODS[edit.kind]);
  if (edit.kind === "insert") {
    const headers = { ...profile, Prefer: "return=minimal" };
    return `{"method":${method},"path":${JSON.stringify(path)},"headers":${JSON.stringify(headers)},"body":${body}}`;
  }
  const replaced = edit.kind === "delete" ? readable(table) : given;
  const target = targetOf(path, { rows: only(table, conditions(table, edit.base, replaced)), others: [] });
  const headers = { ...profile, Prefer: "return=representation", Accept: "application/vnd.pgrst.object+json" };
  const sent = edit.kind === "delete" ? "" : `,"body":${body}`;
  return `{"method":${method},"path":${JSON.stringify(target)},"headers":${JSON.stringify(headers)}${sent}}`;
}

/** Maximum length of values that are compared, because URLs have a limit. */
const LONGEST_COMPARED = 4000;

function conditions(table: Table, base: Row, replaced: Column[]): string[] {
  const others = replaced.filter(({ name }) => !table.key.includes(name) && name in base && (base[name]?.length ?? 0) <= LONGEST_COMPARED);
  return [...keyConditions(table, base), ...others.flatMap((column) => condition(column, base[column.name] ?? null) ?? [])];
}

const only = (table: Table, all: string[]) => ({
  ...everything(),
  columns: table.key.map(quoted),
  logic: [{ word: "and" as const, negated: false, text: `(${all.join(",")})` }],
});
