import type { Parameters } from "../shell/router";
import type { Status } from "./api";
import { STATUSES } from "./outcome";

/** What deliveries are listed; "" stands for all. */
export interface Filters {
  endpoint: string;
  status: Status | "";
  type: string;
  range: Range;
  /** Of the range "custom", as the browser's fields write local times. */
  since: string;
  until: string;
}

export type Range = "all" | "hour" | "day" | "week" | "custom";

export const RANGES: Record<Range, string> = {
  all: "All 14 days",
  hour: "Last hour",
  day: "Last 24 hours",
  week: "Last 7 days",
  custom: "From … to …",
};

const HOUR = 3_600_000;
const LENGTHS: Partial<Record<Range, number>> = { hour: HOUR, day: 24 * HOUR, week: 7 * 24 * HOUR };

export const NO_FILTERS: Filters = { endpoint: "", status: "", type: "", range: "all", since: "", until: "" };

/** The parameters of the console's address that hold filters. */
export const parametersOf = ({ range, ...others }: Filters): Parameters => ({ ...others, range: range === NO_FILTERS.range ? "" : range });

/** The filters that the console's address holds; what cannot be one of them counts for nothing. */
export function filtersOf({ endpoint = "", status = "", type = "", range = "", since = "", until = "" }: Parameters): Filters {
  return {
    endpoint,
    status: STATUSES.find((each) => each === status) ?? "",
    type,
    range: Object.hasOwn(RANGES, range) ? (range as Range) : NO_FILTERS.range,
    since,
    until,
  };
}

/** Deliveries of one page. */
export const PAGE = 25;

/** The address of the first page, below the scope's. */
export function addressOf(filters: Filters, now: number): string {
  const path = filters.endpoint ? `/endpoints/${filters.endpoint}/deliveries` : "/deliveries";
  const { since, until } = period(filters, now);
  const parameters: [string, string | number | null][] = [
    ["page[size]", PAGE],
    ["filter[status]", filters.status],
    ["filter[event_type]", filters.type],
    ["filter[since]", since],
    ["filter[until]", until],
  ];
  return `${path}?${parameters
    .filter(([, value]) => value)
    .map(([name, value]) => `${name}=${encodeURIComponent(String(value))}`)
    .join("&")}`;
}

/** The period of the filters, in UTC. */
export function period({ range, since, until }: Pick<Filters, "range" | "since" | "until">, now: number): { since: string | null; until: string | null } {
  if (range === "custom") return { since: fromLocal(since), until: fromLocal(until) };
  const length = LENGTHS[range];
  return { since: length ? new Date(now - length).toISOString() : null, until: null };
}

/** A field's local time in UTC, null where it is empty. */
export function fromLocal(text: string): string | null {
  const found = new Date(text);
  return text && !Number.isNaN(found.getTime()) ? found.toISOString() : null;
}

/** A time as a field for local times takes it, to the minute. */
export function toLocal(time: number): string {
  const shifted = new Date(time - new Date(time).getTimezoneOffset() * 60_000);
  return shifted.toISOString().slice(0, 16);
}
