// What the tests of the examples with packages of their own share.
import { spawn } from "node:child_process";
import fs from "node:fs";
import path from "node:path";
import { text } from "node:stream/consumers";
import { eventually, freePort, here } from "../lib.mjs";

export const examples = path.join(here, "../../../examples");

/** For how long the tests wait for what a page is to show, in milliseconds: a machine that does much else takes long to load these pages. */
export const patience = 120_000;

/** The folder of an example, which prepare.mjs has made ready. */
export const folder = (name) => path.join(examples, name);

const started = [];
/** Starts a program of Node's in an example's folder. It is told its port by PORT, or by the last of args, and tells by a URL that it listens. */
export async function serve(dir, env, ...args) {
  const port = await freePort();
  let said = "";
  const child = spawn(process.execPath, args.length ? [...args, `${port}`] : ["server.mjs"], { cwd: dir, env: { ...process.env, COPILOTKIT_TELEMETRY_DISABLED: "true", DO_NOT_TRACK: "1", ...env, PORT: `${port}` } });
  for (const out of [child.stdout, child.stderr]) out.on("data", (d) => { said += d; });
  const gone = new Promise((r) => child.on("exit", r));
  const kill = async () => { child.kill("SIGKILL"); await gone; };
  started.push(kill);
  await eventually(() => {
    if (child.exitCode !== null) throw new Error(said);
    return said.includes("http://");
  }, "the server", patience);
  return { url: `http://127.0.0.1:${port}`, kill };
}
/** Ends all that serve started. */
export const stopAll = () => Promise.all(started.map((kill) => kill()));

/** How long an agent is to pause between its words so that the page at url, which open opens, is reloaded well within its answer of
 * over twenty words, however slow the machine is. */
export async function pauseFor(open, url) {
  const begun = Date.now();
  await (await open(url)).close();
  return `${Math.max(250, Math.round((Date.now() - begun) / 4))}`;
}

/** What a project's own compiler says of a file, with the example's packages; "" where it is content. */
export async function typecheck(dir, source) {
  const file = path.join(dir, `typecheck-${process.pid}.ts`);
  fs.writeFileSync(file, source);
  try {
    const args = ["--noEmit", "--strict", "--skipLibCheck", "--module", "nodenext", "--target", "es2022", "--lib", "es2023,dom,dom.iterable", file];
    const tsc = spawn(process.execPath, [path.join(here, "../node_modules/typescript/bin/tsc"), ...args], { stdio: ["ignore", "pipe", "inherit"] });
    return await text(tsc.stdout);
  } finally {
    fs.rmSync(file);
  }
}
