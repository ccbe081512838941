/** The operators of REST. */
import { pathOf } from "./query";

export interface Operator {
  name: string;
  /** "any" and "all" compare with several values. */
  modifier: "" | "any" | "all";
  title: string;
  kinds: Kind[];
  /** Example of a value. */
  example: string;
}

/** Types that share operators. */
export type Kind = "text" | "order" | "choice" | "array" | "range" | "json" | "search";

const ALL: Kind[] = ["text", "order", "choice", "array", "range", "json", "search"];
const ORDERED: Kind[] = ["text", "order", "array", "range"];
const SETS: Kind[] = ["array", "range", "json"];

const operator = (name: string, title: string, kinds: Kind[], example = "", modifier: Operator["modifier"] = ""): Operator => ({
  name, title, kinds, example, modifier,
});

export const OPERATORS: Operator[] = [
  operator("eq", "equals", ["text", "order", "choice", "array", "range"]),
  operator("neq", "is not", ["text", "order", "choice", "array", "range"]),
  operator("gt", "greater than", ORDERED),
  operator("gte", "at least", ORDERED),
  operator("lt", "less than", ORDERED),
  operator("lte", "at most", ORDERED),
  operator("in", "one of", ["text", "order", "choice"], '1,2,"with, comma"'),
  operator("is", "is null, true, …", ALL),
  operator("isdistinct", "is distinct from", ["text", "order", "choice", "array", "range"]),
  operator("like", "like", ["text"], "a*"),
  operator("ilike", "like, any case", ["text"], "*word*"),
  operator("match", "regular expression", ["text"], "^a.*z$"),
  operator("imatch", "regular expression, any case", ["text"], "^a.*z$"),
  operator("eq", "equals any of", ["text", "order", "choice"], "{1,2}", "any"),
  operator("like", "like any of", ["text"], "{a*,*b}", "any"),
  operator("like", "like all of", ["text"], "{a*,*b}", "all"),
  operator("ilike", "like any of, any case", ["text"], "{a*,*b}", "any"),
  operator("ilike", "like all of, any case", ["text"], "{a*,*b}", "all"),
  operator("fts", "full text", ["text", "json", "search"], "train & night"),
  operator("plfts", "full text, plain words", ["text", "json", "search"], "night train"),
  operator("phfts", "full text, phrase", ["text", "json", "search"], "night train"),
  operator("wfts", "full text, as in search engines", ["text", "json", "search"], 'train -"day"'),
  operator("cs", "contains", SETS, "{a,b}"),
  operator("cd", "contained by", SETS, "{a,b}"),
  operator("ov", "overlaps", ["array", "range"], "{a,b}"),
  operator("sl", "left of", ["range"], "[1,5)"),
  operator("sr", "right of", ["range"], "[1,5)"),
  operator("nxr", "not right of", ["range"], "[1,5)"),
  operator("nxl", "not left of", ["range"], "[1,5)"),
  operator("adj", "adjacent to", ["range"], "[1,5)"),
];

/** The operands of `is`. */
export const WORDS = ["null", "not_null", "true", "false", "unknown"];

/** The kind of a PostgreSQL type. */
export function kindOf(type: string): Kind {
  if (type.endsWith("]")) return "array";
  if (/^(json|jsonb)$/.test(type)) return "json";
  if (type === "tsvector") return "search";
  if (/range$/.test(type)) return "range";
  if (/^(boolean|uuid|bytea)$/.test(type)) return "choice";
  if (/^(smallint|integer|bigint|real|double|numeric|money|date|time|interval|oid)/.test(type)) return "order";
  return "text";
}

/** The type of a column, or of a path in a JSON column. */
export function typeAt(name: string, type: string | undefined): string | undefined {
  const { arrow, steps } = pathOf(name);
  if (arrow === "") return type;
  return /->>(?!.*->)/s.test(arrow + steps) ? "text" : "jsonb";
}

/** The operators for a type, including the given one. All operators for an unknown type. */
export function operatorsFor(type: string | undefined, chosen: { operator: string; modifier: string }): Operator[] {
  const kind = type === undefined ? undefined : kindOf(type);
  return OPERATORS.filter((each) => kind === undefined || each.kinds.includes(kind) || isChosen(each, chosen));
}

/** The aggregates for a type. All aggregates for an unknown type. */
export function aggregatesOf(type: string | undefined): string[] {
  const kind = type === undefined ? undefined : kindOf(type);
  const adds = kind === undefined || (kind === "order" && !/^(date|time|oid)/.test(type!));
  const compares = kind === undefined || kind === "order" || kind === "text" || kind === "array";
  return [...(adds ? ["sum", "avg"] : []), ...(compares ? ["min", "max"] : []), "count"];
}

export function isChosen(each: Operator, { operator: name, modifier }: { operator: string; modifier: string }): boolean {
  return each.name === name && each.modifier === modifier;
}
