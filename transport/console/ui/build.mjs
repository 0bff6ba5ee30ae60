// Builds ../dist, or with another folder as its argument that one. The same sources give the same bytes, so that a test can
// tell whether what is checked in is current.
import fs from "node:fs";
import path from "node:path";
import { fileURLToPath } from "node:url";
import { build } from "esbuild";

const here = path.dirname(fileURLToPath(import.meta.url));
const out = path.resolve(process.argv[2] ?? path.join(here, "../dist"));

/** The client is built from its sources, with the packages of this folder, whatever is installed beside those. */
const client = {
  name: "client",
  setup(b) {
    b.onResolve({ filter: /^@aguihub\/client$/ }, () => ({ path: path.join(here, "../../../clients/typescript/src/index.ts") }));
    b.onResolve({ filter: /^(@ag-ui\/client|rxjs)$/ }, ({ path: name, kind, pluginData }) =>
      pluginData === here ? undefined : b.resolve(name, { kind, resolveDir: here, pluginData: here }));
  },
};

fs.rmSync(out, { recursive: true, force: true });
await build({
  absWorkingDir: here,
  entryPoints: { console: "src/main.tsx" },
  bundle: true,
  minify: true,
  format: "esm",
  target: "es2022",
  jsx: "automatic",
  jsxImportSource: "preact",
  legalComments: "none",
  plugins: [client],
  outdir: out,
  logLevel: "warning",
});
await build({ absWorkingDir: here, entryPoints: { console: "src/style.css" }, minify: true, outdir: out, logLevel: "warning" });
fs.copyFileSync(path.join(here, "src/page.html"), path.join(out, "page.html"));
