/**
 * Values of cells: PostgreSQL's own text of each, null for NULL, and JSON for arrays.  Numbers of any size, times and
 * bytes are thus what the database says, and go back as they came.  Pure.
 */
import { sentence } from "../kit/words";
import { quoted, type Filter } from "../rest/query";
import type { Column, Schema, Table } from "../schema/model";

export type Value = string | null;
/** A row by the names of its columns. */
export type Row = Record<string, Value>;

/** How a column is shown and edited. */
export type Form = "text" | "boolean" | "number" | "json" | "array" | "bytes" | "other";

export function formOf({ type }: Column): Form {
  if (type.endsWith("]")) return "array";
  if (/^jsonb?$/.test(type)) return "json";
  if (type === "bytea") return "bytes";
  if (type === "boolean") return "boolean";
  if (/^(smallint|integer|bigint|real|double|numeric)/.test(type)) return "number";
  return /^(text|character|citext|name\b)/.test(type) ? "text" : "other";
}

/** What `select` has for a column. */
export function selected(column: Column): string {
  return formOf(column) === "array" ? quoted(column.name) : `${quoted(column.name)}::text`;
}

/** A value as the answer to ``selected`` has it. */
export function valueOf(answered: unknown): Value {
  if (answered === null || answered === undefined) return null;
  return typeof answered === "string" ? answered : JSON.stringify(answered);
}

/** What is wrong with a text as a value of a column, "" for nothing that could be told here. */
export function mistakeIn(column: Column, text: string): string {
  const form = formOf(column);
  if (form === "bytes") return /^\\x([0-9a-f]{2})*$/i.test(text) ? "" : "Bytes are written in hexadecimal, such as \\x00ff.";
  if (form !== "json" && form !== "array") return "";
  try {
    const read: unknown = JSON.parse(text);
    return form === "array" && !Array.isArray(read) ? 'An array is written as a JSON list, such as ["a", "b"].' : "";
  } catch (error) {
    return sentence(`This is no JSON: ${(error as Error).message}`);
  }
}

/** A value as JSON for the body of a request. */
export function asJson(column: Column, value: Value): string {
  const form = formOf(column);
  if (value === null) return "null";
  return form === "json" || form === "array" ? value : JSON.stringify(value);
}

/** Types without an operator `=`, or whose `=` compares something else than the whole. */
const INCOMPARABLE = /^(json|xml|point|line|lseg|box|path|polygon|circle)\b(?!b)/;

/** The condition, as in `and=(…)`, that a column has a value; null where PostgreSQL cannot compare such values. */
export function condition(column: Column, value: Value): string | null {
  const name = quoted(column.name);
  if (value === null) return `${name}.is.null`;
  if (INCOMPARABLE.test(column.type) || (formOf(column) === "array" && column.type.startsWith("json"))) return null;
  const text = formOf(column) === "array" ? literal(JSON.parse(value)) : value;
  return `${name}.eq."${text.replace(/["\\]/g, "\\$&")}"`;
}

/** A list as PostgreSQL writes arrays. */
function literal(item: unknown): string {
  if (item === null) return "NULL";
  if (Array.isArray(item)) return `{${item.map(literal).join(",")}}`;
  const text = typeof item === "object" ? JSON.stringify(item) : String(item);
  return `"${text.replace(/["\\]/g, "\\$&")}"`;
}

const KINDS: Record<string, string> = { view: "view", materialized_view: "materialized view" };

/** Why rows of a table cannot be changed, inserted or deleted by a role, "" if they can. */
export function refusal({ role }: Schema, table: Table, verb: "UPDATE" | "INSERT" | "DELETE"): string {
  const done = { UPDATE: "changed", INSERT: "inserted", DELETE: "deleted" }[verb];
  if (!table.accepts.includes(verb)) return `Rows of this ${KINDS[table.kind] ?? "table"} cannot be ${done}.`;
  if (verb !== "INSERT" && !canName(table)) return `Rows without a primary key that ${role} may read cannot be ${done} one by one.`;
  const method = { UPDATE: "PATCH", INSERT: "POST", DELETE: "DELETE" }[verb];
  return table.rest.methods.includes(method) ? "" : `${role} has no grant by which rows could be ${done}.`;
}

const canName = (table: Table) => table.key.length > 0 && table.key.every((name) => readable(table).some((each) => each.name === name));

/** The columns that a role may read. */
export const readable = (table: Table): Column[] => table.columns.filter((each) => each.privileges.includes("SELECT"));

/** Why a column takes no value, "" if it does. */
export function fixed(schema: Schema, table: Table, column: Column, verb: "UPDATE" | "INSERT"): string {
  if (column.generated) return "PostgreSQL computes this column.";
  if (column.identity === "always") return "PostgreSQL numbers this column.";
  if (column.derived) return "The view computes this column.";
  const whole = refusal(schema, table, verb);
  if (whole) return whole;
  return column.privileges.includes(verb) ? "" : `${schema.role} has no grant to ${verb === "UPDATE" ? "change" : "fill"} this column.`;
}

/** A filter for one value of a column, as the address has it. */
export function equals(name: string, value: Value): Filter {
  const common = { name: quoted(name), negated: false, modifier: "" };
  return value === null ? { ...common, operator: "is", value: "null" } : { ...common, operator: "eq", value };
}
