import { explorerPlugin } from "@graphiql/plugin-explorer";
import { GraphiQL } from "graphiql";
import "graphiql/style.css";
import "@graphiql/plugin-explorer/style.css";
import { useEffect, useState } from "react";
import { Notice } from "../kit/notice";
import { useStore } from "../kit/store";
import { identity, identityHeaders } from "../shell/identity";
import { useSettings } from "../shell/settings";
import { theme } from "../shell/theme";
import { CopyAs } from "./copy-as";
import "./graphql.css";
import { storage } from "./storage";

const plugins = [explorerPlugin()];

const FIRST_QUERY = `# Ctrl+Enter runs the operation, Ctrl+Space completes what you type.
# The symbols beside the editor open the schema, past operations and a builder.
{
  __typename
}
`;

interface Asked {
  operationName?: string | null;
}

interface Answered {
  data?: { __schema?: object };
}

async function send(asked: Asked, headers: Record<string, string> = {}): Promise<Answered> {
  const response = await fetch("/graphql/v1", {
    method: "POST",
    headers: { Accept: "application/json", "Content-Type": "application/json", ...identityHeaders(identity.get()), ...headers },
    body: JSON.stringify(asked),
  });
  return (await response.json()) as Answered;
}

export default function GraphQLPage() {
  const shown = useStore(theme);
  const { token, apiKey } = useStore(identity);
  const [described, setDescribed] = useState(true);
  useEffect(() => {
    document.body.classList.remove("graphiql-light", "graphiql-dark");
    document.body.classList.add(`graphiql-${shown}`);
  }, [shown]);
  const fetcher = async (asked: Asked, options?: { headers?: Record<string, string> }) => {
    const answered = await send(asked, options?.headers);
    if (asked.operationName === "IntrospectionQuery") setDescribed(Boolean(answered.data?.__schema));
    return answered as never;
  };
  return (
    <div className="graphql-page">
      {!described && <IntrospectionIsOff />}
      <GraphiQL
        key={`${apiKey} ${token}`}
        fetcher={fetcher}
        plugins={plugins}
        forcedTheme={shown}
        defaultQuery={FIRST_QUERY}
        storage={storage}
        showPersistHeadersSettings={false}
      >
        <GraphiQL.Logo> </GraphiQL.Logo>
        <GraphiQL.Toolbar>{({ prettify, merge }) => <>{prettify}{merge}<CopyAs /></>}</GraphiQL.Toolbar>
      </GraphiQL>
    </div>
  );
}

function IntrospectionIsOff() {
  const [schema] = useSettings().schemas;
  return (
    <Notice kind="info" title="This role cannot read the schema">
      Operations run, without completion and documentation. Unless the errors below name another reason, introspection is off. Turn it on by
      the schema's comment, beside the keys that it has: <code>{`comment on schema ${schema} is '@graphql({"introspection": true})';`}</code>
    </Notice>
  );
}
