// Insert rows with related rows with supabase-js and print the response.
// Usage: node nested_insert.mjs DIRECTORY URL KEY; DIRECTORY contains node_modules.
import { createRequire } from "node:module";
import { join } from "node:path";

const [directory, url, key] = process.argv.slice(2);
const { createClient } = createRequire(join(directory, "package.json"))("@supabase/supabase-js");

// The request needs no WebSocket, and older versions of Node have none.
const client = createClient(url, key, {
  auth: { persistSession: false, autoRefreshToken: false },
  realtime: { transport: class {} },
});
const orders = [
  { note: "one", line: [{ number: 1, sku: "a" }], "customer!customer_id": { email: "j@example.org" } },
  { note: "two", line: [{ number: 2 }, { number: 3 }] },
];
// For arrays, the client sends the parameter columns with all members, in quotes.
const { data, error } = await client
  .from("order")
  .insert(orders, { defaultToNull: false })
  .select("note,customer!customer_id(email),line(number)")
  .order("id")
  .order("number", { referencedTable: "line" });
console.log(JSON.stringify({ data, error }));
