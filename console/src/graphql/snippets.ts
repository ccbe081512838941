/** Programs that send the operation of the editor, to be copied. */

export interface Operation {
  url: string;
  apiKey: string;
  query: string;
  variables: Record<string, unknown>;
  /** Whether the program sends a token; it comes from the environment, never from the tab. */
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
  { title: "Apollo Client (JavaScript)", write: apollo },
  { title: "gql (Python)", write: gql },
];
