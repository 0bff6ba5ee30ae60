// The example with CopilotKit: its real runtime and chat, in Chromium, over HubRunner.
import assert from "node:assert/strict";
import { after, before, test } from "node:test";
import { eventually, Hub, uid } from "../lib.mjs";
import { browser, picture } from "../browser/lib.mjs";
import { folder, patience, pauseFor, serve, stopAll, typecheck } from "./lib.mjs";

const dir = folder("copilotkit");
const types = `
  import { CopilotRuntime, type AgentRunner } from "@copilotkit/runtime/v2";
  import { HubRunner } from "@aguihub/client/copilotkit";
  const runner: AgentRunner = new HubRunner({ url: "http://127.0.0.1:8080" });
  new CopilotRuntime({ agents: {}, runner });
`;
let hub, chrome, one, two, complaints;
before(async () => {
  [hub, chrome] = await Promise.all([new Hub().start(), browser()]);
  const first = await serve(dir, { HUB_URL: hub.url });
  const env = { HUB_URL: hub.url, PAUSE_MS: await pauseFor(chat, first.url) };
  await first.kill();
  [one, two] = await Promise.all([serve(dir, env), serve(dir, env)]); // two processes of the runtime
  complaints = typecheck(dir, types); // meanwhile
});
after(async () => { await chrome?.stop(); await stopAll(); hub?.stop(); });

const end = "none of that stops me.";
async function chat(url) {
  const page = await chrome.context.newPage();
  page.setDefaultTimeout(patience);
  await page.goto(url);
  await page.waitForSelector("textarea");
  return page;
}
const ask = async (page, text) => {
  await page.fill("textarea", text);
  await page.keyboard.press("Enter");
};
const shows = (page, text) => eventually(async () => (await page.textContent("body")).includes(text), `"${text}"`, patience);
const count = async (page, text) => (await page.textContent("body")).split(text).length - 1;

test("a chat survives a reload in mid-answer, and another process of the runtime shows it too", async () => {
  const query = `/?thread=t-${uid()}`;
  const page = await chat(one.url + query);
  await ask(page, "good morning");
  await shows(page, "This answer");
  await page.reload();
  await shows(page, "This answer takes");
  assert.ok(!(await page.textContent("body")).includes(end), "it was reloaded in mid-answer");
  await picture(page, "copilotkit-reloaded");
  const other = await chat(two.url + query);
  await shows(other, "This answer takes");
  for (const p of [page, other]) {
    await shows(p, end);
    await p.waitForSelector('[data-copilot-running="false"]'); // not "running" for ever
    assert.equal(await count(p, "This answer takes its time"), 1);
    assert.equal(await count(p, 'You said "good morning"'), 1);
  }
  await picture(page, "copilotkit-whole");
  await ask(other, "again"); // the chat goes on, at whichever process
  await shows(other, 'You said "again"');
});

test("the answer is stopped from another process than its own", async () => {
  const thread = `t-${uid()}`, page = await chat(`${one.url}/?thread=${thread}`);
  await ask(page, "good morning");
  await shows(page, "This answer");
  const answer = await (await fetch(`${two.url}/api/copilotkit/agent/default/stop/${thread}`, { method: "POST" })).json();
  assert.equal(answer.stopped, true);
  await eventually(async () => (await (await fetch(`${hub.url}/v1/threads/${thread}`)).json()).runs[0].state === "cancelled", "the end");
});

test("HubRunner is an AgentRunner to the compiler", async () => assert.equal(await complaints, ""));
