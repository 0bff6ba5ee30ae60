// What the tests of the examples with packages of their own share.
import { spawn, spawnSync } from "node:child_process";
import crypto from "node:crypto";
import fs from "node:fs";
import path from "node:path";
import { eventually, freePort, here } from "../lib.mjs";

export const examples = path.join(here, "../../../examples");

/** Installs an example's packages where its lockfile's aren't there, ours as it is built, and builds its page. */
export function prepare(name) {
  const dir = path.join(examples, name);
  const run = (command, ...args) => {
    const done = spawnSync(command, args, { cwd: dir, encoding: "utf8" });
    if (done.status !== 0) throw new Error(`${command} ${args.join(" ")} in ${dir}: ${done.error ?? ""}\n${done.stdout}\n${done.stderr}`);
  };
  const sum = crypto.createHash("sha256").update(fs.readFileSync(path.join(dir, "package-lock.json"))).digest("hex").slice(0, 16);
  const marker = path.join(dir, "node_modules", `.installed-${sum}`);
  if (!fs.existsSync(marker)) {
    run("npm", "ci", "--no-audit", "--no-fund", "--ignore-scripts");
    fs.writeFileSync(marker, "");
  }
  const ours = path.join(dir, "node_modules/@aguihub/client");
  fs.rmSync(ours, { recursive: true, force: true });
  for (const part of ["dist", "package.json"]) fs.cpSync(path.join(here, "..", part), path.join(ours, part), { recursive: true });
  run("npx", "vite", "build", "--logLevel", "error");
  return dir;
}

/** Starts an example's server, a program of Node's that is told its port by PORT or by the last of args; it ends with the test. */
export async function serve(t, dir, env, ...args) {
  const port = await freePort();
  let said = "";
  const child = spawn(process.execPath, args.length ? [...args, `${port}`] : ["server.mjs"], { cwd: dir, env: { ...process.env, COPILOTKIT_TELEMETRY_DISABLED: "true", DO_NOT_TRACK: "1", ...env, PORT: `${port}` } });
  for (const out of [child.stdout, child.stderr]) out.on("data", (d) => { said += d; });
  const gone = new Promise((r) => child.on("exit", r));
  t.after(async () => { child.kill("SIGKILL"); await gone; });
  await eventually(() => {
    if (child.exitCode !== null) throw new Error(said);
    return said.includes("http://");
  }, "the server", 60_000);
  return { url: `http://127.0.0.1:${port}`, said: () => said, kill: async () => { child.kill("SIGKILL"); await gone; } };
}

/** What a project's own compiler says of a file, with the example's packages; "" where it is content. */
export function typecheck(dir, source) {
  const file = path.join(dir, `typecheck-${process.pid}.ts`);
  fs.writeFileSync(file, source);
  try {
    const args = ["--noEmit", "--strict", "--skipLibCheck", "--module", "nodenext", "--target", "es2022", "--lib", "es2023,dom,dom.iterable", file];
    return spawnSync(process.execPath, [path.join(here, "../node_modules/typescript/bin/tsc"), ...args], { encoding: "utf8" }).stdout;
  } finally {
    fs.rmSync(file);
  }
}
