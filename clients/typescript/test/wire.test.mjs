// What HubAgent does with a hub that speaks by a script: tokens, close codes, silence, networks that go.
import assert from "node:assert/strict";
import { once } from "node:events";
import { test } from "node:test";
import { WebSocketServer } from "ws";
import { agentAt, eventually, textRun } from "./lib.mjs";

const line = (o) => JSON.stringify(o);
const events = textRun("r", "t", ["a"]);
const bracket = (until, id) => [line({ control: "attached", run: "r", thread: "t", history: "full", hub: "h" }), line({ control: "catchup", from: null, mode: "fresh" }), ...events.slice(0, until).map((event) => line({ event })), line({ control: "live", id })].join("\n");
const rest = (from) => events.slice(from).map((event, i) => line({ id: `${from + i}-0.x`, event })).join("\n");

/** A hub whose n-th connection is answered by script[n]; the last one answers all that follow. */
async function scripted(t, ...script) {
  const server = new WebSocketServer({ port: 0, host: "127.0.0.1", handleProtocols: (offered) => [...offered][0] });
  await once(server, "listening");
  const seen = [];
  server.on("connection", (ws, req) => {
    seen.push({ ws, url: req.url, offered: req.headers["sec-websocket-protocol"], at: Date.now() });
    script[Math.min(seen.length, script.length) - 1](ws, seen.length - 1);
  });
  t.after(() => { for (const { ws } of seen) ws.terminate(); server.close(); });
  return { url: `http://127.0.0.1:${server.address().port}`, seen };
}
const whole = (ws) => { ws.send(bracket(2, "2-0.x")); ws.send(rest(2)); ws.close(1000); };

test("a bracket that is cut before live is as if it had never come", async (t) => {
  const hub = await scripted(t, (ws) => { ws.send(bracket(3, "3-0.x").split("\n").slice(0, -1).join("\n"), () => ws.terminate()); }, whole);
  const agent = agentAt(hub.url, { runId: "r", threadId: "t" });
  await agent.connectAgent();
  assert.equal(agent.messages[0].content, "a");
  assert.ok(!hub.seen[1].url.includes("after="));
});

test("what is skipped before the run has begun is told and counted, and is no place to come back to", async (t) => {
  const hub = await scripted(t, (ws) => { ws.send(line({ control: "skipped", id: "1-0.x", reason: "malformed" }), () => ws.terminate()); }, whole);
  const told = [];
  const agent = agentAt(hub.url, { runId: "r", threadId: "t", onLine: (l) => told.push(l.control) });
  await agent.connectAgent();
  assert.equal(agent.messages[0].content, "a");
  assert.deepEqual([told[0], agent.connection.skipped], ["skipped", 1]);
  assert.ok(!hub.seen[1].url.includes("after="));
});

test("an application's message stands where it was, and once, among messages that share an id", async (t) => {
  const call = { id: "c", role: "assistant", toolCalls: [{ id: "c", type: "function", function: { name: "f", arguments: "{}" } }] };
  const messages = [call, { id: "c", role: "tool", toolCallId: "c", content: "1" }];
  const snapshot = [line({ control: "catchup", from: null, mode: "fresh" }), line({ event: events[0] }), line({ event: { type: "MESSAGES_SNAPSHOT", messages } }), line({ control: "live", id: "1-0.x" })].join("\n");
  const hub = await scripted(t, (ws) => ws.send(snapshot));
  const agent = agentAt(hub.url, { runId: "r", threadId: "t" });
  const done = agent.connectAgent();
  await eventually(() => agent.messages.length === 2 && agent.cursor);
  agent.addMessage({ id: "mine", role: "user", content: "mine" });
  const [{ ws }] = hub.seen;
  ws.send(line({ control: "reset", reason: "lost" }));
  ws.send(snapshot);
  ws.send(line({ id: "2-0.x", event: events.at(-1) }));
  ws.close(1000);
  await done;
  assert.deepEqual(agent.messages.map((m) => m.id), ["c", "c", "mine"]);
});

test("a message of thousands of lines is read and applied in slices, in order, and the cursor is never ahead", async (t) => {
  const n = 4_000;
  const delta = (i) => line({ id: `${10 + i}-0.x`, event: { type: "TEXT_MESSAGE_CONTENT", messageId: events[1].messageId, delta: `[${i}]` } });
  const burst = Array.from({ length: n }, (_, i) => delta(i)).join("\n");
  const hub = await scripted(t, (ws) => { ws.send(bracket(2, "2-0.x")); ws.send(burst); ws.close(1001); }, (ws) => { ws.send([line({ control: "attached", run: "r" }), line({ control: "catchup", from: "x", mode: "events" }), ...events.slice(3).map((event) => line({ event, id: "9999-0.x" })), line({ control: "live", id: "9999-0.x" })].join("\n")); ws.close(1000); });
  let seen = 0, turns = 0, most = 0, last = 0, going = true;
  const turn = () => { turns++; most = Math.max(most, seen - last); last = seen; if (going) setImmediate(turn); };
  const agent = agentAt(hub.url, { runId: "r", threadId: "t", onCursor: (c) => { const at = parseInt(c, 10) - 9; if (at > 0 && at <= n) assert.ok(at <= seen, `${at} of ${seen}`); } });
  agent.subscribe({ onEvent: ({ event }) => { if (event.type === "TEXT_MESSAGE_CONTENT") seen++; } });
  setImmediate(turn);
  await agent.connectAgent();
  going = false;
  assert.equal(agent.messages[0].content, Array.from({ length: n }, (_, i) => `[${i}]`).join(""));
  assert.equal(new URL(hub.seen[1].url, hub.url).searchParams.get("after"), `${n + 9}-0.x`); // all that had come before the close counts
  assert.ok(turns > 10 && most < n / 4, `${turns} turns, ${most} events in one`);
});

test("a connection goes on where the last one ended, with the default catch-up", async (t) => {
  const hub = await scripted(t, (ws) => { ws.send(bracket(2, "2-0.x"), () => ws.terminate()); }, (ws) => { ws.send([line({ control: "attached", run: "r" }), line({ control: "catchup", from: "2-0.x", mode: "events" }), rest(2), line({ control: "live", id: "5-0.x" })].join("\n")); ws.close(1000); });
  const agent = agentAt(hub.url, { runId: "r", threadId: "t" });
  await agent.connectAgent();
  const url = new URL(hub.seen[1].url, hub.url);
  assert.equal(url.searchParams.get("after"), "2-0.x");
  assert.equal(url.searchParams.get("catchup"), "auto");
  assert.equal(agent.messages[0].content, "a");
  assert.equal(agent.reconnects, 1);
});

test("an activity is as the last snapshot has it, whatever the client held", async (t) => {
  const activity = (id, content) => ({ type: "ACTIVITY_SNAPSHOT", messageId: id, activityType: "PLAN", content, replace: true });
  const held = (id, content) => ({ id, role: "activity", activityType: "PLAN", content });
  const hub = await scripted(t, (ws) => { ws.send([bracket(1, "1-0.x").replace(line({ control: "live", id: "1-0.x" }), `${line({ event: { type: "MESSAGES_SNAPSHOT", messages: [] } })}\n$&`), line({ id: "2-0.x", event: activity("a", { n: 1 }) }), line({ id: "3-0.x", event: activity("b", { n: 1 }) })].join("\n"), () => ws.terminate()); },
    (ws) => { ws.send([line({ control: "attached", run: "r" }), line({ control: "catchup", from: "3-0.x", mode: "snapshot" }), line({ event: { type: "MESSAGES_SNAPSHOT", messages: [held("a", { n: 2 }), held("c", { n: 3 })] } }), line({ control: "live", id: "4-0.x" }), line({ id: "5-0.x", event: events.at(-1) })].join("\n")); ws.close(1000); });
  const agent = agentAt(hub.url, { runId: "r", threadId: "t" });
  await agent.connectAgent();
  assert.deepEqual(agent.messages.map((m) => [m.id, m.content]), [["a", { n: 2 }], ["c", { n: 3 }]]);
});

test("a token is offered as a subprotocol, and a new one is asked for where it is refused", async (t) => {
  const hub = await scripted(t, (ws) => ws.close(4401, "expired"), whole);
  const asked = [];
  const agent = agentAt(hub.url, { runId: "r", threadId: "t", getToken: ({ refresh }) => { asked.push(refresh); return refresh ? "new" : "old"; } });
  await agent.connectAgent();
  assert.deepEqual(asked, [false, true]);
  assert.deepEqual(hub.seen.map((s) => s.offered), ["ag-ui.hub.v1.json,ag-ui.bearer.old", "ag-ui.hub.v1.json,ag-ui.bearer.new"]);
});

test("a thread may be watched longer than one refreshed token lasts, also where it has no run", async (t) => {
  const none = (ws) => { ws.send(line({ control: "attached", run: null, thread: "t", history: "full", hub: "h" })); ws.close(4401, "expired"); };
  const hub = await scripted(t, none, none, none, (ws) => ws.send(bracket(events.length, "9-0.x")));
  const asked = [];
  const agent = agentAt(hub.url, { threadId: "t", getToken: ({ refresh }) => { asked.push(refresh); return "x"; } });
  const w = agent.watchThread();
  await Promise.race([w.done, eventually(() => agent.messages.length > 0)]);
  await w.stop();
  assert.deepEqual(asked, [false, true, true, true]);
});

test("a token that is refused twice ends it", async (t) => {
  const hub = await scripted(t, (ws) => ws.close(4401, "bad"));
  await assert.rejects(agentAt(hub.url, { runId: "r", getToken: () => "x" }).connectAgent(), (e) => e.code === "unauthorized" && e.status === 4401);
  assert.equal(hub.seen.length, 2);
});

test("a token that expires is renewed over the same connection", async (t) => {
  const hub = await scripted(t, (ws) => {
    ws.on("message", (m) => { assert.deepEqual(JSON.parse(m), { control: "token", token: "new" }); ws.send(rest(2)); ws.close(1000); });
    ws.send(bracket(2, "2-0.x")); ws.send(line({ control: "expiring", atMs: 0 }));
  });
  await agentAt(hub.url, { runId: "r", threadId: "t", getToken: ({ refresh }) => (refresh ? "new" : "old") }).connectAgent();
  assert.equal(hub.seen.length, 1);
});

for (const code of [1003, 1009, 4400, 4403, 4413]) {
  test(`close code ${code} is final`, async (t) => {
    const hub = await scripted(t, (ws) => ws.close(code, "why"));
    await assert.rejects(agentAt(hub.url, { runId: "r" }).connectAgent(), (e) => e.name === "HubError" && e.status === code && e.message === "why");
    assert.equal(hub.seen.length, 1);
  });
}
for (const code of [1001, 1011, 1012, 1013, 4404, 4408, 4410, 4429]) {
  test(`after close code ${code} it comes back`, async (t) => {
    const hub = await scripted(t, (ws) => ws.close(code), whole);
    await agentAt(hub.url, { runId: "r", threadId: "t" }).connectAgent();
    assert.equal(hub.seen.length, 2);
  });
}

test("a hub that drains says when to come back", async (t) => {
  const hub = await scripted(t, (ws) => { ws.send(line({ control: "draining", retryAfterMs: 120 })); ws.close(1012); }, whole);
  await agentAt(hub.url, { runId: "r", threadId: "t" }).connectAgent();
  assert.ok(hub.seen[1].at - hub.seen[0].at >= 115);
});

test("a hub that is silent is asked, and left where it doesn't answer", async (t) => {
  let pings = 0, asked = 0;
  // However slow this machine is, only the third answer is too late.
  const later = globalThis.setTimeout;
  t.mock.method(globalThis, "setTimeout", (f, ms, ...rest) => later(f, ms === 60_000 && ++asked === 3 ? 30 : ms, ...rest));
  const hub = await scripted(t, (ws) => {
    ws.send(bracket(2, "2-0.x"));
    ws.on("message", () => { if (++pings < 3) ws.send(line({ control: "pong" })); });
  }, whole);
  await agentAt(hub.url, { runId: "r", threadId: "t", timing: { silence: 30, answer: 60_000 } }).connectAgent();
  assert.equal(pings, 3);
  assert.equal(hub.seen.length, 2);
});

test("by default it asks after 45 s of silence, and comes back after 10 s without an answer", async (t) => {
  let pings = 0;
  const hub = await scripted(t, (ws) => { ws.send(bracket(2, "2-0.x")); ws.on("message", (m) => { assert.deepEqual(JSON.parse(m), { control: "ping" }); pings++; }); }, whole);
  const waits = new Set(), later = globalThis.setTimeout;
  t.mock.method(globalThis, "setTimeout", (f, ms, ...rest) => {
    if (ms < 10_000) return later(f, ms, ...rest);
    waits.add(ms);
    const timer = later(() => (agent.cursor ? f(...rest) : timer.refresh()), 20); // time flies, once what comes first has come
    return timer;
  });
  const agent = agentAt(hub.url, { runId: "r", threadId: "t", timing: { handshake: 9_000 } });
  await agent.connectAgent();
  assert.ok(pings >= 1 && hub.seen.length >= 2);
  assert.deepEqual([...waits].filter((ms) => ms !== 30_000), [45_000, 10_000]); // the package ws has a wait of its own
  assert.equal(new URL(hub.seen[1].url, hub.url).searchParams.get("after"), "2-0.x");
});

test("it pauses while the browser is offline", async (t) => {
  const hub = await scripted(t, (ws) => ws.send(bracket(2, "2-0.x")), whole);
  // Node has neither window events nor navigator.onLine.
  const window = new EventTarget();
  const before = { add: globalThis.addEventListener, remove: globalThis.removeEventListener, navigator: Object.getOwnPropertyDescriptor(globalThis, "navigator") };
  let onLine = true;
  globalThis.addEventListener = window.addEventListener.bind(window);
  globalThis.removeEventListener = window.removeEventListener.bind(window);
  Object.defineProperty(globalThis, "navigator", { configurable: true, get: () => ({ onLine }) });
  t.after(() => {
    globalThis.addEventListener = before.add;
    globalThis.removeEventListener = before.remove;
    if (before.navigator) Object.defineProperty(globalThis, "navigator", before.navigator); else delete globalThis.navigator;
  });
  const agent = agentAt(hub.url, { runId: "r", threadId: "t" });
  const done = agent.connectAgent();
  await eventually(() => agent.connection.state === "live" && agent.cursor);
  onLine = false;
  window.dispatchEvent(new Event("offline"));
  assert.equal(agent.connection.state, "offline");
  await new Promise((r) => setTimeout(r, 60));
  assert.equal(hub.seen.length, 1);
  onLine = true;
  window.dispatchEvent(new Event("online"));
  await done;
  assert.equal(hub.seen.length, 2);
});

test("unknown control lines and fields are ignored", async (t) => {
  const hub = await scripted(t, (ws) => { ws.send([line({ control: "later", x: 1 }), bracket(2, "2-0.x"), line({ control: "stalled", since: 1 }), rest(2)].join("\n")); ws.close(1000); });
  const agent = agentAt(hub.url, { runId: "r", threadId: "t" });
  await agent.connectAgent();
  assert.equal(agent.messages[0].content, "a");
});

test("waits grow with each failure up to the most, each a random part of its limit", async (t) => {
  const hub = await scripted(t, ...Array.from({ length: 6 }, () => (ws) => ws.close(1011)), whole);
  const waits = [], later = globalThis.setTimeout;
  let n = 0;
  t.mock.method(Math, "random", () => [0.5, 1, 0.25][n++ % 3]);
  t.mock.method(globalThis, "setTimeout", (f, ms, ...rest) => { if (ms > 0 && ms <= 80) waits.push(ms); return later(f, ms, ...rest); });
  await agentAt(hub.url, { runId: "r", threadId: "t", timing: { first: 10, most: 80 } }).connectAgent();
  assert.deepEqual(waits.slice(0, 6), [5, 20, 10, 40, 80, 20]);
});
