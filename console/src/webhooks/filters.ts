import type { Parameters } from "../shell/router";
import type { Status } from "./api";
import { STATUSES } from "./outcome";

/** Filters of the list of deliveries. "" means all. */
export interface Filters {
  endpoint: string;
  status: Status | "";
  type: string;
  range: Range;
  /** For the range "custom": local times, in the format of the input fields. */
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

/** The URL parameters for filters. */
export const parametersOf = ({ range, ...others }: Filters): Parameters => ({ ...others, range: range === NO_FILTERS.range ? "" : range });

/** The filters in the URL. Invalid values are ignored. */
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

/** Deliveries per page. */
export const PAGE = 25;

/** The path of the first page, below the scope's path. */
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

/** The filtered period, in UTC. */
export function period({ range, since, until }: Pick<Filters, "range" | "since" | "until">, now: number): { since: string | null; until: string | null } {
  if (range === "custom") return { since: fromLocal(since), until: fromLocal(until) };
  const length = LENGTHS[range];
  return { since: length ? new Date(now - length).toISOString() : null, until: null };
}

/** Convert an input field's local time to UTC, or return null if it is empty. */
export function fromLocal(text: string): string | null {
  const found = new Date(text);
  return text && !Number.isNaN(found.getTime()) ? found.toISOString() : null;
}

/** Convert a time to an input field's local time, in minutes. */
export function toLocal(time: number): string {
  const shifted = new Date(time - new Date(time).getTimezoneOffset() * 60_000);
  return shifted.toISOString().slice(0, 16);
}
