// Uses the APIs with the clients that people use, and prints what these make of the answers as JSON.
// Usage: node clients.mjs DIRECTORY TASK URL HEADERS INPUT, where DIRECTORY holds node_modules, URL has no
// path, HEADERS is a JSON object that every request is given, and INPUT is JSON for the task.
import { createHash } from "node:crypto";
import { createRequire } from "node:module";
import { join } from "node:path";

// urql checks the operation's type before it sends, except in production; a document id has none.
process.env.NODE_ENV = "production";

const [directory, task, url, headersText, inputText] = process.argv.slice(2);
const require = createRequire(join(directory, "package.json"));
const headers = JSON.parse(headersText);
const input = JSON.parse(inputText);
const uri = `${url}/graphql/v1`;

// Keeps what is sent, so that a test can tell how often and in which form.
const sent = [];
const recordingFetch = (target, init) => {
  sent.push(init.body ? Object.keys(JSON.parse(init.body)).sort() : init.method);
  return fetch(target, init);
};

const sha256 = (text) => createHash("sha256").update(text).digest("hex");
const graphql = () => require("graphql");

function apollo(link = (http) => http) {
  const { ApolloClient, HttpLink, InMemoryCache } = require("@apollo/client");
  return new ApolloClient({
    link: link(new HttpLink({ uri, headers, fetch: recordingFetch })),
    // Rows have an id that is unique everywhere (Relay's object identification).
    cache: new InMemoryCache({ dataIdFromObject: (row) => row.nodeId }),
  });
}

async function outcome(work) {
  const { CombinedGraphQLErrors } = require("@apollo/client");
  try {
    return { data: (await work).data };
  } catch (error) {
    if (!CombinedGraphQLErrors.is(error)) throw error;
    return { errors: error.errors };
  }
}

const tasks = {
  async apollo() {
    const { gql } = require("@apollo/client");
    const client = apollo();
    const results = [];
    for (const { query, mutation, variables } of input.operations) {
      results.push(
        await outcome(
          mutation ? client.mutate({ mutation: gql(mutation), variables }) : client.query({ query: gql(query), variables }),
        ),
      );
    }
    return { results, sent, cached: client.cache.extract() };
  },

  // The text that Apollo sends for a document, as its manifest generator writes it.
  async "apollo-manifest"() {
    const { gql } = require("@apollo/client");
    const body = graphql().print(apollo().documentTransform.transformDocument(gql(input.query)));
    const operation = { id: sha256(body), name: "Persisted", type: "query", body };
    return { format: "apollo-persisted-query-manifest", version: 1, operations: [operation] };
  },

  async "apollo-persisted"() {
    const { gql } = require("@apollo/client");
    const { PersistedQueryLink } = require("@apollo/client/link/persisted-queries");
    const client = apollo((http) => new PersistedQueryLink({ sha256 }).concat(http));
    const results = [];
    for (const { query, variables } of input.operations) {
      results.push(await outcome(client.query({ query: gql(query), variables })));
    }
    return { results, sent };
  },

  async urql() {
    const { Client, fetchExchange, gql } = require("@urql/core");
    const client = new Client({
      url: uri,
      exchanges: [fetchExchange],
      fetch: recordingFetch,
      fetchOptions: { headers },
      preferGetMethod: input.method === "GET",
    });
    const persisted = { kind: "Document", definitions: [], documentId: input.documentId };
    const document = input.documentId ? persisted : gql(input.query);
    const { data, error } = await client.query(document, input.variables).toPromise();
    return { data, errors: error?.graphQLErrors, network: error?.networkError?.message, sent };
  },

  // Whether introspection and the printed schema, both read by graphql-js, are the same schema.
  async schema() {
    const { buildClientSchema, buildSchema, getIntrospectionQuery, lexicographicSortSchema, printSchema, validateSchema } =
      graphql();
    const query = getIntrospectionQuery({
      specifiedByUrl: true,
      directiveIsRepeatable: true,
      schemaDescription: true,
      inputValueDeprecation: true,
    });
    const response = await fetch(uri, {
      method: "POST",
      headers: { "content-type": "application/json", ...headers },
      body: JSON.stringify({ query }),
    });
    const introspected = buildClientSchema((await response.json()).data);
    const printed = buildSchema(input.sdl);
    return {
      faults: [...validateSchema(introspected), ...validateSchema(printed)].map((fault) => fault.message),
      introspected: printSchema(lexicographicSortSchema(introspected)),
      printed: printSchema(lexicographicSortSchema(printed)),
    };
  },

  async postgrest() {
    const { PostgrestClient } = require("@supabase/postgrest-js");
    const client = new PostgrestClient(`${url}/rest/v1`, { headers });
    const page = await client
      .from("artist")
      .select("artist_id,title:name", { count: "exact" })
      .order("artist_id", { ascending: false })
      .range(1, 2);
    const unknown = await client.from("nothing").select();
    return [page, unknown].map(({ data, count, status, error }) => ({ data, count, status, error }));
  },
};

console.log(JSON.stringify(await tasks[task]()));
