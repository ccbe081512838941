import { explorerPlugin } from "@graphiql/plugin-explorer";
import { GraphiQL } from "graphiql";
import "graphiql/style.css";
import "@graphiql/plugin-explorer/style.css";
import { useCallback, useEffect, useMemo, useState } from "react";
import { refusalOf, type Refused } from "../kit/data";
import { Notice } from "../kit/notice";
import { makeStore, useStore } from "../kit/store";
import { identity, identityHeaders } from "../shell/identity";
import { Problem } from "../shell/problem";
import { useSettings } from "../shell/settings";
import { theme } from "../shell/theme";
import { CopyAs } from "./copy-as";
import { documentsPlugin } from "./documents-panel";
import { EditorAccess } from "./editor-access";
import "./graphql.css";
import { asSubscription, endSubscriptions, follow, LiveChanges, LiveSwitch } from "./live";
import "./panels.css";
import { asksFor, measuring, planPlugin, type Measured } from "./plan-panel";
import { storage } from "./storage";

const explorer = explorerPlugin();

const FIRST_QUERY = `# Ctrl+Enter runs the operation, Ctrl+Space shows completions.
# The icons next to the editor open the schema, the history and a query builder.
{
  __typename
}
`;

interface Asked {
  query?: string;
  operationName?: string | null;
  extensions?: object;
}

interface Answered {
  data?: { __schema?: object };
  extensions?: Measured;
}

/** The last response if its status was 401. */
const refused = makeStore<Refused | null>(null);

function respond(asked: Asked, headers: Record<string, string>, accept = "application/json", signal?: AbortSignal): Promise<Response> {
  return fetch("/graphql/v1", {
    method: "POST",
    headers: { Accept: accept, "Content-Type": "application/json", ...identityHeaders(identity.get()), ...headers },
    body: JSON.stringify(asked),
    signal: signal ?? null,
  });
}

async function send(asked: Asked, headers: Record<string, string> = {}): Promise<Answered> {
  const response = await respond(asked, headers);
  refused.set(response.status === 401 ? await refusalOf(response.clone()) : null);
  return (await response.json()) as Answered;
}

/** Send an operation. Its cost and plans are shown in the panel, not in the result. */
async function measured(asked: Asked, headers?: Record<string, string>): Promise<Answered> {
  const requested = asksFor();
  if (!requested) return send(asked, headers);
  const answered = await send({ ...asked, extensions: { ...asked.extensions, ...requested } }, headers);
  measuring.set({ on: true, last: answered.extensions ?? {} });
  const { explain: _ofThePanel, ...extensions } = answered.extensions ?? {};
  return answered.extensions ? { ...answered, extensions } : answered;
}

export default function GraphQLPage() {
  const current = useStore(theme);
  const settings = useSettings();
  const { token, apiKey } = useStore(identity);
  const refusal = useStore(refused);
  const [described, setDescribed] = useState(true);
  useEffect(() => {
    document.body.classList.remove("graphiql-light", "graphiql-dark");
    document.body.classList.add(`graphiql-${current}`);
  }, [current]);
  useEffect(() => endSubscriptions, [apiKey, token]);
  const { documents, documentsOnly, live } = settings;
  // GraphiQL loads the schema again whenever the function changes.
  const fetcher = useCallback(async (asked: Asked, options?: { headers?: Record<string, string> }) => {
    const subscription = live ? asSubscription(asked) : null;
    if (subscription) return follow((signal) => respond(subscription, options?.headers ?? {}, "text/event-stream, application/json;q=0.9", signal)) as never;
    if (asked.operationName !== "IntrospectionQuery") return (await measured(asked, options?.headers)) as never;
    const answered = await send(asked, options?.headers);
    setDescribed(Boolean(answered.data?.__schema));
    return answered as never;
  }, [live]);
  const plugins = useMemo(() => [explorer, planPlugin, ...(documents ? [documentsPlugin] : [])], [documents]);
  return (
    <div className="graphql-page">
      {refusal ? <Problem title="The request was rejected" error={refusal} /> : !described && (documentsOnly ? <DocumentsOnly /> : <IntrospectionIsOff />)}
      <LiveChanges />
      <GraphiQL
        key={`${apiKey} ${token}`}
        fetcher={fetcher}
        plugins={plugins}
        forcedTheme={current}
        defaultQuery={FIRST_QUERY}
        storage={storage}
        showPersistHeadersSettings={false}
      >
        <GraphiQL.Logo> </GraphiQL.Logo>
        <GraphiQL.Toolbar>{({ prettify, merge }) => <>{prettify}{merge}<CopyAs /><EditorAccess />{live && <LiveSwitch />}</>}</GraphiQL.Toolbar>
      </GraphiQL>
    </div>
  );
}

function DocumentsOnly() {
  return (
    <Notice kind="info" title="Only stored documents are allowed">
      The project has <code>graphql-documents-only</code> set. As service_role, choose a document in the panel <strong>Stored documents</strong>.
      Completion and documentation require a stored introspection query.
    </Notice>
  );
}

function IntrospectionIsOff() {
  const [schema] = useSettings().schemas;
  return (
    <Notice kind="info" title="This role cannot read the schema">
      Operations work, but without completion and documentation. Unless the errors below name another reason, introspection is
      disabled. Enable it in the schema's comment, in addition to its other directives: <code>{`comment on schema ${schema} is '@graphql({"introspection": true})';`}</code>
    </Notice>
  );
}
