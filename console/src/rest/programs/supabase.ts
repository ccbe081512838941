import { operatorOf, type Filter, type Pair, type Rows, type Term } from "../query";
import { writes, type Draft } from "../request";
import { alternatives, asCalled, call, elements, isCount, partsOf, preferred, text, within, type Level, type Parts, type Sent } from "./parts";

const SEARCHES: Record<string, string> = { fts: "", plfts: "plain", phfts: "phrase", wfts: "websearch" };
const METHODS: Record<string, string> = {
  eq: "eq", neq: "neq", gt: "gt", gte: "gte", lt: "lt", lte: "lte", like: "like", ilike: "ilike", cs: "contains", cd: "containedBy",
  ov: "overlaps", sl: "rangeLt", sr: "rangeGt", nxl: "rangeGte", nxr: "rangeLte", adj: "rangeAdjacent",
};

/** An object literal of the members with a value, or "". */
function object(members: [string, string | false][]): string {
  const present = members.filter(([, value]) => value);
  return present.length > 0 ? `{ ${present.map(([name, value]) => `${name}: ${value}`).join(", ")} }` : "";
}

/** The request as a program for supabase-js. */
export function supabase({ draft: built, origin, apiKey, withToken }: Sent): string {
  const draft = asCalled(built);
  const parts = partsOf(draft);
  const { count } = draft.prefer;
  const settings = object([
    ["db", draft.profile !== null && object([["schema", text(draft.profile)]])],
    ["global", withToken && "{ headers: { Authorization: `Bearer ${process.env.TOKEN}` } }"],
  ]);
  const query = ["supabase", ...calls(draft, parts)].join("\n  ");
  const raw = [...parts.raw, ...parts.levels.flatMap(rawWindow)];
  const prefer = preferred(draft);
  const further = [...raw.map(parameter), ...(prefer ? [`request.headers.append("Prefer", ${text(prefer)});`] : [])];
  const sent = further.length === 0 ? [] : [`const request = ${query};`, ...further];
  const members = count ? "data, count" : "data";
  return [
    'import { createClient } from "@supabase/supabase-js";',
    "",
    `const supabase = createClient(\n${[text(origin), text(apiKey || "none"), settings].filter(Boolean).map((each) => `  ${each},\n`).join("")});`,
    ...sent,
    `const { ${members}, error } = await ${sent.length > 0 ? "request" : query};`,
    "if (error) throw new Error(error.message);",
    `console.log(${members});`,
  ].join("\n");
}

function calls(draft: Draft, parts: Parts): string[] {
  const { returned, maxAffected } = draft.prefer;
  const selects = writes(draft) ? returned === "representation" : parts.isCall && parts.select !== null;
  return [
    ...begin(draft, parts),
    ...parts.levels.flatMap(filters),
    ...(selects ? [call("select", parts.select === null ? "" : text(parts.select))] : []),
    ...parts.levels.flatMap(window),
    ...(maxAffected && (draft.method === "PATCH" || draft.method === "DELETE") ? [call("maxAffected", maxAffected)] : []),
  ];
}

/** The calls that select the table and the operation. */
function begin({ prefer, method, body }: Draft, parts: Parts): string[] {
  const count: [string, string] = ["count", prefer.count && text(prefer.count)];
  if (parts.isCall) {
    const passed = method === "GET" ? object(parts.passed.map(([name, value]) => [text(name), text(value)])) : body.trim();
    return [call("rpc", text(parts.name), passed || "{}", object([["get", method === "GET" && "true"], count]))];
  }
  const from = call("from", text(parts.name));
  if (method === "GET") return [from, call("select", text(parts.select ?? "*"), object([count]))];
  if (method === "DELETE") return [from, call("delete", object([count]))];
  if (method === "PATCH") return [from, call("update", body, object([count]))];
  const missing: [string, string | false] = ["defaultToNull", prefer.missing === "default" && "false"];
  if (!prefer.resolution) return [from, call("insert", body, object([count, missing]))];
  const conflict: [string, string] = ["onConflict", parts.conflict && text(parts.conflict)];
  const ignores: [string, string | false] = ["ignoreDuplicates", prefer.resolution === "ignore-duplicates" && "true"];
  return [from, call("upsert", body, object([conflict, ignores, count, missing]))];
}

function filters({ path, rows }: Level): string[] {
  const table = object([["referencedTable", path && text(path)]]);
  return [
    ...rows.filters.map((each) => filter(path, each)),
    ...rows.logic.map((each) => call("or", text(alternatives(each)), table)),
  ];
}

function filter(path: string, each: Filter): string {
  const { negated, operator, modifier, value } = each;
  const name = text(within(path, each.name));
  if (negated) return call("not", name, text(operatorOf(each)), text(value));
  const type = SEARCHES[operator];
  if (type !== undefined) {
    return call("textSearch", name, text(value), object([["type", type && text(type)], ["config", modifier && text(modifier)]]));
  }
  const list = operator === "in" ? elements(value) : null;
  // The client quotes elements with commas and parentheses, but does not escape them.
  if (list?.every((element) => element !== "" && !/["\\]/.test(element))) return call("in", name, `[${list.map(text).join(", ")}]`);
  if (operator === "is" && ["null", "true", "false"].includes(value)) return call("is", name, value);
  const method = METHODS[operator];
  return method && !modifier ? call(method, name, text(value)) : call("filter", name, text(operatorOf(each)), text(value));
}

function window({ path, rows }: Level): string[] {
  const { order, limit, offset } = rows;
  const table = object([["referencedTable", path && text(path)]]);
  const ordered = order.map((term) => orderBy(path, term));
  if (!isCount(limit)) return ordered;
  const limited = isCount(offset) ? call("range", offset, String(Number(offset) + Number(limit) - 1), table) : call("limit", limit, table);
  return [...ordered, limited];
}

function orderBy(path: string, { name, direction, nulls }: Term): string {
  const chosen = object([
    ["ascending", direction === "desc" && "false"],
    ["nullsFirst", nulls !== "" && String(nulls === "nullsfirst")],
    ["referencedTable", path && text(path)],
  ]);
  return call("order", text(name), chosen);
}

/** The limits that `window` cannot express. */
function rawWindow({ path, rows: { limit, offset } }: Pick<Level, "path"> & { rows: Rows }): Pair[] {
  const raw: Pair[] = [];
  if (limit && !isCount(limit)) raw.push([within(path, "limit"), limit]);
  if (offset && !(isCount(limit) && isCount(offset))) raw.push([within(path, "offset"), offset]);
  return raw;
}

/** The client sets `columns` itself for lists of rows. */
function parameter([name, value]: Pair): string {
  return `request.url.searchParams.${name === "columns" ? "set" : "append"}(${text(name)}, ${text(value)});`;
}
