import { operatorOf, type Filter, type Pair, type Term } from "../query";
import { REST, writes, type Draft } from "../request";
import { alternatives, asCalled, call, elements, isCount, partsOf, preferred, text, within, type Level, type Parts, type Sent } from "./parts";

const METHODS: Record<string, string> = {
  eq: "eq", neq: "neq", gt: "gt", gte: "gte", lt: "lt", lte: "lte", like: "like", ilike: "ilike", cs: "contains", cd: "contained_by",
  ov: "ov", fts: "fts", plfts: "plfts", phfts: "phfts", wfts: "wfts",
};
const CONSTANTS: Record<string, string> = { null: "None", true: "True", false: "False" };

/** Keyword arguments that have a value. */
const keywords = (pairs: [string, string | false][]): string[] =>
  pairs.filter(([, value]) => value).map(([name, value]) => `${name}=${value}`);

/** The request as a program for postgrest-py. */
export function postgrest({ draft: built, origin, apiKey, withToken }: Sent): string {
  const draft = asCalled(built);
  const parts = partsOf(draft);
  const { count } = draft.prefer;
  const prefer = preferred(draft);
  const headers = [
    ...(apiKey ? [`"apikey": ${text(apiKey)}`] : []),
    ...(withToken ? ['"Authorization": "Bearer " + os.environ["TOKEN"]'] : []),
  ];
  const settings = keywords([["schema", draft.profile !== null && text(draft.profile)], ["headers", `{${headers.join(", ")}}`]]);
  const query = ["client", ...begin(draft, parts), ...parts.levels.flatMap(filters), ...select(draft, parts), ...parts.levels.flatMap(window), ...limits(draft)];
  const raw = [...parts.raw, ...parts.levels.flatMap(rawOf)];
  const body = [
    `client = SyncPostgrestClient(\n${[text(origin + REST.slice(0, -1)), ...settings].map((each) => `    ${each},\n`).join("")})`,
    `request = (\n    ${query.join("\n    ")}\n)`,
    ...raw.map(parameter),
    ...(prefer ? [`request.request.headers["Prefer"] = ", ".join([*request.request.headers.get_list("Prefer"), ${text(prefer)}])`] : []),
    "response = request.execute()",
    count ? "print(response.data, response.count)" : "print(response.data)",
  ].join("\n");
  const uses = (name: string) => body.includes(`${name}.`);
  const modules = ["json", "os"].filter(uses).map((name) => `import ${name}\n`).join("");
  const types = ["CountMethod", "ReturnMethod"].filter(uses);
  return [
    ...(modules ? [modules] : []),
    "from postgrest import SyncPostgrestClient",
    ...(types.length > 0 ? [`from postgrest.types import ${types.join(", ")}`] : []),
    "",
    body,
  ].join("\n");
}

/** A body in Python: parsed from text, because the literals of JSON and Python differ. */
function json(body: string): string {
  const isRaw = !body.includes("'''") && !/['\\]$/.test(body);
  return `json.loads(${isRaw ? `r'''${body}'''` : text(body)})`;
}

/** The calls that select the table and the operation. */
function begin({ prefer, method, body }: Draft, parts: Parts): string[] {
  const count: [string, string | false] = ["count", prefer.count && `CountMethod.${prefer.count}`];
  if (parts.isCall) {
    const isGet = method === "GET";
    const passed = isGet ? `{${parts.passed.map(([name, value]) => `${text(name)}: ${text(value)}`).join(", ")}}` : json(body.trim() || "{}");
    return [call("rpc", text(parts.name), passed, ...keywords([["get", isGet && "True"], count]))];
  }
  const from = call("from_", text(parts.name));
  if (method === "GET") return [from, call("select", text(parts.select ?? "*"), ...keywords([count]))];
  const returning: [string, string] = ["returning", `ReturnMethod.${prefer.returned === "representation" ? "representation" : "minimal"}`];
  const answer = [count, returning];
  if (method === "DELETE") return [from, call("delete", ...keywords(answer))];
  if (method === "PATCH") return [from, call("update", json(body), ...keywords(answer))];
  const missing: [string, string | false] = ["default_to_null", prefer.missing === "default" && "False"];
  if (!prefer.resolution) return [from, call("insert", json(body), ...keywords([...answer, missing]))];
  const conflict: [string, string] = ["on_conflict", parts.conflict && text(parts.conflict)];
  const ignores: [string, string | false] = ["ignore_duplicates", prefer.resolution === "ignore-duplicates" && "True"];
  return [from, call("upsert", json(body), ...keywords([conflict, ignores, ...answer, missing]))];
}

function select(draft: Draft, { isCall, select: columns }: Parts): string[] {
  const selects = isCall || (writes(draft) && draft.prefer.returned === "representation");
  return selects && columns !== null ? [call("select", text(columns))] : [];
}

function limits({ method, prefer }: Draft): string[] {
  return prefer.maxAffected && (method === "PATCH" || method === "DELETE") ? [call("max_affected", prefer.maxAffected)] : [];
}

/** Whether the client sends a parameter's name unchanged. It quotes names with these characters. */
const isPlain = (name: string) => !/[,:()"\\]/.test(name);

function filters({ path, rows }: Level): string[] {
  if (!isPlain(path)) return [];
  const table = keywords([["reference_table", path && text(path)]]);
  return [
    ...rows.filters.filter(({ name }) => isPlain(name)).map((each) => filter(path, each)),
    ...rows.logic.map((each) => call("or_", text(alternatives(each)), ...table)),
  ];
}

function filter(path: string, each: Filter): string {
  const { negated, operator, modifier, value } = each;
  const name = text(within(path, each.name));
  const not = negated ? ".not_" : "";
  const list = operator === "in" ? elements(value) : null;
  if (list) return not + call("in_", name, `[${list.map(text).join(", ")}]`);
  const constant = operator === "is" && CONSTANTS[value];
  if (constant) return not + call("is_", name, constant);
  const method = METHODS[operator];
  return not + (method && !modifier ? call(method, name, text(value)) : call("filter", name, text(operatorOf(each)), text(value)));
}

function window({ path, rows: { order, limit, offset } }: Level): string[] {
  const table = keywords([["foreign_table", path && text(path)]]);
  return [
    ...order.map((term) => orderBy(table, term)),
    ...(isCount(limit) ? [call("limit", limit, ...table)] : []),
    ...(isCount(offset) && !path ? [call("offset", offset)] : []),
  ];
}

function orderBy(table: string[], { name, direction, nulls }: Term): string {
  const chosen = keywords([["desc", direction === "desc" && "True"], ["nullsfirst", nulls !== "" && (nulls === "nullsfirst" ? "True" : "False")]]);
  return call("order", text(name), ...chosen, ...table);
}

/** Parameters that `filters` and `window` cannot express. */
function rawOf({ path, rows }: Level): Pair[] {
  const { limit, offset } = rows;
  const raw: Pair[] = [];
  for (const each of rows.filters) {
    if (isPlain(path) && isPlain(each.name)) continue;
    raw.push([within(path, each.name), `${each.negated ? "not." : ""}${operatorOf(each)}.${each.value}`]);
  }
  if (!isPlain(path)) raw.push(...rows.logic.map((each): Pair => [within(path, each.negated ? `not.${each.word}` : each.word), each.text]));
  if (limit && !isCount(limit)) raw.push([within(path, "limit"), limit]);
  if (offset && !(isCount(offset) && !path)) raw.push([within(path, "offset"), offset]);
  return raw;
}

/** The client sets `columns` itself for lists of rows. */
function parameter([name, value]: Pair): string {
  return `request.request.params = request.request.params.${name === "columns" ? "set" : "add"}(${text(name)}, ${text(value)})`;
}
