// A worker that calls agents over HTTP as an application does: HttpAgent of the versions that are served. stdin carries one request a
// line, {"id":1,"op":"run",…}; stdout answers each as it is done, {"id":1,"result":…} or {"id":1,"error":"…"}. Requests run side by side.
import readline from "node:readline";
import { MODULES } from "./clients.mjs";

const copy = (v) => JSON.parse(JSON.stringify(v));

/**
 * run: one agent that runs some inputs, one after another: {version, url, threadId, state, messages, turns: [{runId, messages, leaveAfter}]}.
 * messages are added before the run, but those whose ids the agent has; open interrupts are answered with "resolved"; leaveAfter breaks the request off
 * after so many events. Answers {turns: [{ok, error, events}], messages, state, pending}.
 */
async function run(job) {
  const { HttpAgent } = await import(MODULES[job.version]);
  const agent = new HttpAgent({ url: job.url, threadId: job.threadId, initialMessages: copy(job.messages ?? []), initialState: copy(job.state ?? {}) });
  const turns = [];
  for (const t of job.turns) {
    const out = { ok: true, error: "", events: 0 };
    const held = new Set(agent.messages.map((m) => m.id));
    for (const m of t.messages ?? []) if (!held.has(m.id)) agent.addMessage(copy(m));
    const parameters = { runId: t.runId };
    const open = agent.pendingInterrupts ?? [];
    if (open.length > 0) parameters.resume = open.map((i) => ({ interruptId: i.id, status: "resolved", payload: { fine: true } }));
    if (t.resume) parameters.resume = t.resume;
    let left;
    const leaving = new Promise((resolve) => { left = resolve; });
    const subscriber = {
      onEvent: () => { if (++out.events === t.leaveAfter) { agent.abortRun(); left(); } },
      onRunErrorEvent: ({ event }) => { out.runError = event.code ?? event.message; },
    };
    // A run that was broken off may never settle, so whoever leaves does not wait.
    try { await Promise.race([agent.runAgent(parameters, subscriber), leaving]); } catch (e) { out.ok = false; out.error = String(e?.message ?? e).slice(0, 300); out.status = e?.status; }
    turns.push(out);
  }
  return { turns, messages: JSON.stringify(agent.messages), state: JSON.stringify(agent.state ?? null), pending: JSON.stringify(agent.pendingInterrupts ?? []) };
}

/**
 * proto: events in the protobuf binding as the official encoder writes them, and as the official decoder reads them again. Answers
 * [{frame, event}]: frame as base64 with its length in front, event as JSON; without frame where the encoder refuses.
 */
async function proto({ lines }) {
  const { encode, decode } = await import("@ag-ui/proto");
  return lines.map((line) => {
    try {
      const message = encode(JSON.parse(line)), head = Buffer.alloc(4);
      head.writeUInt32BE(message.length);
      return { frame: Buffer.concat([head, message]).toString("base64"), event: JSON.stringify(decode(message)) };
    } catch (e) { return { error: String(e?.message ?? e).slice(0, 200) }; }
  });
}

const OPS = { run, proto };
const answer = (o) => process.stdout.write(`${JSON.stringify(o)}\n`);
for await (const line of readline.createInterface({ input: process.stdin, crlfDelay: Infinity })) {
  const request = JSON.parse(line);
  const op = Object.hasOwn(OPS, request.op) ? OPS[request.op] : async () => { throw new Error(`unknown op ${request.op}`); };
  op(request).then((result) => answer({ id: request.id, result }), (e) => answer({ id: request.id, error: String(e?.stack ?? e) }));
}
process.exit(0); // connections that are kept open would keep it alive
