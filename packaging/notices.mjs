// Writes NOTICES.txt of the console's assets: the licenses of all bundled code.
//
// Vite lists the bundled packages, except its own helpers and the packages inside Swagger UI, which comes as one file.
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { fileURLToPath } from "node:url";

const root = fileURLToPath(new URL("../console/", import.meta.url));
const target = fileURLToPath(new URL("../daemon/dataapi/web/console/assets/NOTICES.txt", import.meta.url));
const modules = join(root, "node_modules");
const { build, loadConfigFromFile } = await import(join(modules, "vite/dist/node/index.js"));

const read = (...names) => readFileSync(join(modules, ...names), "utf-8").trim();

/** Returns Vite's list of the licenses of bundled packages. */
async function bundled() {
  const scratch = mkdtempSync(join(tmpdir(), "notices-"));
  try {
    const { config } = await loadConfigFromFile({ command: "build", mode: "production" }, undefined, root);
    await build({
      ...config,
      root,
      configFile: false,
      logLevel: "error",
      plugins: config.plugins.filter((plugin) => plugin.name !== "compressed"),
      build: { ...config.build, outDir: scratch, license: { fileName: "licenses.md" } },
    });
    return readFileSync(join(scratch, "licenses.md"), "utf-8").replace(/^# .*\n+.*\n+/, "").trim();
  } finally {
    rmSync(scratch, { recursive: true });
  }
}

/** Returns the license of a build tool whose helpers are bundled. */
function tool(name) {
  const { version, license } = JSON.parse(read(name, "package.json"));
  const [text] = read(name, name === "vite" ? "LICENSE.md" : "LICENSE").split("\n# Licenses of bundled dependencies");
  return `## ${name} - ${version} (${license})\n\n${text.trim()}`;
}

/** Returns Swagger UI's own notices, and the names of the packages that it contains. */
function swagger() {
  const { sources } = JSON.parse(read("swagger-ui-dist/swagger-ui-es-bundle.js.map"));
  const found = sources.flatMap((source) => [...source.matchAll(/node_modules\/((?:@[^/]+\/)?[^/]+)\//g)].slice(-1));
  const names = [...new Set(found.map((match) => match[1]))].sort();
  const notices = read("swagger-ui-dist/swagger-ui-es-bundle.js.LICENSE.txt");
  return `## Inside swagger-ui-dist\n\n${read("swagger-ui-dist/NOTICE")}\n\nIt contains code of: ${names.join(", ")}.\n\n${notices}`;
}

const introduction = "The files of the console contain the packages below, each under its own licence.";
const parts = [introduction, await bundled(), swagger(), tool("vite"), tool("rolldown")];
const lines = parts.join("\n\n---------------------------------------\n\n").split("\n");
writeFileSync(target, `${lines.map((line) => line.trimEnd()).join("\n")}\n`);
