import { createHash } from "node:crypto";
import { readdirSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { dirname, join, relative, resolve } from "node:path";
import { fileURLToPath } from "node:url";
import { brotliCompressSync, constants, gzipSync } from "node:zlib";
import { defineConfig, type Plugin } from "vite";

const here = dirname(fileURLToPath(import.meta.url));
/** Output folders of the console and the customer portal. They share no files, because they are served to different users. */
const targets = {
  console: resolve(here, "../daemon/dataapi/web/console/assets"),
  portal: resolve(here, "../daemon/dataapi/web/portal/assets"),
};

/** A hash of all sources, with which a test checks that the assets are current. */
function sourcesHash(): string {
  const names = readdirSync(here, { recursive: true, withFileTypes: true })
    .filter((entry) => entry.isFile())
    .map((entry) => relative(here, join(entry.parentPath, entry.name)))
    .filter((name) => !name.startsWith("node_modules/") && name !== "README.md")
    .sort();
  const hash = createHash("sha256");
  for (const name of names) {
    hash.update(`${name}\0`).update(createHash("sha256").update(readFileSync(join(here, name))).digest());
  }
  return hash.digest("hex");
}

/** Compresses every file with gzip and Brotli, except the page. */
function compressed(target: string): Plugin {
  return {
    name: "compressed",
    apply: "build",
    closeBundle() {
      const files = join(target, "assets");
      for (const name of readdirSync(files)) {
        const content = readFileSync(join(files, name));
        writeFileSync(join(target, `${name}.gz`), gzipSync(content, { level: 9 }));
        const quality = { params: { [constants.BROTLI_PARAM_QUALITY]: 11 } };
        writeFileSync(join(target, `${name}.br`), brotliCompressSync(content, quality));
      }
      rmSync(files, { recursive: true });
      writeFileSync(join(target, "sources.sha256"), `${sourcesHash()}\n`);
    },
  };
}

/** Removes the fonts (data URLs) from GraphiQL's style. The console uses system fonts. */
function withoutFonts(): Plugin {
  return {
    name: "without-fonts",
    enforce: "pre",
    transform(code, id) {
      return id.includes("/node_modules/") && id.endsWith(".css") ? code.replace(/@font-face\s*\{[^}]*\}/g, "") : null;
    },
  };
}

export default defineConfig(({ mode }) => {
  const page = mode === "portal" ? "portal" : "console";
  const target = targets[page];
  return {
    base: `/${page}/`,
    resolve: {
      // Scroll locks use inline styles, which the console's Content-Security-Policy blocks.
      alias: { "react-style-singleton": join(here, "src/kit/style-singleton.ts") },
    },
    build: {
      outDir: target,
      emptyOutDir: true,
      assetsInlineLimit: 0,
      target: "es2022",
      cssTarget: ["chrome123", "firefox120", "safari17.5"],
      chunkSizeWarningLimit: 2000,
      rolldownOptions: {
        input: resolve(here, page === "portal" ? "portal.html" : "index.html"),
        onLog(level, log, handler) {
          if (log.code !== "MODULE_LEVEL_DIRECTIVE") handler(level, log);
        },
      },
      modulePreload: { polyfill: false },
    },
    plugins: [withoutFonts(), compressed(target)],
  };
});
