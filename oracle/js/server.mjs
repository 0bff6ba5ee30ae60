// A long-lived worker for the Go tests: the official AG-UI clients behind JSON lines.
// stdin carries one request a line, {"id":1,"op":"replay",…}; stdout answers each in turn, {"id":1,"result":…} or {"id":1,"error":"…"}.
// ops: hello · replay · batch (jobs: replays) · prefixes · verdicts · patch. Every op is described at its function.
import readline from "node:readline";
import { Observable } from "rxjs";
import { MODULES, agentOf, collect, digest, errorText, stageOf, staged, text, turn } from "./clients.mjs";

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
/**
 * Feeds a job's lines to a client, one event a turn of the event loop: what a network does, and the only way that what came before a bad
 * event is applied (within one turn an error overtakes the events before it). each(agent, k, warned) is called after event k was applied.
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
        each?.(agent, k, warned);
      }
      sub.complete();
    })();
  });
  const agent = new Agent(job, source);
  const warned = job.warnings ? [] : null;
  collect(warned);
  try { await (job.run ? agent.runAgent({ runId: "oracle-run" }) : agent.connectAgent({ runId: "oracle-run" })); }
  catch (e) { out.ok = false; out.error = errorText(e); out.stage = stageOf(e); }
  await turn();
  if (warned) out.warnings = warned;
  collect(null);
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
    const { out } = await feed({ version, lines, warnings: true }, (agent, k, said) => {
      warned.push(...said.splice(0));
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
