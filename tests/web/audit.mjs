// Runs the audits of the npm package graphql-http against a server and prints their results as JSON.
// Usage: node audit.mjs DIRECTORY URL HEADERS, where DIRECTORY contains node_modules, and HEADERS is
// a JSON object with headers for every request, such as the API key.
import { createRequire } from "node:module";
import { join } from "node:path";

const [directory, url, headers] = process.argv.slice(2);
const { auditServer } = createRequire(join(directory, "package.json"))("graphql-http");

const fetchFn = (target, init = {}) =>
  fetch(target, { ...init, headers: { ...init.headers, ...JSON.parse(headers) } });

const results = await auditServer({ url, fetchFn });
console.log(JSON.stringify(results.map(({ id, name, status, reason }) => ({ id, name, status, reason }))));
