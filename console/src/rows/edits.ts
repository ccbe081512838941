/** Changes of a table that are not saved yet, and the requests that save them; pure. */
import { everything, quoted, targetOf } from "../rest/query";
import { pathOfTable } from "../rest/request";
import type { Column, Table } from "../schema/model";
import { asJson, condition, readable, type Row, type Value } from "./cells";

/** What is to become of one row. */
export interface Edit {
  /** What tells rows apart: the key of one that was read, a number of a new one. */
  id: string;
  kind: "change" | "insert" | "delete";
  /** The row as it was read; empty for a new one. */
  base: Row;
  /** The values that were given; a new row takes the default of every other column. */
  values: Row;
  problem: Conflict | null;
}

/** Why a row was not saved; ``now`` is what stands there meanwhile, where somebody else changed it. */
export interface Conflict {
  message: string;
  now?: Row;
}

/** The edits of a table, and what they were before each step. */
export interface History {
  edits: Edit[];
  past: Edit[][];
  /** How many rows were added, for their ids. */
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

/** Give a cell a value; ``undefined`` leaves it to the default of a new row.  What was read is no change. */
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

/** Leave a row as it is in the database. */
export function forget(history: History, id: string): History {
  return step(history, history.edits.filter((each) => each.id !== id));
}

/** Undo the last step. */
export function undo({ past, added }: History): History {
  return { edits: past.at(-1) ?? [], past: past.slice(0, -1), added };
}

/** Say of a row why it was not saved, and of no other. */
export function blame(history: History, id: string, problem: Conflict): History {
  return { ...history, edits: history.edits.map((each) => ({ ...each, problem: each.id === id ? problem : null })) };
}

/** Take what stands in the database now for what was read: the next save replaces it. */
export function insist(history: History, id: string): History {
  return step(history, history.edits.map((each) => (each.id === id ? { ...each, base: each.problem?.now ?? each.base, problem: null } : each)));
}

/** How many rows are to be inserted, changed and deleted, in words. */
export function counted(edits: Edit[]): string {
  const count = (kind: Edit["kind"], word: string) => {
    const found = edits.filter((each) => each.kind === kind).length;
    return found ? [`${found} ${word}`] : [];
  };
  return new Intl.ListFormat("en").format([...count("insert", "new"), ...count("change", "changed"), ...count("delete", "deleted")]);
}

/** What `select` and `and` have for the one row of an edit. */
export function keyConditions(table: Table, base: Row): string[] {
  return table.columns.filter(({ name }) => table.key.includes(name)).map((column) => condition(column, base[column.name] ?? null) ?? "");
}

/**
 * The batch that saves edits, as JSON.  Each request names its row by the key and by what was read of what it replaces, and is
 * refused unless it finds that one row: then nothing of the batch is done.
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

/** Characters of a value beyond which it is not compared: addresses have a limit. */
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
