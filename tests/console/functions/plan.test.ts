/** Cost of the nodes of a query plan. */
import assert from "node:assert/strict";
import { test } from "node:test";
import { dearest, treeOf, type ExplainedNode } from "../../../console/src/kit/plan";

const node = (type: string, cost: number, rows: number, plans: ExplainedNode[] = [], more = {}): ExplainedNode =>
  ({ "Node Type": type, "Total Cost": cost, "Plan Rows": rows, Plans: plans, ...more });

test("share of a node excludes all loops of its children", () => {
  const outer = node("Seq Scan", 10, 9, [], { "Parent Relationship": "Outer", "Relation Name": "book" });
  const inner = node("Index Scan", 8, 1, [], { "Parent Relationship": "Inner", "Relation Name": "author", Alias: "a", "Index Name": "author_pkey" });
  const tree = treeOf(node("Nested Loop", 100, 9, [outer, inner]));
  assert.equal(dearest(tree).title, "Index Scan on author as a by author_pkey");
  assert.deepEqual([tree, ...tree.children].map(({ share }) => Math.round(share * 100)), [18, 10, 72]);
});

test("measured times take precedence over estimates", () => {
  const slow = node("Sort", 1, 5, [], { "Actual Total Time": 9, "Actual Rows": 5, "Actual Loops": 2 });
  const tree = treeOf(node("Limit", 100, 5, [slow], { "Actual Total Time": 20, "Actual Rows": 5, "Actual Loops": 1 }));
  assert.deepEqual(dearest(tree).actual, { rows: 10, milliseconds: 18 });
});
