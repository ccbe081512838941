// Subscribe with a client library, change a row after the first result, and print the first two results.
// Usage: node clients.mjs DIRECTORY TASK URL HEADERS INPUT
// DIRECTORY contains node_modules. URL has no path. HEADERS is a JSON object with the headers of all requests.
// INPUT is a JSON object with `query` and `change`, a PATCH of the REST API. For WebSockets it also has `tokens`:
// each connection uses the next one.
import { createRequire } from "node:module";
import { join } from "node:path";

const [directory, task, url, headersText, inputText] = process.argv.slice(2);
const require = createRequire(join(directory, "package.json"));
const headers = JSON.parse(headersText);
const input = JSON.parse(inputText);

const results = [];

async function take(result) {
  results.push(result);
  if (results.length === 1) {
    const response = await fetch(`${url}/rest/v1/${input.change.target}`, {
      method: "PATCH",
      headers: { ...headers, "content-type": "application/json" },
      body: JSON.stringify(input.change.body),
    });
    if (!response.ok) throw new Error(await response.text());
  } else if (results.length === 2) {
    process.stdout.write(JSON.stringify(results), () => process.exit(0));
  }
}

function fail(error) {
  console.error(error);
  process.exit(1);
}

const sse = () => require("graphql-sse").createClient({ url: `${url}/graphql/v1`, headers, retryAttempts: 0 });
// Node 20 has no WebSocket. The tests do not wait before reconnecting.
const ws = (options) =>
  require("graphql-ws").createClient({
    url: `${url.replace("http", "ws")}/graphql/v1`,
    webSocketImpl: require("ws").WebSocket,
    connectionParams: () => ({ ...headers, authorization: `Bearer ${input.tokens.shift()}` }),
    retryWait: async () => {},
    ...options,
  });
const sink = (next) => ({ next, error: fail, complete: () => fail("complete") });

// Subscribes with urql, through a client of the transport.
function subscribeWithUrql(client) {
  const { Client, fetchExchange, subscriptionExchange } = require("@urql/core");
  const forwardSubscription = (operation) => ({
    subscribe: (observer) => ({
      unsubscribe: client.subscribe({ query: operation.query, variables: operation.variables }, observer),
    }),
  });
  new Client({
    url: `${url}/graphql/v1`,
    preferGetMethod: false,
    exchanges: [fetchExchange, subscriptionExchange({ forwardSubscription })],
  })
    .subscription(input.query, {})
    .subscribe((result) => (result.error ? fail(result.error) : take(result.data)));
}

const tasks = {
  graphqlSse() {
    sse().subscribe({ query: input.query }, sink((result) => take(result.data)));
  },

  apollo() {
    const { ApolloClient, ApolloLink, InMemoryCache, gql } = require("@apollo/client");
    const { Observable } = require("rxjs");
    const { print } = require("graphql");
    const client = sse();
    const link = new ApolloLink(
      (operation) =>
        new Observable((observer) =>
          client.subscribe({ ...operation, query: print(operation.query) }, {
            next: (value) => observer.next(value),
            error: (error) => observer.error(error),
            complete: () => observer.complete(),
          }),
        ),
    );
    new ApolloClient({ link, cache: new InMemoryCache() })
      .subscribe({ query: gql(input.query) })
      .subscribe({ next: (result) => take(result.data), error: fail });
  },

  urql() {
    subscribeWithUrql(sse());
  },

  relay() {
    const { Network, Observable } = require("relay-runtime");
    const client = sse();
    const network = Network.create(
      () => fail("a subscription is no fetch"),
      (operation, variables) =>
        Observable.create((observer) =>
          client.subscribe({ operationName: operation.name, query: operation.text, variables }, observer),
        ),
    );
    network
      .execute({ name: "Live", text: input.query, operationKind: "subscription", id: null, metadata: {} }, {}, {})
      .subscribe({ next: (result) => take(result.data), error: fail });
  },

  graphqlWs() {
    ws().subscribe({ query: input.query }, sink((result) => take(result.data)));
  },

  // Renews the token of an open connection, which sends the current result again.
  graphqlWsRenewal() {
    let socket;
    const client = ws({ on: { opened: (opened) => (socket = opened) }, retryAttempts: 0 });
    client.subscribe({ query: input.query }, sink((result) => {
      if (socket === undefined) return take(result.data);
      socket.send(JSON.stringify({ type: "ping", payload: { authorization: `Bearer ${input.tokens.shift()}` } }));
      socket = undefined;
    }));
  },

  apolloWs() {
    const { ApolloClient, InMemoryCache, gql } = require("@apollo/client");
    const { GraphQLWsLink } = require("@apollo/client/link/subscriptions");
    new ApolloClient({ link: new GraphQLWsLink(ws()), cache: new InMemoryCache() })
      .subscribe({ query: gql(input.query) })
      .subscribe({ next: (result) => take(result.data), error: fail });
  },

  urqlWs() {
    subscribeWithUrql(ws());
  },

  eventSource() {
    const { EventSource } = require("eventsource");
    const source = new EventSource(`${url}/rest/v1/${input.target}&apikey=${headers.apikey}`);
    source.addEventListener("snapshot", (event) => take(JSON.parse(event.data)));
    source.addEventListener("error", (event) => fail(event.message));
  },
};

tasks[task]();
