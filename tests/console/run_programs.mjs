// Run supabase-js programs, and print their outputs as a JSON list of lists.

import { readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { pathToFileURL } from "node:url";

// The client requires WebSocket, but the programs do not use it.
globalThis.WebSocket ??= class {};

const [folder, source] = process.argv.slice(2);
const print = console.log;
const printed = [];
for (const [number, text] of JSON.parse(readFileSync(source, "utf8")).entries()) {
  const program = join(folder, `program-${number}.mjs`);
  writeFileSync(program, text);
  console.log = (...values) => printed.push(values);
  await import(pathToFileURL(program).href);
}
print(JSON.stringify(printed));
