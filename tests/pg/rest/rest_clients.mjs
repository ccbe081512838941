// Uses the REST API with supabase-js and prints, as JSON, how many calls were made and what each one that did
// not give what the documentation promises gave instead.
// Usage: node rest_clients.mjs DIRECTORY URL KEY TOKEN GROUP, where DIRECTORY holds node_modules, URL has no
// path, TOKEN is that of a user and GROUP is the name of a list of calls: ./rest_clients_GROUP.mjs.  A call is a
// name, a function that makes it of a client, and the response; where calls change rows the first ones are put
// back before each.
import { deepStrictEqual } from "node:assert";
import { createRequire } from "node:module";
import { join } from "node:path";

const [directory, url, key, token, group] = process.argv.slice(2);
const { createClient } = createRequire(join(directory, "package.json"))("@supabase/supabase-js");

// Nothing here needs a socket, which this Node may not have.
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
    // What a response has is compared as JSON, so that errors are their members.
    deepStrictEqual(JSON.parse(JSON.stringify(given)), promised);
  } catch (difference) {
    faults[name] = difference.message ?? JSON.stringify(difference);
  }
}
console.log(JSON.stringify({ made: calls.length, faults }));
