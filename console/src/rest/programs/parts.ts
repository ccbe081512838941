/** Shared parts of programs for client libraries. */
import { keyOf, pairsOf, parseTarget, selectOf, split, targetOf, unquoted, type Pair, type Rows } from "../query";
import { calledBy, preferencesOf, tableOf, writes, type Draft } from "../request";

export interface Sent {
  draft: Draft;
  origin: string;
  apiKey: string;
  /** Whether the program sends a token. It is read from the environment, so that no token is copied. */
  withToken: boolean;
}

/** A request in terms of client methods. */
export interface Parts {
  name: string;
  isCall: boolean;
  /** The value of `select`, or null for all columns. */
  select: string | null;
  /** Function arguments in the URL. */
  passed: Pair[];
  /** The value of `on_conflict`, for upserts. */
  conflict: string;
  levels: Level[];
  /** Parameters without a client method. */
  raw: Pair[];
}

/** The query of the table or of an embedded table. */
export interface Level {
  /** The path of the embedded table, separated by periods, or "". */
  path: string;
  rows: Rows;
}

/** Replace PUT with an upsert, because clients have no method for PUT. */
export function asCalled(draft: Draft): Draft {
  if (draft.method !== "PUT") return draft;
  const { path, query } = parseTarget(draft.target);
  const target = targetOf(path, { ...query, rows: { ...query.rows, filters: [], logic: [] } });
  return { ...draft, method: "POST", target, prefer: { ...draft.prefer, resolution: "merge-duplicates", missing: "" } };
}

/** The preferences without a client method, or "". */
export function preferred(draft: Draft): string {
  return preferencesOf(draft)
    .filter(([name]) => name === "tx" || name === "timezone")
    .map((each) => each.join("="))
    .join(", ");
}

export function partsOf(draft: Draft): Parts {
  const { path, query } = parseTarget(draft.target);
  const name = calledBy(path);
  const isCall = name !== null;
  const others = query.others.filter(([key]) => key !== "apikey");
  const isPassed = ([key]: Pair, at: number) =>
    isCall && draft.method === "GET" && others.findIndex(([other]) => other === key) === at;
  const passed = others.filter(isPassed);
  const hasConflict = ([key]: Pair) => key === "on_conflict" && draft.prefer.resolution !== "" && draft.method === "POST";
  const levels = levelsOf(query.rows, "");
  const raw = others.filter((pair) => !passed.includes(pair) && !hasConflict(pair));
  return {
    name: name ?? tableOf(path),
    isCall,
    select: pairsOf({ rows: query.rows, others: [] })[0]?.[0] === "select" ? selectOf(query.rows) : null,
    passed,
    conflict: others.find(hasConflict)?.[1] ?? "",
    // Clients support order and limit only for reads.
    levels: writes(draft) ? levels.map(withoutWindow) : levels,
    raw: writes(draft) ? [...raw, ...levels.flatMap(windowOf)] : raw,
  };
}

function levelsOf(rows: Rows, path: string): Level[] {
  const below = rows.embeds.flatMap((embed) => levelsOf(embed.rows, within(path, keyOf(embed))));
  return [{ path, rows }, ...below];
}

const withoutWindow = ({ path, rows }: Level): Level => ({ path, rows: { ...rows, order: [], limit: "", offset: "" } });

function windowOf({ path, rows }: Level): Pair[] {
  const bare = { ...rows, columns: ["*"], embeds: [], filters: [], logic: [] };
  return pairsOf({ rows: bare, others: [] }).map(([name, value]) => [within(path, name), value]);
}

/** Prefix a name with a path. */
export const within = (path: string, name: string): string => (path ? `${path}.${name}` : name);

/** Whether a limit or offset is a number, as clients require. */
export const isCount = (value: string): boolean => /^[0-9]{1,15}$/.test(value);

/** The elements of `(a,"b,c")`, or null if it is not a list. */
export function elements(value: string): string[] | null {
  if (!value.startsWith("(") || !value.endsWith(")") || value === "()") return null;
  return split(value.slice(1, -1), ",").map(unquoted);
}

/** A logic tree as an item of `or=(…)`, the only form with a client method. */
export function alternatives({ word, negated, text }: Rows["logic"][number]): string {
  return word === "or" && !negated ? text.slice(1, -1) : `${negated ? "not." : ""}${word}${text}`;
}

/** A string literal that is valid in JavaScript and Python. */
export const text = (value: string): string => JSON.stringify(value);

/** A method call. Arguments that are "" are omitted. */
export const call = (name: string, ...values: string[]): string => `.${name}(${values.filter(Boolean).join(", ")})`;
