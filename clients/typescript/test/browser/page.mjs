// What the tests do in the page: agents by name, and what they hold.
import { HubAgent } from "../../src/index.ts";

const agents = (globalThis.agents = {});
const fast = { first: 2, most: 20, unknown: 5, handshake: 90_000 };

/** Attaches an agent. With tokens, the page's function tokenOf gives them. */
export function attach(name, { tokens, ...options }) {
  const controls = [], onLine = (l) => { if (l.control) controls.push(l); };
  const agent = (agents[name] = new HubAgent({ ...options, onLine, ...(tokens && { getToken: (r) => globalThis.tokenOf(r).then((x) => x ?? undefined) }), timing: { ...fast, ...options.timing } }));
  agent.controls = controls;
  agent.ended = "";
  agent.connectAgent().then(() => { agent.ended = "ended"; }, (e) => { agent.ended = `failed: ${e?.message ?? e}`; });
}

/** What an agent holds, as JSON carries it. */
export function look(name) {
  const a = agents[name];
  return JSON.parse(JSON.stringify({ ended: a.ended, controls: a.controls, connection: a.connection, messages: a.messages, state: a.state ?? null, pending: a.pendingInterrupts ?? [], texts: a.messages.map((m) => m.content ?? "") }));
}
