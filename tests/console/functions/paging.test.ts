/** Paging and sorting of rows. */
import assert from "node:assert/strict";
import { test } from "node:test";
import { nextOrder, pagesOf, sortable } from "../../../console/src/rest/paging";
import { everything } from "../../../console/src/rest/query";

const pages = (limit: string, offset: string, range: string | null, total: number | null) => pagesOf({ limit, offset }, { range, total });

test("first and last page are detected", () => {
  assert.deepEqual(pages("20", "", "0-19", null), { previous: null, next: "20" });
  assert.deepEqual(pages("20", "20", "20-25", null), { previous: "", next: null });
  assert.deepEqual(pages("20", "45", "45-64", 200), { previous: "25", next: "65" });
  assert.deepEqual(pages("20", "180", "180-199", 200), { previous: "160", next: null });
  assert.deepEqual(pages("20", "400", null, 200), { previous: "380", next: null });
  assert.deepEqual(pages("", "", "0-99", 200), { previous: null, next: null });
});

test("column head cycles through ascending, descending and unsorted", () => {
  const up = nextOrder(everything(), "a.b");
  assert.deepEqual(up, [{ name: '"a.b"', direction: "asc", nulls: "" }]);
  const down = nextOrder({ order: up }, "a.b");
  assert.equal(down[0]?.direction, "desc");
  assert.deepEqual(nextOrder({ order: down }, "a.b"), []);
  assert.equal(nextOrder({ order: down }, "other")[0]?.direction, "asc");
});

test("embedded tables and renamed columns cannot be sorted", () => {
  const embed = { alias: "by", name: "author", hint: "", join: "" as const, spread: false, rows: everything() };
  assert.equal(sortable({ ...everything(), embeds: [embed] }, "title"), true);
  assert.equal(sortable({ ...everything(), embeds: [embed] }, "by"), false);
  assert.equal(sortable({ ...everything(), columns: ["long:title"] }, "long"), false);
});
