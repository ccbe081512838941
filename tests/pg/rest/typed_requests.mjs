// Send requests with postgrest-js and print the data of the responses as JSON.
// Usage: node typed_requests.mjs DIRECTORY URL KEY TOKEN EXPRESSIONS
// DIRECTORY contains node_modules. EXPRESSIONS is a JSON array of requests of the client "rest".
import { createRequire } from "node:module";
import { join } from "node:path";

const [directory, url, key, token, expressions] = process.argv.slice(2);
const { PostgrestClient } = createRequire(join(directory, "package.json"))("@supabase/postgrest-js");
const headers = { apikey: key, Authorization: `Bearer ${token}` };
const rest = new PostgrestClient(`${url}/rest/v1`, { headers });
const send = new Function("rest", "expression", "return eval(expression)");

const results = [];
for (const expression of JSON.parse(expressions)) {
  const { data, error } = await send(rest, expression);
  if (error) throw new Error(`${expression}: ${JSON.stringify(error)}`);
  results.push(data);
}
console.log(JSON.stringify(results));
