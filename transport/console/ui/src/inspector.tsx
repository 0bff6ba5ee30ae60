import { Component, createRef } from "preact";
import { copy } from "./copy";
import { soon } from "./draw";
import { isActive, type Run } from "./hub";
import type { Session } from "./session";
import { brief, families, type Row } from "./timeline";
import { VirtualList } from "./virtual";
import { Long } from "./text";
import { Watched } from "./watched";

export const tabs = ["Timeline", "State", "Withheld", "Run"] as const;
export type Tab = (typeof tabs)[number];

interface InspectorProps {
  session: Session;
  tab: Tab;
  onTab(tab: Tab): void;
  runs: readonly Run[];
  onRun(run: string): void;
}

/** What an agent's developer wants to know beside the conversation. */
export class Inspector extends Component<InspectorProps> {
  override render({ session, tab, onTab, runs, onRun }: InspectorProps) {
    const counts: Partial<Record<Tab, number>> = { Timeline: session.timeline.total, Withheld: withheldOf(session) };
    const turn = (e: KeyboardEvent) => {
      const step = e.key === "ArrowRight" ? 1 : e.key === "ArrowLeft" ? -1 : 0;
      if (!step) return;
      onTab(tabs[(tabs.indexOf(tab) + step + tabs.length) % tabs.length]!);
      document.querySelector<HTMLElement>("[role=tab][aria-selected=true]")?.focus();
    };
    return (
      <aside class="inspector" aria-label="Inspector">
        <div class="tabs" role="tablist" onKeyDown={turn}>
          {tabs.map((t) => (
            <button key={t} role="tab" id={"tab-" + t} aria-selected={t === tab} aria-controls="panel" tabIndex={t === tab ? 0 : -1} onClick={() => onTab(t)}>
              {t}
              {counts[t] ? <span class={"count" + (t === "Withheld" ? " warn" : "")}>{counts[t]}</span> : null}
            </button>
          ))}
        </div>
        <div class="panel" id="panel" role="tabpanel" aria-labelledby={"tab-" + tab}>
          {tab === "Timeline" && <TimelineView session={session} />}
          {tab === "State" && <StateView session={session} />}
          {tab === "Withheld" && <WithheldView session={session} />}
          {tab === "Run" && <RunInfo session={session} runs={runs} onRun={onRun} />}
        </div>
      </aside>
    );
  }
}

/** Entries of the run that the hub withheld: as the hub says, or as this attach was told where that is newer. */
function withheldOf(session: Session): number {
  return Object.values(session.detail?.withheldByReason ?? {}).reduce((a, b) => a + b, 0);
}

class TimelineView extends Component<{ session: Session }> {
  private readonly list = createRef<VirtualList<Row>>();
  private chosen: Row | undefined;

  private choose(row: Row | undefined): void {
    this.chosen = row;
    soon();
  }

  private readonly keys = (e: KeyboardEvent) => {
    const rows = this.props.session.timeline.shown;
    const at = this.chosen ? rows.indexOf(this.chosen) : -1;
    const to = { ArrowDown: at < 0 ? rows.length - 1 : at + 1, ArrowUp: at < 0 ? rows.length - 1 : at - 1, Home: 0, End: rows.length - 1 }[e.key];
    if (e.key === "Escape" && this.chosen) {
      e.stopPropagation();
      this.choose(undefined);
    }
    const row = to === undefined ? undefined : rows[to];
    if (to === undefined || !row) return;
    e.preventDefault();
    this.choose(row);
    this.list.current?.show(to);
  };

  override componentWillReceiveProps(next: { session: Session }): void {
    if (next.session !== this.props.session) this.chosen = undefined;
  }

  override render({ session }: { session: Session }) {
    const { timeline: t } = session;
    const chosen = this.chosen;
    return (
      <>
        <div class="filter">
          <input id="filter" type="search" value={t.text} placeholder="Filter by type, text or id" aria-label="Filter the timeline" spellcheck={false} autocomplete="off"
            onInput={(e) => t.filter(e.currentTarget.value)} />
          <div class="chips" role="group" aria-label="Kinds of events">
            {families.map((f) => (
              <button key={f} class={"chip " + f} aria-pressed={!t.hidden.has(f)} onClick={() => { t.filter(t.text, f); soon(); }}>{f}</button>
            ))}
          </div>
        </div>
        <VirtualList handle={this.list} class="timeline" role="listbox" rowRole="presentation" label="Events, oldest first" items={t.shown} keyOf={(r) => r.n} estimate={24} even
          onKeyDown={this.keys} active={chosen && "row-" + chosen.n}
          row={(r) => (
            <div id={"row-" + r.n} class={`row ${r.family}${r === chosen ? " chosen" : ""}`} role="option" aria-selected={r === chosen} onClick={() => this.choose(r === chosen ? undefined : r)}>
              <span class="when">{clock(r.at)}</span>
              <span class="type">{r.type}</span>
              <span class="brief">{brief(r)}</span>
            </div>
          )}
        />
        <div class="status-line dim" role="status">
          {t.searching ? "searching …" : t.shown.length === t.rows.length ? `${t.rows.length} lines` : `${t.shown.length} of ${t.rows.length} lines`}
          {t.gone > 0 && ` · ${t.gone} older ones let go`}
        </div>
        {chosen && <RowDetail row={chosen} onClose={() => this.choose(undefined)} />}
      </>
    );
  }
}

function RowDetail({ row, onClose }: { row: Row; onClose(): void }) {
  const pretty = row.json.length < 200_000 ? JSON.stringify(JSON.parse(row.json), null, 2) : row.json;
  return (
    <section class="detail" aria-label="The chosen event">
      <header>
        <b>{row.type}</b>
        <span class="dim mono">{row.id ? `${row.id.split(".")[0]}, of ${clock(parseInt(row.id, 10))}, here ${clock(row.at)}` : row.family === "control" ? "control line" : "restated"}</span>
        <button onClick={() => copy(row.json)}>Copy</button>
        <button onClick={onClose} aria-label="Close">✕</button>
      </header>
      <Long key={row.n} class="mono" text={pretty} />
    </section>
  );
}

function clock(ms: number): string {
  const at = new Date(ms);
  const two = (n: number) => String(n).padStart(2, "0");
  return isNaN(at.getTime()) ? "" : `${two(at.getHours())}:${two(at.getMinutes())}:${two(at.getSeconds())}.${String(at.getMilliseconds()).padStart(3, "0")}`;
}

function StateView({ session }: { session: Session }) {
  const { state } = session.agent;
  if (!session.stateKnown) return <p class="hint">No state yet. An agent shows it by <code>STATE_SNAPSHOT</code> and <code>STATE_DELTA</code>.</p>;
  return <div class="scroll" tabIndex={0}><Watched key={session.target.kind + session.target.id} value={state} label="State" /></div>;
}

function WithheldView({ session }: { session: Session }) {
  const { detail } = session;
  const list = detail?.withheld ?? [];
  if (withheldOf(session) === 0) {
    return <p class="hint">Nothing withheld. What the official client would reject isn't sent to anybody; it would stand here, with the reason.</p>;
  }
  return (
    <div class="scroll" tabIndex={0}>
      <p class="hint">Not sent, since the official client would have rejected it. <code>aguihub check {detail!.run}</code> says how to mend it.</p>
      <ul class="reasons">{Object.entries(detail!.withheldByReason).map(([r, n]) => <li key={r}><span class="chip withheld">{r}</span> {n}</li>)}</ul>
      <ol class="withheld-list">
        {list.map((w, i) => (
          <li key={i}>
            <span class="chip withheld">{w.reason}</span> <span class="dim mono">{w.id.split(".")[0]}</span>
            {w.detail && <Long text={w.detail} />}
          </li>
        ))}
      </ol>
      {withheldOf(session) > list.length && <p class="hint">The hub lists the first {list.length}; it counts all.</p>}
    </div>
  );
}

function RunInfo({ session, runs, onRun }: { session: Session; runs: readonly Run[]; onRun(run: string): void }) {
  const { detail: d, status } = session;
  const thread = session.target.kind === "thread" ? session.target.id : d?.thread;
  const siblings = thread ? runs.filter((r) => r.thread === thread) : [];
  const facts: [string, string | number | undefined][] = [
    ["Run", d?.run],
    ["Thread", thread],
    ["Parent", d?.parent],
    ["State", d?.state],
    ["Entries", d && Math.max(d.entries, runs.find((r) => r.run === d.run)?.entries ?? 0)], // the list is asked for more often
    ["Started", d?.startedAtMs && new Date(d.startedAtMs).toLocaleString()],
    ["History", status.history === "partial" ? "partial: the hub doesn't know what the conversation began with" : (status.history ?? undefined)],
    ["Cursor", status.cursor ?? undefined],
    ["Hub", status.hub ?? undefined],
    ["Transport", status.transport ?? undefined],
    ["Reconnects", status.reconnects],
    ["Resets", status.resets],
    ["Lagged", status.lagged],
  ];
  return (
    <div class="scroll" tabIndex={0}>
      <dl class="facts">{facts.map(([k, v]) => v !== undefined && v !== "" && <div key={k}><dt>{k}</dt><dd class={typeof v === "number" ? "" : "mono"}>{v}</dd></div>)}</dl>
      {siblings.length > 0 && <h3>Runs of the thread</h3>}
      <ul class="siblings">
        {siblings.map((r) => <li key={r.run}><a href={"?run=" + encodeURIComponent(r.run)} onClick={(e) => { if (e.ctrlKey || e.metaKey) return; e.preventDefault(); onRun(r.run); }}>{r.run}</a> <span class={"state " + r.state}>{isActive(r.state) ? r.state.replace("_", " ") : r.state}</span> <span class="dim">{r.entries} entries</span></li>)}
      </ul>
    </div>
  );
}
