import { useEffect, useRef, useState } from "react";
import { CopyButton } from "../kit/copy-button";
import { Notice } from "../kit/notice";
import { treeOf, type ExplainedPlan } from "../kit/plan";
import { PlanTree } from "../kit/plan-tree";
import { useStore } from "../kit/store";
import { identity } from "../shell/identity";
import { useSettings } from "../shell/settings";
import { AnswerHeaders, AnswerTable, AnswerText, Outcome } from "./answer";
import { nextOrder, pagesOf, sortable, sortedBy } from "./paging";
import { ConfirmDialog } from "./confirm-dialog";
import { change, changeQuery, draft } from "./draft";
import { isJson } from "./form";
import { PROGRAMS } from "./programs";
import { parseTarget, type Rows } from "./query";
import { ADDRESS, changesAll, hasBody, REST } from "./request";
import { follow, send, type Answer } from "./send";

const VIEWS = ["Table", "JSON", "Headers", "Plan", "Code"] as const;
type View = (typeof VIEWS)[number];

const PLAN = "application/vnd.pgrst.plan+json";

/** The URL of the request, and its response. */
export function Panel() {
  const request = useStore(draft);
  const settings = useSettings();
  const [view, setView] = useState<View>("Table");
  const [answer, setAnswer] = useState<Answer | null>(null);
  const [problem, setProblem] = useState("");
  const [asking, setAsking] = useState(false);
  const [waiting, setWaiting] = useState(false);
  const [live, setLive] = useState(false);
  const [before, setBefore] = useState<Answer | null>(null);
  const controller = useRef<AbortController>(null);
  const results = useRef<HTMLElement>(null);
  useEffect(() => () => controller.current?.abort(), []);

  const run = async (kept = live) => {
    setAsking(false);
    controller.current?.abort();
    const own = (controller.current = new AbortController());
    setWaiting(true);
    setProblem("");
    try {
      if (kept && draft.get().method === "GET") {
        let last: Answer | null = null;
        for await (const next of follow(draft.get(), identity.get(), own.signal)) {
          if (own.signal.aborted) return;
          setBefore(last);
          setAnswer((last = next));
          setWaiting(false);
        }
        setLive(false);
        return;
      }
      const next = await send(draft.get(), identity.get(), "application/json", own.signal);
      if (own.signal.aborted) return;
      setBefore(null);
      setAnswer(next);
      setView((shown) => (shown === "JSON" || shown === "Headers" ? shown : "Table"));
      results.current?.scrollIntoView({ block: "nearest" });
    } catch (error) {
      if (own.signal.aborted) return;
      setAnswer(null);
      setProblem((error as Error).message);
      setLive(false);
    }
    setWaiting(false);
  };
  const keep = () => {
    setLive(!live);
    if (live) controller.current?.abort();
    else void run(true);
  };
  const unsendable = request.target === "" || (hasBody(request) && !isJson(request.body));
  const submit = () => {
    if (unsendable) return;
    if (changesAll(request)) setAsking(true);
    else void run();
  };
  const read = (part: Partial<Rows>) => {
    changeQuery((query) => ({ ...query, rows: { ...query.rows, ...part } }));
    void run();
  };
  const views = VIEWS.filter((each) => each !== "Plan" || settings.plans);
  return (
    <>
      <form id={ADDRESS} className="address panel" aria-label="Address" onSubmit={(event) => (event.preventDefault(), submit())}>
        <span className="method" data-method={request.method}>{request.method}</span>
        <label className="target code">
          <span className="prefix" aria-hidden="true">{REST}</span>
          <textarea rows={2} value={request.target} spellCheck={false} aria-label="Address, after /rest/v1/" onChange={(event) => change({ target: event.target.value.replace(/\s*\n\s*/g, "") })}
            onKeyDown={(event) => event.key === "Enter" && (event.preventDefault(), event.currentTarget.form?.requestSubmit())}
            onBlur={(event) => event.currentTarget.scrollTo(0, 0)} />
        </label>
        {settings.live && request.method === "GET" && (
          <label className="check" title="Keep the request open, and show each new response">
            <input type="checkbox" checked={live} disabled={unsendable} onChange={keep} />Live
          </label>
        )}
        <button type="submit" className="button primary" disabled={unsendable} aria-busy={waiting}>Send</button>
      </form>
      <section className="results panel" aria-label="Answer" ref={results}>
        <div className="bar">
          <div className="segments" role="group" aria-label="View of the response">
            {views.map((each) => <button type="button" key={each} aria-pressed={view === each} onClick={() => setView(each)}>{each}</button>)}
          </div>
          {answer && <Outcome answer={answer} />}
          {answer?.text && view === "JSON" && <CopyButton text={answer.text} label="JSON" />}
          {answer && request.method === "GET" && (view === "Table" || view === "JSON") && <Pages answer={answer} rows={parseTarget(request.target).query.rows} onTurn={read} />}
        </div>
        {problem && <Notice kind="error" title="The request could not be sent">{problem}</Notice>}
        {view === "Code" ? <Programs /> : view === "Plan" ? <Planner /> : answer ? <View view={view} answer={answer} before={before} onRead={read} /> : !problem && <p className="soft nothing">Send the request to see its response.</p>}
      </section>
      {asking && <ConfirmDialog request={request} onConfirm={() => void run()} onCancel={() => setAsking(false)} />}
    </>
  );
}

type ViewProps = { view: View; answer: Answer; before: Answer | null; onRead: (part: Partial<Rows>) => void };

function View({ view, answer, before, onRead }: ViewProps) {
  const { method, target } = useStore(draft);
  if (view === "JSON") return <AnswerText answer={answer} />;
  if (view === "Headers") return <AnswerHeaders answer={answer} />;
  const { rows } = parseTarget(target).query;
  const sorting = method === "GET" ? { directionOf: (name: string) => (sortable(rows, name) ? sortedBy(rows, name) : null), sort: (name: string) => onRead({ order: nextOrder(rows, name), offset: "" }) } : undefined;
  return <AnswerTable answer={answer} before={before} sorting={sorting} />;
}

type PagesProps = { answer: Answer; rows: Rows; onTurn: (part: Partial<Rows>) => void };

/** Buttons for the previous and next pages. */
function Pages({ answer, rows, onTurn }: PagesProps) {
  const { previous, next } = pagesOf(rows, answer);
  if (previous === null && next === null) return null;
  return (
    <nav className="pages" aria-label="Pages of rows">
      <button type="button" className="button" disabled={previous === null} onClick={() => onTurn({ offset: previous! })}>Previous</button>
      <button type="button" className="button" disabled={next === null} onClick={() => onTurn({ offset: next! })}>Next</button>
    </nav>
  );
}

function Programs() {
  const request = useStore(draft);
  const { apiKey, token } = useStore(identity);
  const [chosen, setChosen] = useState(PROGRAMS[0]!);
  if (hasBody(request) && !isJson(request.body)) return <p className="soft nothing">The body is not valid JSON.</p>;
  const text = chosen.write({ draft: request, origin: location.origin, apiKey, withToken: token !== "" });
  return (
    <div className="programs">
      <div className="bar">
        <div className="segments" role="group" aria-label="Language">
          {PROGRAMS.map((each) => <button type="button" key={each.title} aria-pressed={each === chosen} onClick={() => setChosen(each)}>{each.title}</button>)}
        </div>
        <CopyButton text={text} />
      </div>
      <pre className="json code" tabIndex={0} role="region" aria-label="Program">{text}</pre>
      {token && <p className="hint">The token is read from the environment variable <code>TOKEN</code>.</p>}
    </div>
  );
}

/** Shows PostgreSQL's plan for the request. */
function Planner() {
  const request = useStore(draft);
  const [analyzed, setAnalyzed] = useState(false);
  const [answer, setAnswer] = useState<Answer | null>(null);
  const [problem, setProblem] = useState("");
  const runs = analyzed && request.method === "GET";
  useEffect(() => setAnswer(null), [request]);
  const explain = async () => {
    try {
      const next = await send(request, identity.get(), runs ? `${PLAN}; options=analyze` : PLAN, new AbortController().signal);
      setAnswer(next);
      setProblem("");
    } catch (error) {
      setProblem((error as Error).message);
    }
  };
  return (
    <div className="planner">
      <div className="bar">
        <button type="button" className="button" onClick={() => void explain()} disabled={request.target === ""}>Show the plan</button>
        {request.method === "GET" && <label className="check"><input type="checkbox" checked={analyzed} onChange={() => setAnalyzed(!analyzed)} />run it and measure</label>}
      </div>
      {problem && <Notice kind="error">{problem}</Notice>}
      {answer && (answer.status < 300 ? <Planned plans={answer.json as ExplainedPlan[]} /> : <AnswerTable answer={answer} />)}
    </div>
  );
}

function Planned({ plans }: { plans: ExplainedPlan[] }) {
  return (
    <div className="planned" tabIndex={0} role="region" aria-label="Plan of the request">
      {plans.map(({ Plan: root, ...times }, index) => (
        <div key={index}>
          {times["Execution Time"] !== undefined && <p className="hint">{`Planned in ${times["Planning Time"]} ms, run in ${times["Execution Time"]} ms.`}</p>}
          <PlanTree root={treeOf(root)} />
        </div>
      ))}
    </div>
  );
}
