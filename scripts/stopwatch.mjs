// How long it takes from a clean clone and an agent that knows nothing of the hub to a chat that survives a reload in mid-answer.
//
//   node scripts/stopwatch.mjs [--cold] [REPOSITORY]
//
// Clones REPOSITORY (the one that this script lies in), does what docs/clients.md says under "A page without a build step",
// asks a question in Chromium (CHROMIUM names one that isn't /usr/bin/chromium), reloads the page in mid-answer, and tells
// after each step how many seconds have passed. With --cold the caches of Go and npm are empty, as on a new machine.
import assert from "node:assert/strict";
import { spawn, spawnSync } from "node:child_process";
import fs from "node:fs";
import http from "node:http";
import { createRequire } from "node:module";
import os from "node:os";
import path from "node:path";
import { setTimeout as sleep } from "node:timers/promises";
import { parseArgs } from "node:util";

const { values, positionals } = parseArgs({ options: { cold: { type: "boolean", default: false } }, allowPositionals: true });
const repository = positionals[0] ?? path.join(import.meta.dirname, "..");
const dir = fs.mkdtempSync(path.join(os.tmpdir(), "aguihub-stopwatch-"));
const clone = path.join(dir, "clone"), client = path.join(clone, "clients/typescript"), page = path.join(clone, "examples/html");
const caches = values.cold ? { GOCACHE: path.join(dir, "go-build"), GOMODCACHE: path.join(dir, "go-mod"), GOFLAGS: "-modcacherw", npm_config_cache: path.join(dir, "npm") } : {};
const env = { ...process.env, ...caches };

const begun = performance.now();
const tell = (what) => console.log(`${((performance.now() - begun) / 1000).toFixed(1).padStart(7)} s  ${what}`);

function run(cwd, command, ...args) {
  const done = spawnSync(command, args, { cwd, env, encoding: "utf8" });
  if (done.status !== 0) throw new Error(`${command} ${args.join(" ")}: ${done.error ?? ""}\n${done.stdout}\n${done.stderr}`);
}

const children = [];
/** Starts a program and resolves with the first URL that it prints. */
function start(command, args, more = {}) {
  const child = spawn(command, args, { cwd: clone, env: { ...env, ...more } });
  children.push(child);
  return new Promise((resolve, reject) => {
    let said = "";
    const hear = (data) => {
      said += data;
      const url = /http:\/\/127\.0\.0\.1:\d+/.exec(said);
      if (url) resolve(url[0]);
    };
    child.stdout.on("data", hear);
    child.stderr.on("data", hear);
    child.on("error", reject);
    child.on("exit", (code) => reject(new Error(`${command} ended with ${code}: ${said}`)));
  });
}

/** Serves the page and the client that was built for it. */
async function serve() {
  const types = { ".html": "text/html; charset=utf-8", ".js": "text/javascript" };
  const server = http.createServer((request, response) => {
    const { pathname } = new URL(request.url, "http://here"), file = path.join(page, pathname === "/" ? "index.html" : path.basename(pathname));
    if (!fs.existsSync(file)) return response.writeHead(404).end();
    response.writeHead(200, { "content-type": types[path.extname(file)] ?? "application/octet-stream" }).end(fs.readFileSync(file));
  });
  await new Promise((listening) => server.listen(0, "127.0.0.1", listening));
  return { url: `http://127.0.0.1:${server.address().port}`, close: () => { server.close(); server.closeAllConnections(); } };
}

/** Asks, reloads in mid-answer, and looks whether the answer goes on from there to its end, once. */
async function chat(browser, url) {
  const tab = await browser.newPage();
  tab.setDefaultTimeout(120_000);
  await tab.goto(url);
  await tab.fill("#text", "Good morning");
  await tab.keyboard.press("Enter");
  tell("asked");
  const shown = () => tab.locator("#messages li.assistant").innerText();
  const longer = (than) => tab.waitForFunction((n) => (document.querySelector("#messages li.assistant")?.textContent.length ?? 0) > n, than);
  await longer(10);
  const before = await shown();
  await tab.reload();
  await longer(before.length);
  const after = await shown();
  tell(`reloaded at ${JSON.stringify(before)}, shows ${JSON.stringify(after)}`);
  await tab.waitForFunction(() => document.querySelector("#stop").disabled && document.querySelector("#messages li.assistant"));
  const end = await shown();
  assert.ok(after.startsWith(before) && end.startsWith(after) && end.length > after.length, `${before}|${after}|${end}`);
  assert.equal(await tab.locator("#messages li").count(), 2);
  tell(`the answer is whole: ${JSON.stringify(end)}`);
}

let browser, site;
try {
  run(dir, "git", "clone", "-q", repository, clone);
  tell("cloned");
  const agent = await start(process.execPath, ["examples/node/agent.mjs"], { PORT: "0", PAUSE_MS: "300" });
  tell("an agent listens");
  run(clone, "go", "build", "-o", "aguihub", "./cmd/aguihub");
  tell("the hub is built");
  run(client, "npm", "ci", "--silent");
  run(client, "npm", "run", "build", "--silent");
  fs.copyFileSync(path.join(client, "dist/standalone.js"), path.join(page, "aguihub.js"));
  tell("the client is installed and built");
  const hub = await start(path.join(clone, "aguihub"), ["--listen", "127.0.0.1:0", "--metrics-listen", "off", "--agent", `hello=${agent}/`]);
  site = await serve();
  for (; !(await fetch(`${hub}/v1/runs`).then((r) => r.ok, () => false)); await sleep(20));
  tell("hub and page are served");
  const { chromium } = createRequire(path.join(client, "package.json"))("playwright-core");
  browser = await chromium.launch({ executablePath: process.env.CHROMIUM ?? "/usr/bin/chromium", args: ["--no-sandbox"] });
  await chat(browser, `${site.url}/?hub=${encodeURIComponent(hub)}`);
} finally {
  await browser?.close();
  site?.close();
  for (const child of children) child.kill("SIGKILL");
  fs.rmSync(dir, { recursive: true, force: true });
}
