// A long-lived worker for the Go tests: the official AG-UI clients behind JSON lines.
// stdin carries one request a line, {"id":1,"op":"replay",…}; stdout answers each in turn, {"id":1,"result":…} or {"id":1,"error":"…"}.
// ops: hello · replay · batch (jobs: replays) · prefixes · verdicts · patch. Every op is described at its function.
import crypto from "node:crypto";
import readline from "node:readline";
import { Observable } from "rxjs";

const MODULES = { "1.0.0": "@ag-ui/client", "0.0.59": "client059", "0.0.57": "client057" };
const ERROR_LIMIT = 600;

// The clients warn on the console for every deviation; only the replay that asks for warnings gets them.
let sink = null;
const say = (...parts) => sink?.push(parts.map((p) => (p instanceof Error ? p.message : typeof p === "string" ? p : safe(p))).join(" ").slice(0, ERROR_LIMIT));
for (const level of ["log", "info", "debug", "warn"]) console[level] = say;
console.error = (...parts) => { if (!/^Agent execution failed/.test(String(parts[0]))) say(...parts); };
process.on("unhandledRejection", () => {}); // a client's own stray rejection must not end the worker

const turn = () => new Promise((resolve) => setImmediate(resolve));
function safe(v) { try { return JSON.stringify(v); } catch { return "(cyclic)"; } }

/** The one text form that Go's oracle.Canonical makes too: keys sorted by UTF-16 units, members without a value left out. */
export function canonical(v) {
  if (v === undefined) return "null";
  if (v === null || typeof v !== "object") return JSON.stringify(v);
  if (Array.isArray(v)) return `[${v.map(canonical).join(",")}]`;
  const members = [];
  for (const key of Object.keys(v).sort()) if (v[key] !== undefined) members.push(`${JSON.stringify(key)}:${canonical(v[key])}`);
  return `{${members.join(",")}}`;
}
/** canonical, or null for a value with a cycle in it. */
function text(v) { try { return canonical(v); } catch { return null; } }
const digest = (v) => { const t = text(v); return t === null ? "cycle" : crypto.createHash("sha256").update(t).digest("hex"); };

const agents = new Map();
/** The Agent class over one client version: its stream comes from a function. */
async function agentOf(version) {
  const name = MODULES[version];
  if (!name) throw new Error(`unknown client version ${version}`);
  if (!agents.has(version)) {
    const client = await import(name);
    class Agent extends client.AbstractAgent {
      constructor(job, source) {
        const initial = job.initial ?? {};
        super({ agentId: "oracle", threadId: "oracle", initialMessages: copy(initial.messages ?? []), initialState: "state" in initial ? copy(initial.state) : {} });
        this.job = job;
        this.source = source;
      }
      run() {
        // Set only here: before, the client would refuse to start without an answer to each.
        if (this.job.initial?.pendingInterrupts) this.pendingInterrupts = copy(this.job.initial.pendingInterrupts);
        return this.source(this);
      }
      connect() { return this.run(); }
    }
    agents.set(version, { Agent, schemas: client.EventSchemas });
  }
  return agents.get(version);
}
function copy(v) { return v === undefined ? undefined : JSON.parse(JSON.stringify(v)); }

const utf8 = new TextDecoder("utf-8", { fatal: true, ignoreBOM: true });
/** A line as the wire would carry it, to the event; throws with the stage. A line is text, or {b64} where its bytes are no UTF-8. */
function decode(line) {
  let s = line;
  if (typeof line === "object") { try { s = utf8.decode(Buffer.from(line.b64, "base64")); } catch { throw staged("utf8", "not valid UTF-8"); } }
  let event;
  try { event = JSON.parse(s); } catch (e) { throw staged("json", e.message); }
  if (event === null || typeof event !== "object" || Array.isArray(event)) throw staged("json", "not a JSON object");
  return event;
}
function staged(stage, message) { const e = new Error(message); e.stage = stage; return e; }

function stageOf(e) {
  if (e.stage) return e.stage;
  if (e.name === "ZodError" || e.name === "$ZodError" || e.issues) return "schema";
  const m = String(e.message ?? e);
  if (/^First [A-Z_]+_CHUNK|^Ambiguous |^Cannot continue /.test(m)) return "chunks";
  if (e.constructor?.name === "AGUIError" || /^Cannot send|^First event must|^Step "/.test(m)) return "verify";
  return "other";
}
function errorText(e) {
  const t = e.issues ? e.issues.slice(0, 3).map((i) => `${(i.path ?? []).join(".")}: ${i.message}`).join("; ") : String(e.message ?? e);
  return t.slice(0, ERROR_LIMIT);
}

/**
 * Feeds a job's lines to a client, one event a turn of the event loop: what a network does, and the only way that what came before a bad
 * event is applied (within one turn an error overtakes the events before it). each(agent, k) is called after event k was applied.
 * job: {version, lines, initial: {messages, state, pendingInterrupts}, run: true for runAgent, parse: true for the schema check of
 * HttpAgent before 1.0, warnings}. Returns {agent, ok, error, stage, at}: at is the first event that was refused.
 */
async function feed(job, each) {
  const { Agent, schemas } = await agentOf(job.version ?? "1.0.0");
  const out = { ok: true, error: "", stage: "", at: -1 };
  const source = (agent) => new Observable((sub) => {
    (async () => {
      for (let k = 0; k < job.lines.length; k++) {
        try {
          let event = decode(job.lines[k]);
          if (job.parse && schemas) event = schemas.parse(event);
          sub.next(event);
        } catch (e) { out.at = k; sub.error(e); return; }
        await turn();
        if (sub.closed) { out.at = k; return; }
        each?.(agent, k);
      }
      sub.complete();
    })();
  });
  const agent = new Agent(job, source);
  sink = job.warnings ? [] : null;
  try { await (job.run ? agent.runAgent({ runId: "oracle-run" }) : agent.connectAgent({ runId: "oracle-run" })); }
  catch (e) { out.ok = false; out.error = errorText(e); out.stage = stageOf(e); }
  await turn();
  if (sink) out.warnings = sink;
  sink = null;
  return { agent, out };
}

/** replay: where a client ends, given the lines. messages, state and pending are canonical JSON text (null where a cycle forbids it), or sha256 with hash. */
async function replay(job) {
  const { agent, out } = await feed(job);
  const show = job.hash ? digest : text;
  return { ...out, messages: show(agent.messages), state: show(agent.state), pending: show(agent.pendingInterrupts ?? []) };
}
/** batch: many replays. */
async function batch({ jobs }) { const out = []; for (const job of jobs) out.push(await replay(job)); return out; }

/** prefixes: a replay that tells messages, state and pending after every event; as sha256 of the canonical text with hash. */
async function prefixes(job) {
  const show = job.hash ? digest : text, steps = [];
  const { agent, out } = await feed(job, (a, k) => { steps[k] = { messages: show(a.messages), state: show(a.state), pending: show(a.pendingInterrupts ?? []) }; });
  return { ...out, messages: show(agent.messages), state: show(agent.state), pending: show(agent.pendingInterrupts ?? []), prefixes: steps };
}

/** verdicts: the first event that a client refuses; with all every one, each left out before the next is looked for. */
async function verdicts(job) {
  const found = [], kept = job.lines.map((line, index) => ({ line, index }));
  for (let limit = job.all ? job.lines.length : 1; limit > 0; limit--) {
    const { out } = await feed({ ...job, lines: kept.map((x) => x.line), warnings: false });
    if (out.ok || out.at < 0) break;
    const [bad] = kept.splice(out.at, 1);
    found.push({ at: bad.index, error: out.error, stage: out.stage });
  }
  return { rejected: found };
}

/**
 * patch: cases [{doc, patch}], each through STATE_SNAPSHOT and STATE_DELTA of the whole pipeline. Each answers {doc} canonical, and
 * error where the patch was skipped (doc unchanged) or, with fatal, where the client refuses the event.
 */
async function patch({ version, cases }) {
  const started = JSON.stringify({ type: "RUN_STARTED", threadId: "t", runId: "r" });
  const results = [];
  while (results.length < cases.length) {
    const base = results.length, lines = [started], warned = [];
    for (const c of cases.slice(base)) lines.push(`{"type":"STATE_SNAPSHOT","snapshot":${c.doc}}`, `{"type":"STATE_DELTA","delta":${c.patch}}`);
    const { out } = await feed({ version, lines, warnings: true }, (agent, k) => {
      if (sink.length) { warned.push(...sink.splice(0)); }
      if (k === 0 || k % 2 === 1) { warned.length = 0; return; }
      const failure = warned.find((w) => w.startsWith("Failed to apply state patch")), doc = text(agent.state);
      results.push(doc === null ? { doc: "", error: "cycle" } : { doc, error: failure ? reason(failure) : "" });
      warned.length = 0;
    });
    if (!out.ok) results.push({ doc: out.at % 2 === 1 ? "" : cases[results.length].doc, error: out.error, fatal: true });
  }
  return results;
}
// The warning holds the whole state and patch before its last line; what matters is the library's error, if the text wasn't cut.
function reason(warning) { return (/Error: ([^\n]*)/.exec(warning)?.[1] ?? "failed").slice(0, 120); }

const OPS = { replay, batch, prefixes, verdicts, patch, hello: async () => ({ node: process.version, versions: Object.keys(MODULES) }) };
const write = (o) => new Promise((resolve) => process.stdout.write(`${JSON.stringify(o)}\n`, resolve));
for await (const line of readline.createInterface({ input: process.stdin, crlfDelay: Infinity })) {
  let id = 0;
  try {
    const request = JSON.parse(line);
    id = request.id;
    const op = Object.hasOwn(OPS, request.op) ? OPS[request.op] : null;
    if (!op) throw new Error(`unknown op ${request.op}`);
    await write({ id, result: await op(request) });
  } catch (e) { await write({ id, error: String(e?.stack ?? e) }); }
}
