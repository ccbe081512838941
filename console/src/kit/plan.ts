/** PostgreSQL's plans as a tree that says where the cost, or the time, arises; pure. */

/** A node of `explain (format json)`, of which these members are read. */
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
  /** Milliseconds, where the statement was run. */
  "Planning Time"?: number;
  "Execution Time"?: number;
}

export interface PlanNode {
  title: string;
  /** Conditions and keys, each as it is to be read. */
  details: string[];
  /** Rows that PostgreSQL expects of one execution. */
  rows: number;
  /** What there really was in all executions, where the statement was run. */
  actual: { rows: number; milliseconds: number } | null;
  /** The part of the whole that arises in this node itself, from 0 to 1: of the time, if it was measured, else of the cost. */
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

/** The node in which the most arises. */
export function dearest(root: PlanNode): PlanNode {
  return root.children.map(dearest).reduce((best, each) => (each.share > best.share ? each : best), root);
}

/**
 * What a node costs has in it what its children cost, once for each time that they run: the inner side of a nested
 * loop for every outer row, the subplan of an expression for every row. A limit lets its child stop early. So, where
 * estimates do not add up, children share what their parent costs in the ratio of their own, and the rest is the parent's.
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

/** The milliseconds of all executions; null where the statement was not run. */
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
  // That of an aggregate runs for each row that is read, that of other nodes for each row that they return.
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
