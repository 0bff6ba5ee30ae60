// Runs the tests on each version of the official client that is served. AGUIHUB_BIN names the hub; without it one is
// built. AGUIHUB_SWEEP=1 runs the long form, CLIENT_VERSION one version only, SEED another choice of cuts.
import { spawnSync } from "node:child_process";
import fs from "node:fs";
import path from "node:path";
import { withHub } from "./hub.mjs";

const here = import.meta.dirname;
withHub((env) => {
  const versions = env.CLIENT_VERSION ? [env.CLIENT_VERSION] : ["1.0.0", "0.0.59", "0.0.57"];
  const files = fs.readdirSync(here).filter((f) => f.endsWith(".test.mjs")).map((f) => path.join(here, f));
  const long = env.AGUIHUB_SWEEP === "1";
  let failed = false;
  for (const version of versions) {
    // HubRunner is for CopilotKit's runtime, which has that client.
    const wanted = files.filter((f) => long || version === "0.0.59" || !f.endsWith("copilotkit.test.mjs"));
    console.log(`client ${version}`);
    const args = ["--import", path.join(here, "versions.mjs"), "--test", "--test-reporter=spec", `--test-timeout=${long ? 900_000 : 300_000}`, ...wanted];
    failed = spawnSync(process.execPath, args, { env: { ...env, CLIENT_VERSION: version }, stdio: "inherit" }).status !== 0 || failed;
  }
  return failed;
});
