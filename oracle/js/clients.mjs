// What the workers share: the official clients, one text form of what they hold, and what they say of what they refuse.
import crypto from "node:crypto";

export const MODULES = { "1.0.0": "@ag-ui/client", "0.0.59": "client059", "0.0.57": "client057" };
const ERROR_LIMIT = 600;

// The clients warn on the console for every deviation; only the replay that asks for warnings gets them.
let sink = null;
/** From here on warnings go to list, or nowhere with null. */
export function collect(list) { sink = list; }
const say = (...parts) => sink?.push(parts.map((p) => (p instanceof Error ? p.message : typeof p === "string" ? p : safe(p))).join(" ").slice(0, ERROR_LIMIT));
for (const level of ["log", "info", "debug", "warn"]) console[level] = say;
console.error = (...parts) => { if (!/^Agent execution failed/.test(String(parts[0]))) say(...parts); };
process.on("unhandledRejection", () => {}); // a client's own stray rejection must not end the worker

export const turn = () => new Promise((resolve) => setImmediate(resolve));
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
export function text(v) { try { return canonical(v); } catch { return null; } }
export const digest = (v) => { const t = text(v); return t === null ? "cycle" : crypto.createHash("sha256").update(t).digest("hex"); };

const agents = new Map();
/** The Agent class over one client version: its stream comes from a function. */
export async function agentOf(version) {
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
export function copy(v) { return v === undefined ? undefined : JSON.parse(JSON.stringify(v)); }

export function staged(stage, message) { const e = new Error(message); e.stage = stage; return e; }

export function stageOf(e) {
  if (e.stage) return e.stage;
  if (e.name === "ZodError" || e.name === "$ZodError" || e.issues) return "schema";
  const m = String(e.message ?? e);
  if (/^First [A-Z_]+_CHUNK|^Ambiguous |^Cannot continue /.test(m)) return "chunks";
  if (e.constructor?.name === "AGUIError" || /^Cannot send|^First event must|^Step "/.test(m)) return "verify";
  return "other";
}
export function errorText(e) {
  const t = e.issues ? e.issues.slice(0, 3).map((i) => `${(i.path ?? []).join(".")}: ${i.message}`).join("; ") : String(e.message ?? e);
  return t.slice(0, ERROR_LIMIT);
}
