/** Filters in URLs, and numbers in charts. */
import assert from "node:assert/strict";
import { test } from "node:test";
import { filtersOf, NO_FILTERS, parametersOf, period } from "../../../console/src/webhooks/filters";
import { byDay, lastDays, percent, powers, short, ticks } from "../../../console/src/webhooks/statistics";

const NOON = Date.parse("2026-03-05T12:00:00Z");

test("filters round-trip through the URL, and invalid ones are ignored", () => {
  const filters = { ...NO_FILTERS, endpoint: "e1", status: "failed" as const, range: "custom" as const, since: "2026-03-05T10:00" };
  assert.deepEqual(filtersOf(parametersOf(filters)), filters);
  assert.deepEqual(filtersOf({ status: "broken", range: "toString" }), NO_FILTERS);
  assert.ok(Object.values(parametersOf(NO_FILTERS)).every((value) => value === ""));
});

test("period ends now unless it is custom", () => {
  assert.deepEqual(period({ range: "hour", since: "", until: "" }, NOON), { since: "2026-03-05T11:00:00.000Z", until: null });
  assert.deepEqual(period({ range: "custom", since: "nonsense", until: "" }, NOON), { since: null, until: null });
});

test("days without attempts are zero, and the last day is today", () => {
  const days = lastDays(NOON);
  assert.deepEqual([days.length, days[0], days.at(-1)], [14, "2026-02-20", "2026-03-05"]);
  assert.equal(byDay([], days).every(({ success, median_ms }) => success === 0 && median_ms === null), true);
});

test("numbers are rounded, and never upward to 100 %", () => {
  assert.deepEqual([percent(1), percent(0.99999), percent(0.5)], ["100 %", "99.9 %", "50 %"]);
  assert.deepEqual(ticks(241), [0, 100, 200, 300]);
  assert.deepEqual(ticks(0), [0, 1]);
  assert.deepEqual(powers(80, 20_000), [10, 100, 1000, 10_000, 100_000]);
  assert.deepEqual([short(999), short(1500), short(2_000_000)], ["999", "1.5k", "2M"]);
});
