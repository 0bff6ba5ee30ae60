// What the tests share: a hub with its Redis, a proxy that cuts, a publisher, and the official client as the measure.
import { spawn } from "node:child_process";
import { createHmac } from "node:crypto";
import fs from "node:fs";
import net from "node:net";
import os from "node:os";
import path from "node:path";
import { fileURLToPath } from "node:url";
import { AbstractAgent } from "@ag-ui/client";
import { Observable } from "rxjs";
import WebSocket from "ws";
import { HubAgent } from "../dist/index.js";

export const here = path.dirname(fileURLToPath(import.meta.url));
export const version = process.env.CLIENT_VERSION ?? "1.0.0";
export const long = process.env.AGUIHUB_SWEEP === "1";
export const sleep = (ms) => new Promise((r) => setTimeout(r, ms));
/** A sleep that doesn't keep the process from ending. */
export const timeout = (ms) => new Promise((r) => setTimeout(r, ms).unref());
export const copy = (x) => (x === undefined ? undefined : JSON.parse(JSON.stringify(x)));
export const uid = () => Math.random().toString(36).slice(2, 10);
/** How long anything may take that is waited for, in milliseconds: machines that run all tests at once are slow. */
export const patience = 90_000;
/** The timing of a test: what would take seconds takes milliseconds. A handshake takes as long as the hub needs. */
export const fast = { first: 2, most: 20, unknown: 5, handshake: patience };

// The clients warn for every deviation of the corpus.
if (!process.env.VERBOSE) console.warn = console.error = () => {};

export function rng(seed) {
  let a = seed >>> 0;
  return () => {
    a = (a + 0x6d2b79f5) >>> 0;
    let t = Math.imul(a ^ (a >>> 15), 1 | a);
    t = (t + Math.imul(t ^ (t >>> 7), 61 | t)) ^ t;
    return ((t ^ (t >>> 14)) >>> 0) / 4294967296;
  };
}

export function canonical(v) {
  if (v === null || typeof v !== "object") return JSON.stringify(v === undefined ? null : v);
  if (Array.isArray(v)) return `[${v.map(canonical).join(",")}]`;
  const members = Object.keys(v).filter((k) => v[k] !== undefined).sort();
  return `{${members.map((k) => `${JSON.stringify(k)}:${canonical(v[k])}`).join(",")}}`;
}

let lastPort = Math.floor(Math.random() * 10_000);

/**
 * A port for a server to come. It is none of those that systems give to whoever asks for any, and none that was given before:
 * nobody gets it by chance meanwhile.
 */
export function freePort() {
  return new Promise((resolve) => {
    const port = 10_000 + (++lastPort % 10_000), s = net.createServer();
    s.on("error", () => resolve(freePort()));
    s.listen(port, "127.0.0.1", () => s.close(() => resolve(port)));
  });
}

async function until(test, ms, what) {
  for (const end = Date.now() + ms; Date.now() < end; await sleep(20)) if (await test()) return;
  throw new Error(`${what} took longer than ${ms} ms`);
}
export const eventually = (test, what = "it", ms = patience) => until(test, ms, what);

const reachable = (port) =>
  new Promise((resolve) => {
    const s = net.connect(port, "127.0.0.1", () => { s.destroy(); resolve(true); });
    s.on("error", () => resolve(false));
  });

/** A process that is ended with the test. */
function start(command, args) {
  const out = fs.openSync(process.env.VERBOSE ? "/dev/stderr" : "/dev/null", "a");
  const child = spawn(command, args, { stdio: ["ignore", out, out] });
  child.on("error", (e) => { throw e; });
  process.on("exit", () => child.kill("SIGKILL"));
  return child;
}

/** A redis-server and a hub on free ports. */
export class Hub {
  async start(...flags) {
    this.dir = fs.mkdtempSync(path.join(os.tmpdir(), "aguihub-client-"));
    process.on("exit", () => fs.rmSync(this.dir, { recursive: true, force: true }));
    this.redisPort = await freePort();
    this.redis = start("redis-server", ["--port", `${this.redisPort}`, "--save", "", "--dir", this.dir, "--bind", "127.0.0.1"]);
    await until(() => reachable(this.redisPort), patience, "redis-server");
    this.port = await freePort();
    this.flags = flags;
    await this.run();
    this.pub = new Publisher(this.redisPort);
    return this;
  }
  async run() {
    this.hub = start(process.env.AGUIHUB_BIN ?? "aguihub", [...(this.flags.includes("--redis") ? [] : ["--redis", `redis://127.0.0.1:${this.redisPort}`]), "--listen", `127.0.0.1:${this.port}`, "--metrics-listen", "off", "--attach-wait", "2s", "--log-level", "warn", ...this.flags]);
    await until(() => reachable(this.port), patience, "aguihub");
  }
  async kill() {
    const gone = new Promise((r) => this.hub.once("exit", r));
    this.hub.kill("SIGKILL");
    await gone;
  }
  get url() { return `http://127.0.0.1:${this.port}`; }
  stop() {
    this.pub.close();
    this.hub.kill("SIGKILL");
    this.redis.kill("SIGKILL");
  }
}

/** The one issuer of a hub that asks for tokens, and a token of its that is good for so many seconds and allows everything. */
const secret = "a secret of the tests of thirty-two bytes";
export function asksForTokens() {
  const file = path.join(fs.mkdtempSync(path.join(os.tmpdir(), "aguihub-auth-")), "auth.json");
  process.on("exit", () => fs.rmSync(path.dirname(file), { recursive: true, force: true }));
  fs.writeFileSync(file, JSON.stringify({ issuers: [{ iss: "tests", key: secret }] }));
  return ["--auth-config", file];
}
export function token(seconds) {
  const part = (x) => Buffer.from(JSON.stringify(x)).toString("base64url");
  const claims = { iss: "tests", sub: "kim", exp: Math.floor(Date.now() / 1000) + seconds, jti: uid(), scope: "attach publish cancel read input", aguihub: { runPrefixes: [""], threadPrefixes: [""] } };
  const text = `${part({ alg: "HS256", typ: "JWT" })}.${part(claims)}`;
  return `${text}.${createHmac("sha256", secret).update(text).digest("base64url")}`;
}

/** Writes events the way any agent may: one XADD each. */
export class Publisher {
  constructor(port) {
    this.socket = net.connect(port, "127.0.0.1");
    this.socket.setNoDelay(true);
    this.waiting = [];
    let rest = Buffer.alloc(0);
    this.socket.on("error", () => {});
    this.socket.on("data", (d) => {
      rest = Buffer.concat([rest, d]);
      for (let reply; (reply = parse(rest)); rest = rest.subarray(reply.size)) {
        const { resolve, reject } = this.waiting.shift();
        if (reply.error) reject(new Error(reply.error)); else resolve(reply.value);
      }
    });
  }
  command(...args) {
    const parts = [Buffer.from(`*${args.length}\r\n`)];
    for (const a of args) { const b = Buffer.from(String(a)); parts.push(Buffer.from(`$${b.length}\r\n`), b, Buffer.from("\r\n")); }
    this.socket.write(Buffer.concat(parts));
    return new Promise((resolve, reject) => this.waiting.push({ resolve, reject }));
  }
  add(run, event, input) {
    const line = typeof event === "string" ? event : JSON.stringify(event);
    return this.command("XADD", `agui:run:${run}`, "*", "event", line, ...(input ? ["input", JSON.stringify(input)] : []));
  }
  async announce(run, thread) {
    await this.command("ZADD", `agui:thread:${thread}`, Date.now(), run);
    await this.command("XADD", "agui:runs", "*", "run", run, "thread", thread, "state", "started");
  }
  close() { this.socket.destroy(); }
}
/** Replies of one line or one string are all that is needed. */
function parse(b) {
  const end = b.indexOf("\r\n");
  if (end < 0) return null;
  const head = b.toString("utf8", 1, end);
  switch (String.fromCharCode(b[0])) {
    case "$": { const n = Number(head), size = n < 0 ? end + 2 : end + 4 + n; return b.length < size ? null : { size, value: n < 0 ? null : b.toString("utf8", end + 2, end + 2 + n) }; }
    case "-": return { size: end + 2, error: head };
    default: return { size: end + 2, value: head };
  }
}

/**
 * A proxy in front of the hub. limits are how many bytes of each connection's answer pass before it is cut, one after
 * another; without one left a connection lives. blockWebSockets refuses upgrades, as some networks do. Requests that
 * `swallow` matches get no answer, and of as many that `lose` matches as `losses` says the connection is cut instead of one.
 */
export class Proxy {
  constructor(port) { this.port = port; this.limits = []; this.sockets = new Set(); this.connections = 0; this.upgrades = 0; this.received = 0; this.down = false; this.blockWebSockets = false; this.losses = 0; }
  async start() {
    this.server = net.createServer((a) => this.accept(a));
    await new Promise((r) => this.server.listen(0, "127.0.0.1", r));
    this.url = `http://127.0.0.1:${this.server.address().port}`;
    return this;
  }
  accept(a) {
    this.connections++;
    if (this.down) return void a.destroy();
    const b = net.connect(this.port, "127.0.0.1");
    const end = () => { a.destroy(); b.destroy(); this.sockets.delete(end); };
    this.sockets.add(end);
    let left = Infinity, first = true;
    a.on("data", (d) => {
      if (first) {
        first = false;
        const upgrade = /^upgrade: *websocket/im.test(d.toString("latin1"));
        if (upgrade) this.upgrades++;
        if (upgrade && this.blockWebSockets) return void a.end("HTTP/1.1 403 Forbidden\r\nContent-Length: 0\r\nConnection: close\r\n\r\n");
        if (this.swallow?.test(d.toString("latin1"))) return;
        if (this.losses > 0 && this.lose.test(d.toString("latin1"))) { this.losses--; left = 0; }
        if (upgrade || /\/sse[? ]/.test(d.toString("latin1", 0, 2000))) left = this.limits.shift() ?? Infinity;
      }
      b.write(d);
    });
    b.on("data", (d) => {
      this.received += d.length;
      if (left > d.length) { left -= d.length; a.write(d); return; }
      if (left > 0) a.write(d.subarray(0, left));
      left = 0;
      a.end(); setTimeout(end, 1);
    });
    for (const s of [a, b]) { s.setNoDelay(true); s.on("error", end); s.on("close", end); }
  }
  cut() { for (const end of [...this.sockets]) end(); }
  stop() { this.server.close(); this.cut(); }
}

export const agentAt = (url, options = {}) => new HubAgent({ url, WebSocket, timing: { ...fast, ...options.timing }, ...options, ...(options.timing && { timing: { ...fast, ...options.timing } }) });

/** The newest official client, whichever is tested: the hub withholds what that one refuses. */
const newest = await import("../node_modules/@ag-ui/client/dist/index.mjs");

/** An official client, fed with events one after another. */
const watching = (Base) => class extends Base {
  constructor(events, initial) {
    super({ agentId: "check", threadId: "check", initialMessages: copy(initial?.messages ?? []), initialState: copy(initial?.state ?? {}) });
    this.source = new Observable((sub) => { for (const e of events) { if (sub.closed) return; sub.next(copy(e)); } sub.complete(); });
  }
  run() { return this.source; }
  connect() { return this.source; }
};
const Watching = { tested: watching(AbstractAgent), newest: watching(newest.AbstractAgent) };
export async function watch(events, initial, which = "tested") {
  const agent = new Watching[which](events, initial);
  let error = null;
  try { await agent.connectAgent({ runId: "check" }); } catch (e) { error = String(e?.message ?? e); }
  return { error, messages: copy(agent.messages), state: copy(agent.state), pending: copy(agent.pendingInterrupts ?? []) };
}
/** What an agent holds. */
export const holds = (agent) => ({ messages: copy(agent.messages), state: copy(agent.state), pending: copy(agent.pendingInterrupts ?? []) });
/** How two of these differ, "" where they don't. Legacy THINKING_* events get random ids from the client. */
export function difference(got, want, events = []) {
  const legacy = events.some((e) => /^THINKING/.test(e.type));
  const plain = (x) => (legacy ? x.map((m) => (m.role === "reasoning" ? { ...m, id: "-" } : m)) : x);
  for (const [what, a, b] of [["messages", plain(got.messages), plain(want.messages)], ["state", got.state ?? {}, want.state ?? {}], ["pending", got.pending, want.pending]]) {
    if (canonical(a) !== canonical(b)) return `${what}: ${canonical(a).slice(0, 700)} instead of ${canonical(b).slice(0, 700)}`;
  }
  return "";
}

/** The corpus: runs with fresh ids, each by a function, since each case wants its own. */
export function corpus() {
  const dir = process.env.AGUIHUB_CORPUS ? path.join(process.env.AGUIHUB_CORPUS, "streams") : path.join(here, "../../../../shared/corpus/streams");
  if (!fs.existsSync(dir)) throw new Error(`no corpus at ${dir}: see AGUIHUB_CORPUS`);
  const out = [];
  for (const file of fs.readdirSync(dir).sort()) {
    if (!file.endsWith(".jsonl")) continue;
    const name = file.slice(0, -6);
    if (fs.existsSync(path.join(dir, `${name}.initial.json`))) continue;
    let events;
    const lines = fs.readFileSync(path.join(dir, file), "utf8").replace(/^\ufeff/, "").split("\n").map((l) => l.trim()).filter(Boolean);
    try { events = lines.map((l) => JSON.parse(l)); } catch { continue; }
    const starts = events.filter((e) => e.type === "RUN_STARTED").length;
    if (starts !== 1 || events[0].type !== "RUN_STARTED" || events.length < 3) continue;
    if (!/^RUN_(FINISHED|ERROR)$/.test(events.at(-1).type) || typeof events[0].runId !== "string" || typeof events[0].threadId !== "string") continue;
    out.push({ name, lines, events });
  }
  return out;
}
export function rename({ lines, events }, tag = uid()) {
  const run = `r-${tag}`, thread = `t-${tag}`;
  const renamed = lines.map((l, i) => {
    if (events[i].runId === undefined && events[i].threadId === undefined) return l;
    const e = JSON.parse(l);
    if (e.runId !== undefined) e.runId = run;
    if (e.threadId !== undefined) e.threadId = thread;
    if (e.input) e.input = { ...e.input, runId: run, threadId: thread };
    return JSON.stringify(e);
  });
  return { run, thread, lines: renamed, events: renamed.map((l) => JSON.parse(l)) };
}
export const question = (r) => ({ id: `user-${r.run}`, role: "user", content: "the user's own question \u2028 \ud83d\ude00" });
export const inputOf = (r, messages) => ({ threadId: r.thread, runId: r.run, state: {}, tools: [], context: [], forwardedProps: {}, messages });

/** A run of text, for tests that are about something else. */
export function textRun(run, thread, pieces = ["Hello", ", ", "world"], message = `m-${run}`) {
  return [
    { type: "RUN_STARTED", threadId: thread, runId: run },
    { type: "TEXT_MESSAGE_START", messageId: message, role: "assistant" },
    ...pieces.map((delta) => ({ type: "TEXT_MESSAGE_CONTENT", messageId: message, delta })),
    { type: "TEXT_MESSAGE_END", messageId: message },
    { type: "RUN_FINISHED", threadId: thread, runId: run },
  ];
}
