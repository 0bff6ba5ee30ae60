// Runs the tests in Chromium, for which AGUIHUB_BIN names a hub, CHROMIUM a browser that isn't /usr/bin/chromium, and
// SCREENSHOTS a folder for pictures.
import { spawnSync } from "node:child_process";
import fs from "node:fs";
import path from "node:path";
import { fileURLToPath } from "node:url";

const here = path.dirname(fileURLToPath(import.meta.url));
const files = fs.readdirSync(here).filter((f) => f.endsWith(".test.mjs")).map((f) => path.join(here, f));
process.exit(spawnSync(process.execPath, ["--test", "--test-reporter=spec", "--test-timeout=120000", ...files], { stdio: "inherit" }).status ?? 1);
