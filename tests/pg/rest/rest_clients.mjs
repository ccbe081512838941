// Call the REST API with supabase-js. Print, as JSON, the number of calls and the unexpected results.
// Usage: node rest_clients.mjs DIRECTORY URL KEY TOKEN GROUP
// DIRECTORY contains node_modules. URL has no path. TOKEN is the token of a user. GROUP names a list of calls,
// ./rest_clients_GROUP.mjs. A call consists of a name, a function of a client, and the expected response.
// In groups that change rows, the initial rows are restored before each call.
import { deepStrictEqual } from "node:assert";
import { createRequire } from "node:module";
import { join } from "node:path";

const [directory, url, key, token, group] = process.argv.slice(2);
const { createClient } = createRequire(join(directory, "package.json"))("@supabase/supabase-js");

// These calls need no WebSocket, and older versions of Node have none.
const options = {
  auth: { persistSession: false, autoRefreshToken: false },
  realtime: { transport: class {} },
};
const connect = (more = {}) => createClient(url, more.key ?? key, { ...options, ...more });
const signIn = () => connect({ accessToken: async () => token });

const { calls, changing = false } = await import(`./rest_clients_${group}.mjs`);
const faults = {};
for (const [name, call, promised] of calls) {
  try {
    if (changing) await connect().rpc("restore").throwOnError();
    const given = await call(connect(), { connect, signIn });
    // Responses are compared as JSON to include the fields of errors.
    deepStrictEqual(JSON.parse(JSON.stringify(given)), promised);
  } catch (difference) {
    faults[name] = difference.message ?? JSON.stringify(difference);
  }
}
console.log(JSON.stringify({ made: calls.length, faults }));
