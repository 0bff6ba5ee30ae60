// Runs the tests of a folder in Chromium, for which AGUIHUB_BIN names a hub (without it one is built), CHROMIUM a browser
// that isn't /usr/bin/chromium, and SCREENSHOTS a folder for pictures.
import { spawnSync } from "node:child_process";
import fs from "node:fs";
import path from "node:path";
import { withHub } from "../hub.mjs";

const dir = path.join(import.meta.dirname, "..", process.argv[2]);
withHub((env) => {
  const files = fs.readdirSync(dir).filter((f) => f.endsWith(".test.mjs")).map((f) => path.join(dir, f));
  const args = ["--test", "--test-reporter=spec", "--test-concurrency=2", "--test-timeout=600000", ...files];
  return spawnSync(process.execPath, args, { env, stdio: "inherit" }).status !== 0;
});
