/** The page's state in the URL: table, filters, order and page. */
import { pairsOf, parse, everything, quoted, type Filter, type Rows, type Term } from "../rest/query";
import { nextOrder } from "../rest/paging";
import { labelOf, type Schema, type Table } from "../schema/model";
import type { Parameters } from "../shell/router";
import { readable, selected } from "./cells";
import { referencesOf } from "./references";

export const SIZES = ["25", "50", "100", "500"];
const FIRST_SIZE = "50";

/** Filters and logic as REST parameters, order as the value of `order`. */
export interface View {
  filters: Pick<Rows, "filters" | "logic">;
  order: Term[];
  offset: string;
  limit: string;
  count: "exact" | "planned";
}

export function viewOf({ filter = "", order = "", offset = "", limit = "", count = "" }: Parameters): View {
  const { filters, logic } = parse(new URLSearchParams(filter)).rows;
  return {
    filters: { filters, logic },
    order: order ? parse([["order", order]]).rows.order : [],
    offset: /^\d+$/.test(offset) ? offset : "",
    limit: SIZES.includes(limit) ? limit : FIRST_SIZE,
    count: count === "planned" ? "planned" : "exact",
  };
}

/** URL parameters for these filters, on the first page. */
export function filtered({ filters, logic }: Pick<Rows, "filters" | "logic">): Parameters {
  const pairs = pairsOf({ rows: { ...everything(), filters, logic }, others: [] });
  return { filter: new URLSearchParams(pairs).toString(), offset: "" };
}

/** URL parameters for a table, without those of the previous one. */
export function opened(schema: Schema, table: Table, filters: Filter[] = []): Parameters {
  return { table: labelOf(schema, table), order: "", ...filtered({ filters, logic: [] }) };
}

/** URL parameters after a click on a column header. */
export function sorted(view: View, name: string): Parameters {
  const [term] = nextOrder(view, name);
  return { order: term ? `${term.name}.${term.direction}` : "", offset: "" };
}

/** The REST query: columns as text, labels of referenced rows, and a stable order for paging. */
export function asked(schema: Schema, table: Table, view: View): Rows {
  const columns = readable(table);
  const labels = referencesOf(schema, table).flatMap(({ label }) => (label ? [label.embed] : []));
  const last = table.key.filter((name) => columns.some((each) => each.name === name) && !view.order.some((term) => term.name === quoted(name)));
  const order = [...view.order, ...last.map((name) => ({ name: quoted(name), direction: "asc", nulls: "" }))];
  return { ...view.filters, columns: columns.map(selected), embeds: labels, order, limit: view.limit, offset: view.offset };
}

/** The query for a CSV export: all rows, unconverted. */
export function asCsv(table: Table, rows: Rows): Rows {
  return { ...rows, columns: readable(table).map(({ name }) => quoted(name)), embeds: [], limit: "", offset: "" };
}
