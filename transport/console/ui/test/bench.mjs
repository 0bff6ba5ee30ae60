// Measures what the page costs: npm run bench. Figures are of this machine; tasks are told by the browser, CPU by its main thread's clock.
import { conversation, flood, heap, Hub, ids, inputOf, launch, message, metrics, open, sleep, started, tasksOf } from "./lib.mjs";

const rate = Number(process.env.RATE ?? 1_000);
const seconds = Number(process.env.SECONDS ?? 10);
const hub = await new Hub().start();
const browser = await launch();
const small = ids();
await hub.post(small.run, [started(small), ...message("m", "a small one")], inputOf(small));

const told = (tasks) => {
  const of = (kind) => { const long = tasks.map((t) => t[kind]).filter((d) => d > 100).sort((a, b) => b - a); return `${long.length} over 100 ms${long.length ? ` (${long.slice(0, 6).map(Math.round).join(", ")})` : ""}, longest ${Math.round(Math.max(0, ...tasks.map((t) => t[kind])))} ms`; };
  return `tasks by CPU: ${of("cpu")}; by the clock: ${of("wall")}`;
};
const look = (page, path) => page.evaluate((to) => { history.pushState(null, "", to); dispatchEvent(new PopStateEvent("popstate")); }, path);
const shown = (page, text) => page.locator(".messages").getByText(text).first().waitFor({ timeout: 300_000 });
async function visit(path) {
  const page = await open(browser, hub.url + "/?run=none");
  const cdp = await page.context().newCDPSession(page);
  await cdp.send("Performance.enable", { timeDomain: "threadTicks" });
  await shown(page, "waits"); // what a page has ever shown stays compiled: that isn't of the run that is measured
  await look(page, "/?run=" + small.run);
  await shown(page, "a small one");
  await look(page, path);
  return { page, cdp };
}

{
  const r = ids();
  await hub.post(r.run, [started(r), { type: "TEXT_MESSAGE_START", messageId: "m", role: "assistant" }], inputOf(r, conversation(200, (i) => `Message ${i} `.repeat(20))));
  const { page, cdp } = await visit("/?run=" + r.run);
  await page.locator("#connection", { hasText: "live" }).waitFor();
  await sleep(1_000);
  const before = await heap(cdp);
  const cpu = (await metrics(cdp)).TaskDuration;
  let lag = 0, behind, sent;
  const timer = setInterval(async () => { lag = Math.max(lag, Number(await page.locator("#figure-lag").innerText().catch(() => 0))); }, 250);
  const tasks = told(await tasksOf(cdp, async () => {
    sent = await flood(hub, r, rate, seconds);
    const begun = Date.now();
    hub.add(r.run, ...message("end", "the end"));
    await shown(page, "the end");
    behind = Date.now() - begun;
  }));
  clearInterval(timer);
  const spent = (await metrics(cdp)).TaskDuration - cpu;
  console.log(`${sent.n} events in ${sent.seconds.toFixed(1)} s into a conversation of 200 messages: ${tasks}`);
  const copies = 300;
  const cpuBefore = (await metrics(cdp)).TaskDuration;
  await page.evaluate(([n, list]) => { for (let i = 0; i < n; i++) structuredClone(list); }, [copies, conversation(200, (i) => `Message ${i} `.repeat(20))]);
  const copy = ((await metrics(cdp)).TaskDuration - cpuBefore) / copies;
  console.log(`  main thread ${(spent / sent.n * 1000).toFixed(2)} ms of CPU an event, ${(spent / sent.n / copy).toFixed(1)} times what a copy of all messages takes, which the official reducer makes at each; most lag seen ${lag}; the end was shown ${behind} ms after it was sent`);
  const after = await heap(cdp);
  await look(page, "/?run=none");
  await sleep(1_500);
  console.log(`  heap: ${before.toFixed(1)} MB before, ${after.toFixed(1)} MB with the run, ${(await heap(cdp)).toFixed(1)} MB after it was left`);
  if (page.faults.length) console.log("faults", page.faults);
  await page.context().close();
}
{
  const r = ids();
  await hub.post(r.run, [started(r), ...message("last", "the last one")], inputOf(r, conversation(10_000, (i) => `Message ${i}, with **some** text in it.`)));
  const { page, cdp } = await visit("/?run=none");
  await sleep(1_500);
  const before = await heap(cdp);
  let begun, opened;
  console.log("10,000 messages are opened: " + told(await tasksOf(cdp, async () => {
    begun = Date.now();
    await look(page, "/?run=" + r.run);
    await shown(page, "the last one");
    opened = Date.now() - begun;
    await sleep(2_000);
  })));
  console.log(`  in ${opened} ms; ${await page.locator("*").count()} elements`);
  console.log("  they are scrolled through: " + told(await tasksOf(cdp, async () => {
    for (let i = 0; i < 40; i++) { await page.locator(".messages").evaluate((el) => { el.scrollTop -= 5_000; }); await sleep(20); }
  })));
  console.log("  150 events follow in 5 s: " + told(await tasksOf(cdp, async () => {
    for (let i = 0; i < 50; i++) { hub.add(r.run, ...message("x" + i, "more")); await sleep(100); }
    await sleep(1_000);
  })));
  await look(page, "/?run=none");
  await sleep(1_500);
  console.log(`  heap: ${before.toFixed(1)} MB before, ${(await heap(cdp)).toFixed(1)} MB after it was left`);
  if (page.faults.length) console.log("faults", page.faults);
}
await browser.close();
hub.stop();
process.exit(0);
