import { useCallback, useEffect, useState } from "react";
import { useStore } from "../kit/store";
import { everything, targetOf, type Rows } from "../rest/query";
import { EMPTY, NO_PREFERENCES, pathOfTable, REST, type Draft } from "../rest/request";
import { send, type Answer } from "../rest/send";
import type { Schema, Table } from "../schema/model";
import { save as download } from "../schema/export";
import { identity, identityHeaders, type Identity } from "../shell/identity";
import { asCsv, asked, type View } from "./address";
import { withoutFormulas } from "./csv";
import { readable, selected, valueOf, type Row, type Value } from "./cells";
import { batchOf, keyConditions, type Conflict, type Edit } from "./edits";
import { referencesOf } from "./references";

/** An existing row, with labels of referenced rows by foreign key columns. */
export interface Found {
  row: Row;
  labels: Row;
}

interface Loaded {
  /** The query of the rows, so that outdated rows are not shown. */
  table: Table;
  answer: Answer;
  rows: Found[];
}

const draftFor = (table: Table, rows: Rows): Draft => ({ ...EMPTY, target: targetOf(pathOfTable(table.rest.name), { rows, others: [] }), profile: table.rest.profile });

/** The rows of a view, and a function that reloads them. */
export function useRows(schema: Schema, table: Table, view: View): { loaded: Loaded | null; problem: Error | null; loading: boolean; reload: () => void } {
  const who = useStore(identity);
  const [round, setRound] = useState(0);
  const [loaded, setLoaded] = useState<Loaded | null>(null);
  const [problem, setProblem] = useState<Error | null>(null);
  const [loading, setLoading] = useState(true);
  useEffect(() => {
    const controller = new AbortController();
    setLoading(true);
    const draft = { ...draftFor(table, asked(schema, table, view)), prefer: { ...NO_PREFERENCES, count: view.count } };
    send(draft, who, "application/json", controller.signal).then(
      (answer) => {
        setLoaded({ table, answer, rows: foundIn(schema, table, answer) });
        setProblem(null);
        setLoading(false);
      },
      (error: Error) => {
        if (controller.signal.aborted) return;
        setProblem(error);
        setLoading(false);
      },
    );
    return () => controller.abort();
  }, [schema, table, view, who, round]);
  const reload = useCallback(() => setRound((before) => before + 1), []);
  return { loaded: loaded?.table === table ? loaded : null, problem, loading, reload };
}

function foundIn(schema: Schema, table: Table, { json, status }: Answer): Found[] {
  if (status >= 300 || !Array.isArray(json)) return [];
  const references = referencesOf(schema, table);
  return (json as Record<string, unknown>[]).map((answered) => ({
    row: rowOf(table, answered),
    labels: Object.fromEntries(references.flatMap(({ column, label }) => {
      const related = label && (answered[label.alias] as { label: Value } | null);
      return related ? [[column, related.label]] : [];
    })),
  }));
}

const rowOf = (table: Table, answered: Record<string, unknown>): Row =>
  Object.fromEntries(readable(table).map(({ name }) => [name, valueOf(answered[name])]));

/** The result of saving. Nothing was saved if it contains an edit or a message. */
export type Saved = { done: true } | { done: false; edit: Edit | null; conflict: Conflict; answer: Answer };

/** Save all edits in one transaction. */
export async function saveEdits(schema: Schema, table: Table, edits: Edit[], who: Identity): Promise<Saved> {
  const headers = { "Content-Type": "application/vnd.dataapi.batch+json", Accept: "application/json", ...identityHeaders(who) };
  const response = await fetch(REST, { method: "POST", headers, body: batchOf(table, edits), cache: "no-store" });
  if (response.ok) return { done: true };
  const text = await response.text();
  const said = (tried(text) ?? {}) as { code?: string; message?: string; details?: string | null; hint?: string | null; index?: number };
  const edit = said.index === undefined ? null : (edits[said.index] ?? null);
  const words = [said.message ?? `The daemon responded with status ${response.status}.`, said.details, said.hint].filter((each): each is string => typeof each === "string");
  const answer: Answer = { status: response.status, reason: response.statusText, milliseconds: 0, bytes: text.length, headers: [], text, json: said, range: null, total: null };
  const conflict = edit && said.code === NOT_ONE ? await conflictOf(schema, table, edit, who) : { message: words.map((each) => each.trim()).join("\n") };
  return { done: false, edit, conflict, answer };
}

/** The error code if a request does not match exactly one row. */
const NOT_ONE = "PGRST116";

function tried(text: string): unknown {
  try {
    return JSON.parse(text);
  } catch {
    return null;
  }
}

/** Return why the row of an edit no longer has the values that were read. */
async function conflictOf(schema: Schema, table: Table, edit: Edit, who: Identity): Promise<Conflict> {
  const logic = [{ word: "and" as const, negated: false, text: `(${keyConditions(table, edit.base).join(",")})` }];
  const rows = { ...everything(), columns: readable(table).map(selected), logic, limit: "2" };
  const { json } = await send(draftFor(table, rows), who, "application/json", new AbortController().signal);
  const [answered] = Array.isArray(json) ? (json as Record<string, unknown>[]) : [];
  if (!answered) return { message: "This row was deleted, or is no longer visible to this role." };
  const now = rowOf(table, answered);
  const looked = edit.kind === "delete" ? Object.keys(edit.base) : Object.keys(edit.values);
  const changed = looked.filter((name) => name in now && now[name] !== edit.base[name]);
  if (changed.length === 0) return { message: `A policy does not let ${schema.role} ${edit.kind} this row.` };
  return { message: `This row was changed in the meantime: ${changed.map((name) => `${name} is now ${inShort(now[name] ?? null)}`).join(", ")}.`, now };
}

function inShort(value: Value): string {
  if (value === null) return "null";
  return `“${value.length > 60 ? `${value.slice(0, 60)}…` : value}”`;
}

/** Save the filtered rows as a CSV file. Return a warning if it is incomplete, or "". */
export async function saveCsv(schema: Schema, table: Table, view: View, who: Identity): Promise<string> {
  const rows = asCsv(table, asked(schema, table, view));
  const signal = new AbortController().signal;
  const answer = await send(draftFor(table, rows), who, "text/csv", signal);
  if (answer.status >= 300) throw new Error((tried(answer.text) as { message?: string } | null)?.message ?? `The daemon responded with status ${answer.status}.`);
  download(`${table.name}.csv`, "text/csv", withoutFormulas(answer.text));
  // Streamed responses have no row count and no limit.
  if (answer.range === null) return "";
  const counted = await send({ ...draftFor(table, { ...rows, limit: "1" }), prefer: { ...NO_PREFERENCES, count: "exact" } }, who, "application/json", signal);
  const has = Number(answer.range.split("-")[1]) + 1;
  return counted.total !== null && counted.total > has ? `The daemon limits responses: the file contains only the first ${has.toLocaleString("en")} of ${counted.total.toLocaleString("en")} rows.` : "";
}
