/**
 * Values of cells: PostgreSQL's text representation, null for NULL, and JSON for arrays. Large numbers, times and bytes
 * are therefore shown and sent without any loss.
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

/** The item of `select` for a column. */
export function selected(column: Column): string {
  return formOf(column) === "array" ? quoted(column.name) : `${quoted(column.name)}::text`;
}

/** Convert a value in the response to ``selected``. */
export function valueOf(answered: unknown): Value {
  if (answered === null || answered === undefined) return null;
  return typeof answered === "string" ? answered : JSON.stringify(answered);
}

/** Why a text is not a valid value of a column, or "" as far as the console can check. */
export function mistakeIn(column: Column, text: string): string {
  const form = formOf(column);
  if (form === "bytes") return /^\\x([0-9a-f]{2})*$/i.test(text) ? "" : "Write bytes in hexadecimal, such as \\x00ff.";
  if (form !== "json" && form !== "array") return "";
  try {
    const read: unknown = JSON.parse(text);
    return form === "array" && !Array.isArray(read) ? 'Write an array as a JSON list, such as ["a", "b"].' : "";
  } catch (error) {
    return sentence(`Invalid JSON: ${(error as Error).message}`);
  }
}

/** A value as JSON for the body of a request. */
export function asJson(column: Column, value: Value): string {
  const form = formOf(column);
  if (value === null) return "null";
  return form === "json" || form === "array" ? value : JSON.stringify(value);
}

/** Types without an operator `=`, or with one that does not compare the whole value. */
const INCOMPARABLE = /^(json|xml|point|line|lseg|box|path|polygon|circle)\b(?!b)/;

/** The condition in `and=(…)` that a column has a value, or null if PostgreSQL cannot compare such values. */
export function condition(column: Column, value: Value): string | null {
  const name = quoted(column.name);
  if (value === null) return `${name}.is.null`;
  if (INCOMPARABLE.test(column.type) || (formOf(column) === "array" && column.type.startsWith("json"))) return null;
  const text = formOf(column) === "array" ? literal(JSON.parse(value)) : value;
  return `${name}.eq."${text.replace(/["\\]/g, "\\$&")}"`;
}

/** A list in PostgreSQL's array syntax. */
function literal(item: unknown): string {
  if (item === null) return "NULL";
  if (Array.isArray(item)) return `{${item.map(literal).join(",")}}`;
  const text = typeof item === "object" ? JSON.stringify(item) : String(item);
  return `"${text.replace(/["\\]/g, "\\$&")}"`;
}

const KINDS: Record<string, string> = { view: "view", materialized_view: "materialized view" };

/** Why a role cannot change, insert or delete rows of a table, or "". */
export function refusal({ role }: Schema, table: Table, verb: "UPDATE" | "INSERT" | "DELETE"): string {
  const done = { UPDATE: "changed", INSERT: "inserted", DELETE: "deleted" }[verb];
  if (!table.accepts.includes(verb)) return `Rows of this ${KINDS[table.kind] ?? "table"} cannot be ${done}.`;
  if (verb !== "INSERT" && !canName(table)) return `Rows cannot be ${done} individually, because ${role} cannot read a primary key.`;
  const method = { UPDATE: "PATCH", INSERT: "POST", DELETE: "DELETE" }[verb];
  return table.rest.methods.includes(method) ? "" : `Rows cannot be ${done}: ${role} does not have the privilege.`;
}

const canName = (table: Table) => table.key.length > 0 && table.key.every((name) => readable(table).some((each) => each.name === name));

/** The columns that a role may read. */
export const readable = (table: Table): Column[] => table.columns.filter((each) => each.privileges.includes("SELECT"));

/** Why a column cannot be set, or "". */
export function fixed(schema: Schema, table: Table, column: Column, verb: "UPDATE" | "INSERT"): string {
  if (column.generated) return "PostgreSQL computes this column.";
  if (column.identity === "always") return "PostgreSQL generates this identity column.";
  if (column.derived) return "The view computes this column.";
  const whole = refusal(schema, table, verb);
  if (whole) return whole;
  return column.privileges.includes(verb) ? "" : `${schema.role} does not have the privilege to ${verb === "UPDATE" ? "change" : "set"} this column.`;
}

/** A filter for one value of a column. */
export function equals(name: string, value: Value): Filter {
  const common = { name: quoted(name), negated: false, modifier: "" };
  return value === null ? { ...common, operator: "is", value: "null" } : { ...common, operator: "eq", value };
}
