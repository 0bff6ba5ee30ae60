// What the tests and the bench share: a hub with its embedded Redis, an agent of the plain HTTP kind, a browser.
import { spawn } from "node:child_process";
import http from "node:http";
import net from "node:net";
import { chromium } from "playwright-core";

export const sleep = (ms) => new Promise((r) => setTimeout(r, ms));
export const uid = () => Math.random().toString(36).slice(2, 10);

/** How long anything may take that a page is waited for, in milliseconds: machines that run all tests at once are slow. */
export const patience = 60_000;

let lastPort = Math.floor(Math.random() * 10_000);

/**
 * A port for a server to come. It is none of those that systems give to whoever asks for any, and none that was given before:
 * nobody gets it by chance meanwhile.
 */
function freePort() {
  return new Promise((resolve) => {
    const port = 10_000 + (++lastPort % 10_000), s = net.createServer();
    s.on("error", () => resolve(freePort()));
    s.listen(port, "127.0.0.1", () => s.close(() => resolve(port)));
  });
}

/** A hub, with its Redis in the same process. */
export class Hub {
  async start(...flags) {
    [this.port, this.redisPort] = [await freePort(), await freePort()];
    this.url = `http://127.0.0.1:${this.port}`;
    const args = ["--listen", `127.0.0.1:${this.port}`, "--embedded-redis-listen", `127.0.0.1:${this.redisPort}`, "--no-demo", "--metrics-listen", "off", "--log-level", "error", "--attach-wait", "500ms", ...flags];
    this.child = spawn(process.env.AGUIHUB_BIN ?? "aguihub", args, { stdio: ["ignore", "ignore", "inherit"] });
    process.on("exit", () => this.child.kill("SIGKILL"));
    for (const end = Date.now() + patience; ; await sleep(30)) {
      const up = await fetch(this.url + "/v1/runs").then((r) => r.ok || r.status === 401, () => false);
      if (up) break;
      if (Date.now() > end) throw new Error("the hub doesn't answer");
    }
    this.redis = net.connect(this.redisPort, "127.0.0.1");
    this.redis.resume();
    return this;
  }

  /** Appends events as any program does: one XADD each, whatever is in them. */
  add(run, ...events) {
    for (const e of events) {
      const args = ["XADD", `agui:run:${run}`, "*", "event", typeof e === "string" ? e : JSON.stringify(e)].map((a) => Buffer.from(a));
      this.redis.write(Buffer.concat([Buffer.from(`*${args.length}\r\n`), ...args.flatMap((a) => [Buffer.from(`$${a.length}\r\n`), a, Buffer.from("\r\n")])]));
    }
  }

  /** Appends events by one request, with the run's input. */
  async post(run, events, input) {
    const lines = [...(input ? [{ input }] : []), ...events].map((e) => JSON.stringify(e) + "\n").join("");
    const answer = await fetch(`${this.url}/v1/runs/${encodeURIComponent(run)}/events`, { method: "POST", body: lines, headers: { "content-type": "application/x-ndjson" } });
    if (!answer.ok) throw new Error(await answer.text());
  }

  stop() {
    this.redis.destroy();
    this.child.kill("SIGKILL");
  }
}

/** An agent that writes word by word what it was told, until it is told to go on no more; told to ask, it asks, and says what it was answered. */
export function agent(pause = 20) {
  const server = http.createServer(async (req, res) => {
    let body = "";
    for await (const part of req) body += part;
    const { threadId, runId, messages, resume } = JSON.parse(body);
    res.writeHead(200, { "content-type": "text/event-stream" });
    const send = (e) => res.write(`data: ${JSON.stringify(e)}\n\n`);
    send({ type: "RUN_STARTED", threadId, runId });
    send({ type: "TEXT_MESSAGE_START", messageId: "a-" + runId, role: "assistant" });
    const said = resume ? JSON.stringify(resume) : messages.at(-1).content;
    for (let i = 0; !res.destroyed && (said === "go on" || i < 5); i++) {
      send({ type: "TEXT_MESSAGE_CONTENT", messageId: "a-" + runId, delta: i === 0 ? `You said: ${said}. ` : `word${i} ` });
      await sleep(pause);
    }
    send({ type: "TEXT_MESSAGE_END", messageId: "a-" + runId });
    const asks = said === "ask" ? [{ id: "one", reason: "approval", message: "Shall I?" }] : said === "ask twice" ? [{ id: "one", reason: "approval", message: "Shall I?" }, { id: "two", reason: "input", message: "To whom?", responseSchema: { type: "string" } }] : undefined;
    send({ type: "RUN_FINISHED", threadId, runId, ...(asks && { outcome: { type: "interrupt", interrupts: asks } }) });
    res.end();
  });
  return new Promise((resolve) => server.listen(0, "127.0.0.1", () => resolve({
    url: `http://127.0.0.1:${server.address().port}/`,
    stop() { server.close(); server.closeAllConnections(); },
  })));
}

export function launch() {
  const args = ["--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking", "--disable-component-update", "--disable-sync", "--js-flags=--expose-gc"];
  return chromium.launch({ executablePath: process.env.CHROMIUM ?? "/usr/bin/chromium", args });
}

/** A page that collects what a page should never do. */
export async function open(browser, url, options = {}) {
  const context = await browser.newContext({ viewport: { width: 1440, height: 900 }, ...options });
  const page = await context.newPage();
  page.setDefaultTimeout(patience);
  page.faults = [];
  page.on("console", (m) => m.type() === "error" && page.faults.push(m.text()));
  page.on("pageerror", (e) => page.faults.push(String(e)));
  page.on("dialog", (d) => { page.faults.push("a dialog: " + d.message()); void d.dismiss(); });
  page.on("request", (r) => { if (!r.url().startsWith(new URL(url).origin) && !r.url().startsWith("data:")) page.faults.push("a request to " + r.url()); });
  await page.goto(url);
  return page;
}

export const ids = () => { const tag = uid(); return { run: "r-" + tag, thread: "t-" + tag }; };
export const started = ({ run, thread }) => ({ type: "RUN_STARTED", threadId: thread, runId: run });
export const finished = ({ run, thread }) => ({ type: "RUN_FINISHED", threadId: thread, runId: run });
export const inputOf = ({ run, thread }, messages = []) => ({ threadId: thread, runId: run, messages, tools: [], context: [], forwardedProps: {} });
export const message = (id, text) => [
  { type: "TEXT_MESSAGE_START", messageId: id, role: "assistant" },
  { type: "TEXT_MESSAGE_CONTENT", messageId: id, delta: text },
  { type: "TEXT_MESSAGE_END", messageId: id },
];
export const conversation = (n, text = (i) => `Message ${i}`) => Array.from({ length: n }, (_, i) => ({ id: `h${i}`, role: i % 2 ? "assistant" : "user", content: text(i) }));

/** Publishes deltas at a rate, by one request that goes on: [delta 0][delta 1]… of one message. */
export async function flood(hub, { run }, perSecond, seconds) {
  const n = perSecond * seconds;
  let i = 0;
  const begun = Date.now();
  const body = new ReadableStream({
    async pull(c) {
      const due = Math.min(n, Math.floor(((Date.now() - begun) / 1000) * perSecond) + 1);
      let lines = "";
      for (; i < due; i++) lines += JSON.stringify({ type: "TEXT_MESSAGE_CONTENT", messageId: "m", delta: `[${i}]` }) + "\n";
      if (lines) c.enqueue(new TextEncoder().encode(lines));
      if (i >= n) return c.close();
      await sleep(5);
      if (!lines) c.enqueue(new Uint8Array(0));
    },
  });
  const answer = await fetch(`${hub.url}/v1/runs/${run}/events`, { method: "POST", body, duplex: "half", headers: { "content-type": "application/x-ndjson" } });
  if (!answer.ok) throw new Error(await answer.text());
  return { n, seconds: (Date.now() - begun) / 1000, text: Array.from({ length: n }, (_, k) => `[${k}]`).join("") };
}


export const metrics = async (cdp) => Object.fromEntries((await cdp.send("Performance.getMetrics")).metrics.map((m) => [m.name, m.value]));

/** What the page keeps, in MB, once its garbage is gone. */
export const heap = async (cdp) => {
  for (let i = 0; i < 3; i++) await cdp.send("HeapProfiler.collectGarbage");
  return (await metrics(cdp)).JSHeapUsedSize / 1e6;
};

/** The tasks of the page's main thread while something is done: how long each took by the clock, and how long it had the CPU, in milliseconds. */
export async function tasksOf(cdp, work) {
  const events = [], collect = ({ value }) => events.push(...value);
  cdp.on("Tracing.dataCollected", collect);
  await cdp.send("Tracing.start", { transferMode: "ReportEvents", traceConfig: { includedCategories: ["toplevel", "disabled-by-default-devtools.timeline", "__metadata"] } });
  await work();
  const done = new Promise((r) => cdp.once("Tracing.tracingComplete", r));
  await cdp.send("Tracing.end");
  await done;
  cdp.off("Tracing.dataCollected", collect);
  const main = new Set(events.filter((e) => e.name === "thread_name" && e.args.name === "CrRendererMain").map((e) => e.pid + " " + e.tid));
  return events.filter((e) => e.ph === "X" && e.name === "ThreadControllerImpl::RunTask" && main.has(e.pid + " " + e.tid)).map((e) => ({ wall: e.dur / 1000, cpu: (e.tdur ?? NaN) / 1000 }));
}
