import { lazy, Suspense, useEffect } from "react";
import { useData } from "../kit/data";
import { useStore } from "../kit/store";
import type { Schema, Table } from "../schema/model";
import { Problem } from "../shell/problem";
import { setParameters, useParameters } from "../shell/router";
import { useSettings } from "../shell/settings";
import { functionsOf, useDescription, type Description } from "./description";
import { choose, draft } from "./draft";
import { Form } from "./form";
import { Panel } from "./panel";
import { pathOfTable } from "./request";
import { sourceOf } from "./source";
import "../kit/columns.css";
import "./rest.css";

const Viewer = lazy(() => import("./viewer"));

const DESCRIPTION = "description";
/** Views by URL parameter. */
const VIEWS = { "": "Build a request", [DESCRIPTION]: "Description" };

export default function RestPage() {
  const settings = useSettings();
  const { profile } = useStore(draft);
  const view = useParameters().view === DESCRIPTION && settings.openapi ? DESCRIPTION : "";
  const described = useDescription(settings.openapi, profile);
  return (
    <div className="rest-page">
      <h1 className="visually-hidden">REST</h1>
      <div className="segments views" role="group" aria-label="View">
        {Object.entries(VIEWS).filter(([name]) => settings.openapi || name !== DESCRIPTION).map(([name, title]) => (
          <button type="button" key={name} aria-pressed={view === name} onClick={() => setParameters({ view: name })}>{title}</button>
        ))}
      </div>
      {described.problem && <Problem title="The description cannot be read" error={described.problem} />}
      {view !== DESCRIPTION ? <Builder description={described.description} /> : described.description && (
        <Suspense fallback={<div className="waiting" role="status">Loading…</div>}>
          <Viewer description={described.description} profile={profile} />
        </Suspense>
      )}
    </div>
  );
}

function Builder({ description }: { description: Description | null }) {
  const { schemas } = useSettings();
  const { profile, target } = useStore(draft);
  const { data: schema, problem } = useData<Schema>("schema");
  const tables = (schema?.tables ?? []).filter((each) => each.rest.profile === profile && each.rest.methods.length > 0);
  const first = tables.find(isRead) ?? tables[0];
  useEffect(() => {
    if (target === "" && first) choose(pathOfTable(first.name), "GET", sourceOf(first).all, { limited: true });
  }, [target, first]);
  if (!schema && !problem) return <div className="waiting" role="status">Loading…</div>;
  return (
    <div className="request columns">
      <Form tables={tables} functions={description ? functionsOf(description) : []} schema={schema} schemas={schemas} />
      <div className="sent">
        {problem && <Problem title="The tables cannot be listed" error={problem}>You can still type and send requests.</Problem>}
        <Panel />
      </div>
    </div>
  );
}

const isRead = ({ rest }: Table) => rest.methods.includes("GET");
