// HubAgent in Chromium, against hubs that ask for tokens: renewal, refusal, and a hub that drains.
import assert from "node:assert/strict";
import { after, before, test } from "node:test";
import { asksForTokens, difference, eventually, Hub, inputOf, Proxy, sleep, textRun, token, uid, watch } from "../lib.mjs";
import { browser, pageWith, site } from "./lib.mjs";

let hub, web, chrome;
const auth = asksForTokens();
before(async () => { [hub, web, chrome] = await Promise.all([new Hub().start(...auth), site(), browser()]); });
after(async () => { await chrome?.stop(); web?.stop(); hub?.stop(); });

const look = (page) => page.evaluate(() => window.client.look("a"));
const seen = (page, text) => eventually(async () => (await look(page)).texts.includes(text), `"${text}"`);
const controls = async (page, name) => (await look(page)).controls.filter((c) => c.control === name);
/** A page whose tokens come one after another, and what it was asked for them; look-ups behind the end ask, too. */
async function open(t, ...tokens) {
  const begun = Date.now(), page = await pageWith(chrome.context, web.url), asked = [];
  life = Math.max(6, Math.ceil((Date.now() - begun) / 500));
  t.after(() => page.close());
  await page.exposeFunction("tokenOf", ({ refresh }) => { asked.push(refresh); return (tokens.length > 1 ? tokens.shift() : tokens[0])(); });
  return [page, asked];
}
/** A run of ten words, of which half are there; whole is what the official client makes of it. */
async function begun() {
  const tag = uid(), run = `r-${tag}`, thread = `t-${tag}`, asked = { id: `u-${tag}`, role: "user", content: "asked" };
  const events = textRun(run, thread, [..."abcdefghij"]);
  const more = async (from, to) => { for (const e of events.slice(from, to)) await hub.pub.add(run, e); };
  await hub.pub.add(run, events[0], inputOf({ run, thread }, [asked]));
  await more(1, 7);
  await hub.pub.announce(run, thread);
  const whole = async (page) => {
    await eventually(async () => (await look(page)).ended !== "", "the end");
    const got = await look(page);
    assert.equal(got.ended, "ended");
    assert.equal(difference(got, await watch(events, { messages: [asked] }), events), "");
    return got;
  };
  return { more, whole, half: "abcde", attach: (page, url) => page.evaluate((o) => window.client.attach("a", o), { url, threadId: thread, tokens: true }) };
}
/** For how many seconds a short token is good: well for longer than this machine needs to attach a page. */
let life = 6;
const short = () => token(life), good = () => token(3600), none = () => null, old = () => token(-3600);

test("a token is renewed over the open socket, which outlives the first one", async (t) => {
  const r = await begun(), [page, asked] = await open(t, short, good);
  await r.attach(page, hub.url);
  await seen(page, r.half);
  const from = Date.now(); // it is older
  await eventually(async () => (await controls(page, "expiring")).length > 0, "the warning");
  await sleep(from + life * 1_000 + 500 - Date.now()); // the first one has ended
  await r.more(7);
  const got = await r.whole(page);
  assert.deepEqual(asked.slice(0, 2), [false, true]);
  assert.equal(got.connection.reconnects, 0, JSON.stringify(got.connection));
});

test("where there is no newer one in time the hub closes with 4401, and the page goes on with the next, at its place", async (t) => {
  const r = await begun(), [page, asked] = await open(t, short, none, good);
  await r.attach(page, hub.url);
  await seen(page, r.half);
  await eventually(() => asked.length === 3, "the close");
  await r.more(7);
  const got = await r.whole(page);
  assert.deepEqual(asked.slice(0, 3), [false, true, true]);
  assert.ok(got.connection.reconnects === 1 && got.connection.resets === 0, JSON.stringify(got.connection));
});

test("a token that has ended is replaced before the page attaches, and one that stays so ends it", async (t) => {
  const r = await begun(), [page, asked] = await open(t, old, good), [other] = await open(t, old);
  await r.attach(page, hub.url);
  await seen(page, r.half);
  await r.attach(other, hub.url);
  await eventually(async () => (await look(other)).ended !== "", "the refusal");
  assert.match((await look(other)).ended, /failed/);
  assert.deepEqual((await look(other)).texts, []);
  await r.more(7);
  await r.whole(page);
  assert.deepEqual(asked.slice(0, 2), [false, true]);
});

test("a hub that drains sends the page to the other one, where it goes on with its cursor and token", async (t) => {
  const redis = ["--redis", `redis://127.0.0.1:${hub.redisPort}`, ...auth];
  const [one, other] = await Promise.all([new Hub().start(...redis), new Hub().start(...redis)]);
  t.after(() => { one.stop(); other.stop(); });
  const proxy = await new Proxy(one.port).start(); // a balancer that knows in time
  t.after(() => proxy.stop());
  const r = await begun(), [page] = await open(t, good);
  await r.attach(page, proxy.url);
  await seen(page, r.half);
  proxy.port = other.port;
  const code = new Promise((go) => one.hub.once("exit", go));
  one.hub.kill("SIGTERM");
  await r.more(7, 9);
  assert.equal(await code, 0);
  await r.more(9);
  const got = await r.whole(page);
  assert.equal(got.controls.filter((c) => c.control === "draining").length, 1);
  assert.equal(new Set(got.controls.filter((c) => c.control === "attached").map((c) => c.hub)).size, 2);
  assert.ok(got.connection.reconnects === 1 && got.connection.resets === 0, JSON.stringify(got.connection));
});
