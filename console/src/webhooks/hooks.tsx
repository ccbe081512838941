import { useState, type ReactNode } from "react";
import { Notice } from "../kit/notice";
import { setParameters, useParameters } from "../shell/router";
import { Management } from "./api";
import { Deliveries } from "./deliveries";
import { Endpoints } from "./endpoints";
import { filtersOf, NO_FILTERS, parametersOf, type Filters } from "./filters";
import { ReceiverPanel } from "./receiver";
import { baseOf, keyOf, ordered, reachOf, scopesOf, type Scope } from "./scope";
import { maySetSecrets, mayWrite, type Session } from "./session";
import { Statistics } from "./statistics-tab";
import { useLoad } from "./use-load";
import { Workspace } from "./workspace";
import "./webhooks.css";

const TABS = { endpoints: "Endpoints", deliveries: "Deliveries", statistics: "Statistics", receiver: "Receiver" } as const;
type Tab = keyof typeof TABS;

interface HooksProps {
  title: string;
  current: Session;
  /** The initial project, if the token has access to it. */
  preferred?: string;
  /** Whether the daemon offers test receivers. */
  receivers: boolean;
  /** Content at the end of the header. */
  children?: ReactNode;
}

/** Endpoints, deliveries and statistics of a scope that the token has access to. */
export function Hooks({ title, current, preferred, receivers, children }: HooksProps) {
  const scopes = scopesOf(current);
  const own = scopes.find(({ kind, name }) => kind === "project" && name === preferred) ?? scopes[0]!;
  const parameters = useParameters();
  const scope = scopes.find((each) => keyOf(each) === parameters.scope) ?? own;
  // Filters and the opened delivery do not apply to another scope.
  const choose = (chosen: string) => setParameters({ ...parametersOf(NO_FILTERS), delivery: "", scope: chosen });
  return (
    <>
      <header className="hooks-top">
        <h1>{title}</h1>
        {scopes.length > 1 && (
          <label className="scope">
            <span className="visually-hidden">Organization or project</span>
            <select value={keyOf(scope)} onChange={(event) => choose(event.target.value)}>
              {scopes.map((each) => (
                <option key={keyOf(each)} value={keyOf(each)}>{each.kind === "organization" ? "Organization" : "Project"} {each.name}</option>
              ))}
            </select>
          </label>
        )}
        <p className="hint reach">{reachOf(scope)}</p>
        {children}
      </header>
      {!mayWrite(current) && <Notice kind="info">{current.portal ? "This page is read-only." : "This token is read-only: it does not have the permission webhooks:write."}</Notice>}
      <OfScope key={keyOf(scope)} current={current} scope={scope} receivers={receivers} />
    </>
  );
}

function OfScope({ current, scope, receivers }: { current: Session; scope: Scope; receivers: boolean }) {
  const parameters = useParameters();
  const [management] = useState(() => new Management(current.token, baseOf(scope)));
  const endpoints = useLoad(management.base, (signal) => management.endpoints(signal));
  const types = useLoad(management.base, async (signal) => ordered(await management.eventTypes(signal), scope));
  const writable = mayWrite(current);
  const problem = endpoints.problem || types.problem;
  if (problem && !endpoints.value) return <Notice kind="error" title="The endpoints cannot be listed">{problem}</Notice>;
  if (!endpoints.value || !types.value) return <div className="waiting" role="status">Loading…</div>;
  const tabs = (Object.keys(TABS) as Tab[]).filter((each) => each !== "receiver" || (receivers && writable));
  const tab = tabs.find((each) => each === parameters.part) ?? "endpoints";
  const open = (part: Tab) => setParameters({ part: part === "endpoints" ? "" : part });
  const listed = (changed: Partial<Filters>) => setParameters({ part: "deliveries", ...parametersOf({ ...NO_FILTERS, ...changed }) });
  return (
    <Workspace.Provider value={{ management, endpoints: endpoints.value, types: types.value, writable, secrets: maySetSecrets(current), reload: endpoints.reload, listDeliveries: listed }}>
      <div className="segments hooks-tabs" role="group" aria-label="Parts of this page">
        {tabs.map((each) => (
          <button key={each} type="button" aria-pressed={each === tab} onClick={() => open(each)}>{TABS[each]}</button>
        ))}
      </div>
      {tab === "endpoints" && <Endpoints toReceiver={tabs.includes("receiver") ? () => open("receiver") : undefined} />}
      {tab === "deliveries" && <Deliveries filters={filtersOf(parameters)} opened={parameters.delivery ?? ""} />}
      {tab === "statistics" && <Statistics />}
      {tab === "receiver" && <ReceiverPanel />}
    </Workspace.Provider>
  );
}
