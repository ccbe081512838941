import type { DayStatistics, Endpoint } from "./api";
import { nameOf } from "./outcome";

/** Days that the charts show: the default retention of deliveries. */
export const DAYS = 14;

const DAY = 86_400_000;

/** The days that end with today, in UTC, oldest first. */
export function lastDays(now: number): string[] {
  return Array.from({ length: DAYS }, (_, ago) => new Date(now - (DAYS - 1 - ago) * DAY).toISOString().slice(0, 10));
}

/** Totals of all endpoints by day, with zeros for days without attempts. */
export function byDay(records: DayStatistics[], days: string[]): DayStatistics[] {
  const found = new Map(records.filter(({ endpoint_id }) => endpoint_id === null).map((each) => [each.day, each]));
  return days.map((day) => found.get(day) ?? { day, endpoint_id: null, success: 0, failed: 0, skipped: 0, median_ms: null, slowest_ms: null });
}

export interface EndpointTotals {
  id: string;
  name: string;
  success: number;
  failed: number;
  skipped: number;
}

/** Totals by endpoint, sorted by failures. */
export function byEndpoint(records: DayStatistics[], endpoints: Endpoint[]): EndpointTotals[] {
  const totals = new Map<string, EndpointTotals>(
    endpoints.map((each) => [each.id, { id: each.id, name: nameOf(each), success: 0, failed: 0, skipped: 0 }]),
  );
  for (const { endpoint_id, success, failed, skipped } of records) {
    const found = endpoint_id === null ? undefined : totals.get(endpoint_id);
    if (!found) continue;
    found.success += success;
    found.failed += failed;
    found.skipped += skipped;
  }
  return [...totals.values()].sort((one, other) => other.failed - one.failed || other.success - one.success);
}

/** The share of successful attempts, or null without attempts. */
export function successRate({ success, failed }: Pick<EndpointTotals, "success" | "failed">): number | null {
  return success + failed === 0 ? null : success / (success + failed);
}

/** Format a share as a percentage. Only 1 is shown as 100 %. */
export function percent(share: number): string {
  const tenths = share === 1 ? 1000 : Math.min(999, Math.round(share * 1000));
  return `${(tenths / 10).toFixed(tenths % 10 ? 1 : 0)} %`;
}

/** Round tick values of an axis from 0 to at least ``most``. */
export function ticks(most: number, about = 4): number[] {
  if (most <= 0) return [0, 1];
  const rough = most / about;
  const magnitude = 10 ** Math.floor(Math.log10(rough));
  const step = Math.max(1, [1, 2, 5, 10].map((factor) => factor * magnitude).find((each) => each >= rough)!);
  const count = Math.ceil(most / step);
  return Array.from({ length: count + 1 }, (_, index) => index * step);
}

/** Powers of ten that enclose positive values. */
export function powers(least: number, most: number): number[] {
  const first = Math.floor(Math.log10(Math.max(1, least)));
  const last = Math.max(first + 1, Math.ceil(Math.log10(Math.max(1, most))));
  return Array.from({ length: last - first + 1 }, (_, index) => 10 ** (first + index));
}

/** Shorten large numbers for an axis. */
export function short(value: number): string {
  if (value < 1000) return String(value);
  if (value < 1_000_000) return `${trimmed(value / 1000)}k`;
  return `${trimmed(value / 1_000_000)}M`;
}

function trimmed(value: number): string {
  return value.toFixed(1).replace(/\.0$/, "");
}

/** "2026-03-05" as "5 Mar". */
export function dayName(day: string): string {
  return new Date(`${day}T00:00:00Z`).toLocaleDateString(undefined, { day: "numeric", month: "short", timeZone: "UTC" });
}
