// Runs the tests on each version of the official client that is served. AGUIHUB_BIN names the hub; without it one is
// built. AGUIHUB_SWEEP=1 runs the long form, CLIENT_VERSION one version only, SEED another choice of cuts.
import { spawnSync } from "node:child_process";
import fs from "node:fs";
import os from "node:os";
import path from "node:path";
import { fileURLToPath } from "node:url";

const here = path.dirname(fileURLToPath(import.meta.url));
const env = { ...process.env };
let temporary;
if (!env.AGUIHUB_BIN) {
  temporary = fs.mkdtempSync(path.join(os.tmpdir(), "aguihub-bin-"));
  env.AGUIHUB_BIN = path.join(temporary, "aguihub");
  const built = spawnSync("go", ["build", "-o", env.AGUIHUB_BIN, "./cmd/aguihub"], { cwd: path.join(here, "../../.."), stdio: "inherit" });
  if (built.status !== 0) process.exit(1);
}
const versions = env.CLIENT_VERSION ? [env.CLIENT_VERSION] : ["1.0.0", "0.0.59", "0.0.57"];
const files = fs.readdirSync(here).filter((f) => f.endsWith(".test.mjs")).map((f) => path.join(here, f));
let failed = false;
const long = env.AGUIHUB_SWEEP === "1";
for (const version of versions) {
  // HubRunner is for CopilotKit's runtime, which has that client.
  const wanted = files.filter((f) => long || version === "0.0.59" || !f.endsWith("copilotkit.test.mjs"));
  console.log(`client ${version}`);
  const args = ["--import", path.join(here, "versions.mjs"), "--test", "--test-reporter=spec", `--test-timeout=${long ? 900_000 : 90_000}`, ...wanted];
  failed = spawnSync(process.execPath, args, { env: { ...env, CLIENT_VERSION: version }, stdio: "inherit" }).status !== 0 || failed;
}
if (temporary) fs.rmSync(temporary, { recursive: true, force: true });
process.exit(failed ? 1 : 0);
