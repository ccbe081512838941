/** PostgreSQL's plans as a tree with each node's share of the cost or time. */

/** A node of `explain (format json)`. */
export interface ExplainedNode {
  "Node Type": string;
  "Total Cost": number;
  "Plan Rows": number;
  "Actual Total Time"?: number;
  "Actual Rows"?: number;
  "Actual Loops"?: number;
  "Parent Relationship"?: string;
  "Join Type"?: string;
  "Relation Name"?: string;
  Alias?: string;
  "Index Name"?: string;
  "Function Name"?: string;
  "CTE Name"?: string;
  "Subplan Name"?: string;
  Operation?: string;
  Strategy?: string;
  Plans?: ExplainedNode[];
  [detail: string]: unknown;
}

export interface ExplainedPlan {
  Plan: ExplainedNode;
  /** Milliseconds, if the statement was run. */
  "Planning Time"?: number;
  "Execution Time"?: number;
}

export interface PlanNode {
  title: string;
  /** Conditions and keys, as text. */
  details: string[];
  /** Estimated number of rows of one execution. */
  rows: number;
  /** Measurements of all executions, if the statement was run. */
  actual: { rows: number; milliseconds: number } | null;
  /** This node's own share, from 0 to 1, of the time if it was measured, otherwise of the estimated cost. */
  share: number;
  children: PlanNode[];
}

const DETAILS = [
  "Index Cond", "Recheck Cond", "Hash Cond", "Merge Cond", "Join Filter", "Filter", "Rows Removed by Filter", "Sort Key", "Group Key", "Cache Key",
];

export function treeOf(root: ExplainedNode): PlanNode {
  const whole = timeOf(root) ?? root["Total Cost"];
  return grown(root, whole, Math.max(whole, Number.MIN_VALUE));
}

/** The node with the largest share. */
export function dearest(root: PlanNode): PlanNode {
  return root.children.map(dearest).reduce((best, each) => (each.share > best.share ? each : best), root);
}

/**
 * The cost of a node includes its children's costs, multiplied by their number of executions: once per outer row for
 * the inner side of a nested loop, once per row for the subplan of an expression. A limit may stop its child early. If
 * the estimates exceed the parent's cost, it is distributed among the children in proportion to their costs.
 */
function grown(node: ExplainedNode, cost: number, whole: number): PlanNode {
  const plans = node.Plans ?? [];
  const costs = plans.map((each) => timeOf(each) ?? each["Total Cost"] * runsOf(each, node));
  const sum = costs.reduce((total, each) => total + each, 0);
  const scale = sum > cost ? cost / sum : 1;
  const children = plans.map((each, index) => grown(each, costs[index]! * scale, whole));
  const own = Math.max(0, cost - sum * scale);
  return { title: titleOf(node), details: detailsOf(node), rows: node["Plan Rows"], actual: actualOf(node), share: own / whole, children };
}

/** The milliseconds of all executions, or null if the statement was not run. */
function timeOf(node: ExplainedNode): number | null {
  const time = node["Actual Total Time"];
  return time === undefined ? null : time * (node["Actual Loops"] ?? 1);
}

function actualOf(node: ExplainedNode): PlanNode["actual"] {
  const milliseconds = timeOf(node);
  return milliseconds === null ? null : { rows: (node["Actual Rows"] ?? 0) * (node["Actual Loops"] ?? 1), milliseconds };
}

function runsOf(child: ExplainedNode, parent: ExplainedNode): number {
  const read = parent.Plans?.find((each) => each["Parent Relationship"] === "Outer")?.["Plan Rows"] ?? 1;
  // An aggregate runs its subplan for each input row, other nodes for each output row.
  if (child["Parent Relationship"] === "SubPlan") return Math.max(1, read, parent["Plan Rows"]);
  const repeated = parent["Node Type"] === "Nested Loop" && child["Parent Relationship"] === "Inner";
  return repeated ? Math.max(1, read) : 1;
}

function titleOf(node: ExplainedNode): string {
  const type = node["Node Type"];
  const kind = type === "ModifyTable" ? node.Operation : type === "Aggregate" && node.Strategy === "Hashed" ? "Hash Aggregate" : type;
  const join = node["Join Type"] && node["Join Type"] !== "Inner" ? `${node["Join Type"]} ` : "";
  const index = node["Index Name"] ? ` by ${node["Index Name"]}` : "";
  const object = node["Relation Name"] ?? node["Function Name"] ?? node["CTE Name"];
  const alias = object && node.Alias && node.Alias !== object ? ` as ${node.Alias}` : "";
  return `${join}${kind}${object ? ` on ${object}${alias}` : ""}${index}`;
}

function detailsOf(node: ExplainedNode): string[] {
  const subplan = node["Subplan Name"] ? [node["Subplan Name"]] : [];
  const details = DETAILS.flatMap((name) => {
    const value = node[name];
    return value === undefined ? [] : [`${name}: ${Array.isArray(value) ? value.join(", ") : String(value)}`];
  });
  return [...subplan, ...details];
}
