// HubRunner by itself: in-process agents over a real hub. examples/copilotkit tests it within CopilotKit's runtime.
import assert from "node:assert/strict";
import http from "node:http";
import { after, before, describe, test } from "node:test";
import { AbstractAgent } from "@ag-ui/client";
import { lastValueFrom, Observable, toArray } from "rxjs";
import WebSocket from "ws";
import { HubRunner } from "../dist/copilotkit.js";
import { agentAt, asksForTokens, eventually, Hub, Proxy, sleep, textRun, token, uid, watch } from "./lib.mjs";

let hub;
before(async () => { hub = await new Hub().start(); });
after(() => hub.stop());

/** An agent of this process: play(sub, input, aborted) tells its events. */
class Played extends AbstractAgent {
  constructor(play) { super({ threadId: "unused" }); this.play = play; }
  run(input) {
    return new Observable((sub) => {
      this.abort = () => sub.complete();
      Promise.resolve(this.play((e) => sub.next(e), input)).then(() => sub.complete(), (e) => sub.error(e));
    });
  }
  abortRun() { this.aborted = true; this.abort?.(); }
}
/** A gate that a test opens. */
const gate = () => { let open; const p = new Promise((r) => (open = r)); return { p, open }; };
const runner = (options = {}) => new HubRunner({ url: hub.url, WebSocket, ...options });
const ids = () => ({ threadId: `t-${uid()}`, runId: `r-${uid()}` });
const asked = (thread) => ({ id: `u-${thread}`, role: "user", content: "a question" });
const inputOf = ({ threadId, runId }) => ({ threadId, runId, messages: [asked(threadId)], state: {}, tools: [], context: [], forwardedProps: {} });
const start = (r, id, agent) => { agent.setMessages([asked(id.threadId)]); return r.run({ threadId: id.threadId, agent, input: inputOf(id) }); };
const all = (observable) => lastValueFrom(observable.pipe(toArray()), { defaultValue: [] });
const bare = (events) => events.map((e) => e.type);
const state = async (run) => (await (await fetch(`${hub.url}/v1/runs/${run}`)).json()).state;
/** What a front end ends with that connects. */
async function connected(r, threadId) {
  const events = await all(r.connect({ threadId }));
  const got = await watch(events, undefined);
  assert.equal(got.error, null);
  return got.messages.map((m) => m.content);
}

describe("HubRunner", { concurrency: 8 }, () => {
  test("a run is published as it is made, told from the hub, and there for every process that connects", async () => {
    const id = ids(), g = gate();
    const agent = new Played(async (say, { threadId, runId }) => {
      const events = textRun(runId, threadId, [..."abcdef"]);
      for (const e of events.slice(0, 4)) say(e);
      await g.p;
      for (const e of events.slice(4)) say(e);
    });
    const here = runner(), elsewhere = runner();
    const run = all(start(here, id, agent));
    const tab = agentAt(hub.url, { threadId: id.threadId });
    await eventually(async () => (await state(id.runId)) === "running", "the run's first events");
    const watched = tab.connectAgent();
    await eventually(() => tab.messages[1]?.content === "ab", "the text so far");
    assert.equal(await elsewhere.isRunning({ threadId: id.threadId }), true);
    const late = connected(elsewhere, id.threadId);
    g.open();
    await watched;
    assert.deepEqual((await run).filter((e) => e.delta).map((e) => e.delta).join(""), "abcdef");
    assert.deepEqual(await late, ["a question", "abcdef"]);
    assert.deepEqual(tab.messages.map((m) => m.content), ["a question", "abcdef"]);
    assert.equal(await here.isRunning({ threadId: id.threadId }), false);
  });

  test("a hub that asks for tokens gets them, a newer one too where the first ends while the agent is silent", async (t) => {
    const guarded = await new Hub().start("--redis", `redis://127.0.0.1:${hub.redisPort}`, ...asksForTokens());
    t.after(() => guarded.stop());
    const id = ids(), tokens = [], good = token(3600);
    const with_ = (getToken) => new HubRunner({ url: guarded.url, WebSocket, getToken });
    const here = with_(({ refresh }) => { tokens.push(refresh); return tokens.includes(true) ? good : token(3); }), elsewhere = with_(() => good);
    const agent = new Played(async (say, { threadId, runId }) => {
      const events = textRun(runId, threadId, [..."abcdef"]);
      for (const e of events.slice(0, 4)) say(e);
      await Promise.all([sleep(4_000), eventually(() => tokens.includes(true))]); // the upload's token ends, whenever it was asked for
      for (const e of events.slice(4)) say(e);
    });
    const events = await all(start(here, id, agent));
    assert.equal(events.filter((e) => e.delta).map((e) => e.delta).join(""), "abcdef");
    assert.ok(tokens.includes(true), "no newer token was asked for");
    assert.deepEqual(await connected(elsewhere, id.threadId), ["a question", "abcdef"]);
    assert.equal(await elsewhere.isRunning({ threadId: id.threadId }), false);
    const refused = ids();
    await assert.rejects(all(start(with_(() => "bad"), refused, new Played(async (say) => textRun(refused.runId, refused.threadId).forEach(say)))), (e) => e.status === 401 || e.status === 4401);
  });

  test("who leaves doesn't end the run", async () => {
    const id = ids(), g = gate();
    const r = runner();
    const s = start(r, id, new Played(async (say) => { const e = textRun(id.runId, id.threadId); say(e[0]); await g.p; e.slice(1).forEach(say); })).subscribe();
    await eventually(async () => (await state(id.runId)) === "running");
    s.unsubscribe();
    g.open();
    await eventually(async () => (await state(id.runId)) === "finished");
  });

  test("a thread has one run, in this process and in another", async () => {
    const id = ids(), g = gate();
    const play = async (say, { runId }) => { const e = textRun(runId, id.threadId); say(e[0]); await g.p; e.slice(1).forEach(say); };
    const here = runner();
    const first = all(start(here, id, new Played(play)));
    assert.throws(() => start(here, { ...id, runId: "r-other" }, new Played(play)), /Thread already running/);
    await eventually(async () => (await state(id.runId)) === "running");
    await assert.rejects(all(start(runner(), { ...id, runId: `r-${uid()}` }, new Played(play))), /Thread already running/);
    const next = { ...id, runId: `r-${uid()}` };
    const second = all(start(runner({ onConcurrentRun: "supersede" }), next, new Played(async (say) => textRun(next.runId, id.threadId, ["next"]).forEach(say))));
    assert.equal((await first).at(-1).outcome?.type, "cancelled");
    await second;
    assert.equal(await state(id.runId), "cancelled");
    assert.deepEqual(await connected(here, id.threadId), ["a question", "next"]);
  });

  for (const where of ["the process that runs it", "another process"]) {
    test(`stop() from ${where} aborts the agent, and what is open is closed`, async () => {
      const id = ids(), here = runner();
      const agent = new Played(async (say) => {
        say({ type: "RUN_STARTED", threadId: id.threadId, runId: id.runId });
        say({ type: "TOOL_CALL_START", toolCallId: `c-${id.runId}`, toolCallName: "search" });
        say({ type: "TEXT_MESSAGE_START", messageId: `m-${id.runId}`, role: "assistant" });
        say({ type: "TEXT_MESSAGE_CONTENT", messageId: `m-${id.runId}`, delta: "I am" });
        await new Promise(() => {});
      });
      const run = all(start(here, id, agent));
      await eventually(async () => (await state(id.runId)) === "running");
      const r = where === "another process" ? runner() : here;
      assert.equal(await r.stop({ threadId: id.threadId, runId: "another" }), false);
      assert.equal(await r.stop({ threadId: id.threadId, runId: id.runId }), true);
      const events = await run;
      assert.ok(agent.aborted);
      assert.deepEqual(bare(events).slice(-4).sort(), ["RUN_FINISHED", "TEXT_MESSAGE_END", "TOOL_CALL_END", "TOOL_CALL_RESULT"]);
      assert.match(events.find((e) => e.type === "TOOL_CALL_RESULT").content, /stop_requested/);
      assert.equal(await state(id.runId), "cancelled");
      assert.equal(await r.stop({ threadId: id.threadId }), false);
    });
  }

  test("an agent whose abortRun() does nothing is left behind", async () => {
    const id = ids(), r = runner();
    const agent = new Played(async (say) => { say({ type: "RUN_STARTED", threadId: id.threadId, runId: id.runId }); await new Promise(() => {}); });
    agent.abortRun = () => {};
    const run = all(start(r, id, agent));
    await eventually(async () => (await state(id.runId)) === "running");
    assert.equal(await r.stop({ threadId: id.threadId }), true);
    assert.equal((await run).at(-1).outcome.type, "cancelled");
    assert.equal(await r.isRunning({ threadId: id.threadId }), false);
  });

  for (const [what, play, message] of [
    ["fails before its first event", () => Promise.reject(new Error("no model")), "no model"],
    ["fails in the middle", (say, i) => { textRun(i.runId, i.threadId).slice(0, 3).forEach(say); return Promise.reject(new Error("broke")); }, "broke"],
    ["stops without an end", (say, i) => textRun(i.runId, i.threadId).slice(0, 3).forEach(say), "Run ended without emitting a terminal event"],
  ]) {
    test(`an agent that ${what} leaves no run open, and the thread has the question`, async () => {
      const id = ids(), r = runner();
      const events = await all(start(r, id, new Played(play)));
      assert.deepEqual([events[0].type, events.at(-1).type, events.at(-1).message], ["RUN_STARTED", "RUN_ERROR", message]);
      assert.equal(await state(id.runId), "error");
      assert.equal((await connected(r, id.threadId))[0], "a question");
    });
  }

  test("ids of the agent's own don't lead its run astray", async () => {
    const id = ids(), r = runner();
    await all(start(r, id, new Played((say) => textRun("mine", "mine", ["hi"]).forEach(say))));
    assert.deepEqual(await connected(r, id.threadId), ["a question", "hi"]);
  });

  test("an event that clients would reject is left out, and said", async () => {
    const id = ids(), seen = [];
    const r = runner({ onRejected: (x) => seen.push(x) });
    // A client up to 0.0.59 lets an event pass whose type it doesn't know to be illegal here.
    const agent = { runAgent: async (_, { onEvent }) => { for (const event of [...textRun(id.runId, id.threadId, ["a"]).slice(0, 2), { type: "TEXT_MESSAGE_CONTENT", messageId: "nowhere", delta: "x" }, ...textRun(id.runId, id.threadId, ["a"]).slice(2)]) onEvent({ event }); }, abortRun() {} };
    await all(r.run({ threadId: id.threadId, agent, input: inputOf(id) }));
    await eventually(() => seen.length > 0); // the upload is answered behind the run's end
    assert.deepEqual(seen.map((x) => [x.run, x.index]), [[id.runId, 2]]);
    assert.deepEqual(await connected(r, id.threadId), ["a question", "a"]);
  });

  test("connections that break, a hub that is killed, and many events: each is in the log once, in order", async (t) => {
    const own = await new Hub().start(), proxy = await new Proxy(own.port).start();
    t.after(() => { proxy.stop(); own.stop(); });
    const id = ids(), r = runner({ url: proxy.url });
    const pieces = Array.from({ length: 1500 }, (_, i) => `${i} `);
    let told = 0;
    const agent = new Played(async (say) => {
      for (const e of textRun(id.runId, id.threadId, pieces)) {
        say(e);
        if (++told % 10 === 0) await new Promise((go) => setTimeout(go, 2));
        if (told % 400 === 0) proxy.cut();
        if (told === 1000) { await own.kill(); await own.run(); }
      }
    });
    const run = all(start(r, id, agent));
    assert.equal((await run).at(-1).type, "RUN_FINISHED");
    assert.deepEqual(await connected(r, id.threadId), ["a question", pieces.join("")]);
    const log = (await (await fetch(`${own.url}/v1/runs/${id.runId}/events`)).text()).trim().split("\n");
    assert.equal(log.length, pieces.length + 4);
  });

  test("while an agent is silent a request stays open, which is what tells the hub that it lives", async (t) => {
    const id = ids(), g = gate(), posts = [];
    const server = http.createServer(async (request, response) => {
      if (request.method === "GET") return /threads/.test(request.url) ? response.writeHead(404).end() : undefined;
      if (!request.url.endsWith("/events")) return response.writeHead(404).end();
      const post = { open: true, body: "", seq: request.headers["aguihub-seq"] };
      posts.push(post);
      for await (const chunk of request) post.body += chunk;
      post.open = false;
      response.end('{"accepted":1,"rejected":[]}');
    });
    await new Promise((r) => server.listen(0, "127.0.0.1", r));
    t.after(() => { server.close(); server.closeAllConnections(); });
    const [start_, ...rest] = textRun(id.runId, id.threadId, ["a"]);
    const s = start(runner({ url: `http://127.0.0.1:${server.address().port}` }), id, new Played(async (say) => { say(start_); await g.p; rest.forEach(say); })).subscribe();
    await eventually(() => posts[0]?.body.includes("RUN_STARTED"), "the first request");
    await sleep(2_300); // longer than a request goes on taking events
    assert.deepEqual(posts.map((p) => [p.open, p.seq]), [[true, "0"]]);
    g.open();
    await eventually(() => posts[1]?.body.includes("RUN_FINISHED") && !posts[1].open, "the second request");
    assert.deepEqual(posts.map((p) => [p.open, p.seq, /event: input/.test(p.body)]), [[false, "0", true], [false, "1", false]]);
    s.unsubscribe();
  });

  test("a network that swallows a request is found out, and the request made again", async (t) => {
    const id = ids(), posts = [];
    const server = http.createServer(async (request, response) => {
      if (request.method === "GET") return response.writeHead(404).end();
      const post = { seq: Number(request.headers["aguihub-seq"]), body: "" }, swallowed = posts.push(post) === 1;
      try {
        for await (const chunk of request) post.body += chunk;
        if (!swallowed) response.end('{"accepted":1,"rejected":[]}');
      } catch {} // given up by the client, as it may be before all of it was read
    });
    await new Promise((r) => server.listen(0, "127.0.0.1", r));
    t.after(() => { server.close(); server.closeAllConnections(); });
    const r = runner({ url: `http://127.0.0.1:${server.address().port}`, patience: 20_000 });
    const s = start(r, id, new Played(async (say) => textRun(id.runId, id.threadId, ["a"]).forEach(say))).subscribe({ error: () => {} });
    await eventually(() => r.active.size === 0, "the end");
    s.unsubscribe();
    assert.deepEqual(posts.slice(0, 2).map((p) => p.seq), [0, 0]);
    const log = []; // as a hub has it: by number, each event once, however often it came
    for (const { seq, body } of posts) {
      const blocks = body.split("\n\n").slice(0, -1).filter((b) => b.startsWith("data: "));
      blocks.forEach((b, i) => assert.equal((log[seq + i] ??= b), b));
    }
    assert.deepEqual(log.map((b) => JSON.parse(b.slice(6)).type), bare(textRun(id.runId, id.threadId, ["a"])));
  });

  test("a hub that takes nothing doesn't fill the memory: the run is given up", async (t) => {
    const id = ids(), server = http.createServer((request, response) => { if (request.method === "GET") response.writeHead(404).end(); });
    await new Promise((r) => server.listen(0, "127.0.0.1", r));
    t.after(() => { server.close(); server.closeAllConnections(); });
    const large = "x".repeat(2 << 20), agent = { runAgent: async (_, { onEvent }) => { for (let i = 0; i < 20; i++) void onEvent({ event: { type: "RAW", event: large } }); await new Promise(() => {}); }, abortRun() { this.aborted = true; } };
    await assert.rejects(all(runner({ url: `http://127.0.0.1:${server.address().port}` }).run({ threadId: id.threadId, agent, input: inputOf(id) })), (e) => e.code === "too_much_waits");
    assert.ok(agent.aborted);
  });

  test("a hub that stays away ends the run for whoever waits, and the agent", async () => {
    const id = ids(), r = runner({ url: "http://127.0.0.1:9", patience: 50 });
    const agent = new Played(async (say) => { say({ type: "RUN_STARTED", threadId: id.threadId, runId: id.runId }); await new Promise(() => {}); });
    await assert.rejects(all(start(r, id, agent)), (e) => e.name === "HubError");
    assert.ok(agent.aborted);
    assert.equal(r.active.size, 0);
  });

  test("a run that a hub has ended ends its agent", async () => {
    const id = ids(), r = runner();
    const agent = new Played(async (say) => { say({ type: "RUN_STARTED", threadId: id.threadId, runId: id.runId }); await new Promise(() => {}); });
    const run = all(start(r, id, agent));
    run.catch(() => {});
    await eventually(async () => (await state(id.runId)) === "running");
    await hub.pub.add(id.runId, { type: "RUN_ERROR", message: "ended from outside" });
    await eventually(() => agent.aborted, "the abort");
    await run.catch(() => {});
  });

  test("a thread that nobody knows connects to nothing", async () => {
    assert.deepEqual(await all(runner().connect({ threadId: ids().threadId })), []);
    assert.equal(await runner().isRunning({ threadId: ids().threadId }), false);
    assert.equal(await runner().stop({ threadId: ids().threadId }), false);
  });

  test("a run that begins anew is told anew to who follows it", async () => {
    const id = ids(), r = runner(), tag = id.runId;
    const events = textRun(id.runId, id.threadId, ["first"]);
    const input = inputOf(id);
    for (const e of events.slice(0, 3)) await hub.pub.add(tag, e, e === events[0] ? input : undefined);
    await hub.pub.announce(tag, id.threadId);
    const seen = [];
    const done = new Promise((resolve, reject) => r.connect({ threadId: id.threadId }).subscribe({ next: (e) => seen.push(e), complete: resolve, error: reject }));
    await eventually(() => seen.some((e) => e.type === "TEXT_MESSAGE_START"), "the text");
    for (const e of textRun(id.runId, id.threadId, ["second"], `n-${tag}`)) await hub.pub.add(tag, e, e.type === "RUN_STARTED" ? input : undefined);
    await done;
    const got = await watch(seen);
    assert.equal(got.error, null);
    assert.deepEqual(got.messages.map((m) => m.content), ["a question", "second"]);
  });
});
