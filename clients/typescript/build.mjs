// Makes dist/: types, the entries as modules that share what they have in common, and standalone.js, which has its peers
// in it and is all that a page without a build step needs.
import { spawnSync } from "node:child_process";
import fs from "node:fs";
import { build } from "esbuild";

fs.rmSync("dist", { recursive: true, force: true });
const types = spawnSync(process.execPath, ["node_modules/typescript/bin/tsc"], { stdio: "inherit" });
if (types.status !== 0) process.exit(1);
const common = { bundle: true, minify: true, sourcemap: true, format: "esm", target: "es2022", logLevel: "warning", outdir: "dist" };
await build({ ...common, entryPoints: ["src/index.ts", "src/copilotkit.ts", "src/assistant-ui.ts"], splitting: true, packages: "external" });
await build({ ...common, entryPoints: { standalone: "src/index.ts" }, sourcemap: false });
