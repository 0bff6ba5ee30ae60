// The example with assistant-ui: its real AG-UI runtime, in Chromium, with the hub's history.
import assert from "node:assert/strict";
import http from "node:http";
import path from "node:path";
import { after, before, test } from "node:test";
import { build } from "esbuild";
import WebSocket from "ws";
import { asksForTokens, eventually, Hub, inputOf, textRun, token, uid } from "../lib.mjs";
import { browser, picture } from "../browser/lib.mjs";
import { examples, folder, patience, pauseFor, serve, stopAll, typecheck } from "./lib.mjs";

const dir = folder("assistant-ui");
const types = `
  import type { ThreadHistoryAdapter } from "@assistant-ui/react";
  import { useAgUiRuntime } from "@assistant-ui/react-ag-ui";
  import { HubAgent } from "@aguihub/client";
  import { hubHistory } from "@aguihub/client/assistant-ui";
  const agent = new HubAgent({ url: "http://127.0.0.1:8080" });
  const history: ThreadHistoryAdapter = hubHistory(agent);
  export const use = () => useAgUiRuntime({ agent, adapters: { history } });
`;
let hub, chrome, site, complaints;
before(async () => {
  [site, chrome] = await Promise.all([serve(dir, {}, "node_modules/vite/bin/vite.js", "preview", "--host", "127.0.0.1", "--strictPort", "--port"), browser()]);
  const agent = await serve(examples, { PAUSE_MS: await pauseFor(chat, site.url) }, "node/agent.mjs");
  hub = await new Hub().start("--agent", `hello=${agent.url}/`);
  complaints = typecheck(dir, types); // meanwhile
});
after(async () => { await chrome?.stop(); await stopAll(); hub?.stop(); });

async function chat(url) {
  const page = await chrome.context.newPage();
  page.setDefaultTimeout(patience);
  await page.goto(url);
  await page.waitForSelector("textarea");
  return page;
}
const ask = async (page, text) => { await page.fill("textarea", text); await page.keyboard.press("Enter"); };
const texts = (page) => page.$$eval(".message", (all) => all.map((m) => m.textContent));
const shows = (page, test, what) => eventually(async () => test(await texts(page)), what, patience);
const answer = (asked) => `You said "${asked}". This answer takes its time, so that you can reload the page, close it, or open it twice: none of that stops me.`;

test("hubHistory() loads and resumes where tokens are asked for, with a newer one where the first has ended", async (t) => {
  const guarded = await new Hub().start("--redis", `redis://127.0.0.1:${hub.redisPort}`, ...asksForTokens());
  t.after(() => guarded.stop());
  const from = (file) => import(path.join(dir, "node_modules/@aguihub/client/dist", file));
  const [{ HubAgent }, { hubHistory }] = await Promise.all([from("index.js"), from("assistant-ui.js")]);
  const run = `r-${uid()}`, thread = `t-${uid()}`, events = textRun(run, thread, [..."abcdef"]);
  for (const [i, e] of events.slice(0, 5).entries()) await hub.pub.add(run, e, i === 0 ? inputOf({ run, thread }, [{ id: "u", role: "user", content: "asked" }]) : undefined);
  await hub.pub.announce(run, thread);
  const asked = [], of = (getToken) => hubHistory(new HubAgent({ url: guarded.url, threadId: thread, WebSocket, getToken }));
  const history = of(({ refresh }) => { asked.push(refresh); return token(refresh ? 3600 : -3600); });
  const texts = (content) => content.filter((c) => c.type === "text").map((c) => c.text).join("");
  const loaded = await history.load();
  assert.deepEqual(loaded.messages.map((m) => texts(m.message.content)), ["asked"]);
  assert.equal(loaded.unstable_resume, true);
  let said = "";
  for await (const { content } of history.resume({ abortSignal: new AbortController().signal })) {
    if (content) said = texts(content);
    if (said === "abc") for (const e of events.slice(5)) await hub.pub.add(run, e);
  }
  assert.equal(said, "abcdef");
  assert.deepEqual(asked.slice(0, 2), [false, true]);
  assert.deepEqual((await of(() => token(3600)).load()).messages.map((m) => texts(m.message.content)), ["asked", "abcdef"]);
  await assert.rejects(of(() => "bad").load(), (e) => e.status === 401);
});

test("a chat survives a reload in mid-answer, and what is asked next doesn't tell the answer twice", async () => {
  const thread = `t-${uid()}`, url = `${site.url}/?thread=${thread}&hub=${encodeURIComponent(hub.url)}`;
  const page = await chat(url);
  await ask(page, "good morning");
  await shows(page, (all) => all[1]?.includes("This answer"), "the beginning of the answer");
  await page.reload();
  await shows(page, (all) => all[1]?.includes("takes its") && !all[1].includes("stops me"), "the answer so far");
  await picture(page, "assistant-ui-reloaded");
  const other = await chat(url);
  const first = ["good morning", answer("good morning")];
  for (const p of [page, other]) await shows(p, (all) => JSON.stringify(all) === JSON.stringify(first), "the whole answer");
  await page.waitForSelector("text=Send");
  await ask(page, "again");
  const whole = [...first, "again", answer("again")];
  await shows(page, (all) => JSON.stringify(all) === JSON.stringify(whole), "the second answer");
  await page.reload();
  await shows(page, (all) => JSON.stringify(all) === JSON.stringify(whole), "all of it after a reload");
  await picture(page, "assistant-ui-whole");
  const held = await (await fetch(`${hub.url}/v1/threads/${thread}/messages`)).json();
  assert.deepEqual(held.messages.map((m) => m.content), whole);
});

/** An agent and its history, of the example's packages. */
async function chatOf(threadId) {
  const dist = path.join(dir, "node_modules/@aguihub/client/dist");
  const [{ HubAgent }, { hubHistory }] = await Promise.all(["index.js", "assistant-ui.js"].map((f) => import(path.join(dist, f))));
  const agent = new HubAgent({ url: hub.url, threadId, WebSocket });
  return { agent, history: hubHistory(agent) };
}
const historyOf = async (threadId) => (await chatOf(threadId)).history;
/** A run whose first events are published. */
async function begun(events, asked) {
  const id = { thread: `t-${uid()}`, run: `r-${uid()}` };
  asked ??= [{ id: `u-${id.run}`, role: "user", content: "do it" }];
  const all = [{ type: "RUN_STARTED", threadId: id.thread, runId: id.run }, ...events];
  for (const e of all) await hub.pub.add(id.run, e, e === all[0] ? inputOf(id, asked) : undefined);
  await hub.pub.announce(id.run, id.thread);
  return { ...id, say: (e) => hub.pub.add(id.run, e) };
}

test("interrupts that wait for an answer wait for it after a reload, too", async () => {
  const { thread } = await begun([
    { type: "TEXT_MESSAGE_CHUNK", messageId: "m", role: "assistant", delta: "Shall I?" },
    { type: "RUN_FINISHED", threadId: "t", runId: "r", outcome: { type: "interrupt", interrupts: [{ id: "i1", reason: "sure?" }] } },
  ]);
  const held = await (await historyOf(thread)).load();
  assert.deepEqual(held.messages.map((m) => m.message.role), ["user", "assistant"]);
  const { status, metadata } = held.messages[1].message;
  assert.equal(status.reason, "interrupt");
  assert.deepEqual(metadata.custom.agui.interrupts.map((i) => i.id), ["i1"]);
  assert.ok(!held.unstable_resume);
});

test("a run that asks and has said nothing else waits for its answer after a reload, too", async () => {
  const earlier = [{ id: "u", role: "user", content: "hello" }, { id: "a", role: "assistant", content: "hi" }, { id: "u2", role: "user", content: "do it" }];
  const { thread } = await begun([{ type: "RUN_FINISHED", threadId: "t", runId: "r", outcome: { type: "interrupt", interrupts: [{ id: "i1", reason: "sure?" }] } }], earlier);
  const { messages } = await (await historyOf(thread)).load();
  assert.deepEqual(messages.map((m) => [m.message.role, m.message.status?.reason]), [["user", undefined], ["assistant", "unknown"], ["user", undefined], ["assistant", "interrupt"]]);
  assert.deepEqual(messages.at(-1).message.metadata.custom.agui.interrupts.map((i) => i.id), ["i1"]);
});

test("a history in which ids stand twice is a chat all the same, and is told with the ids that it has", async () => {
  const said = [["u", "user", "one"], ["a", "assistant", "A"], ["u", "user", "two"], ["a", "assistant", "B"]].map(([id, role, content]) => ({ id, role, content }));
  const { thread } = await begun([{ type: "RUN_FINISHED", threadId: "t", runId: "r" }], said);
  const { agent, history } = await chatOf(thread), { MessageRepository } = await import(path.join(dir, "node_modules/@assistant-ui/core/dist/internal.js"));
  const repository = new MessageRepository();
  repository.import(await history.load());
  const shown = repository.getMessages().map((m) => ({ id: m.id, role: m.role, content: m.content[0].text }));
  assert.deepEqual(shown.map((m) => m.content), ["one", "A", "two", "B"]);
  assert.deepEqual(agent.restore(shown), said);
});

test("what is asked from elsewhere meanwhile doesn't take the place of the answer that is resumed", async () => {
  const r = await begun([{ type: "TEXT_MESSAGE_CHUNK", messageId: "m", role: "assistant", delta: "first" }]);
  const { agent, history } = await chatOf(r.thread), question = (await history.load()).messages[0].message.id;
  await r.say({ type: "RUN_FINISHED", threadId: r.thread, runId: r.run });
  const run = `${r.run}-2`, asked = { id: "u2", role: "user", content: "and?" };
  await hub.pub.add(run, { type: "RUN_STARTED", threadId: r.thread, runId: run }, inputOf({ run, thread: r.thread }, [{ id: question, role: "user", content: "do it" }, { id: "m", role: "assistant", content: "first" }, asked]));
  await hub.pub.announce(run, r.thread);
  await hub.pub.add(run, { type: "TEXT_MESSAGE_CHUNK", messageId: "m2", role: "assistant", delta: "second" });
  await hub.pub.add(run, { type: "RUN_FINISHED", threadId: r.thread, runId: run });
  let shown;
  for await (const p of history.resume({ abortSignal: new AbortController().signal })) shown = p.content ?? shown;
  assert.deepEqual(shown.map((p) => p.text), ["first", "second"]);
  const told = agent.restore([{ id: question, role: "user", content: "do it" }, { id: "x", role: "assistant", content: "first\nsecond" }, { id: "u3", role: "user", content: "more" }]);
  assert.deepEqual(told.map((m) => m.id), [question, "m", "u2", "m2", "u3"]);
});

test("an answer under way is resumed with its calls and their results, and an error says so", async () => {
  const r = await begun([{ type: "TOOL_CALL_START", toolCallId: "c", toolCallName: "search" }, { type: "TOOL_CALL_ARGS", toolCallId: "c", delta: '{"q":' }]);
  const history = await historyOf(r.thread), held = await history.load();
  assert.equal(held.unstable_resume, true);
  assert.deepEqual(held.messages.map((m) => m.message.role), ["user"]);
  let shown, failed;
  const done = (async () => { for await (const p of history.resume({ abortSignal: new AbortController().signal })) shown = p.content ?? shown; })().catch((e) => { failed = e; });
  await eventually(() => shown?.[0]?.argsText === '{"q":', "the call");
  await r.say({ type: "TOOL_CALL_ARGS", toolCallId: "c", delta: '"x"}' });
  await r.say({ type: "TOOL_CALL_END", toolCallId: "c" });
  await r.say({ type: "TOOL_CALL_RESULT", toolCallId: "c", messageId: "cr", role: "tool", content: "found" });
  await r.say({ type: "TEXT_MESSAGE_CHUNK", messageId: "m", role: "assistant", delta: "Here it is." });
  await eventually(() => shown?.length === 2, "the text");
  assert.deepEqual(shown.map((p) => [p.type, p.result ?? p.text]), [["tool-call", "found"], ["text", "Here it is."]]);
  await r.say({ type: "RUN_ERROR", message: "and then it broke" });
  await done;
  assert.match(String(failed), /and then it broke/);
});

test("a thread that nobody knows is an empty chat", async () => {
  assert.deepEqual((await (await historyOf(`t-${uid()}`)).load()).messages, []);
});

test("an effect that attaches makes one attachment in React's strict mode, which mounts twice", async (t) => {
  const { outputFiles } = await build({
    stdin: { resolveDir: dir, loader: "jsx", contents: `
      import { HubAgent } from "@aguihub/client";
      import { StrictMode, useEffect } from "react";
      import { createRoot } from "react-dom/client";
      const agent = new HubAgent(window.options);
      window.seen = { agent, mounts: 0 };
      function Chat() {
        useEffect(() => {
          window.seen.mounts++;
          void agent.connectAgent();
          return () => void agent.detachActiveRun();
        }, []);
      }
      createRoot(document.body.appendChild(document.createElement("div"))).render(<StrictMode><Chat /></StrictMode>);
    ` },
    bundle: true, write: false, jsx: "automatic", define: { "process.env.NODE_ENV": '"development"' }, logLevel: "warning",
  });
  const { thread, run, say } = await begun([{ type: "TEXT_MESSAGE_CHUNK", messageId: "m", role: "assistant", delta: "half" }]);
  const page = await chrome.context.newPage();
  t.after(() => page.close());
  const sockets = [];
  page.on("websocket", (s) => sockets.push(s.url()));
  const blank = http.createServer((_, response) => response.writeHead(200, { "content-type": "text/html" }).end("<!doctype html><body>"));
  await new Promise((listening) => blank.listen(0, "127.0.0.1", listening));
  t.after(() => { blank.close(); blank.closeAllConnections(); });
  await page.goto(`http://127.0.0.1:${blank.address().port}/`);
  await page.evaluate((options) => { window.options = options; }, { url: hub.url, threadId: thread });
  await page.addScriptTag({ content: outputFiles[0].text });
  const texts = () => page.evaluate(() => window.seen.agent.messages.map((m) => m.content));
  await eventually(async () => (await texts()).at(-1) === "half", "the attach", patience);
  await say({ type: "TEXT_MESSAGE_CHUNK", messageId: "m", delta: " and half" });
  await say({ type: "RUN_FINISHED", threadId: thread, runId: run });
  await eventually(() => page.evaluate(() => !window.seen.agent.isRunning), "the end", patience);
  assert.deepEqual(await texts(), ["do it", "half and half"]);
  assert.equal(await page.evaluate(() => window.seen.mounts), 2);
  assert.deepEqual(sockets.map((s) => new URL(s).pathname), [`/v1/threads/${thread}/ws`]);
});

test("hubHistory() is a ThreadHistoryAdapter to the compiler", async () => assert.equal(await complaints, ""));
