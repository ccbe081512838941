/** The request that the page builds. The form reads and writes its URL. */
import { parseTarget } from "./query";

export type Method = "GET" | "POST" | "PATCH" | "PUT" | "DELETE";

export interface Preferences {
  count: "" | "exact" | "planned" | "estimated";
  returned: "" | "minimal" | "headers-only" | "representation";
  resolution: "" | "merge-duplicates" | "ignore-duplicates";
  missing: "" | "default";
  maxAffected: string;
  tx: "" | "commit" | "rollback";
  timezone: string;
}

export interface Draft {
  method: Method;
  /** The URL after /rest/v1/, as typed. */
  target: string;
  /** The schema, unless it is the first one. */
  profile: string | null;
  prefer: Preferences;
  body: string;
}

export const REST = "/rest/v1/";
/** The id of the form that sends the request. */
export const ADDRESS = "rest-address";
const CALL = "rpc/";

export const NO_PREFERENCES: Preferences = { count: "", returned: "", resolution: "", missing: "", maxAffected: "", tx: "", timezone: "" };
export const EMPTY: Draft = { method: "GET", target: "", profile: null, prefer: NO_PREFERENCES, body: "" };

/** The name of the function that a path calls, or null for a table. */
export function calledBy(path: string): string | null {
  return path.startsWith(CALL) ? decodeURIComponent(path.slice(CALL.length)) : null;
}

/** The table of a path. */
export const tableOf = (path: string) => decodeURIComponent(path);

export const pathOfTable = (name: string) => encodeURIComponent(name);
export const pathOfCall = (name: string) => `${CALL}${encodeURIComponent(name)}`;

/** Whether a request has a body. */
export const hasBody = ({ method }: Draft) => method === "POST" || method === "PATCH" || method === "PUT";

/** Whether a request writes rows, according to its method and path. */
export const writes = ({ method, target }: Draft) => method !== "GET" && calledBy(target) === null;

/** The preferences that apply to a request. */
export function preferencesOf(draft: Draft): [string, string][] {
  const { count, returned, resolution, missing, maxAffected, tx, timezone } = draft.prefer;
  const { method } = draft;
  const strict = maxAffected !== "" && (method === "PATCH" || method === "DELETE");
  const all: [string, string, boolean][] = [
    ["return", returned, writes(draft)],
    ["resolution", resolution, writes(draft) && method === "POST"],
    ["missing", missing, writes(draft) && method === "POST"],
    ["count", count, true],
    ["handling", strict ? "strict" : "", true],
    ["max-affected", maxAffected, strict],
    ["tx", tx, method !== "GET"],
    ["timezone", timezone, true],
  ];
  return all.filter(([, value, fits]) => fits && value !== "").map(([name, value]) => [name, value]);
}

/** The headers of a request, without authentication. */
export function headersOf(draft: Draft): Record<string, string> {
  const prefer = preferencesOf(draft).map((each) => each.join("=")).join(", ");
  return {
    ...(draft.profile ? { [draft.method === "GET" ? "Accept-Profile" : "Content-Profile"]: draft.profile } : {}),
    ...(hasBody(draft) ? { "Content-Type": "application/json" } : {}),
    ...(prefer ? { Prefer: prefer } : {}),
  };
}

/** Whether a request changes or deletes all rows, because it has no filter. */
export function changesAll(draft: Draft): boolean {
  const { query } = parseTarget(draft.target);
  const { filters, logic } = query.rows;
  return (draft.method === "PATCH" || draft.method === "DELETE") && filters.length + logic.length === 0;
}
