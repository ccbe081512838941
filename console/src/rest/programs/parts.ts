/** What programs of client libraries are made of. */
import { keyOf, pairsOf, parseTarget, selectOf, split, targetOf, unquoted, type Pair, type Rows } from "../query";
import { calledBy, preferencesOf, tableOf, writes, type Draft } from "../request";

export interface Sent {
  draft: Draft;
  origin: string;
  apiKey: string;
  /** Whether the program sends a token; it comes from the environment, never from the tab. */
  withToken: boolean;
}

/** A request as the methods of clients take it. */
export interface Parts {
  name: string;
  isCall: boolean;
  /** The value of `select`; null for all columns. */
  select: string | null;
  /** Arguments of a call in the address. */
  passed: Pair[];
  /** The value of `on_conflict`, where rows may be there already. */
  conflict: string;
  levels: Level[];
  /** Parameters that clients have no method for. */
  raw: Pair[];
}

/** The rows of the table, or of one that is embedded. */
export interface Level {
  /** The names that lead to them, joined by periods; "" for the table's own. */
  path: string;
  rows: Rows;
}

/** A request that clients have methods for: PUT inserts or replaces the row that its body names, as an upsert does. */
export function asCalled(draft: Draft): Draft {
  if (draft.method !== "PUT") return draft;
  const { path, query } = parseTarget(draft.target);
  const target = targetOf(path, { ...query, rows: { ...query.rows, filters: [], logic: [] } });
  return { ...draft, method: "POST", target, prefer: { ...draft.prefer, resolution: "merge-duplicates", missing: "" } };
}

/** The preferences that clients have no method for, "" for none. */
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
    // Clients order and limit what they read alone.
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

/** A name below a path. */
export const within = (path: string, name: string): string => (path ? `${path}.${name}` : name);

/** Whether a limit or an offset is one that clients take as a number. */
export const isCount = (value: string): boolean => /^[0-9]{1,15}$/.test(value);

/** The elements of `(a,"b,c")`; null if it is no such list. */
export function elements(value: string): string[] | null {
  if (!value.startsWith("(") || !value.endsWith(")") || value === "()") return null;
  return split(value.slice(1, -1), ",").map(unquoted);
}

/** A logic tree as a part of `or=(…)`, as clients have no method for the others. */
export function alternatives({ word, negated, text }: Rows["logic"][number]): string {
  return word === "or" && !negated ? text.slice(1, -1) : `${negated ? "not." : ""}${word}${text}`;
}

/** A string as JavaScript and Python both write it. */
export const text = (value: string): string => JSON.stringify(value);

/** A call of a method; values that are "" are left out. */
export const call = (name: string, ...values: string[]): string => `.${name}(${values.filter(Boolean).join(", ")})`;
