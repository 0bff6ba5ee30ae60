// The page in a real browser, against a real hub. Whatever a test does, the browser's log stays without an error.
import assert from "node:assert/strict";
import { createHmac } from "node:crypto";
import fs from "node:fs";
import os from "node:os";
import path from "node:path";
import { after, afterEach, before, test } from "node:test";
import { agent, conversation, finished, flood, heap, Hub, ids, inputOf, launch, message, open, patience, started, tasksOf } from "./lib.mjs";

let hub, helper, browser;
const pages = [];
before(async () => {
  helper = await agent();
  [hub, browser] = await Promise.all([new Hub().start("--agent", "helper=" + helper.url, "--agent", "other=" + helper.url), launch()]);
});
after(async () => {
  await browser.close();
  hub.stop();
  helper.stop();
});
afterEach(async () => {
  for (const page of pages.splice(0)) {
    assert.deepEqual(page.faults, []);
    await page.context().close();
  }
});

const visit = async (path, options) => {
  const page = await open(browser, hub.url + path, options);
  pages.push(page);
  return page;
};
const see = (page, text, where = ".messages", timeout = patience) => page.locator(where).getByText(text).first().waitFor({ timeout });
const figure = (page, name) => page.locator("#figure-" + name).innerText();
const until = async (look, what) => {
  for (const end = Date.now() + patience; Date.now() < end; await new Promise((r) => setTimeout(r, 25))) if (await look()) return;
  assert.fail(what);
};
const connected = (page, words) => page.locator("#connection", { hasText: words }).waitFor();
/** What the browser tells of a page. */
const devtools = async (page) => {
  const cdp = await page.context().newCDPSession(page);
  await cdp.send("Performance.enable");
  return cdp;
};
/** How long tasks of the page had the CPU while something is done, the longest first, in milliseconds. By the clock they take longer where others want it, too. */
const tasks = async (cdp, work) => (await tasksOf(cdp, work)).map((t) => t.cpu).sort((a, b) => b - a);
/** Looks at something else within the page, as a click in the list does. */
const look = (page, path) => page.evaluate((to) => { history.pushState(null, "", to); dispatchEvent(new PopStateEvent("popstate")); }, path);
const user = (content) => ({ id: "u-" + content.length, role: "user", content });

test("without a run the page says what to type, and what is typed shows up in the list", async () => {
  const page = await visit("/");
  await see(page, `redis-cli -p ${hub.redisPort} XADD agui:run:r1`, ".welcome");
  const line = JSON.parse(/'(\{.*\})'/.exec((await page.locator(".welcome pre").innerText()).split("\n")[0])[1]);
  hub.add("r1", line);
  await page.locator(".targets a", { hasText: "t1" }).waitFor();
  await page.getByRole("button", { name: "Runs", exact: true }).click();
  await page.locator(".targets a", { hasText: "r1" }).click();
  await page.locator("#run-line", { hasText: "running r1" }).waitFor();
  assert.equal(new URL(page.url()).search, "?run=r1");
  hub.add("r1", ...message("m1", "Hello"), finished({ run: "r1", thread: "t1" }));
  await see(page, "Hello");
  await connected(page, "ended");
});

test("a run is shown as it goes on: text as Markdown, tools, reasoning, activity and state with what changed", async () => {
  const r = ids();
  await hub.post(r.run, [
    started(r),
    { type: "STATE_SNAPSHOT", snapshot: { plan: { city: "Lisbon", stops: 1 } } },
    { type: "REASONING_START", messageId: "th" }, { type: "REASONING_MESSAGE_START", messageId: "th", role: "reasoning" },
    { type: "REASONING_MESSAGE_CONTENT", messageId: "th", delta: "First the weather, and then all the rest of it" },
    { type: "REASONING_MESSAGE_END", messageId: "th" }, { type: "REASONING_END", messageId: "th" },
    { type: "TEXT_MESSAGE_START", messageId: "m", role: "assistant" },
    { type: "TEXT_MESSAGE_CONTENT", messageId: "m", delta: "Some **bold** and `co" },
  ], inputOf(r, [user("What should I do?")]));
  const page = await visit("/?thread=" + r.thread);
  await see(page, "What should I do?");
  await see(page, "bold", ".messages strong");
  await page.locator(".message.assistant[aria-busy=true]").waitFor();
  hub.add(r.run, { type: "TEXT_MESSAGE_CONTENT", messageId: "m", delta: "de`" });
  await see(page, "code", ".messages code");
  assert.equal(await page.locator(".thought .folded").count(), 0);
  await page.locator(".thought .fold").click();
  await see(page, "First the weather, and then all the rest of it", ".thought .folded");
  hub.add(r.run, { type: "TEXT_MESSAGE_END", messageId: "m" },
    { type: "TOOL_CALL_START", toolCallId: "c", toolCallName: "get_weather", parentMessageId: "m" }, { type: "TOOL_CALL_ARGS", toolCallId: "c", delta: '{"city":"Lis' });
  await see(page, "calling …", ".call");
  hub.add(r.run, { type: "TOOL_CALL_ARGS", toolCallId: "c", delta: 'bon"}' }, { type: "TOOL_CALL_END", toolCallId: "c" },
    { type: "TOOL_CALL_RESULT", messageId: "c-result", toolCallId: "c", content: '{"degrees":17}' });
  await see(page, "done", ".call");
  await page.locator(".call .fold").first().click();
  await see(page, "degrees", ".call .tree");
  hub.add(r.run, { type: "ACTIVITY_SNAPSHOT", messageId: "act", activityType: "LOOKUP", content: { title: "Looking", found: 1 } });
  await see(page, "Looking", ".message.activity");
  hub.add(r.run, { type: "ACTIVITY_DELTA", messageId: "act", activityType: "LOOKUP", patch: [{ op: "replace", path: "/found", value: 2 }] });
  await see(page, "2", ".message.activity .leaf.changed");
  await page.getByRole("tab", { name: "State" }).click();
  await see(page, "Lisbon", "#panel");
  hub.add(r.run, { type: "STATE_DELTA", delta: [{ op: "replace", path: "/plan/stops", value: 3 }] });
  await see(page, "3", "#panel .leaf.changed");
  assert.equal(await page.locator("#panel .leaf.changed").count(), 1);
  hub.add(r.run, { type: "RUN_ERROR", message: "It broke" });
  await see(page, "It broke", ".foot");
});

test("a reload in mid-message shows the same text, and goes on", async () => {
  const r = ids();
  await hub.post(r.run, [started(r), ...message("m0", "before"), { type: "TEXT_MESSAGE_START", messageId: "m", role: "assistant" }, { type: "TEXT_MESSAGE_CONTENT", messageId: "m", delta: "half" }], inputOf(r));
  const page = await visit("/?run=" + r.run);
  await see(page, "half");
  await page.reload();
  await see(page, "half");
  hub.add(r.run, { type: "TEXT_MESSAGE_CONTENT", messageId: "m", delta: " and half" });
  await see(page, "half and half");
  assert.equal(await page.locator(".message").count(), 2);
});

test("a dropped connection comes back with its cursor; offline it waits, and misses nothing", async () => {
  const r = ids();
  await hub.post(r.run, [started(r), { type: "TEXT_MESSAGE_START", messageId: "m", role: "assistant" }, { type: "TEXT_MESSAGE_CONTENT", messageId: "m", delta: "one" }], inputOf(r));
  const page = await visit("/?run=" + r.run);
  await see(page, "one");
  await connected(page, "live");
  const say = (delta) => hub.add(r.run, { type: "TEXT_MESSAGE_CONTENT", messageId: "m", delta });
  await page.locator("#drop").click();
  say(" two");
  await see(page, "one two");
  await connected(page, "live");
  assert.equal(await figure(page, "reconnects"), "1");
  await page.locator("#offline").click();
  await connected(page, "offline, as you asked");
  say(" three");
  assert.equal(await page.locator("#offline").getAttribute("aria-pressed"), "true");
  await page.locator("#offline").click();
  await see(page, "one two three");
  await page.context().setOffline(true);
  await connected(page, "the browser is offline");
  say(" four");
  page.faults.length = 0; // the browser itself logs that the list couldn't be asked for
  await page.context().setOffline(false);
  await see(page, "one two three four");
  page.faults.length = 0;
  assert.equal(await figure(page, "reconnects"), "3");
  const cursor = await page.locator("#cursor").innerText();
  assert.match(cursor, /^\d+-\d+$/);
});

test("somebody writes to an agent, whose answer outlives the page, and cancels one that never ends", async () => {
  const page = await visit("/");
  await page.locator("#compose").fill("good day");
  await page.keyboard.press("Enter");
  await see(page, "You said: good day. word1 word2 word3 word4");
  await see(page, "good day", ".message.user");
  await page.locator("#run-line", { hasText: "finished" }).waitFor();
  assert.match(new URL(page.url()).search, /^\?thread=console-/);
  await page.locator("#compose").fill("go on");
  await page.keyboard.press("Enter");
  await see(page, "word7");
  assert.equal(await page.locator(".composer button").isDisabled(), true);
  await page.reload();
  await see(page, "word12");
  await page.locator("#cancel").click();
  await page.locator("#run-line", { hasText: "cancelled" }).waitFor();
  assert.equal(await page.locator(".message.user").count(), 2);
  assert.equal(await page.locator("#cancel").isDisabled(), true);
  assert.equal(await page.locator(".message .end").count(), 0);
  await page.locator("#compose").fill("and now?");
  await page.keyboard.press("Enter");
  await see(page, "You said: and now?");
  assert.deepEqual(await page.locator(".message .end").allInnerTexts(), ["cancelled"]); // the answer that was broken off is still one
  const broken = page.locator(".message.assistant", { hasText: "You said: go on." }).locator(".end");
  await broken.waitFor();
  await page.reload(); // and is one to somebody who comes later
  await broken.waitFor();
  assert.deepEqual(await page.locator(".message .end").allInnerTexts(), ["cancelled"]);
});

test("interrupts are answered: the only one at once, several together, and a message waits until then", async () => {
  const page = await visit("/");
  await page.getByLabel("Agent", { exact: true }).selectOption("other");
  await page.locator("#compose").fill("ask");
  await page.keyboard.press("Enter");
  await see(page, "Shall I?", ".interrupt");
  assert.equal(await page.locator(".composer button").isDisabled(), true);
  await page.reload(); // the question is the thread's, not the page's
  await see(page, "Shall I?", ".interrupt");
  await until(async () => (await page.getByLabel("Agent", { exact: true }).inputValue()) === "other", "who asked gets the answer");
  await page.getByRole("button", { name: "Approve" }).click();
  await see(page, '[{"interruptId":"one","status":"resolved","payload":{"approved":true}}]');
  await page.locator("#run-line", { hasText: "finished" }).waitFor();
  assert.equal(await page.locator(".interrupt").count(), 0);
  await page.locator("#compose").fill("ask twice");
  await page.keyboard.press("Enter");
  await see(page, "To whom?", ".interrupt");
  const [first, second] = [page.locator(".interrupt").first(), page.locator(".interrupt").last()];
  await first.getByRole("button", { name: "Deny" }).click();
  assert.equal(await second.getByRole("button", { name: "Approve" }).count(), 0); // it wants words
  await page.getByRole("button", { name: "1 more to answer" }).waitFor();
  await second.getByRole("textbox").fill("42");
  await page.keyboard.press("Enter");
  await page.getByRole("button", { name: "Send the answers" }).click();
  await see(page, '[{"interruptId":"one","status":"resolved","payload":{"approved":false}},{"interruptId":"two","status":"resolved","payload":"42"}]');
  await page.locator("#run-line", { hasText: "finished" }).waitFor();
  await page.locator("#compose").fill("ask");
  await page.keyboard.press("Enter");
  await page.locator(".interrupt").getByRole("button", { name: "Cancel" }).click();
  await see(page, '[{"interruptId":"one","status":"cancelled"}]');
});

test("the timeline is filtered by text and kind, and shows an event whole", async () => {
  const r = ids();
  await hub.post(r.run, [started(r), ...message("m", "needle in a haystack"), { type: "CUSTOM", name: "mark", value: { deep: ["inside"] } }], inputOf(r));
  const page = await visit("/?run=" + r.run);
  await see(page, "needle");
  hub.add(r.run, ...message("m2", "another needle"));
  await see(page, "another needle");
  await page.keyboard.press("/");
  await page.keyboard.type("needle");
  await page.locator(".status-line", { hasText: / of / }).waitFor();
  const types = () => page.locator(".row .type").allInnerTexts();
  await until(async () => (await types()).every((t) => /MESSAGE/.test(t)) && (await types()).length > 0, "rows with the text only");
  hub.add(r.run, ...message("m3", "a third needle, live"));
  await see(page, "a third needle, live", ".timeline");
  await page.locator("#filter").fill("");
  for (const chip of ["text", "control", "run"]) await page.locator(`button.chip.${chip}`).click();
  await until(async () => (await types()).join() === "CUSTOM", "only what isn't hidden");
  await page.locator(".row").click();
  await see(page, '"inside"', ".detail");
  await page.locator(".timeline").press("Escape");
  await page.locator(".detail").waitFor({ state: "detached" });
});

test("what is withheld is told with its reason", async () => {
  const r = ids();
  hub.add(r.run, started(r), { type: "TEXT_MESSAGE_CONTENT", messageId: "never", delta: "x" }, "not json");
  const page = await visit("/?run=" + r.run);
  await page.locator("#tab-Withheld", { hasText: "2" }).waitFor();
  hub.add(r.run, { type: "TOOL_CALL_END", toolCallId: "never" });
  await page.locator("#tab-Withheld", { hasText: "3" }).waitFor();
  await page.locator("#tab-Withheld").click();
  await see(page, 'no text message "never" is open', ".withheld-list");
  await see(page, "not_json", ".reasons");
  await page.locator("#tab-Timeline").click();
  await see(page, "skipped", ".timeline");
  await page.locator("#tab-Run").click();
  await see(page, "partial: the hub doesn't know", ".facts");
});

test("of a run that nothing begins it is said what is there, and one that begins after all is shown", async () => {
  const r = ids();
  const page = await visit("/?run=" + r.run);
  await connected(page, "no such run yet; waiting");
  hub.add(r.run, { type: "RUN_STARTED", runId: r.run }, ...message("m1", "lost"));
  await connected(page, "entries are there, but none begins the run; waiting");
  await see(page, "The run has entries, but none that begins it", ".talk");
  await page.locator("#tab-Withheld", { hasText: "4" }).click();
  await see(page, "malformed", ".reasons");
  await see(page, "before_start", ".reasons");
  hub.add(r.run, started(r), ...message("m2", "found"));
  await see(page, "found");
  await connected(page, "live");
  await page.locator("#tab-Withheld", { hasText: "4" }).waitFor();
});

test("a run that isn't there yet is waited for, and a thread goes from run to run", async () => {
  const r = ids();
  const early = await visit("/?run=" + r.run);
  const page = await visit("/?thread=" + r.thread);
  await connected(page, "no run yet: waiting for one");
  await connected(early, "no such run yet; waiting");
  await hub.post(r.run, [started(r), ...message("m1", "first run"), finished(r)], inputOf(r));
  await see(page, "first run");
  await see(early, "first run");
  await connected(page, "live, waiting for the next run");
  await hub.post(r.run + "-2", [started({ ...r, run: r.run + "-2" }), ...message("m2", "second run")], inputOf({ ...r, run: r.run + "-2" }));
  await see(page, "second run");
  await see(page, "first run");
  await page.locator("#tab-Run").click();
  await page.locator(".facts", { hasText: r.run + "-2" }).waitFor();
});

test("with nothing chosen the page opens the newest thread of the demo, and follows it to the next", async () => {
  const say = async (n, thread, text) => {
    const r = { run: "demo-" + n, thread };
    await hub.post(r.run, [started(r), ...message("m" + n, text), finished(r)], inputOf(r));
  };
  await say(1, "demo", "of the first thread");
  await say(6, "demo-thread-2", "of the second thread");
  const page = await visit("/");
  await see(page, "of the second thread");
  await say(11, "demo-thread-3", "of the third thread");
  await see(page, "of the third thread");
  assert.equal(new URL(page.url()).search, "");
});

test("a hostile run executes nothing, loads nothing and doesn't freeze the page", async () => {
  const r = ids();
  const page = await visit("/?run=" + r.run);
  await connected(page, "no such run yet; waiting");
  const bad = [
    `<script>window.pwned=1</script><img src=x onerror="window.pwned=1"><svg onload="window.pwned=1"><iframe srcdoc="<script>parent.pwned=1</script>">`,
    `[click](javascript:window.pwned=1) [data](data:text/html,<script>1</script>) <javascript:window.pwned=1> ![i](https://evil.example/x.png)`,
    "[a]: javascript:window.pwned=1\n\n[a]",
    "> ".repeat(3000) + "deep", "**x* ".repeat(3000), "[".repeat(8000), "|a".repeat(300) + "\n" + "|-".repeat(300) + "\n" + "|b".repeat(2000), "a.".repeat(8000) + "@",
    "\u202eright to left\u0000\u0007",
  ];
  const cdp = await devtools(page);
  const long = await tasks(cdp, async () => {
    hub.add(r.run, started(r));
    bad.forEach((text, i) => hub.add(r.run, ...message("bad" + i, text)));
    for (let i = 0; i < 30; i++) hub.add(r.run, ...message("costly" + i, "**x* ".repeat(3_000)));
    hub.add(r.run, `{"type":"TEXT_MESSAGE_START","messageId":"sur","role":"assistant"}`, `{"type":"TEXT_MESSAGE_CONTENT","messageId":"sur","delta":"lone \\ud83d and \\ude00 halves"}`, `{"type":"TEXT_MESSAGE_END","messageId":"sur"}`);
    hub.add(r.run, ...message("big", "x".repeat(1 << 20)), ...message("lines", "line\n".repeat(200_000)));
    hub.add(r.run, { type: "TOOL_CALL_START", toolCallId: "c<b>", toolCallName: "<b>bold</b>" }, { type: "TOOL_CALL_ARGS", toolCallId: "c<b>", delta: JSON.stringify({ html: bad[0], long: "y".repeat(1 << 20) }) }, { type: "TOOL_CALL_END", toolCallId: "c<b>" });
    hub.add(r.run, `{"type":"STATE_SNAPSHOT","snapshot":{"__proto__":{"polluted":1},"constructor":{"prototype":{"polluted":1}},"deep":${"[".repeat(400)}${"]".repeat(400)},"wide":[${"0,".repeat(50_000)}0]}}`);
    hub.add(r.run, ...message("end", "still here"));
    await see(page, "still here");
  });
  assert.ok(long.length > 10 && long[0] < 1_000, `tasks of ${long.slice(0, 4)} ms`);
  for (const tab of ["State", "Run", "Withheld", "Timeline"]) await page.locator("#tab-" + tab).click();
  await page.locator("#filter").fill("pwned");
  await page.locator(".status-line", { hasText: / of / }).waitFor();
  const list = page.locator(".messages");
  for (let i = 0; i < 40; i++) await list.evaluate((el) => { el.scrollTop = Math.max(0, el.scrollTop - 700); });
  await list.evaluate((el) => { el.scrollTop = 0; });
  await see(page, "<script>window.pwned=1</script>");
  assert.deepEqual(await page.evaluate(() => [window.pwned, {}.polluted, document.querySelectorAll(".messages :is(script, img, iframe, svg, style, b, object, embed)").length]), [undefined, undefined, 0]);
  const links = await page.locator(".messages a").evaluateAll((all) => all.map((a) => a.protocol));
  assert.deepEqual(links.filter((p) => !/^(https?|mailto):$/.test(p)), []);
});

test("whatever an agent names or fails with is text, in every corner of the page", async () => {
  const evil = `"><img src=x onerror=window.pwned=1><script>window.pwned=1</script>`;
  const id = `"><img src=x onerror=window.pwned=1> javascript:pwned=1`; // ids have neither slash nor braces
  const r = { run: `run ${id}`, thread: `thread ${id}` };
  const patch = (path, value) => [{ op: "add", path, value }];
  await hub.post(r.run, [
    started(r),
    { type: "STEP_STARTED", stepName: evil },
    { type: "STATE_SNAPSHOT", snapshot: { [evil]: { [evil]: evil }, link: "javascript:window.pwned=1", type: "img", props: { src: "x", onerror: "window.pwned=1" } } },
    { type: "STATE_DELTA", delta: patch("/__html", evil) },
    { type: "CUSTOM", name: evil, value: { type: "script", props: { children: "window.pwned=1" } } },
    { type: "REASONING_START", messageId: "th" }, { type: "REASONING_MESSAGE_START", messageId: "th", role: "reasoning" }, { type: "REASONING_MESSAGE_CONTENT", messageId: "th", delta: evil },
    { type: "REASONING_MESSAGE_END", messageId: "th" }, { type: "REASONING_END", messageId: "th" },
    { type: "ACTIVITY_SNAPSHOT", messageId: "act", activityType: evil, content: { [evil]: evil, dangerouslySetInnerHTML: { __html: evil }, html: evil } },
    { type: "ACTIVITY_DELTA", messageId: "act", activityType: evil, patch: patch("/onclick", "window.pwned=1") },
    { type: "TEXT_MESSAGE_START", messageId: evil, role: "assistant", name: evil },
    { type: "TEXT_MESSAGE_CONTENT", messageId: evil, delta: [
      "[a](JaVaScRiPt:window.pwned=1)", "[b](java\tscript:window.pwned=1)", "[c](&#106;avascript:window.pwned=1)", "[d](vbscript:x)", "[e](data:text/html;base64,PHNjcmlwdD4=)",
      "[f](blob:https://x.example/1)", "[g](//evil.example/x)", "[h](/v1/runs)", "[i](file:///etc/passwd)", "[j](https://ok.example/ \"><img src=x onerror=window.pwned=1>\")",
      "![k](data:image/svg+xml;base64,PHN2Zz4= \"t\")", "<https://ok.example/\"onmouseover=\"window.pwned=1>", "<svg><animate onbegin=window.pwned=1>", "<!--><img src=x onerror=window.pwned=1>-->", "```<img src=x onerror=window.pwned=1>\n" + evil + "\n```",
      "|" + evil + "|\n|-|\n|" + evil + "|",
    ].join("\n\n") },
    { type: "TEXT_MESSAGE_END", messageId: evil },
    { type: "TOOL_CALL_START", toolCallId: evil, toolCallName: evil, parentMessageId: evil }, { type: "TOOL_CALL_ARGS", toolCallId: evil, delta: JSON.stringify({ [evil]: evil }) }, { type: "TOOL_CALL_END", toolCallId: evil },
    { type: "TOOL_CALL_RESULT", messageId: "res", toolCallId: evil, content: JSON.stringify([{ type: "iframe", props: { srcDoc: evil } }, `<svg onload=window.pwned=1>`]) },
    { type: "TOOL_CALL_RESULT", messageId: "res2", toolCallId: "nobody's", content: `<svg xmlns="http://www.w3.org/2000/svg" onload="window.pwned=1"></svg>` },
  ], inputOf(r, [{ id: evil, role: "user", name: evil, content: [{ type: "text", text: evil }, { type: "image", source: { type: "url", value: "https://evil.example/x.png" } }] }, { id: "dev", role: "developer", name: evil, content: evil }]));
  hub.add(r.run, { type: "TOOL_CALL_END", toolCallId: evil + "withheld" }, evil, { type: "RUN_ERROR", message: evil, code: evil });
  const page = await visit("/?thread=" + encodeURIComponent(r.thread));
  await see(page, "The run failed.", ".foot");
  const unfold = (where) => {
    const folded = page.locator(`${where} .fold[aria-expanded=false]`);
    // One that was clicked is drawn a little later: what was counted may be gone by the next click.
    return until(async () => (await folded.count()) === 0 || (await folded.first().click({ timeout: 1_000 }).catch(() => {}), false), "folds stay in " + where);
  };
  await unfold(".messages");
  await page.locator(".call .folded").first().waitFor();
  await page.locator(".targets a", { hasText: r.thread }).first().waitFor();
  await page.getByRole("button", { name: "Runs", exact: true }).click();
  await page.locator(".targets a", { hasText: r.run }).first().waitFor();
  const bad = () => page.evaluate(() => [window.pwned, document.querySelectorAll("script:not([src]), body :is(script, img, iframe, object, embed, style, link, form:not(.attach, .composer), svg:not(.brand svg), animate)").length, [...document.querySelectorAll("*")].flatMap((e) => e.getAttributeNames()).filter((n) => /^on/.test(n)).length]);
  for (const tab of ["State", "Withheld", "Run", "Timeline"]) {
    await page.locator("#tab-" + tab).click();
    await page.locator(`#tab-${tab}[aria-selected=true]`).waitFor();
    await unfold("#panel");
    assert.deepEqual(await bad(), [undefined, 0, 0], tab);
  }
  const rows = page.locator(".row");
  for (let i = 0; i < (await rows.count()); i++) {
    await rows.nth(i).click();
    await page.locator(".detail").waitFor();
  }
  assert.deepEqual(await bad(), [undefined, 0, 0], "the timeline's details");
  const links = await page.locator("body a").evaluateAll((all) => all.map((a) => a.href));
  const own = new URL(page.url()).origin;
  assert.deepEqual(links.filter((l) => !l.startsWith(own + "/?") && !l.startsWith("https://ok.example/")), []);
  assert.ok(links.some((l) => l.startsWith("https://ok.example/")));
  assert.equal(await page.title(), `${r.thread} · aguihub`);
});

test("ten thousand messages open as few elements, from either end", async () => {
  const r = ids();
  await hub.post(r.run, [started(r), ...message("last", "the last one")], inputOf(r, conversation(10_000)));
  const page = await visit("/?run=none");
  await connected(page, "no such run yet; waiting");
  const long = await tasks(await devtools(page), async () => {
    await look(page, "/?run=" + r.run);
    await see(page, "the last one");
  });
  assert.ok(long.length > 10 && long[1] <= 100, `tasks of ${long.slice(0, 4)} ms: only the snapshot may hold the page for 100`);
  assert.ok((await page.locator("*").count()) < 2_500);
  await page.locator(".messages").focus();
  await page.keyboard.press("Home");
  await see(page, /^Message 0$/);
  assert.ok((await page.locator(".message").count()) < 60);
  await page.keyboard.press("PageDown");
  await page.locator(".to-end").waitFor();
  await page.keyboard.press("e");
  await see(page, "the last one");
  hub.add(r.run, ...message("more", "and one more"));
  await see(page, "and one more");
});

test("a thousand events a second are all applied and all told, and neither hold the page up nor stay in its memory", async () => {
  const r = ids();
  await hub.post(r.run, [started(r), { type: "TEXT_MESSAGE_START", messageId: "m", role: "assistant" }], inputOf(r, conversation(200)));
  const page = await visit("/?run=none");
  await connected(page, "no such run yet; waiting");
  const cdp = await devtools(page), before = await heap(cdp);
  await look(page, "/?run=" + r.run);
  await connected(page, "live");
  await page.evaluate(() => {
    const copy = window.structuredClone;
    window.copies = 0;
    window.structuredClone = (value, ...rest) => { if (value?.messages) window.copies++; return copy(value, ...rest); };
  });
  await page.locator("button.chip.control").click(); // a filter has to keep up, too
  let n, text;
  const long = await tasks(cdp, async () => {
    ({ n, text } = await flood(hub, r, 1_000, 3));
    hub.add(r.run, { type: "TEXT_MESSAGE_END", messageId: "m" }, ...message("end", "the end"));
    await see(page, "the end");
  });
  assert.ok(long.length > 100 && long[0] <= 100, `tasks of ${long.slice(0, 4)} ms`);
  const copies = await page.evaluate(() => window.copies);
  assert.ok(copies > 0 && copies < 20, `all messages were copied ${copies} times: text is to grow without that`);
  await until(async () => (await figure(page, "lag")) === "0", "everything applied");
  const shown = page.locator(".message.assistant .plain").last();
  await until(async () => (await shown.innerText()).startsWith(text.slice(0, 3_900)), "its beginning, once it has ended");
  await page.locator("#filter").fill(`[${n - 1}]`);
  await see(page, `[${n - 1}]`, ".timeline");
  await page.locator("#filter").fill("TEXT_MESSAGE_CONTENT");
  await page.locator(".status-line", { hasText: `${n + 1} of` }).waitFor();
  await look(page, "/?run=none");
  await connected(page, "no such run yet; waiting");
  const kept = (await heap(cdp)) - before;
  assert.ok(kept < 5, `${kept.toFixed(1)} MB more than before`);
});

test("all of it goes by keyboard, and the focus is seen", async () => {
  const r = ids();
  await hub.post(r.run, [started(r), ...message("m", "text")], inputOf(r));
  const page = await visit("/?run=" + r.run);
  await see(page, "text");
  await page.keyboard.press("?");
  await page.getByRole("dialog").getByText("filter the timeline").waitFor();
  await page.keyboard.press("Escape");
  await page.getByRole("dialog").waitFor({ state: "detached" });
  await page.keyboard.press("2");
  await page.locator("#tab-State[aria-selected=true]").waitFor();
  await page.locator("#tab-State").focus();
  await page.keyboard.press("ArrowRight");
  await page.locator("#tab-Withheld[aria-selected=true]").waitFor();
  // Who types on at once is heard by what the key leads to, however slow the page is.
  const focused = (key) => page.evaluate((key) => {
    document.activeElement.dispatchEvent(new KeyboardEvent("keydown", { key, bubbles: true, cancelable: true }));
    return document.activeElement.id;
  }, key);
  assert.equal(await focused("ArrowRight"), "tab-Run");
  assert.equal(await focused("/"), "filter");
  await page.keyboard.press("Escape");
  await page.keyboard.press("1");
  await page.locator(".timeline").focus();
  await page.keyboard.press("ArrowUp");
  await page.locator(".detail").waitFor();
  await page.keyboard.press("c");
  assert.equal(await page.evaluate(() => document.activeElement.id), "compose");
  await page.keyboard.press("Escape");
  await page.keyboard.press("d");
  await until(async () => (await figure(page, "reconnects")) === "1", "a drop by its key");
  const before = page.url();
  await until(async () => (await page.locator(".targets a").count()) > 1, "the list");
  await page.keyboard.press("j");
  await until(() => page.url() !== before, "another run by its key");
  await page.goBack();
  await see(page, "text");
  await page.locator(".brand").focus();
  const seen = new Set();
  for (let i = 0; i < 60; i++) {
    await page.keyboard.press("Tab");
    const [where, outline] = await page.evaluate(() => { const e = document.activeElement; return [e.id || e.className || e.tagName, getComputedStyle(e).outlineStyle]; });
    if (where === "BODY") break;
    seen.add(where);
    assert.notEqual(outline, "none", `no focus is seen at ${where}`);
  }
  for (const id of ["drop", "offline", "theme", "filter", "compose", "list messages", "list timeline"]) assert.ok([...seen].some((s) => s === id), `${id} isn't reached: ${[...seen]}`);
});

test("it is dark where the system is, or as somebody wants it, and fits a telephone", async () => {
  const dark = await visit("/", { colorScheme: "dark" });
  const back = (page) => page.evaluate(() => getComputedStyle(document.body).backgroundColor);
  const light = await visit("/", { colorScheme: "light" });
  const [night, day] = [await back(dark), await back(light)];
  assert.notEqual(night, day);
  await light.keyboard.press("t");
  await light.keyboard.press("t");
  await until(async () => (await back(light)) === night, "dark by choice");
  await light.reload();
  await until(async () => (await back(light)) === night, "the choice is kept");
  const r = ids();
  await hub.post(r.run, [started(r), ...message("m", "on a small screen")], inputOf(r));
  const small = await visit("/?run=" + r.run, { viewport: { width: 390, height: 780 } });
  await see(small, "on a small screen");
  assert.equal(await small.evaluate(() => document.documentElement.scrollWidth), 390);
  await small.getByRole("button", { name: "Inspector" }).click();
  await see(small, "MESSAGES_SNAPSHOT", ".timeline");
});

test("a hub that wants a token is given one, once, and the page shows what the token names", async () => {
  const key = "a secret of at least thirty-two bytes";
  const dir = fs.mkdtempSync(path.join(os.tmpdir(), "aguihub-console-"));
  fs.writeFileSync(path.join(dir, "auth.json"), JSON.stringify({ issuers: [{ iss: "test", key }] }));
  const part = (v) => Buffer.from(JSON.stringify(v)).toString("base64url");
  const claims = { iss: "test", sub: "somebody", exp: Math.floor(Date.now() / 1000) + 3_600, scope: "attach read input", aguihub: { threads: ["t-mine"] } };
  const signed = `${part({ alg: "HS256", typ: "JWT" })}.${part(claims)}`;
  const token = `${signed}.${createHmac("sha256", key).update(signed).digest("base64url")}`;
  const guarded = await new Hub().start("--auth-config", path.join(dir, "auth.json"));
  try {
    guarded.add("mine", started({ run: "mine", thread: "t-mine" }), ...message("m", "for my eyes"));
    const page = await open(browser, guarded.url + "/?thread=t-mine");
    await page.getByRole("dialog").getByLabel("Token").fill(token + "x");
    assert.equal(await page.getByRole("alert").count(), 0);
    await page.keyboard.press("Enter");
    await page.getByRole("alert").getByText("refused").waitFor();
    await page.getByRole("dialog").getByLabel("Token").fill(token);
    await page.keyboard.press("Enter");
    await see(page, "for my eyes");
    await page.locator(".targets a", { hasText: "t-mine" }).waitFor();
    await page.reload();
    await see(page, "for my eyes");
    assert.equal(await page.getByRole("dialog").count(), 0);
    assert.deepEqual(page.faults.filter((f) => !/ 40[13] |WebSocket/.test(f)), []); // the browser's own words for what was refused
    await page.context().close();
  } finally {
    guarded.stop();
    fs.rmSync(dir, { recursive: true });
  }
});
