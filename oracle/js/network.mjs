// A long-lived worker for the Go tests: the official AG-UI clients as subscribers of a hub, over WebSocket or SSE.
// stdin carries one request a line, {"id":1,"op":"attach",…}; stdout answers each when it has something to tell, in any order.
// attach: answers when the past has come · end: answers when the subscription has ended · leave: ends it. Each is described at its function.
import crypto from "node:crypto";
import readline from "node:readline";
import { Observable } from "rxjs";
import WebSocket from "ws";
import { agentOf, collect, errorText, stageOf, text, turn } from "./clients.mjs";

collect(null);
const TERMINAL = new Set(["RUN_FINISHED", "RUN_ERROR"]);
const MOST = 300_000; // milliseconds that a subscription may last
const attached = new Map();
let handles = 0;

/**
 * One subscription. job: {base, target, wire: "ws" or "sse", version, quiet, last}. The past counts as come when nothing came for `quiet`
 * milliseconds after the first event, at the id-only block of SSE, or at the end. A thread's subscription ends itself after the terminal event of run `last`.
 */
class Subscription {
  constructor(job) {
    Object.assign(this, { job, lines: [], code: 0, failed: "", closed: false, running: "", leaving: false, close: () => {} });
    this.settled = new Promise((resolve) => { this.settle = () => { if (this.past === undefined) { this.past = this.lines.length; clearTimeout(this.timer); resolve(); } }; });
    this.ended = this.consume();
  }
  /** An event has come: to the client at once, as it came. */
  take(line, sub) {
    this.lines.push(line);
    let event;
    try { event = JSON.parse(line); } catch (e) { this.fail(`not JSON: ${e.message}: ${line.slice(0, 200)}`); return; }
    if (event.type === "MESSAGES_SNAPSHOT") this.snapshot = true;
    if (event.type === "RUN_STARTED") this.running = event.runId;
    if (this.past === undefined) this.rest();
    sub.next(event);
    if (this.job.last !== undefined && TERMINAL.has(event.type) && this.running === this.job.last) setTimeout(() => this.leave(), this.job.quiet);
  }
  /** Waits for quiet: longer while the snapshot has not come, and with a look at what the sockets still hold. */
  rest() {
    clearTimeout(this.timer);
    const seen = this.lines.length;
    this.timer = setTimeout(async () => { await turn(); await turn(); if (this.lines.length === seen) this.settle(); }, this.snapshot ? this.job.quiet : 10 * this.job.quiet);
  }
  fail(why) { this.failed ||= why; this.close(); }
  leave() { this.leaving = true; this.close(); }
  async consume() {
    const { Agent } = await agentOf(this.job.version);
    const agent = new Agent({}, () => new Observable((sub) => {
      const timer = setTimeout(() => this.fail("timeout"), MOST);
      const done = (code, error) => {
        if (this.closed) return;
        clearTimeout(timer);
        this.closed = true; this.code = code;
        if (error && !this.leaving) this.failed ||= error;
        this.settle(); sub.complete();
      };
      if (this.job.wire === "ws") this.ws(sub, done); else this.sse(sub, done);
    }));
    const out = { ok: true, error: "", stage: "" };
    try { await agent.connectAgent({ runId: "oracle-run" }); } catch (e) { out.ok = false; out.error = errorText(e); out.stage = stageOf(e); this.leave(); }
    this.settle();
    await turn();
    if (this.failed) Object.assign(out, { ok: false, error: this.failed, stage: "transport" });
    return { ...out, code: this.leaving ? 0 : this.code, messages: text(agent.messages), state: text(agent.state), pending: text(agent.pendingInterrupts ?? []) };
  }
  ws(sub, done) {
    const ws = new WebSocket(`${this.job.base.replace(/^http/, "ws")}/v1/${this.job.target}/ws`, ["ag-ui.v1.json"]);
    this.close = () => ws.terminate();
    ws.on("message", (data, binary) => (binary ? this.fail("a binary frame") : this.take(data.toString("utf8"), sub)));
    ws.on("error", (e) => done(0, String(e.message ?? e)));
    ws.on("close", (code, reason) => done(code, code === 1000 ? "" : `closed with ${code} ${reason}`));
  }
  /** The end of the body of a run's stream counts as 1000. */
  async sse(sub, done) {
    const stop = new AbortController(), bytes = new TextDecoder("utf-8", { fatal: true });
    this.close = () => stop.abort();
    let rest = "";
    try {
      const answer = await fetch(`${this.job.base}/v1/${this.job.target}/sse`, { signal: stop.signal, headers: { accept: "text/event-stream" } });
      if (answer.status !== 200) throw new Error(`HTTP ${answer.status}: ${(await answer.text()).slice(0, 200)}`);
      for await (const chunk of answer.body) {
        const blocks = (rest + bytes.decode(chunk, { stream: true })).split("\n\n");
        rest = blocks.pop();
        for (const block of blocks) this.block(block, sub);
      }
      done(1000, rest === "" ? "" : `the body ends within a block: ${rest.slice(0, 200)}`);
    } catch (e) { done(0, errorText(e)); }
  }
  block(block, sub) {
    if (block.includes("\r")) this.fail("a carriage return in an event stream");
    const data = [];
    let id = false;
    for (const line of block.split("\n")) {
      if (line.startsWith(":")) continue;
      const [, name, value] = /^([a-z]+): ?(.*)$/s.exec(line) ?? [];
      if (name === "data") data.push(value); else if (name === "id") id = true; else if (name !== "retry") this.fail(`a line that the official reader doesn't take: ${line.slice(0, 200)}`);
    }
    if (data.length > 0) this.take(data.join("\n"), sub); else if (id) this.settle();
  }
}

/** attach: begins a subscription; answers {handle, past: the events that came as the past}. */
async function attach(job) {
  const handle = ++handles, s = new Subscription(job);
  attached.set(handle, s);
  await s.settled;
  return { handle, past: s.lines.slice(0, s.past) };
}
/**
 * end: waits for the end of a subscription and forgets it. Answers what the client holds, whether it took all, the close code, and of the
 * events received their number, the hash of the last `tail`, and those between the past and these: none, unless the past came in gasps.
 */
async function end({ handle, tail }) {
  const s = attached.get(handle);
  const out = await s.ended;
  attached.delete(handle);
  const from = Math.max(0, s.lines.length - tail);
  const hash = crypto.createHash("sha256");
  for (const line of s.lines.slice(from)) hash.update(line).update("\n");
  return { ...out, received: s.lines.length, early: Math.max(0, s.past - from), late: s.lines.slice(s.past, from), hash: hash.digest("hex") };
}
/** leave: ends a subscription once `more` events came after its past, or 5 s after: who compares what it holds sees that they are missing. */
async function leave({ handle, more }) {
  const s = attached.get(handle);
  for (const end = Date.now() + 5000; s && !s.closed && s.lines.length - s.past < more && Date.now() < end;) await new Promise((r) => setTimeout(r, 5));
  await turn(); await turn();
  s?.leave();
  return {};
}

const OPS = { attach, end, leave, hello: async () => ({ node: process.version }) };
async function answer(line) {
  let id = 0, out;
  try {
    const request = JSON.parse(line);
    id = request.id;
    const op = Object.hasOwn(OPS, request.op) ? OPS[request.op] : null;
    if (!op) throw new Error(`unknown op ${request.op}`);
    out = { id, result: await op(request) };
  } catch (e) { out = { id, error: String(e?.stack ?? e) }; }
  process.stdout.write(`${JSON.stringify(out)}\n`);
}
for await (const line of readline.createInterface({ input: process.stdin, crlfDelay: Infinity })) answer(line);
for (const s of attached.values()) s.leave();
