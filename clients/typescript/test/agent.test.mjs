// What HubAgent does beyond surviving cuts, each against a real hub.
import assert from "node:assert/strict";
import fs from "node:fs";
import http from "node:http";
import zlib from "node:zlib";
import { after, before, test } from "node:test";
import { agentAt, difference, eventually, here, holds, Hub, inputOf, long, patience, Proxy, sleep, textRun, timeout, uid, watch } from "./lib.mjs";

let hub, agentServer, answered;
before(async () => {
  // An agent of the plain HTTP kind, which the bridge calls. It answers at the pace of `answered`.
  agentServer = http.createServer((req, res) => {
    let body = "";
    req.on("data", (d) => (body += d));
    req.on("end", async () => {
      const input = JSON.parse(body);
      res.writeHead(200, { "content-type": "text/event-stream" });
      for (const e of textRun(input.runId, input.threadId, ["an", "swer", " to ", input.messages.at(-1).content])) {
        res.write(`data: ${JSON.stringify(e)}\n\n`);
        await answered(input, e);
        if (res.destroyed) return;
      }
      res.end();
    });
  });
  await new Promise((r) => agentServer.listen(0, "127.0.0.1", r));
  hub = await new Hub().start("--agent", `helper=http://127.0.0.1:${agentServer.address().port}/`);
});
after(() => { hub.stop(); agentServer.close(); agentServer.closeAllConnections(); });

const ids = () => { const tag = uid(); return { run: `r-${tag}`, thread: `t-${tag}` }; };
const publish = async (run, events, input) => { for (const [i, e] of events.entries()) await hub.pub.add(run, e, i === 0 ? input : undefined); };
const texts = (agent) => agent.messages.map((m) => m.content);
const proxied = async (t) => { const p = await new Proxy(hub.port).start(); t.after(() => p.stop()); return p; };
const user = (text, id = `u-${uid()}`) => ({ id, role: "user", content: text });

test("a run that is restarted is shown anew within one connectAgent(), and the application's message stays", async () => {
  const { run, thread } = ids();
  const agent = agentAt(hub.url, { runId: run, threadId: thread, initialMessages: [user("mine")] });
  let starts = 0;
  agent.subscribe({ onRunStartedEvent: () => { starts++; } });
  await publish(run, [...textRun(run, thread, ["first try"]).slice(0, 3), { type: "STATE_SNAPSHOT", snapshot: { a: 1 } }, { type: "TOOL_CALL_START", toolCallId: "c1", toolCallName: "f" }, { type: "STEP_STARTED", stepName: "s" }], inputOf({ run, thread }, []));
  const done = agent.connectAgent();
  await eventually(() => texts(agent).includes("first try") && agent.state.a === 1 && agent.lag === 0);
  await sleep(50);
  await publish(run, textRun(run, thread, ["second ", "try"], "m2"));
  await done;
  assert.deepEqual(texts(agent), ["mine", "second try"]);
  assert.deepEqual(agent.state, {});
  assert.equal(agent.connection.resets, 1);
  assert.equal(starts, 1);
});

test("a cursor that was trimmed away leads to a reset, and to the same end", async (t) => {
  const { run, thread } = ids(), proxy = await proxied(t);
  const events = textRun(run, thread, [..."abcdefgh"]);
  const input = inputOf({ run, thread }, [user("asked")]);
  const agent = agentAt(proxy.url, { runId: run, threadId: thread });
  await publish(run, events.slice(0, 4), input);
  const done = agent.connectAgent();
  await eventually(() => texts(agent).includes("ab"));
  proxy.down = true;
  proxy.cut();
  await publish(run, events.slice(4, 8));
  // What is trimmed before a hub has read it is lost to it; here only the client's own position is to go.
  await eventually(async () => (await (await fetch(`${hub.url}/v1/runs/${run}`)).json()).entries === 8);
  await hub.pub.command("XTRIM", `agui:run:${run}`, "MAXLEN", "=", "2");
  proxy.down = false;
  await eventually(() => texts(agent).includes("abcdef"));
  await publish(run, events.slice(8));
  await done;
  assert.deepEqual(texts(agent), ["asked", "abcdefgh"]);
  assert.equal(agent.connection.resets, 1);
});

test("a hub that is killed and started again is found again, and nothing is missed or doubled", async () => {
  const { run, thread } = ids();
  const events = textRun(run, thread, [..."abcdefghij"]);
  const agent = agentAt(hub.url, { runId: run, threadId: thread });
  const states = [];
  agent.onConnectionState((s) => states.push(s.state));
  await publish(run, events.slice(0, 5), inputOf({ run, thread }, [user("asked")]));
  const done = agent.connectAgent();
  await eventually(() => texts(agent).includes("abc"));
  const cursor = agent.cursor;
  await hub.kill();
  await publish(run, events.slice(5, 9));
  assert.equal(agent.cursor, cursor);
  await hub.run();
  await publish(run, events.slice(9));
  await done;
  assert.deepEqual(texts(agent), ["asked", "abcdefghij"]);
  assert.ok(agent.reconnects > 0 && agent.connection.resets === 0);
  assert.ok(states.includes("waiting") && states.at(-1) === "idle");
});

test("where WebSockets are blocked server-sent events take over", async (t) => {
  const { run, thread } = ids(), proxy = await proxied(t);
  proxy.blockWebSockets = true;
  const events = textRun(run, thread, [..."abcdef"]);
  await publish(run, events.slice(0, 4), inputOf({ run, thread }, [user("asked")]));
  const agent = agentAt(proxy.url, { runId: run, threadId: thread });
  const done = agent.connectAgent();
  await eventually(() => texts(agent).includes("ab"));
  assert.equal(agent.connection.transport, "sse");
  assert.equal(proxy.upgrades, 2);
  proxy.cut();
  await publish(run, events.slice(4));
  await done;
  assert.deepEqual(texts(agent), ["asked", "abcdef"]);
});

test("a hub that is away for long isn't taken for one that blocks WebSockets", async (t) => {
  const { run, thread } = ids(), proxy = await proxied(t);
  proxy.down = true;
  await publish(run, textRun(run, thread), inputOf({ run, thread }, []));
  const agent = agentAt(proxy.url, { runId: run, threadId: thread });
  const done = agent.connectAgent();
  await eventually(() => proxy.connections >= 7);
  proxy.down = false;
  await done;
  assert.deepEqual(texts(agent), ["Hello, world"]);
});

test("a component that is mounted twice makes one attachment", async (t) => {
  const { run, thread } = ids(), proxy = await proxied(t);
  await publish(run, textRun(run, thread).slice(0, 3), inputOf({ run, thread }, []));
  const agent = agentAt(proxy.url, { threadId: thread });
  await hub.pub.announce(run, thread);
  let seen = 0;
  const first = agent.connectAgent();
  void agent.detachActiveRun();
  const second = agent.connectAgent(undefined, { onRunFinishedEvent: () => { seen++; } });
  const third = agent.connectAgent();
  await publish(run, textRun(run, thread).slice(3));
  await Promise.all([first, second, third]);
  assert.equal(proxy.upgrades, 1);
  assert.equal(seen, 1);
  assert.deepEqual(texts(agent), ["Hello, world"]);
});

test("an attach that is left before it began ends, and opens nothing", async (t) => {
  const proxy = await proxied(t);
  const agent = agentAt(proxy.url, { threadId: ids().thread });
  const done = agent.connectAgent();
  void agent.detachActiveRun();
  await done;
  assert.equal(proxy.connections, 0);
});

for (const transport of ["websocket", "sse"]) {
  test(`a thread without a run ends connectAgent() at once over ${transport}`, async () => {
    const agent = agentAt(hub.url, { threadId: ids().thread, transport });
    await agent.connectAgent();
    assert.equal(agent.isRunning, false);
  });
}

test("leaving doesn't end the run, and a second attach shows all of it", async () => {
  const { run, thread } = ids();
  const events = textRun(run, thread, [..."abcdef"]);
  await publish(run, events.slice(0, 4), inputOf({ run, thread }, [user("asked")]));
  await hub.pub.announce(run, thread);
  const agent = agentAt(hub.url, { threadId: thread });
  const first = agent.connectAgent();
  await eventually(() => texts(agent).includes("ab"));
  await agent.detachActiveRun();
  await first;
  assert.equal(agent.isRunning, false);
  agent.addMessage(user("and then"));
  await publish(run, events.slice(4));
  await agent.connectAgent();
  assert.deepEqual(texts(agent), ["asked", "abcdef", "and then"]);
});

test("a message that is added amid a run stays", async () => {
  const { run, thread } = ids();
  const events = textRun(run, thread, [..."abcdef"]);
  await publish(run, events.slice(0, 4), inputOf({ run, thread }, []));
  const agent = agentAt(hub.url, { runId: run, threadId: thread });
  const done = agent.connectAgent();
  await eventually(() => texts(agent).includes("ab"));
  agent.addMessage(user("by the way"));
  await publish(run, events.slice(4, 6));
  await publish(run, [{ type: "MESSAGES_SNAPSHOT", messages: [{ id: `m-${run}`, role: "assistant", content: "abcd" }] }]);
  await publish(run, events.slice(6));
  await done;
  assert.deepEqual(texts(agent), ["abcdef", "by the way"]);
});

test("interrupts that wait for an answer don't keep from attaching", async () => {
  const { run, thread } = ids();
  const outcome = { type: "interrupt", interrupts: [{ id: "i1", reason: "sure?" }] };
  await publish(run, [{ type: "RUN_STARTED", threadId: thread, runId: run }, { type: "RUN_FINISHED", threadId: thread, runId: run, outcome }], inputOf({ run, thread }, [user("do it")]));
  await hub.pub.announce(run, thread);
  const agent = agentAt(hub.url, { threadId: thread });
  for (let i = 0; i < 2; i++) {
    await agent.connectAgent();
    assert.deepEqual(agent.pendingInterrupts.map((p) => p.id), ["i1"]);
  }
});

test("the cursor moves only to what has been applied", async () => {
  const { run, thread } = ids();
  const events = textRun(run, thread, [..."abcdefghijklmnop"]);
  const seen = [];
  const agent = agentAt(hub.url, { runId: run, threadId: thread, onCursor: (c) => seen.push([c, texts(agent).at(-1) ?? ""]) });
  await publish(run, events.slice(0, 2), inputOf({ run, thread }, []));
  const done = agent.connectAgent();
  await eventually(() => agent.cursor);
  const at = {};
  for (const e of events.slice(2)) at[(await hub.pub.add(run, e))] = e;
  await done;
  let text = "";
  const wanted = {};
  for (const [id, e] of Object.entries(at)) wanted[id] = text += e.delta ?? "";
  for (const [c, had] of seen) if (wanted[c.split(".")[0]]) assert.ok(had.length >= wanted[c.split(".")[0]].length, `${c}: ${had}`);
  assert.equal(seen.at(-1)[0].split(".")[0], Object.keys(at).at(-1));
});

test("a run that is started through the bridge outlives its page, and every tab sees it", async (t) => {
  const { thread } = ids(), proxy = await proxied(t);
  let go;
  const gate = new Promise((r) => (go = r));
  answered = (_, e) => (e.delta === "swer" ? gate : undefined);
  const agent = agentAt(proxy.url, { threadId: thread, agent: "helper" });
  agent.addMessage(user("you"));
  const run = agent.runAgent();
  await eventually(() => texts(agent).includes("answer"));
  proxy.cut();
  const tab = agentAt(hub.url, { threadId: thread });
  const watched = tab.connectAgent();
  await eventually(() => texts(tab).includes("answer"));
  await agent.detachActiveRun();
  await run;
  go();
  await watched;
  assert.deepEqual(texts(tab), ["you", "answer to you"]);
  await agent.connectAgent();
  assert.equal(difference(holds(agent), holds(tab)), "");
});

test("where the bridge's answer is lost the run is shown all the same", async (t) => {
  const { thread } = ids(), proxy = await proxied(t);
  Object.assign(proxy, { lose: /^POST/, losses: 1 });
  answered = () => {};
  let calls = 0, attach;
  const gate = new Promise((r) => (attach = r)); // the hub is asked for the run before it is attached to
  const agent = agentAt(proxy.url, { threadId: thread, agent: "helper", getToken: () => (calls++ === 0 ? gate : undefined) });
  agent.addMessage(user("you"));
  const run = agent.runAgent();
  run.catch(() => {});
  await eventually(() => proxy.losses === 0);
  await sleep(50);
  attach();
  await run;
  assert.deepEqual(texts(agent), ["you", "answer to you"]);
  await assert.rejects(agentAt("http://127.0.0.1:9", { threadId: thread, agent: "helper" }).runAgent(), (e) => e.code === "unreachable");
});

test("a bridge that refuses rejects runAgent() with the hub's code", async () => {
  const agent = agentAt(hub.url, { threadId: ids().thread, agent: "nobody" });
  await assert.rejects(agent.runAgent(), (e) => e.name === "HubError" && e.status === 404);
  await assert.rejects(agentAt(hub.url, { threadId: "t" }).runAgent(), (e) => e.code === "no_agent");
});

test("any tab cancels a run, and its end says so", async (t) => {
  const { thread } = ids();
  const gate = new Promise((r) => t.after(r)); // the agent itself never goes on
  answered = (_, e) => (e.delta ? gate : undefined);
  const agent = agentAt(hub.url, { threadId: thread, agent: "helper" });
  agent.addMessage(user("you"));
  let outcome;
  agent.subscribe({ onRunFinishedEvent: ({ event }) => { outcome = event.outcome; }, onRunErrorEvent: ({ event }) => { outcome = event; } });
  const run = agent.runAgent().catch(() => {});
  await eventually(() => texts(agent).length > 1);
  const tab = agentAt(hub.url, { threadId: thread });
  const watched = tab.connectAgent();
  await eventually(() => tab.connection.run);
  tab.abortRun();
  const state = async () => (await (await fetch(`${hub.url}/v1/runs/${tab.connection.run}`)).json()).state;
  await eventually(async () => /^cancel/.test(await state()), "the request");
  await Promise.all([run, watched]);
  if (process.env.NO_BRIDGE_CANCEL) return;
  assert.match(JSON.stringify(outcome), /cancel/);
  assert.equal(agent.isRunning, false);
});

test("a watched thread shows each run, over one connection, those that it starts itself included", async (t) => {
  const { thread } = ids(), proxy = await proxied(t), tag = uid();
  answered = () => {};
  const agent = agentAt(proxy.url, { threadId: thread, agent: "helper" });
  const once = agent.watchThread();
  void once.stop();
  const w = agent.watchThread();
  const events = [];
  for (let i = 1; i <= 2; i++) {
    const run = `${tag}-${i}`, asked = user(`q${i}`, `q-${tag}-${i}`);
    const all = textRun(run, thread, [`a${i}`]);
    await publish(run, all, inputOf({ run, thread }, [asked]));
    await hub.pub.announce(run, thread);
    events.push(...all);
    await eventually(() => texts(agent).includes(`a${i}`) && !agent.isRunning, `run ${i}`);
  }
  agent.addMessage(user("you"));
  await agent.runAgent();
  await eventually(() => texts(agent).includes("answer to you"));
  assert.deepEqual(texts(agent), ["q1", "a1", "q2", "a2", "you", "answer to you"]);
  assert.equal(proxy.upgrades, 1);
  await w.stop();
  await w.done;
});

test("a watched thread that is left between two runs is watched no more", async (t) => {
  const { run, thread } = ids(), proxy = await proxied(t);
  await publish(run, textRun(run, thread, ["a"]));
  await hub.pub.announce(run, thread);
  const agent = agentAt(proxy.url, { threadId: thread });
  const w = agent.watchThread();
  await eventually(() => texts(agent).includes("a") && !agent.flight, "the first run");
  await agent.detachActiveRun();
  await Promise.race([w.done, timeout(patience).then(() => assert.fail("it is watched"))]);
  await eventually(() => proxy.sockets.size === 0, "the end of the connection");
  await w.stop();
});

test("a look-up that is never answered doesn't keep connectAgent() from its end", async (t) => {
  const { run, thread } = ids(), proxy = await proxied(t);
  await publish(run, textRun(run, thread, ["a"]));
  await hub.pub.announce(run, thread);
  proxy.swallow = /^GET \/v1\/threads\/[^/]* /;
  const agent = agentAt(proxy.url, { threadId: thread, timing: { answer: 100 } });
  await Promise.race([agent.connectAgent(), timeout(patience).then(() => assert.fail("it waits"))]);
  assert.deepEqual(texts(agent), ["a"]);
});

for (const end of ["RUN_FINISHED", "RUN_ERROR"]) {
  for (const how of ["watchThread", "connectAgent"]) {
    test(`${how}() that was away over the end of a run by ${end} goes on with the next`, async (t) => {
      const { thread } = ids(), proxy = await proxied(t), tag = uid();
      const [a, b] = ["a", "b"].map((x) => textRun(`${tag}-${x}`, thread, [`1${x}`, `2${x}`, `3${x}`]));
      if (end === "RUN_ERROR") a.splice(-2, 2, { type: "RUN_ERROR", message: "no" });
      const before = a.findIndex((e) => e.delta === "2a") + 1;
      const agent = agentAt(proxy.url, { threadId: thread });
      await publish(`${tag}-a`, a.slice(0, before), inputOf({ run: `${tag}-a`, thread }, [user("qa", `qa-${tag}`)]));
      await hub.pub.announce(`${tag}-a`, thread);
      const w = how === "watchThread" ? agent.watchThread() : undefined;
      const done = w ? w.done : agent.connectAgent();
      await eventually(() => texts(agent).includes("1a2a"));
      proxy.down = true;
      proxy.cut();
      await publish(`${tag}-a`, a.slice(before));
      await sleep(5);
      await publish(`${tag}-b`, b.slice(0, 4), inputOf({ run: `${tag}-b`, thread }, [user("qa", `qa-${tag}`), user("qb", `qb-${tag}`)]));
      await hub.pub.announce(`${tag}-b`, thread);
      await sleep(20);
      proxy.down = false;
      if (how === "connectAgent" && end === "RUN_ERROR" && !agent.goesOnAfterError) {
        await done; // shows all up to the error; the next run is another attach
        return;
      }
      await eventually(() => texts(agent).includes("1b2b"), `the second run: ${JSON.stringify(texts(agent))}`);
      await publish(`${tag}-b`, b.slice(4));
      if (w) { await eventually(() => texts(agent).includes("1b2b3b") && !agent.isRunning); await w.stop(); }
      await done;
      assert.deepEqual(texts(agent), ["qa", "1a2a3a", "qb", "1b2b3b"]);
    });
  }
}

test("a connection that is dropped on purpose comes back with its cursor, and each line of the hub is told once", async () => {
  const { run, thread } = ids();
  const events = textRun(run, thread, [..."abcdef"]);
  const lines = [];
  const agent = agentAt(hub.url, { runId: run, threadId: thread, onLine: (l) => lines.push(l) });
  await publish(run, events.slice(0, 4), inputOf({ run, thread }, []));
  const done = agent.connectAgent();
  await eventually(() => texts(agent).includes("ab") && agent.connection.state === "live");
  agent.dropConnection();
  assert.notEqual(agent.connection.state, "live");
  await eventually(() => agent.connection.state === "live");
  await publish(run, events.slice(4));
  await done;
  assert.deepEqual(texts(agent), ["abcdef"]);
  assert.equal(agent.reconnects, 1);
  const told = (name) => lines.filter((l) => l.control === name).length;
  assert.deepEqual([told("attached"), told("reset"), told("ended")], [2, 0, 1]);
  const placed = lines.filter((l) => l.event && l.id).map((l) => l.id);
  assert.equal(placed.length, events.length - 4);
  assert.deepEqual(placed, [...new Set(placed)].sort());
  agent.dropConnection(); // nothing to drop any more
  assert.equal(agent.connection.state, "idle");
});

test("an agent tells its connection, and that a run without an input has a partial history", async () => {
  const { run, thread } = ids(), seen = [];
  await publish(run, textRun(run, thread).slice(0, 3));
  const agent = agentAt(hub.url, { runId: run, threadId: thread, onConnectionState: (s) => seen.push(s.state) });
  const done = agent.connectAgent();
  await eventually(() => agent.cursor);
  const { state, transport, history, run: at, hub: name, reconnects } = agent.connection;
  assert.deepEqual([state, transport, history, at, reconnects, typeof name], ["live", "websocket", "partial", run, 0, "string"]);
  assert.deepEqual([agent.history, agent.lag], ["partial", 0]);
  await publish(run, textRun(run, thread).slice(3));
  await done;
  assert.deepEqual([...new Set(seen)], ["connecting", "catching-up", "live", "idle"]);
});

test("a clone is an agent of its own", async () => {
  const { run, thread } = ids();
  await publish(run, textRun(run, thread), inputOf({ run, thread }, []));
  const agent = agentAt(hub.url, { runId: run, threadId: thread });
  const copy = agent.clone();
  await copy.connectAgent();
  assert.deepEqual(texts(copy), ["Hello, world"]);
  assert.deepEqual(agent.messages, []);
});

test("a burst of events is applied as the official client does", async () => {
  const { run, thread } = ids();
  const events = textRun(run, thread, Array.from({ length: long ? 3000 : 800 }, (_, i) => `${i} `));
  const want = await watch(events);
  const agent = agentAt(hub.url, { runId: run, threadId: thread });
  await hub.pub.add(run, events[0], inputOf({ run, thread }, []));
  const done = agent.connectAgent();
  await eventually(() => agent.cursor);
  await Promise.all(events.slice(1).map((e) => hub.pub.add(run, e)));
  await done;
  assert.equal(difference(holds(agent), want), "");
  assert.equal(agent.lag, 0);
});

test("what is bad for ever is told, what isn't is tried again", async () => {
  const agent = agentAt(hub.url, { runId: "a/b", threadId: "t" });
  await assert.rejects(agent.connectAgent(), (e) => e.name === "HubError" && e.status === 4400);
});

test("what a page loads of the package is at most 10 kB, compressed, and an adapter little more", () => {
  const dist = `${here}/../dist/`;
  const loaded = (file, seen = new Set()) => {
    if (seen.has(file)) return seen;
    seen.add(file);
    for (const [, name] of fs.readFileSync(dist + file, "utf8").matchAll(/["']\.\/([\w.-]+\.js)["']/g)) loaded(name, seen);
    return seen;
  };
  const size = (file) => zlib.gzipSync([...loaded(file)].map((f) => fs.readFileSync(dist + f)).join("\n"), { level: 9 }).length;
  const page = size("index.js");
  console.log(`size: ${page} bytes`);
  assert.ok(page > 1_000 && page <= 10_240, `${page} bytes`);
  const adapters = fs.readdirSync(dist).filter((f) => f.endsWith(".js") && !/^(index|chunk|standalone)/.test(f));
  assert.ok(adapters.length > 0);
  for (const f of adapters) assert.ok(size(f) <= page + 4_096, `${f}: ${size(f)} bytes`);
});
