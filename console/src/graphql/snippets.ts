/** Programs that send the editor's operation. */

export interface Operation {
  url: string;
  apiKey: string;
  query: string;
  variables: Record<string, unknown>;
  /** Whether the program sends a token. It is read from the environment, so that no token is copied. */
  withToken: boolean;
}

const shellQuoted = (text: string) => `'${text.replaceAll("'", "'\\''")}'`;
const json = (value: unknown) => JSON.stringify(value, null, 2);
const template = (text: string) => `\`\n${text.replaceAll(/[\\`]|\$\{/g, "\\$&")}\n\``;
const python = (text: string) => `"""\n${text.replaceAll("\\", "\\\\").replaceAll('"""', '\\"""')}\n"""`;

function curl({ url, apiKey, query, variables, withToken }: Operation): string {
  const headers = [
    ...(apiKey ? [`-H ${shellQuoted(`apikey: ${apiKey}`)}`] : []),
    ...(withToken ? ['-H "Authorization: Bearer $TOKEN"'] : []),
    "-H 'Content-Type: application/json'",
  ];
  return [`curl ${url}`, ...headers, `-d ${shellQuoted(JSON.stringify({ query, variables }))}`].join(" \\\n  ");
}

function javascriptHeaders({ apiKey, withToken }: Operation): string {
  const entries = [
    ...(apiKey ? [`apikey: ${JSON.stringify(apiKey)}`] : []),
    ...(withToken ? ["Authorization: `Bearer ${process.env.TOKEN}`"] : []),
  ];
  return `{ ${entries.join(", ")} }`;
}

/** supabase-js has no method for GraphQL. */
function supabase({ url, apiKey, query, variables }: Operation): string {
  return `import { createClient } from "@supabase/supabase-js";

const url = ${JSON.stringify(url.replace(/\/graphql\/v1$/, ""))};
const apikey = ${JSON.stringify(apiKey)};
const supabase = createClient(url, apikey);

// The token of the user signed in with Supabase Auth, or your own.
const { data: { session } } = await supabase.auth.getSession();
const token = session?.access_token ?? process.env.TOKEN;

// supabase-js has no method for GraphQL, so fetch sends the same key and token.
const response = await fetch(\`\${url}/graphql/v1\`, {
  method: "POST",
  headers: { apikey, ...(token && { Authorization: \`Bearer \${token}\` }), "Content-Type": "application/json" },
  body: JSON.stringify({ query: ${template(query)}, variables: ${json(variables)} }),
});
const { data, errors } = await response.json();
console.log(errors ?? data);`;
}

function apollo(operation: Operation): string {
  const call = /^\s*mutation\b/m.test(operation.query) ? "mutate({ mutation" : "query({ query";
  return `import { ApolloClient, gql, HttpLink, InMemoryCache } from "@apollo/client";

const client = new ApolloClient({
  link: new HttpLink({ uri: ${JSON.stringify(operation.url)}, headers: ${javascriptHeaders(operation)} }),
  cache: new InMemoryCache(),
});
const operation = gql${template(operation.query)};
const { data } = await client.${call}: operation, variables: ${json(operation.variables)} });
console.log(data);`;
}

function gql({ url, apiKey, query, variables, withToken }: Operation): string {
  const entries = [
    ...(apiKey ? [`"apikey": ${JSON.stringify(apiKey)}`] : []),
    ...(withToken ? ['"Authorization": "Bearer " + os.environ["TOKEN"]'] : []),
  ];
  return `import json
import os

from gql import Client, gql
from gql.transport.requests import RequestsHTTPTransport

headers = {${entries.join(", ")}}
client = Client(transport=RequestsHTTPTransport(${JSON.stringify(url)}, headers=headers))
operation = gql(${python(query)})
operation.variable_values = json.loads(r'''${JSON.stringify(variables)}''')
print(client.execute(operation))`;
}

export const SNIPPETS: { title: string; write: (operation: Operation) => string }[] = [
  { title: "curl", write: curl },
  { title: "supabase-js", write: supabase },
  { title: "Apollo Client (JavaScript)", write: apollo },
  { title: "gql (Python)", write: gql },
];
