// Runs something with AGUIHUB_BIN: the hub that it names, or one of this tree.
import { spawnSync } from "node:child_process";
import fs from "node:fs";
import os from "node:os";
import path from "node:path";

export function withHub(f) {
  const env = { ...process.env };
  let temporary;
  if (!env.AGUIHUB_BIN) {
    temporary = fs.mkdtempSync(path.join(os.tmpdir(), "aguihub-bin-"));
    env.AGUIHUB_BIN = path.join(temporary, "aguihub");
    const built = spawnSync("go", ["build", "-o", env.AGUIHUB_BIN, "./cmd/aguihub"], { cwd: path.join(import.meta.dirname, "../../.."), stdio: "inherit" });
    if (built.status !== 0) process.exit(1);
  }
  const failed = f(env);
  if (temporary) fs.rmSync(temporary, { recursive: true, force: true });
  process.exit(failed ? 1 : 0);
}
