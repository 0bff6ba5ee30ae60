// What the tests do in the page: agents by name, and what they hold.
import { HubAgent } from "../../src/index.ts";

const agents = (globalThis.agents = {});
const fast = { first: 2, most: 20, unknown: 5, handshake: 3000 };

/** Attaches an agent. */
export function attach(name, options) {
  const agent = (agents[name] = new HubAgent({ ...options, timing: { ...fast, ...options.timing } }));
  agent.ended = "";
  agent.connectAgent().then(() => { agent.ended = "ended"; }, (e) => { agent.ended = `failed: ${e?.message ?? e}`; });
}

/** What an agent holds, as JSON carries it. */
export function look(name) {
  const a = agents[name];
  return JSON.parse(JSON.stringify({ ended: a.ended, connection: a.connection, messages: a.messages, state: a.state ?? null, pending: a.pendingInterrupts ?? [], texts: a.messages.map((m) => m.content ?? "") }));
}
