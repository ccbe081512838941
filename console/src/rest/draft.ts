import { makeStore } from "../kit/store";
import { keepInTab, keptInTab } from "../kit/tab";
import { everything, parseTarget, targetOf, type Filter, type Query } from "./query";
import { EMPTY, NO_PREFERENCES, writes, type Draft, type Method } from "./request";

const KEY = "dataapi.request";

/** The request of the page, stored in the tab. */
export const draft = makeStore<Draft>({ ...EMPTY, ...keptInTab<Draft>(KEY) });

/** Default limit. */
const FIRST_ROWS = "20";

export function change(part: Partial<Draft>): void {
  draft.set({ ...draft.get(), ...part });
  keepInTab(KEY, draft.get());
}

/** Change the query in the URL. */
export function changeQuery(edit: (query: Query) => Query): void {
  const { path, query } = parseTarget(draft.get().target);
  change({ target: targetOf(path, edit(query)) });
}

/** Start a new request for a table or function. */
export function choose(path: string, method: Method, columns: string[], { limited, body = "" }: { limited: boolean; body?: string }): void {
  const rows = { ...everything(), columns, limit: limited ? FIRST_ROWS : "" };
  change({ target: targetOf(path, { rows, others: [] }), method, body, prefer: NO_PREFERENCES });
}

/** Change the method, and remove options that it does not support. PUT filters by the primary key ``key``. */
export function changeMethod(method: Method, body: string, key: string[]): void {
  change({ method, body });
  if (!writes(draft.get())) return;
  changeQuery(({ rows, others }) => {
    const filters = method === "PUT" && rows.filters.length === 0 ? key.map(isEqual) : rows.filters;
    return { others, rows: { ...rows, filters, order: [], limit: "", offset: "" } };
  });
}

const isEqual = (name: string): Filter => ({ name, negated: false, operator: "eq", modifier: "", value: "" });
