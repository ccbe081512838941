/**
 * Parses the query string of REST into a value that a form can change, and formats it again. Names, operators and values keep
 * their spelling, so that nothing of a typed URL is lost.
 */

export interface Filter {
  name: string;
  negated: boolean;
  operator: string;
  /** `any`, `all`, the language of a text search, or "". */
  modifier: string;
  value: string;
}

/** `or=(…)` and the like, with the parentheses. */
export interface Logic {
  word: "and" | "or";
  negated: boolean;
  text: string;
}

export interface Term {
  name: string;
  direction: string;
  nulls: string;
}

export interface Embed {
  alias: string;
  name: string;
  hint: string;
  join: "" | "inner" | "left";
  spread: boolean;
  rows: Rows;
}

/** The query of a table or function, or of an embedded table. */
export interface Rows {
  /** As in `select`. ["*"] for all. */
  columns: string[];
  embeds: Embed[];
  filters: Filter[];
  logic: Logic[];
  order: Term[];
  limit: string;
  offset: string;
}

export type Pair = [name: string, value: string];

export interface Query {
  rows: Rows;
  /** All other parameters: function arguments, `columns`, `on_conflict`, and invalid ones. */
  others: Pair[];
}

export const everything = (): Rows => ({ columns: ["*"], embeds: [], filters: [], logic: [], order: [], limit: "", offset: "" });

/** The name of an embedded table in the response and in parameters. */
export const keyOf = ({ alias, name }: Embed): string => alias || name;

const BARE = /^[\p{L}\p{N}_$]([\p{L}\p{N}_$ -]*[\p{L}\p{N}_$])?$/u;

/** Quote a database name for the URL, if necessary. */
export function quoted(name: string): string {
  return BARE.test(name) ? name : `"${name.replace(/["\\]/g, "\\$&")}"`;
}

/** The inverse of `quoted`. */
export function unquoted(name: string): string {
  return /^".*"$/s.test(name) ? name.slice(1, -1).replace(/\\(.)/gs, "$1") : name;
}

/** Split a name with a JSON path into the column, the first arrow and the rest. */
export function pathOf(name: string): { column: string; arrow: "" | "->" | "->>"; steps: string } {
  const [, column = "", path = ""] = TARGET.exec(name) ?? [];
  const arrow = path.startsWith("->>") ? "->>" : path ? "->" : "";
  return { column, arrow, steps: path.slice(arrow.length) };
}

/** Split a text at a character outside of quotes and parentheses. */
export function split(text: string, separator: string): string[] {
  const parts: string[] = [];
  let [depth, start, inQuotes] = [0, 0, false];
  for (let at = 0; at < text.length; at++) {
    const character = text[at];
    if (inQuotes) {
      if (character === "\\") at++;
      else if (character === '"') inQuotes = false;
    } else if (character === '"') inQuotes = true;
    else if (character === "(") depth++;
    else if (character === ")") depth--;
    else if (character === separator && depth === 0) {
      parts.push(text.slice(start, at));
      start = at + 1;
    }
  }
  return [...parts, text.slice(start)];
}

// ---------------------------------------------------------------- reading

const EMBED = /^(\.\.\.)?((?:"(?:[^"\\]|\\.)*"|[^"(])+)\((.*)\)$/s;
const AGGREGATE = /(^|[.\s:])(count|sum|avg|min|max)$/;
/** A path of names, followed by a JSON path. */
const TARGET = /^((?:"(?:[^"\\]|\\.)*"|[^"])*?)(->.*)?$/s;
const FILTER = /^(not\.)?([a-z]+)(?:\(([^()]*)\))?\.(.*)$/s;
const OPERATORS = new Set(
  "eq neq gt gte lt lte like ilike match imatch in is isdistinct fts plfts phfts wfts cs cd ov sl sr nxr nxl adj".split(" "),
);

/** Parse a query string. */
export function parse(pairs: Iterable<Pair>): Query {
  const query: Query = { rows: everything(), others: [] };
  const rest: Pair[] = [];
  for (const [name, value] of pairs) {
    if (name === "select") query.rows = { ...everything(), ...parseSelect(value) };
    else rest.push([name, value]);
  }
  for (const pair of rest) {
    if (!take(query.rows, pair)) query.others.push(pair);
  }
  return query;
}

function parseSelect(text: string): Pick<Rows, "columns" | "embeds"> {
  const items = text.trim() === "" ? [] : split(text, ",").map((item) => item.trim());
  const columns: string[] = [];
  const embeds: Embed[] = [];
  for (const item of items) {
    const embed = parseEmbed(item);
    if (embed) embeds.push(embed);
    else columns.push(item);
  }
  return { columns, embeds };
}

function parseEmbed(item: string): Embed | null {
  const [, spread, head = "", inner = ""] = EMBED.exec(item) ?? [];
  if (head === "" || (inner === "" && AGGREGATE.test(head))) return null;
  const [first = "", ...behind] = split(head, ":");
  const [alias, named] = behind.length > 0 ? [first, behind.join(":")] : ["", first];
  const [name = "", ...words] = split(named, "!");
  const join = words.find((word) => word === "inner" || word === "left") ?? "";
  const hint = words.find((word) => word !== join) ?? "";
  return { alias, name, hint, join: join as Embed["join"], spread: Boolean(spread), rows: { ...everything(), ...parseSelect(inner) } };
}

/** Assign a parameter to its embedded table. Return false if there is none. */
function take(root: Rows, [name, value]: Pair): boolean {
  const [, head = "", steps = ""] = TARGET.exec(name) ?? [];
  const names = split(head, ".");
  const last = `${names.pop() ?? ""}${steps}`;
  const negated = names.at(-1) === "not" && (last === "and" || last === "or");
  if (negated) names.pop();
  const rows = names.reduce<Rows | undefined>((found, key) => found?.embeds.find((each) => keyOf(each) === key)?.rows, root);
  if (!rows) return false;
  if (last === "order") rows.order = split(value, ",").map(parseTerm);
  else if (last === "limit" || last === "offset") rows[last] = value;
  else if (last === "and" || last === "or") rows.logic.push({ word: last, negated, text: value });
  else {
    const [, not, operator = "", modifier = "", operand = ""] = FILTER.exec(value) ?? [];
    if (!OPERATORS.has(operator) || last === "columns" || last === "on_conflict") return false;
    rows.filters.push({ name: last, negated: Boolean(not), operator, modifier, value: operand });
  }
  return true;
}

function parseTerm(text: string): Term {
  const parts = split(text.trim(), ".");
  const isNulls = (word = "") => word === "nullsfirst" || word === "nullslast";
  const isDirection = (word = "") => word === "asc" || word === "desc";
  const nulls = isNulls(parts.at(-1)) ? parts.pop()! : "";
  const direction = isDirection(parts.at(-1)) ? parts.pop()! : "";
  return { name: parts.join("."), direction, nulls };
}

// ---------------------------------------------------------------- writing

/** The parameters of a query, in the usual order. */
export function pairsOf({ rows, others }: Query): Pair[] {
  const all = rows.embeds.length === 0 && rows.columns.join() === "*";
  return [...(all ? [] : [["select", selectOf(rows)] as Pair]), ...parameters(rows, []), ...others];
}

/** The value of `select`. */
export function selectOf({ columns, embeds }: Rows): string {
  return [...columns, ...embeds.map(embedOf)].join(",");
}

function embedOf(embed: Embed): string {
  const { alias, name, hint, join, spread, rows } = embed;
  const words = [name, hint, join].filter(Boolean).join("!");
  return `${spread ? "..." : ""}${alias ? `${alias}:` : ""}${words}(${selectOf(rows)})`;
}

function parameters(rows: Rows, path: string[]): Pair[] {
  const named = (name: string) => [...path, name].join(".");
  const pairs: Pair[] = [
    ...rows.filters.map((each): Pair => [named(each.name), filterValue(each)]),
    ...rows.logic.map(({ word, negated, text }): Pair => [named(negated ? `not.${word}` : word), text]),
  ];
  if (rows.order.length > 0) pairs.push([named("order"), rows.order.map(termOf).join(",")]);
  if (rows.limit !== "") pairs.push([named("limit"), rows.limit]);
  if (rows.offset !== "") pairs.push([named("offset"), rows.offset]);
  return [...pairs, ...rows.embeds.flatMap((embed) => parameters(embed.rows, [...path, keyOf(embed)]))];
}

export function operatorOf({ operator, modifier }: Filter): string {
  return modifier ? `${operator}(${modifier})` : operator;
}

function filterValue(filter: Filter): string {
  return `${filter.negated ? "not." : ""}${operatorOf(filter)}.${filter.value}`;
}

function termOf({ name, direction, nulls }: Term): string {
  return [name, direction, nulls].filter(Boolean).join(".");
}

/** Parse the URL after `/rest/v1/`: a path, whose segments stay encoded, and a query string. */
export function parseTarget(target: string): { path: string; query: Query } {
  const at = target.indexOf("?");
  const path = (at < 0 ? target : target.slice(0, at)).split("/").map((segment) => encodeURIComponent(decoded(segment))).join("/");
  return { path, query: parse(new URLSearchParams(at < 0 ? "" : target.slice(at + 1))) };
}

export function targetOf(path: string, query: Query): string {
  const text = pairsOf(query).map(([name, value]) => `${encoded(name)}=${encoded(value)}`).join("&");
  return path + (text && `?${text}`);
}

function decoded(text: string): string {
  try {
    return decodeURIComponent(text);
  } catch {
    return text;
  }
}

/** Encode for a query string, except characters that are valid and more readable unencoded. */
function encoded(text: string): string {
  return encodeURIComponent(text).replace(/%(2C|3A|2F|40)/g, (code) => decodeURIComponent(code));
}
