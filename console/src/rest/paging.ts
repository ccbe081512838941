/** Paging and sorting, as changes of the URL. */
import { keyOf, quoted, type Rows, type Term } from "./query";
import type { Answer } from "./send";

/** The offsets of the previous and next pages, or null. */
export function pagesOf({ limit, offset }: Pick<Rows, "limit" | "offset">, { range, total }: Pick<Answer, "range" | "total">): { previous: string | null; next: string | null } {
  const size = Number(limit);
  const start = Number(offset);
  if (!(size > 0) || !(start >= 0)) return { previous: null, next: null };
  const [first = 0, last = -1] = range === null ? [] : range.split("-").map(Number);
  const isMore = total === null ? last - first + 1 >= size : last + 1 < total;
  const previous = start > size ? String(start - size) : "";
  return { previous: start > 0 ? previous : null, next: range !== null && isMore ? String(start + size) : null };
}

/** Whether a name in the response is a column of the table itself. */
export function sortable({ columns, embeds }: Rows, name: string): boolean {
  if (columns.includes(quoted(name))) return true;
  return columns.includes("*") && !embeds.some((each) => each.spread || keyOf(each) === quoted(name));
}

/** The direction if a column is the first sort column, otherwise "". */
export function sortedBy({ order: [first] }: Pick<Rows, "order">, name: string): "" | "asc" | "desc" {
  if (first?.name !== quoted(name)) return "";
  return first.direction === "desc" ? "desc" : "asc";
}

/** The order after a click on a column: ascending, then descending, then none. */
export function nextOrder(rows: Pick<Rows, "order">, name: string): Term[] {
  const direction = { "": "asc", asc: "desc", desc: "" }[sortedBy(rows, name)];
  return direction ? [{ name: quoted(name), direction, nulls: "" }] : [];
}
