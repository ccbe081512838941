import { useRef } from "react";
import { dearest, type PlanNode } from "./plan";
import "./plan.css";

const figure = (value: number) => value.toLocaleString("en", { maximumFractionDigits: value < 10 ? 2 : 0 });
const percentOf = ({ share }: PlanNode) => Math.round(share * 100);

/** A plan as a tree with each node's own share. The most expensive node is highlighted. */
export function PlanTree({ root }: { root: PlanNode }) {
  const dear = dearest(root);
  const tree = useRef<HTMLUListElement>(null);
  const showDearest = () => tree.current?.querySelector("[data-dear]")?.scrollIntoView({ block: "center" });
  return (
    <>
      <p>
        {percentOf(dear)} % of the {root.actual ? "time" : "estimated cost"} is spent in{" "}
        <button type="button" className="link" onClick={showDearest} title="Show it in the plan"><strong>{dear.title}</strong></button>
      </p>
      <ul className="plan" aria-label="Plan" ref={tree}><Branch node={root} dear={dear} /></ul>
    </>
  );
}

function Branch({ node, dear }: { node: PlanNode; dear: PlanNode }) {
  const { title, details, children } = node;
  const percent = percentOf(node);
  return (
    <li>
      <div className="plan-node" data-dear={node === dear || undefined}>
        <div className="plan-title">
          <span>{title}</span>
          {node === dear && <span className="badge" data-kind="warning">most expensive</span>}
          <span className="plan-share">{percent} %</span>
        </div>
        <div className="plan-bar" aria-hidden="true"><span style={{ width: `${percent}%` }} /></div>
        <div className="hint">{figuresOf(node)}</div>
        {details.map((each) => <code key={each}>{each}</code>)}
      </div>
      {children.length > 0 && <ul>{children.map((each, index) => <Branch key={index} node={each} dear={dear} />)}</ul>}
    </li>
  );
}

function figuresOf({ rows, actual }: PlanNode): string {
  const counted = (count: number) => `${figure(count)} ${count === 1 ? "row" : "rows"}`;
  return actual ? `${counted(actual.rows)}, ${figure(actual.milliseconds)} ms` : counted(rows);
}
