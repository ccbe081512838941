import { explorerPlugin } from "@graphiql/plugin-explorer";
import { GraphiQL } from "graphiql";
import "graphiql/style.css";
import "@graphiql/plugin-explorer/style.css";
import { useEffect } from "react";
import { useStore } from "../kit/store";
import { theme } from "../shell/theme";
import { identity, identityHeaders } from "../shell/identity";
import "./graphql.css";

const plugins = [explorerPlugin()];

async function fetcher(params: object, options?: { headers?: Record<string, string> }): Promise<never> {
  const response = await fetch("/graphql/v1", {
    method: "POST",
    headers: { Accept: "application/json", "Content-Type": "application/json", ...identityHeaders(identity.get()), ...options?.headers },
    body: JSON.stringify(params),
  });
  return (await response.json()) as never;
}

export default function GraphQLPage() {
  const shown = useStore(theme);
  const { token, apiKey } = useStore(identity);
  useEffect(() => {
    document.body.classList.remove("graphiql-light", "graphiql-dark");
    document.body.classList.add(`graphiql-${shown}`);
  }, [shown]);
  return (
    <div className="graphql-page">
      <GraphiQL key={`${apiKey} ${token}`} fetcher={fetcher} plugins={plugins} forcedTheme={shown} />
    </div>
  );
}
