import "./strict";
import type { ResumeEntry } from "@ag-ui/client";
import { Component, render } from "preact";
import { Composer } from "./composer";
import { Conversation } from "./conversation";
import { notice, say } from "./copy";
import { Help, TokenForm } from "./dialogs";
import { now, soon, start } from "./draw";
import { Header, Strip } from "./header";
import { get, type Hint, onTokenNeeded } from "./hub";
import { Inspector, type Tab, tabs } from "./inspector";
import { goOffline, offline } from "./network";
import { Runs } from "./runs";
import { Session, type Target } from "./session";
import { Sidebar } from "./sidebar";
import { nextTheme, theme, useTheme } from "./theme";
import { Welcome } from "./welcome";

/** Threads of the demo agent: the page follows them until somebody chooses something. */
const demo = /^demo(-thread-\d+)?$/;

class App extends Component {
  private session: Session | undefined;
  private target: Target | undefined;
  /** Nobody has chosen anything. */
  private auto = true;
  private tab: Tab = "Timeline";
  private list: "runs" | "threads" = "threads";
  private pane: "list" | "talk" | "inspector" = "talk"; // of narrow screens
  private help = false;
  private agents: readonly string[] = [];
  private chosen = "";
  private hint: Hint | undefined;
  private giveToken: ((token: string | undefined) => void) | undefined;
  private refused = false; // the token that was there
  private readonly runs = new Runs(() => this.follow());

  override componentDidMount(): void {
    addEventListener("popstate", () => this.read());
    addEventListener("keydown", this.keys);
    onTokenNeeded((refused) => new Promise((resolve) => {
      this.refused = refused;
      this.giveToken = (token) => {
        this.giveToken = undefined;
        resolve(token);
        setTimeout(() => this.attach(this.target)); // what had failed for want of it
        soon();
      };
      soon();
    }));
    setInterval(soon, 1_000); // figures age
    this.read();
    this.runs.refresh();
    get<Hint>("/console.json").then((hint) => { this.hint = hint; soon(); }, () => {});
    get<{ agents: { name: string }[] }>("/v1/agents").then(({ agents }) => { this.agents = agents.map((a) => a.name); soon(); }, () => {});
  }

  /** Looks at what the address names. */
  private read(): void {
    const q = new URLSearchParams(location.search);
    const run = q.get("run");
    const thread = q.get("thread");
    this.auto = !run && !thread;
    if (this.auto) this.attach(undefined);
    else {
      this.list = run ? "runs" : "threads";
      this.attach(run ? { kind: "run", id: run } : { kind: "thread", id: thread! });
    }
    this.follow();
  }

  /** Follows the demo agent from thread to thread, as long as nobody has chosen anything. */
  private follow(): void {
    if (!this.auto) return;
    const newest = this.runs.threads.find((t) => demo.test(t.thread));
    if (newest && newest.thread !== this.target?.id) this.attach({ kind: "thread", id: newest.thread });
  }

  private attach(target: Target | undefined): void {
    if (target && this.target?.kind === target.kind && this.target.id === target.id && !this.session?.failure) return;
    this.session?.stop();
    this.target = target;
    this.session = target && new Session(target);
    document.title = target ? `${target.id} · aguihub` : "aguihub";
    soon();
  }

  private readonly go = (target: Target | undefined) => {
    history.pushState(null, "", target ? `?${target.kind}=${encodeURIComponent(target.id)}` : location.pathname);
    this.pane = "talk";
    this.read();
  };

  private step(by: number): void {
    const ids = this.list === "runs" ? this.runs.list.map((r) => r.run) : this.runs.threads.map((t) => t.thread);
    const kind = this.list === "runs" ? "run" : "thread";
    const at = this.target?.kind === kind ? ids.indexOf(this.target.id) : -1;
    const id = ids[Math.max(0, at + by)];
    if (id !== undefined) this.go({ kind, id });
  }

  private readonly act = {
    drop: () => this.session?.agent.dropConnection(),
    offline: () => { goOffline(!offline); soon(); },
    cancel: () => this.session?.cancel().then(() => say("Asked the agent to end the run"), (e: unknown) => say(e instanceof Error ? e.message : String(e))),
    theme: () => { useTheme(nextTheme()); soon(); },
    help: () => { this.help = true; now(); },
    home: () => this.go(undefined),
  };

  private readonly keys = (e: KeyboardEvent) => {
    const field = (e.target as HTMLElement).closest?.("input, textarea, select");
    if (e.key === "Escape" && field) return (field as HTMLElement).blur();
    if (field || e.ctrlKey || e.metaKey || e.altKey || document.querySelector("dialog[open]")) return;
    const what: Record<string, () => unknown> = {
      "/": () => { this.tab = "Timeline"; this.pane = "inspector"; now(); document.getElementById("filter")?.focus(); },
      "?": this.act.help,
      j: () => this.step(1),
      k: () => this.step(-1),
      d: this.act.drop,
      o: this.act.offline,
      t: this.act.theme,
      c: () => document.getElementById("compose")?.focus(),
      e: () => document.querySelector<HTMLElement>(".to-end")?.click(),
      X: () => { if (this.session?.running) this.act.cancel(); },
    };
    const tab = tabs[Number(e.key) - 1];
    const does = tab ? () => { this.tab = tab; this.pane = "inspector"; now(); } : what[e.key];
    if (!does) return;
    e.preventDefault();
    does();
  };

  /** Says something in the thread that is shown, or in a new one. */
  private readonly send = async (text: string) => {
    const s = this.session;
    const agent = this.agent!;
    const thread = s && (s.target.kind === "thread" ? s.target.id : (s.detail?.thread ?? s.run?.thread));
    if (!s || s.target.kind !== "thread" || this.auto) this.go({ kind: "thread", id: this.auto || !thread ? "console-" + crypto.randomUUID().slice(0, 8) : thread });
    sessionStorage.setItem(this.agentKey, agent);
    await this.session!.say(text, agent);
    this.runs.refresh();
  };

  private readonly answer = async (resume: ResumeEntry[]) => {
    await this.session!.answer(resume, this.agent!);
    this.runs.refresh();
  };

  /** Where the choice of an agent is kept: a conversation goes on with its own, also after a reload. */
  private get agentKey(): string {
    return `aguihub-agent ${this.target?.kind} ${this.target?.id}`;
  }

  /** The agent that is spoken to; undefined where the hub knows none. */
  private get agent(): string | undefined {
    return [sessionStorage.getItem(this.agentKey) ?? "", this.chosen].find((a) => this.agents.includes(a)) ?? this.agents[0];
  }

  /** Why nothing can be said now. */
  private get busy(): string {
    const s = this.auto ? undefined : this.session;
    if (s?.running) return "A run is active";
    return s && s.agent.pendingInterrupts.length > 0 ? "Answer first what is asked above" : "";
  }

  private choose(tab: Tab): void {
    this.tab = tab;
    now();
  }

  override render() {
    const { session, runs } = this;
    return (
      <div class={"app pane-" + this.pane}>
        <Header session={session} offline={offline} theme={theme} act={this.act} />
        <div class="panes" role="group" aria-label="Panes">
          {(["list", "talk", "inspector"] as const).map((p) => <button key={p} aria-pressed={this.pane === p} onClick={() => { this.pane = p; soon(); }}>{{ list: "Runs", talk: "Conversation", inspector: "Inspector" }[p]}</button>)}
        </div>
        <Sidebar runs={runs} list={runs.list} target={this.target} view={this.list} minute={Math.floor(Date.now() / 10_000)}
          onView={(v) => { this.list = v; soon(); }} onTarget={this.go} />
        <main>
          {session ? <><Strip session={session} /><Conversation key={session.target.kind + " " + session.target.id} session={session} agent={this.agent} onAnswer={this.answer} /></> : <Welcome hint={this.hint} empty={runs.known && runs.list.length === 0} />}
          {this.agent && <Composer agents={this.agents} agent={this.agent} onAgent={(a) => { sessionStorage.setItem(this.agentKey, this.chosen = a); soon(); }} busy={this.busy} onSend={this.send} />}
        </main>
        {session && <Inspector session={session} tab={this.tab} onTab={(t) => this.choose(t)} runs={runs.list} onRun={(id) => this.go({ kind: "run", id })} />}
        <div class="notice" role="status" aria-live="polite">{notice}</div>
        {this.help && <Help onClose={() => { this.help = false; soon(); }} />}
        {this.giveToken && <TokenForm refused={this.refused} onToken={this.giveToken} />}
      </div>
    );
  }
}

useTheme(theme);
const root = document.createElement("div");
root.id = "root";
document.body.append(root);
start(() => render(<App />, root));
