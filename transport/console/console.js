// The page: lists runs, attaches to one or to a thread over WebSocket, folds the events and shows what comes out.
// All content goes through textContent: nothing that an agent writes is ever read as markup.
"use strict";

const $ = (id) => document.getElementById(id);
const el = (tag, cls, text) => { const e = document.createElement(tag); if (cls) e.className = cls; if (text !== undefined) e.textContent = text; return e; };
const pretty = (v) => { const flat = JSON.stringify(v) ?? "undefined"; return flat.length <= 72 ? flat.replace(/("(?:[^"\\]|\\.)*")|([:,])/g, (_, s, p) => s ?? p + " ") : JSON.stringify(v, null, 2); };
const loose = (s) => { try { return pretty(JSON.parse(s)); } catch { return s; } }; // tool arguments are cut anywhere while they come
const ROWS = 1500; // of the timeline; older ones are dropped

// ---- the fold: what a chat shows of the events. Good enough to look at; the measure is the official client.
class Fold {
  constructor() { this.messages = []; this.state = undefined; this.open = new Set(); this.lanes = new Map(); this.steps = []; this.run = null; this.status = ""; this.interrupts = []; }
  find(id) { return this.messages.find((m) => m.id === id); }
  message(id, role) {
    let m = this.find(id);
    if (!m) { m = { id, role, content: "" }; this.messages.push(m); }
    return m;
  }
  call(id) { for (const m of this.messages) for (const c of m.toolCalls ?? []) if (c.id === id) return [c, m]; return [null, null]; }
  startCall(e, id) {
    if (this.call(id)[0]) return;
    const parent = e.parentMessageId && this.find(e.parentMessageId);
    const m = parent && parent.role === "assistant" ? parent : this.message(e.parentMessageId && !parent ? e.parentMessageId : id, "assistant");
    (m.toolCalls ??= []).push({ id, type: "function", function: { name: e.toolCallName ?? "", arguments: "" } });
  }
  say(id, delta) { const m = this.find(id); if (m && delta) m.content = (typeof m.content === "string" ? m.content : "") + delta; }
  args(id, delta) { const [c] = this.call(id); if (c && delta) c.function.arguments += delta; }
  closeLane(lane) { const l = this.lanes.get(lane); if (l) { this.open.delete(l.id); this.lanes.delete(lane); } }
  chunk(e, kind, id, begin, more) {
    const lane = e.subagentRunId ?? "";
    let l = this.lanes.get(lane);
    if (!l || l.kind !== kind || (id && id !== l.id)) { this.closeLane(lane); if (!id) return; begin(id); l = { kind, id }; this.lanes.set(lane, l); this.open.add(id); }
    more(l.id, e.delta);
  }
  snapshot(list) {
    const has = (role) => list.some((m) => m.role === role), next = new Map(list.map((m) => [m.id, m]));
    const kept = this.messages.filter((m) => next.has(m.id) || ((m.role === "activity" || m.role === "reasoning") && !has(m.role)));
    const known = new Set(kept.map((m) => m.id));
    this.messages = [...kept.map((m) => structuredClone(next.get(m.id) ?? m)), ...list.filter((m) => !known.has(m.id)).map((m) => structuredClone(m))];
  }
  apply(e) {
    if (/_(START|END|CONTENT|ARGS|RESULT|SNAPSHOT|DELTA)$|^STEP|^CUSTOM|^RUN_/.test(e.type) && !e.type.startsWith("ACTIVITY")) this.closeLane(e.subagentRunId ?? "");
    switch (e.type) {
      case "RUN_STARTED":
        this.run = e.runId; this.status = "running"; this.steps = []; this.open.clear(); this.lanes.clear();
        for (const m of e.input?.messages ?? []) if (!this.find(m.id)) this.messages.push(structuredClone(m));
        break;
      case "RUN_FINISHED": this.status = e.outcome?.type && e.outcome.type !== "success" ? e.outcome.type : "finished"; this.interrupts = e.outcome?.interrupts ?? []; this.open.clear(); this.steps = []; break;
      case "RUN_ERROR": this.status = "error: " + e.message; this.open.clear(); this.steps = []; break;
      case "STEP_STARTED": this.steps.push(e.stepName); break;
      case "STEP_FINISHED": this.steps = this.steps.filter((s) => s !== e.stepName); break;
      case "SUBAGENT_STARTED": this.steps.push("subagent " + (e.subagentName ?? e.name ?? e.subagentRunId)); break;
      case "SUBAGENT_FINISHED": case "SUBAGENT_ERROR": { const i = this.steps.findLastIndex((s) => s.startsWith("subagent ")); if (i >= 0) this.steps.splice(i, 1); break; }
      case "TEXT_MESSAGE_START": { const m = this.message(e.messageId, e.role ?? "assistant"); if (e.subagentRunId) m.name ??= e.subagentRunId; this.open.add(e.messageId); break; }
      case "TEXT_MESSAGE_CONTENT": case "REASONING_MESSAGE_CONTENT": this.say(e.messageId, e.delta); break;
      case "TEXT_MESSAGE_END": case "REASONING_MESSAGE_END": this.open.delete(e.messageId); break;
      case "TEXT_MESSAGE_CHUNK": this.chunk(e, "text", e.messageId, (id) => this.message(id, e.role ?? "assistant"), (id, d) => this.say(id, d)); break;
      case "REASONING_MESSAGE_START": this.message(e.messageId, "reasoning"); this.open.add(e.messageId); break;
      case "REASONING_MESSAGE_CHUNK": this.chunk(e, "reasoning", e.messageId, (id) => this.message(id, "reasoning"), (id, d) => this.say(id, d)); break;
      case "TOOL_CALL_START": this.startCall(e, e.toolCallId); this.open.add(e.toolCallId); break;
      case "TOOL_CALL_ARGS": this.args(e.toolCallId, e.delta); break;
      case "TOOL_CALL_END": this.open.delete(e.toolCallId); break;
      case "TOOL_CALL_CHUNK": this.chunk(e, "tool", e.toolCallId, (id) => this.startCall(e, id), (id, d) => this.args(id, d)); break;
      case "TOOL_CALL_RESULT": {
        const owner = this.call(e.toolCallId)[1]; let at = owner ? this.messages.indexOf(owner) + 1 : this.messages.length;
        while (owner && this.messages[at]?.role === "tool") at++;
        this.messages.splice(at, 0, { id: e.messageId, role: "tool", toolCallId: e.toolCallId, content: e.content }); break;
      }
      case "MESSAGES_SNAPSHOT": this.lanes.clear(); this.snapshot(e.messages); break;
      case "STATE_SNAPSHOT": this.state = structuredClone(e.snapshot); break;
      case "STATE_DELTA": this.state = patched(this.state, e.delta); break;
      case "ACTIVITY_SNAPSHOT": { const m = this.find(e.messageId); if (m && e.replace === false) break; Object.assign(this.message(e.messageId, "activity"), { role: "activity", activityType: e.activityType, content: structuredClone(e.content) }); break; }
      case "ACTIVITY_DELTA": { const m = this.find(e.messageId); if (m) m.content = patched(m.content, e.patch); break; }
    }
  }
}

// patched applies a JSON Patch to a copy; one that fails changes nothing.
function patched(doc, ops) {
  const root = { doc: structuredClone(doc) };
  const walk = (path) => {
    const parts = ["doc", ...path.split("/").slice(1).map((p) => p.replaceAll("~1", "/").replaceAll("~0", "~"))], last = parts.pop(); let at = root;
    for (const p of parts) { if (at === null || typeof at !== "object" || !Object.hasOwn(at, p)) throw new Error("no " + path); at = at[p]; }
    if (at === null || typeof at !== "object") throw new Error("no " + path);
    return [at, Array.isArray(at) && last === "-" ? at.length : last];
  };
  const get = (path) => { const [at, key] = walk(path); if (!Object.hasOwn(at, key)) throw new Error("no " + path); return at[key]; };
  const remove = (path) => { const v = get(path), [at, key] = walk(path); if (Array.isArray(at)) at.splice(Number(key), 1); else delete at[key]; return v; };
  const set = (path, v, insert) => { const [at, key] = walk(path); if (key === "__proto__") throw new Error(path); if (insert && Array.isArray(at)) at.splice(Number(key), 0, v); else at[key] = v; };
  try {
    for (const o of ops) {
      if (o.op === "add") set(o.path, o.value, true); else if (o.op === "replace") { get(o.path); set(o.path, o.value); } else if (o.op === "remove") remove(o.path);
      else if (o.op === "move") set(o.path, remove(o.from), true); else if (o.op === "copy") set(o.path, structuredClone(get(o.from)), true);
      else if (o.op === "test" && pretty(get(o.path)) !== pretty(o.value)) throw new Error("test");
    }
    return root.doc;
  } catch { return doc; }
}

// ---- the picture
let fold = new Fold(), dirty = false, target = null, auto = true;
const nodes = new Map();
// follow keeps a box at its end until somebody scrolls up; whatever grows meanwhile doesn't count as scrolling.
function follow(box) {
  let on = true, last = 0;
  box.addEventListener("scroll", () => { if (box.scrollTop < last - 1) on = false; if (box.scrollHeight - box.scrollTop - box.clientHeight < 40) on = true; last = box.scrollTop; });
  return () => { if (on) { box.scrollTop = box.scrollHeight; last = box.scrollTop; } };
}
const followTalk = follow($("talk")), followTimeline = follow($("timeline"));
function draw() {
  dirty = false;
  const seen = new Set(), list = $("messages");
  let at = 0;
  for (const m of fold.messages) {
    if (m.role === "tool" && fold.call(m.toolCallId)[0]) continue; // shown with its call
    const key = m.role + " " + m.id; if (seen.has(key)) continue; seen.add(key);
    let n = nodes.get(key);
    if (!n) { n = { li: el("li", m.role), is: "" }; nodes.set(key, n); }
    const calls = (m.toolCalls ?? []).map((c) => ({ c, open: fold.open.has(c.id), result: fold.messages.find((x) => x.role === "tool" && x.toolCallId === c.id)?.content }));
    const is = JSON.stringify([m, calls, fold.open.has(m.id)]);
    if (is !== n.is) { fill(n.li, m, calls); n.is = is; }
    if (list.children[at] !== n.li) list.insertBefore(n.li, list.children[at] ?? null);
    at++;
  }
  for (const [key, n] of nodes) if (!seen.has(key)) { n.li.remove(); nodes.delete(key); }
  $("state").textContent = fold.state === undefined ? "unknown" : pretty(fold.state);
  $("live").textContent = [fold.run && `${fold.run}: ${fold.status}`, ...fold.steps, ...fold.interrupts.map((i) => "waits for: " + (i.message ?? i.reason ?? i.id))].filter(Boolean).join("  ·  ");
  followTalk(); followTimeline();
}
function fill(li, m, calls) {
  const was = li.querySelector("details")?.open, open = fold.open.has(m.id), parts = [];
  const role = el("div", "role"); role.append(el("span", "", m.role === "activity" ? `activity ${m.activityType ?? ""}` : m.role), m.name ? el("span", "", m.name) : "");
  const text = typeof m.content === "string" ? m.content : m.content === undefined ? "" : null;
  if (m.role === "reasoning") {
    const d = el("details"); d.open = was ?? open; d.append(el("summary", "", open ? "reasoning …" : "reasoning"), el("div", "text" + (open ? " open" : ""), text ?? pretty(m.content))); parts.push(d);
  } else {
    parts.push(role);
    if (m.role === "activity" || text === null) parts.push(...body(m.content)); else if (text || open) parts.push(el("div", "text" + (open ? " open" : ""), text));
  }
  for (const { c, open, result } of calls) {
    const box = el("div", "call"), head = el("div"); head.append(el("b", "", c.function?.name || "tool"), el("span", "dim mono", "  " + c.id));
    box.append(head, el("pre", open ? "open" : "", loose(c.function?.arguments ?? "")));
    if (result !== undefined) box.append(el("div", "role", "result"), el("pre", "", typeof result === "string" ? loose(result) : pretty(result)));
    parts.push(box);
  }
  li.replaceChildren(...parts);
}
// body shows content that is no string: parts of a multimodal message, or an activity's JSON.
function body(content) {
  if (!Array.isArray(content)) return [el("pre", "", pretty(content))];
  return content.map((p) => (p?.type === "text" ? el("div", "text", p.text) : el("pre", "", pretty(p).slice(0, 2000))));
}
const redraw = () => { if (!dirty) { dirty = true; requestAnimationFrame(draw); } };

let rows = 0;
const matches = (li) => { const f = $("filter").value.trim().toLowerCase(); return !f || li.text.includes(f); };
function log(kind, id, value) {
  const li = el("li", kind === "control" ? "control " + value.control : value.type), d = el("details"), s = el("summary"), json = JSON.stringify(value);
  li.text = json.toLowerCase(); li.hidden = !matches(li); li.title = id ?? "restated";
  s.append(el("b", "", kind === "control" ? value.control : value.type), el("span", "", brief(value)));
  d.append(s); d.addEventListener("toggle", () => { if (d.open && d.children.length === 1) d.append(el("pre", "", (id ? id + "\n" : "") + pretty(value))); });
  li.append(d);
  const list = $("timeline");
  list.append(li); if (list.children.length > ROWS) list.firstChild.remove();
  $("count").textContent = ++rows;
}
function brief(v) { const { type, control, ...rest } = v; return rest.delta !== undefined && typeof rest.delta === "string" ? JSON.stringify(rest.delta) : JSON.stringify(rest).slice(0, 160); }

// ---- the connection
let socket = null, retry = 0, timer = 0, heard = 0, bracket = null;
const AGAIN = new Set([1001, 1005, 1006, 1011, 1012, 1013, 1015, 4404, 4408, 4410, 4429]); // docs/contract.md, section 3
function status(is, text) { $("status").dataset.is = is; $("connection").textContent = text; }
function clear() { fold = new Fold(); for (const n of nodes.values()) n.li.remove(); nodes.clear(); $("timeline").replaceChildren(); rows = 0; $("count").textContent = ""; $("position").textContent = ""; redraw(); }
function attach(to) {
  clearTimeout(timer); if (socket) { socket.onclose = socket.onmessage = null; socket.close(); }
  if (!target || target.id !== to.id || target.kind !== to.kind) { clear(); retry = 0; }
  target = to; document.title = `${to.id} · aguihub`;
  $("target").replaceChildren(to.kind + " ", el("b", "", to.id)); mark();
  status("wait", "connecting");
  bracket = null; heard = Date.now();
  const s = (socket = new WebSocket(`${location.origin.replace(/^http/, "ws")}/v1/${to.kind}s/${encodeURIComponent(to.id)}/ws`, "ag-ui.hub.v1.json"));
  s.onopen = () => status("wait", "waiting for the run");
  s.onmessage = (m) => { heard = Date.now(); for (const l of m.data.split("\n")) if (l) take(JSON.parse(l)); redraw(); };
  s.onclose = (c) => closed(c);
}
function closed(c) {
  socket = null;
  if (c.code === 1000) return status("", "ended");
  if (!AGAIN.has(c.code)) return status("bad", `closed: ${c.code} ${c.reason}`);
  const wait = Math.min(15, 2 ** retry++ * (c.code === 4404 ? 2 : 0.5)) * (0.75 + Math.random() / 2);
  status("bad", `${c.code === 4404 ? "unknown run" : "connection lost"} (${c.code}), again in ${wait.toFixed(1)} s`);
  timer = setTimeout(() => attach(target), wait * 1000);
}
function take(l) {
  if (l.event) { if (bracket) bracket.push(l); else event(l); return; }
  if (l.control !== "live") log("control", l.id, l);
  if (l.control === "attached") { status("wait", "catching up"); if (l.run) $("target").title = `run ${l.run}, history ${l.history}`; }
  else if (l.control === "catchup") bracket = l.mode === "events" ? null : Object.assign([], { fresh: l.mode === "fresh" });
  else if (l.control === "reset") { clear(); bracket = null; }
  else if (l.control === "live") {
    // The whole past at once: a reload never shows half of it, and a fresh attach takes the place of what was shown.
    if (bracket) { const past = bracket; bracket = null; if (past.fresh) fold = new Fold(); past.forEach(event); }
    log("control", l.id, l);
    if (l.id) $("position").textContent = l.id; status("live", "live"); retry = 0;
  } else if (l.control === "ended" && target.kind === "thread") status("live", "live, waiting for the next run");
}
function event(l) { if (l.id) $("position").textContent = l.id; fold.apply(l.event); log("event", l.id, l.event); if (l.event.type === "RUN_STARTED") status("live", "live"); }
setInterval(() => {
  if (!socket || socket.readyState !== WebSocket.OPEN) return;
  const silent = Date.now() - heard;
  if (silent > 55000) { const s = socket; s.onclose = null; s.close(); closed({ code: 1006 }); } else if (silent > 45000) socket.send('{"control":"ping"}');
}, 5000);

// ---- the list of runs, and what to look at
function mark() { for (const a of $("runs").querySelectorAll("a")) { const on = target && a.dataset[target.kind] === target.id; if (on) a.setAttribute("aria-current", "true"); else a.removeAttribute("aria-current"); } }
const ago = (ms) => { const s = Math.max(0, Math.round((Date.now() - ms) / 1000)); return s < 60 ? s + " s ago" : s < 3600 ? Math.round(s / 60) + " min ago" : new Date(ms).toLocaleString(); };
async function poll() {
  try {
    const answer = await (await fetch("v1/runs?limit=50")).json(), runs = answer.runs ?? [];
    $("norun").hidden = runs.length > 0;
    const focus = document.activeElement?.dataset?.run;
    $("runs").replaceChildren(...runs.map((r) => {
      const a = el("a"), row = el("div", "row"); a.href = "?run=" + encodeURIComponent(r.run); a.dataset.run = r.run; if (r.thread) a.dataset.thread = r.thread;
      row.append(el("span", "", r.run), el("span", "badge " + r.state, r.state)); a.append(row, el("small", "", [r.thread, `${r.entries} entries`, ago(r.startedAtMs)].filter(Boolean).join(" · ")));
      const li = el("li"); li.append(a); return li;
    }));
    if (focus) $("runs").querySelector(`[data-run="${CSS.escape(focus)}"]`)?.focus();
    const demo = runs.find((r) => r.thread && r.run.startsWith("demo-"));
    if (auto && demo && target?.id !== demo.thread) attach({ kind: "thread", id: demo.thread }); else mark();
  } catch { /* the connection's state says it */ }
  setTimeout(poll, 3000);
}
function fromLocation() {
  const q = new URLSearchParams(location.search); auto = !q.get("run") && !q.get("thread");
  if (!auto) attach(q.get("run") ? { kind: "run", id: q.get("run") } : { kind: "thread", id: q.get("thread") });
}
function go(kind, id) { history.pushState(null, "", `?${kind}=${encodeURIComponent(id)}`); fromLocation(); }
$("runs").addEventListener("click", (e) => { const a = e.target.closest("a"); if (!a || e.ctrlKey || e.metaKey || e.shiftKey) return; e.preventDefault(); go("run", a.dataset.run); });
$("open").addEventListener("submit", (e) => { e.preventDefault(); if ($("id").value.trim()) go($("kind").value, $("id").value.trim()); });
$("filter").addEventListener("input", () => { for (const li of $("timeline").children) li.hidden = !matches(li); });
addEventListener("keydown", (e) => { if (e.key === "/" && !/INPUT|SELECT|TEXTAREA/.test(e.target.tagName)) { e.preventDefault(); $("filter").focus(); } });
addEventListener("popstate", fromLocation);
fromLocation(); poll();
