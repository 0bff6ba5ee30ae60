// The measure: corpus streams through HubAgent over a connection that is cut at random points, before `live` too. The end
// must equal that of the official client that watched without a cut, with the user's own message in place.
import assert from "node:assert/strict";
import { after, before, test } from "node:test";
import { agentAt, corpus, difference, holds, Hub, inputOf, long, patience, Proxy, question, rename, rng, sleep, timeout, version, watch } from "./lib.mjs";

let hub;
before(async () => { hub = await new Hub().start(); });
after(() => hub.stop());

const share = long ? 1 : { "1.0.0": 0.4, "0.0.59": 0.3, "0.0.57": 0.15 }[version];
const perStream = long ? 6 : 1;
const only = process.env.ONLY;

/** One stream, one way to attach to it. Returns what is wrong, null where the official client itself refuses the stream. */
async function one(stream, rand) {
  const r = rename(stream);
  const echoes = r.events[0].input !== undefined;
  const known = !echoes && rand() < 0.6; // the log knows what the user asked
  const user = question(r);
  const state = r.events[0].input?.state ?? undefined;
  const initial = { messages: [user], ...(state ? { state } : {}) };
  const want = await watch(r.events, initial);
  if (want.error) return null;
  if (version !== "1.0.0") {
    // What the hub restates is what the newest client makes of a stream: where an older one makes something else there is no measure.
    const newest = await watch(r.events, initial, "newest");
    if (newest.error || difference(want, newest, r.events)) return null;
  }
  const proxy = await new Proxy(hub.port).start();
  const size = r.lines.reduce((n, l) => n + l.length, 0) + 600;
  const cuts = 1 + Math.floor(rand() * 4);
  for (let i = 0; i < cuts; i++) proxy.limits.push(Math.floor(rand() < 0.4 ? rand() * 900 : rand() * size));
  const target = rand() < 0.5 ? { runId: r.run, threadId: r.thread } : { threadId: r.thread };
  const catchup = ["auto", "auto", "snapshot", "events"][Math.floor(rand() * 4)];
  const transport = rand() < 0.25 ? "sse" : "auto";
  const agent = agentAt(proxy.url, { ...target, catchup, transport, initialMessages: [user], ...(state ? { initialState: state } : {}) });
  const ahead = 1 + Math.floor(rand() * r.lines.length);
  const input = known ? inputOf(r, [user]) : undefined;
  for (let i = 0; i < ahead; i++) await hub.pub.add(r.run, r.lines[i], i === 0 ? input : undefined);
  await hub.pub.announce(r.run, r.thread);
  const how = `${JSON.stringify(target)} ${catchup} ${transport} known=${known} ahead=${ahead}/${r.lines.length}`;
  const connected = agent.connectAgent();
  let failed = "", last = "";
  connected.catch((e) => { failed = String(e?.message ?? e); });
  for (let i = ahead; i < r.lines.length; i++) {
    if (rand() < 0.5) await sleep(rand() * 4);
    last = await hub.pub.add(r.run, r.lines[i]);
  }
  await Promise.race([connected.catch(() => {}), timeout(patience).then(() => { failed ||= `never ends: ${JSON.stringify(agent.connection)} last ${last}`; })]);
  proxy.stop();
  if (failed) return `${failed} (${how})`;
  return placed(holds(agent), want, user, r.events, how);
}

/** The user's message must be there, in its place where the official client has kept it; all else must be equal. */
function placed(got, want, user, events, how) {
  if (!got.messages.some((m) => m.id === user.id)) return `the user's message is gone (${how})`;
  const kept = want.messages.some((m) => m.id === user.id);
  const without = (x) => ({ ...x, messages: x.messages.filter((m) => m.id !== user.id) });
  const d = kept ? difference(got, want, events) : difference(without(got), without(want), events);
  return d && `${d} (${how})`;
}

test(`streams whose connection is cut end as if it weren't, on client ${version}`, async () => {
  const rand = rng(Number(process.env.SEED ?? 1));
  const streams = corpus().filter((s) => (only ? s.name.includes(only) : rand() < share));
  const cases = streams.flatMap((s) => Array(perStream).fill(s));
  let equal = 0, refused = 0;
  const wrong = [];
  let next = 0;
  await Promise.all(Array.from({ length: 8 }, async () => {
    while (next < cases.length) {
      const s = cases[next++];
      const why = await one(s, rand);
      if (why === null) refused++; else if (why) wrong.push(`${s.name}: ${why}`); else equal++;
    }
  }));
  console.log(`cuts, client ${version}: ${equal} equal, ${wrong.length} not, ${refused} refused by the official client`);
  for (const w of wrong.slice(0, Number(process.env.SHOW ?? 8))) console.log(`  ${w}`);
  assert.equal(wrong.length, 0, wrong[0]);
  assert.ok(equal > (only ? 0 : 15));
});
