// HubAgent in Chromium, against a real hub: what only a browser does to a page and its connections.
import assert from "node:assert/strict";
import { spawn } from "node:child_process";
import fs from "node:fs";
import http from "node:http";
import path from "node:path";
import { after, before, test } from "node:test";
import { corpus, difference, eventually, freePort, here, Hub, inputOf, long, patience, Proxy, question, rename, rng, sleep, textRun, uid, watch } from "../lib.mjs";
import { browser, pageWith, picture, site } from "./lib.mjs";

let hub, web, chrome, words;
before(async () => {
  words = await wordByWord();
  [hub, web, chrome] = await Promise.all([new Hub().start("--agent", `hello=${words.url}`), site(), browser()]);
});
after(async () => { await chrome?.stop(); web?.stop(); hub?.stop(); words?.stop(); });

/** The example's agent, whose next words wait until a test lets it speak. */
async function wordByWord() {
  let go = () => {}, wait = Promise.resolve();
  const server = http.createServer(async (request, response) => {
    let body = "";
    for await (const chunk of request) body += chunk;
    const { threadId, runId, messages } = JSON.parse(body);
    response.writeHead(200, { "content-type": "text/event-stream" });
    for (const [i, e] of textRun(runId, threadId, ["You said: ", messages.at(-1).content, ", ", "and that is all."]).entries()) {
      if (i === 4) await wait;
      response.write(`data: ${JSON.stringify(e)}\n\n`);
    }
    response.end();
  });
  await new Promise((r) => server.listen(0, "127.0.0.1", r));
  return {
    url: `http://127.0.0.1:${server.address().port}/`,
    hold: () => { wait = new Promise((r) => (go = r)); },
    go: () => go(),
    stop: () => { server.close(); server.closeAllConnections(); },
  };
}

const user = (content) => ({ id: `u-${uid()}`, role: "user", content });
const look = (page, name = "a") => page.evaluate((n) => window.client.look(n), name);
const attach = (page, options, name = "a") => page.evaluate(([n, o]) => window.client.attach(n, o), [name, options]);
const seen = (page, text, name) => eventually(async () => (await look(page, name)).texts.includes(text), `"${text}"`);
const ended = (page, name) => eventually(async () => (await look(page, name)).ended !== "", "the end");
async function open(t, version) {
  const page = await pageWith(chrome.context, web.url, version);
  t.after(() => page.close());
  return page;
}
async function proxied(t, port = hub.port) {
  const proxy = await new Proxy(port).start();
  t.after(() => proxy.stop());
  return proxy;
}
/** A run of ten words, of which half are there. */
async function begun(tag = uid()) {
  const run = `r-${tag}`, thread = `t-${tag}`, events = textRun(run, thread, [..."abcdefghij"]);
  const more = async (from, to) => { for (const e of events.slice(from, to)) await hub.pub.add(run, e); };
  await hub.pub.add(run, events[0], inputOf({ run, thread }, [user("asked")]));
  await more(1, 7);
  await hub.pub.announce(run, thread);
  return { run, thread, more, options: { url: hub.url, threadId: thread }, half: "abcde", whole: ["asked", "abcdefghij"] };
}

// Each stream in a page of its version: 0.0.57 only shows that it works there too, Node has the rest.
for (const [version, share] of [["1.0.0", 0.09], ["0.0.59", 0.07], ["0.0.57", 0.025]]) {
  test(`streams whose connection is cut end in the browser as if it weren't, on client ${version}`, async (t) => {
    const page = await open(t, version), rand = rng(Number(process.env.SEED ?? 7));
    const streams = corpus().filter(() => rand() < (long ? 1 : share));
    let equal = 0, next = 0;
    const wrong = [];
    const one = async (stream, name) => {
      const r = rename(stream), asked = question(r), state = r.events[0].input?.state;
      const want = await watch(r.events, { messages: [asked], ...(state ? { state } : {}) });
      if (want.error) return;
      const proxy = await proxied(t);
      const size = r.lines.reduce((n, l) => n + l.length, 0) + 600;
      for (let i = 0; i < 3; i++) proxy.limits.push(Math.floor(rand() < 0.5 ? rand() * 900 : rand() * size));
      const ahead = 1 + Math.floor(rand() * r.lines.length);
      const input = r.events[0].input ? undefined : inputOf(r, [asked]);
      for (let i = 0; i < ahead; i++) await hub.pub.add(r.run, r.lines[i], i === 0 ? input : undefined);
      await hub.pub.announce(r.run, r.thread);
      await attach(page, { url: proxy.url, threadId: r.thread, initialMessages: [asked], ...(state ? { initialState: state } : {}) }, name);
      for (let i = ahead; i < r.lines.length; i++) await hub.pub.add(r.run, r.lines[i]);
      await ended(page, name);
      const got = await look(page, name);
      assert.equal(got.ended.replace("ended", ""), "", stream.name);
      // Where the stream itself drops what was asked the official client has dropped it; ours never does.
      const kept = want.messages.some((m) => m.id === asked.id), without = (x) => ({ ...x, messages: x.messages.filter((m) => m.id !== asked.id) });
      const d = (got.messages.some((m) => m.id === asked.id) ? "" : "the user's message is gone") || (kept ? difference(got, want, r.events) : difference(without(got), without(want), r.events));
      if (d) wrong.push(`${stream.name}: ${d}`); else equal++;
      proxy.stop();
    };
    await Promise.all([0, 1, 2, 3].map(async () => { while (next < streams.length) { const i = next++; await one(streams[i], `s${i}`); } }));
    t.diagnostic(`${equal} equal`);
    assert.deepEqual(wrong, []);
    assert.ok(equal >= 4, `${equal} streams`);
  });
}

test("three tabs show the same text, and one that joins late has it too", async (t) => {
  const r = await begun(), tabs = await Promise.all([open(t), open(t), open(t)]);
  for (const p of tabs) await attach(p, r.options);
  for (const p of tabs) await seen(p, r.half);
  await r.more(7, 9);
  const late = await open(t);
  await attach(late, r.options);
  await seen(late, "abcdefg");
  await r.more(9);
  for (const p of [...tabs, late]) { await ended(p); assert.deepEqual((await look(p)).texts, r.whole); assert.deepEqual(p.log, []); }
});

test("a page that is offline waits, and goes on when it is online again", async (t) => {
  const r = await begun(), page = await open(t), proxy = await proxied(t);
  await attach(page, { ...r.options, url: proxy.url });
  await seen(page, r.half);
  await chrome.context.setOffline(true);
  t.after(() => chrome.context.setOffline(false));
  await eventually(async () => (await look(page)).connection.state === "offline", "offline");
  await r.more(7);
  const tried = proxy.connections;
  await sleep(300); // it must not even try
  assert.equal(proxy.connections, tried);
  assert.equal((await look(page)).texts[1], r.half);
  await chrome.context.setOffline(false);
  await ended(page);
  assert.deepEqual((await look(page)).texts, r.whole);
});

test("a page that was frozen, its connection gone meanwhile, catches up when it is resumed", async (t) => {
  const r = await begun(), page = await open(t), proxy = await proxied(t);
  await attach(page, { ...r.options, url: proxy.url });
  await seen(page, r.half);
  const devtools = await chrome.context.newCDPSession(page);
  await devtools.send("Page.setWebLifecycleState", { state: "frozen" });
  proxy.cut();
  await r.more(7);
  await sleep(200);
  await devtools.send("Page.setWebLifecycleState", { state: "active" });
  await ended(page);
  assert.deepEqual((await look(page)).texts, r.whole);
});

test("a hub that is killed and started again is found again", async (t) => {
  const own = await new Hub().start();
  t.after(() => own.stop());
  const tag = uid(), run = `r-${tag}`, thread = `t-${tag}`, events = textRun(run, thread, [..."abcdef"]);
  for (const [i, e] of events.slice(0, 4).entries()) await own.pub.add(run, e, i === 0 ? inputOf({ run, thread }, [user("asked")]) : undefined);
  await own.pub.announce(run, thread);
  const page = await open(t);
  await attach(page, { url: own.url, threadId: thread });
  await seen(page, "ab");
  await own.kill();
  for (const e of events.slice(4)) await own.pub.add(run, e);
  await own.run();
  await ended(page);
  assert.deepEqual((await look(page)).texts, ["asked", "abcdef"]);
});

/** nginx in front of hubs, one of which is the other's spare. */
async function nginx(t, ports, websockets = true) {
  const dir = fs.mkdtempSync("/tmp/aguihub-nginx-"), port = await freePort();
  const upgrade = websockets ? "proxy_set_header Upgrade $http_upgrade; proxy_set_header Connection $connection_upgrade;" : "if ($http_upgrade) { return 403; } proxy_set_header Connection '';";
  fs.writeFileSync(path.join(dir, "nginx.conf"), `
    daemon off; master_process off; pid ${dir}/pid; error_log ${dir}/error.log; events {}
    http {
      access_log off; client_body_temp_path ${dir}/a; proxy_temp_path ${dir}/b; fastcgi_temp_path ${dir}/c; uwsgi_temp_path ${dir}/d; scgi_temp_path ${dir}/e;
      map $http_upgrade $connection_upgrade { default upgrade; '' ''; }
      upstream hubs { ${ports.map((p) => `server 127.0.0.1:${p} max_fails=1 fail_timeout=1s;`).join(" ")} }
      server { listen 127.0.0.1:${port}; location / { proxy_pass http://hubs; proxy_http_version 1.1; proxy_set_header Host $http_host; ${upgrade} proxy_buffering off; proxy_read_timeout 1h; proxy_next_upstream error timeout http_502 http_503; } }
    }`);
  const child = spawn(process.env.NGINX ?? (fs.existsSync("/usr/sbin/nginx") ? "/usr/sbin/nginx" : "nginx"), ["-p", dir, "-c", path.join(dir, "nginx.conf"), "-e", path.join(dir, "error.log")], { stdio: "ignore" });
  await new Promise((resolve, reject) => { child.on("error", reject); child.on("spawn", resolve); });
  const gone = new Promise((r) => child.on("exit", r));
  t.after(async () => { child.kill("SIGKILL"); await gone; fs.rmSync(dir, { recursive: true, force: true }); });
  await eventually(() => fetch(`http://127.0.0.1:${port}/readyz`).then(() => true, () => false), "nginx");
  return `http://127.0.0.1:${port}`;
}

test("two hubs behind a proxy are restarted one after the other, and the page misses nothing", async (t) => {
  const second = await new Hub().start("--redis", `redis://127.0.0.1:${hub.redisPort}`), third = await new Hub().start("--redis", `redis://127.0.0.1:${hub.redisPort}`);
  t.after(() => { second.stop(); third.stop(); });
  const url = await nginx(t, [second.port, third.port]);
  const r = await begun(), page = await open(t);
  await attach(page, { ...r.options, url });
  await seen(page, r.half);
  for (const [i, h] of [second, third].entries()) {
    const gone = new Promise((go) => h.hub.once("exit", go));
    h.hub.kill("SIGTERM");
    await gone;
    await r.more(7 + i, 8 + i);
    await h.run();
    await seen(page, "abcdefghij".slice(0, 6 + i));
  }
  await r.more(9);
  await ended(page);
  const got = await look(page);
  assert.deepEqual(got.texts, r.whole);
  assert.ok(got.connection.reconnects >= 1 && got.connection.resets === 0, JSON.stringify(got.connection));
});

test("where the proxy lets no WebSocket through, server-sent events take over", async (t) => {
  const url = await nginx(t, [hub.port], false);
  const r = await begun(), page = await open(t);
  await attach(page, { ...r.options, url });
  await seen(page, r.half);
  assert.equal((await look(page)).connection.transport, "sse");
  await r.more(7);
  await ended(page);
  assert.deepEqual((await look(page)).texts, r.whole);
});

test("a long conversation comes deflated, through a proxy too, and what is live afterwards arrives", async (t) => {
  const proxy = await proxied(t), url = await nginx(t, [new URL(proxy.url).port]);
  const run = `r-${uid()}`, thread = `t-${run}`, events = textRun(run, thread, ["live"]), rand = rng(3);
  const words = corpus().flatMap((s) => s.events.map((e) => e.delta)).filter((d) => typeof d === "string").join(" ").split(/\s+/);
  const said = Array.from({ length: 60 }, () => user(Array.from({ length: 900 }, () => words[Math.floor(rand() * words.length)]).join(" ")));
  const size = said.reduce((n, m) => n + m.content.length, 0);
  await hub.pub.add(run, events[0], inputOf({ run, thread }, said));
  await hub.pub.announce(run, thread);
  const page = await open(t);
  await attach(page, { url, threadId: thread });
  await seen(page, said.at(-1).content);
  assert.ok(size > 200_000 && proxy.received < size / 2, `${proxy.received} of ${size} bytes`);
  for (const e of events.slice(1, 3)) await hub.pub.add(run, e);
  await seen(page, "live");
  assert.deepEqual((await look(page)).texts, [...said.map((m) => m.content), "live"]);
  assert.deepEqual(page.log, []);
});

test("the example without a build step survives a reload in mid-answer, and other tabs show the same", async (t) => {
  words.hold();
  t.after(() => words.go());
  const url = `${web.url}/html/?thread=t-${uid()}&hub=${encodeURIComponent(hub.url)}`;
  const page = await chrome.context.newPage(), log = [];
  t.after(() => page.close());
  page.on("pageerror", (e) => log.push(String(e)));
  page.on("console", (m) => m.type() === "error" && log.push(m.text()));
  const shows = (p, ...texts) => p.waitForFunction((want) => JSON.stringify([...document.querySelectorAll("#messages li")].map((x) => x.textContent)) === want, JSON.stringify(texts), { timeout: patience });
  await page.goto(url);
  await page.fill("#text", "good morning");
  await page.click("text=Send");
  await shows(page, "good morning", "You said: good morning");
  await page.reload();
  await shows(page, "good morning", "You said: good morning");
  assert.doesNotMatch(await page.textContent("#status"), /reconnect/); // what a page hears while it loads breaks nothing off
  await picture(page, "html-reloaded");
  const other = await chrome.context.newPage();
  t.after(() => other.close());
  await other.goto(page.url());
  await shows(other, "good morning", "You said: good morning");
  words.go();
  for (const p of [page, other]) await shows(p, "good morning", "You said: good morning, and that is all.");
  await other.fill("#text", "again");
  await other.click("text=Send");
  for (const p of [page, other]) await shows(p, "good morning", "You said: good morning, and that is all.", "again", "You said: again, and that is all.");
  await picture(page, "html-whole");
  assert.deepEqual(log, []);
});
