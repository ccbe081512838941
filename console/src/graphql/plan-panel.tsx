import { useEffect, useMemo } from "react";
import { Icon } from "../kit/icon";
import { Notice } from "../kit/notice";
import { treeOf, type ExplainedPlan } from "../kit/plan";
import { PlanTree } from "../kit/plan-tree";
import { makeStore, useStore } from "../kit/store";
import { identity, roleOf } from "../shell/identity";

/** The result of `"extensions": {"explain": true}` for each statement. */
interface Explained {
  statement: string;
  plan: ExplainedPlan[];
}

/** The `extensions` of a response. */
export interface Measured {
  cost?: { rows: number; limit: number };
  explain?: Explained[];
}

/** Whether the panel is open, and the last measurement. */
export const measuring = makeStore<{ on: boolean; last: Measured | null }>({ on: false, last: null });

/** The `extensions` to request, or null. */
export function asksFor(): Record<string, boolean> | null {
  if (!measuring.get().on) return null;
  return { cost: true, ...(roleOf(identity.get()) === "service_role" ? { explain: true } : {}) };
}

function PlanIcon() {
  return <Icon path="M4 4v14a2 2 0 0 0 2 2h14M8 8h10M8 12h6M8 16h8" />;
}

function PlanPanel() {
  const { last } = useStore(measuring);
  const role = roleOf(useStore(identity));
  useEffect(() => {
    measuring.set({ on: true, last: null });
    return () => measuring.set({ on: false, last: null });
  }, []);
  return (
    <section className="measured" aria-labelledby="measured">
      <h2 id="measured" className="graphiql-doc-explorer-title">Cost and plan</h2>
      {!last && <p className="hint">While this panel is open, it shows the cost{role === "service_role" ? " and PostgreSQL's plan" : ""} of each operation that you run.</p>}
      {last?.cost && <Cost {...last.cost} />}
      {last?.explain?.map((each, index) => <Statement key={index} explained={each} />)}
      {last && !last.cost && <p className="hint">The last operation was rejected before its cost was computed.</p>}
      {role !== "service_role" && <Notice kind="info">PostgreSQL's plan is only for service_role, because plans reveal data.</Notice>}
    </section>
  );
}

function Cost({ rows, limit }: { rows: number; limit: number }) {
  const number = (value: number) => value.toLocaleString("en");
  return (
    <div>
      <p><strong>{number(rows)}</strong> of {number(limit)} rows that an operation may touch</p>
      <meter aria-label="Rows of the limit" min={0} max={limit} high={limit * 0.8} value={rows} />
    </div>
  );
}

function Statement({ explained }: { explained: Explained }) {
  const root = useMemo(() => explained.plan[0] && treeOf(explained.plan[0].Plan), [explained]);
  return (
    <div className="statement">
      <h3>PostgreSQL's plan</h3>
      {root && <PlanTree root={root} />}
      <details>
        <summary>Statement</summary>
        <pre tabIndex={0} role="region" aria-label="Statement">{explained.statement}</pre>
      </details>
    </div>
  );
}

export const planPlugin = { title: "Cost and plan", icon: PlanIcon, content: PlanPanel };
