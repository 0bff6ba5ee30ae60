// The example with CopilotKit: its real runtime and chat, in Chromium, over HubRunner.
import assert from "node:assert/strict";
import { after, before, test } from "node:test";
import { eventually, Hub, uid } from "../lib.mjs";
import { browser, picture } from "../browser/lib.mjs";
import { prepare, serve, typecheck } from "./lib.mjs";

let dir, hub, chrome;
before(async () => {
  dir = prepare("copilotkit");
  [hub, chrome] = await Promise.all([new Hub().start(), browser()]);
});
after(async () => { await chrome?.stop(); hub?.stop(); });

const end = "none of that stops me.";
async function chat(t, url) {
  const page = await chrome.context.newPage();
  t.after(() => page.close());
  await page.goto(url);
  return page;
}
const ask = async (page, text) => {
  await page.fill("textarea", text);
  await page.keyboard.press("Enter");
};
const shows = (page, text) => eventually(async () => (await page.textContent("body")).includes(text), `"${text}"`, 30_000);
const count = async (page, text) => (await page.textContent("body")).split(text).length - 1;

test("HubRunner is an AgentRunner to the compiler", () => {
  assert.equal(typecheck(dir, `
    import { CopilotRuntime, type AgentRunner } from "@copilotkit/runtime/v2";
    import { HubRunner } from "@aguihub/client/copilotkit";
    const runner: AgentRunner = new HubRunner({ url: "http://127.0.0.1:8080" });
    new CopilotRuntime({ agents: {}, runner });
  `), "");
});

test("a chat survives a reload in mid-answer, and another process of the runtime shows it too", async (t) => {
  const slow = { HUB_URL: hub.url, PAUSE_MS: "400" };
  const [one, two] = await Promise.all([serve(t, dir, slow), serve(t, dir, slow)]);
  const query = `/?thread=t-${uid()}`;
  const page = await chat(t, one.url + query);
  await page.waitForSelector("textarea");
  await ask(page, "good morning");
  await shows(page, "This answer");
  await page.reload();
  await shows(page, "This answer takes");
  assert.ok(!(await page.textContent("body")).includes(end), "it was reloaded in mid-answer");
  await picture(page, "copilotkit-reloaded");
  const other = await chat(t, two.url + query);
  await shows(other, "This answer takes");
  for (const p of [page, other]) {
    await shows(p, end);
    assert.equal(await count(p, "This answer takes its time"), 1);
    assert.equal(await count(p, 'You said "good morning"'), 1);
  }
  await picture(page, "copilotkit-whole");
  await ask(other, "again"); // the chat goes on, at whichever process
  await shows(other, 'You said "again"');
});

test("the answer is stopped from another process than its own", async (t) => {
  const slow = { HUB_URL: hub.url, PAUSE_MS: "400" };
  const [one, two] = await Promise.all([serve(t, dir, slow), serve(t, dir, slow)]);
  const thread = `t-${uid()}`, page = await chat(t, `${one.url}/?thread=${thread}`);
  await page.waitForSelector("textarea");
  await ask(page, "good morning");
  await shows(page, "This answer");
  const answer = await (await fetch(`${two.url}/api/copilotkit/agent/default/stop/${thread}`, { method: "POST" })).json();
  assert.equal(answer.stopped, true);
  await eventually(async () => (await (await fetch(`${hub.url}/v1/threads/${thread}`)).json()).runs[0].state === "cancelled", "the end");
});
