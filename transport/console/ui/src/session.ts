import type { AgentSubscriber, BaseEvent, Message, ResumeEntry } from "@ag-ui/client";
import { type ConnectionStatus, HubAgent, HubError, type Line, type Watch } from "@aguihub/client";
import { later, soon } from "./draw";
import { type Earlier, earlierRuns, ending, lastOf } from "./earlier";
import { grow } from "./grow";
import { base, type Detail, get, tokens } from "./hub";
import { Timeline } from "./timeline";

/** What is looked at. */
export interface Target {
  kind: "run" | "thread";
  id: string;
}

/** What is known of the run that is shown. */
export interface RunView {
  id: string;
  thread: string;
  state: "running" | "finished" | "error" | "cancelled" | "interrupted";
  error: string;
}

/** Of how many events the latency is told, and for how long a rate is told: milliseconds. */
const samples = 64;
const second = 1_000;

/** How soon the hub is asked for details again, in milliseconds. */
const detailPace = 1_000;

type Fields = Record<string, unknown>;

/** One attach: the official client's fold by our agent, and what came over the wire. Ended by {@link stop}. */
export class Session {
  readonly agent: HubAgent;
  readonly timeline = new Timeline();
  status: ConnectionStatus;
  run: RunView | undefined;
  /** Ids of messages, calls and steps that are open. */
  readonly open = new Set<string>();
  steps: string[] = [];
  /** A state has been told. */
  stateKnown = false;
  /** The attach is over: nothing more will come. */
  over = false;
  failure: HubError | undefined;
  detail: Detail | undefined;
  /** How runs ended that were cancelled or failed, by the message that was the last one then. */
  readonly ends = new Map<string, Readonly<RunView>>();
  /** What somebody unfolded or folded, by the keys of what is shown. */
  readonly folds = new Map<string, boolean>();
  private watch: Watch | undefined;
  private askedEarlier = false;
  /** Runs that ended so before this attach, whose place isn't found yet. */
  private earlier: Earlier[] = [];
  private catchingUp = true;
  private latencies: number[] = [];
  private arrivals: number[] = [];
  private detailAt = 0;
  private detailTimer: ReturnType<typeof setTimeout> | undefined;
  private stopped = false;

  constructor(readonly target: Target) {
    this.agent = new HubAgent({
      url: base,
      ...(target.kind === "run" ? { runId: target.id } : { threadId: target.id }),
      getToken: tokens(),
      onLine: (line) => this.line(line),
      onConnectionState: (status) => {
        this.status = status;
        later();
      },
    });
    this.status = this.agent.connection;
    this.agent.subscribe(this.subscriber);
    if (target.kind === "thread") {
      this.watch = this.agent.watchThread();
      this.watch.done.catch((error: unknown) => this.fail(error));
    } else {
      this.agent.connectAgent().then(
        () => this.end(),
        (error: unknown) => this.fail(error),
      );
    }
  }

  stop(): void {
    this.stopped = true;
    clearTimeout(this.detailTimer);
    void (this.watch ? this.watch.stop() : this.agent.detachActiveRun());
  }

  private end(): void {
    this.over = true;
    this.status = this.agent.connection;
    later();
  }

  private fail(error: unknown): void {
    if (this.stopped) return;
    this.failure = error instanceof HubError ? error : new HubError("client", String(error));
    this.end();
  }

  get running(): boolean {
    return this.run?.state === "running";
  }

  /** The run has entries, and none that begins it. */
  get unbegun(): boolean {
    return !this.run && this.target.kind === "run" && (this.detail?.entries ?? 0) > 0;
  }

  get messages(): readonly Message[] {
    return this.agent.messages;
  }

  /** The middle of the last events' latencies in milliseconds, from their entry's time to their arrival. */
  get latency(): number | undefined {
    if (this.latencies.length === 0) return undefined;
    return this.latencies.toSorted((a, b) => a - b)[this.latencies.length >> 1];
  }

  /** Events of the last second. */
  get rate(): number {
    const since = performance.now() - second;
    const first = this.arrivals.findIndex((t) => t >= since);
    this.arrivals = first < 0 ? [] : this.arrivals.slice(first);
    return this.arrivals.length;
  }

  // ---- the wire

  private line(line: Line): void {
    this.timeline.push(line);
    if ("event" in line) {
      this.arrivals.push(performance.now());
      if (line.id && !this.catchingUp) {
        this.latencies.push(Date.now() - parseInt(line.id, 10));
        if (this.latencies.length > samples) this.latencies.shift();
      }
    } else if (line.control === "catchup") this.catchingUp = true;
    else if (line.control === "live") this.catchingUp = false;
    else if (line.control === "attached" || line.control === "skipped" || line.control === "ended") this.askDetail();
    later();
  }

  /** Asks the hub what it knows of the run, soon and not too often. */
  private askDetail(): void {
    if (this.detailTimer !== undefined || this.stopped) return;
    this.detailTimer = setTimeout(
      async () => {
        this.detailTimer = undefined;
        this.detailAt = Date.now();
        const run = this.target.kind === "run" ? this.target.id : (this.run?.id ?? this.status.run); // status.run is of the last attach
        if (!run) return;
        const detail = await get<Detail>("/v1/runs/" + encodeURIComponent(run)).catch(() => undefined);
        if (this.target.kind === "run" || !this.run || this.run.id === run) this.detail = detail ?? this.detail;
        later();
      },
      Math.max(50, this.detailAt + detailPace - Date.now()),
    );
  }

  // ---- what is open, as the client's pipeline tells it

  private readonly subscriber: AgentSubscriber = {
    onEvent: ({ event, messages }) => {
      this.take(event, messages);
      later();
      const grown = grow(event, messages, this.agent.messages);
      if (!grown) return undefined;
      this.agent.messages = grown;
      return { stopPropagation: true };
    },
    onStateChanged: later,
    onMessagesChanged: () => {
      if (this.earlier.length > 0) this.place();
      later();
    },
  };

  /** Asks once how earlier runs of the thread ended, which snapshots don't tell. Where the hub doesn't say it isn't shown. */
  private async askEarlier({ thread, id }: RunView): Promise<void> {
    if (this.askedEarlier) return;
    this.askedEarlier = true;
    this.earlier = await earlierRuns(thread, id).catch(() => []);
    this.place();
    later();
  }

  /** Finds the places of earlier runs among the messages; of what isn't there when all has been applied there is none. */
  private place(): void {
    this.earlier = this.earlier.filter((e) => {
      const last = lastOf(e, this.agent.messages);
      if (last === undefined) return this.agent.lag > 0;
      if (!this.ends.has(last)) this.ends.set(last, e.view);
      return false;
    });
  }

  private take(event: BaseEvent, messages: readonly Message[]): void {
    const e = event as unknown as Fields;
    switch (event.type as string) {
      case "RUN_STARTED":
        this.clear();
        if (this.detail?.run !== e["runId"]) this.detail = undefined; // it was told of the run before
        this.run = { id: String(e["runId"]), thread: String(e["threadId"]), state: "running", error: "" };
        void this.askEarlier(this.run);
        return this.askDetail();
      case "RUN_FINISHED":
      case "RUN_ERROR":
        this.clear();
        if (this.run) this.endRun(this.run, ending(e), messages.at(-1)?.id);
        return this.askDetail();
      case "TEXT_MESSAGE_START":
      case "REASONING_MESSAGE_START":
        return void this.open.add(String(e["messageId"]));
      case "TEXT_MESSAGE_END":
      case "REASONING_MESSAGE_END":
        return void this.open.delete(String(e["messageId"]));
      case "TOOL_CALL_START":
        return void this.open.add(String(e["toolCallId"]));
      case "TOOL_CALL_END":
        return void this.open.delete(String(e["toolCallId"]));
      case "STEP_STARTED":
        this.steps = [...this.steps, String(e["stepName"])];
        return;
      case "STEP_FINISHED":
        return this.leave(String(e["stepName"]));
      case "SUBAGENT_STARTED":
        this.steps = [...this.steps, "subagent " + String(e["subagentName"] ?? e["name"] ?? e["subagentRunId"])];
        return;
      case "SUBAGENT_FINISHED":
      case "SUBAGENT_ERROR":
        return this.leave(this.steps.findLast((s) => s.startsWith("subagent ")) ?? "");
      case "STATE_SNAPSHOT":
      case "STATE_DELTA":
        this.stateKnown = true;
    }
  }

  private endRun(run: RunView, how: Partial<RunView>, last: string | undefined): void {
    Object.assign(run, how);
    if (last !== undefined && (run.state === "cancelled" || run.state === "error")) this.ends.set(last, { ...run });
  }

  private leave(step: string): void {
    const i = this.steps.lastIndexOf(step);
    if (i >= 0) this.steps = this.steps.toSpliced(i, 1);
  }

  private clear(): void {
    this.open.clear();
    this.steps = [];
  }

  // ---- what somebody does

  /** Asks the hub to end the run, for everybody. */
  async cancel(): Promise<void> {
    await this.agent.cancelRun("from the console");
  }

  /** Answers the thread's interrupts, all of them, by a run of an agent of the hub. */
  async answer(resume: ResumeEntry[], agent: string): Promise<void> {
    this.agent.options.agent = agent;
    await this.agent.runAgent({ resume });
  }

  /** Says something to an agent of the hub, in this thread. */
  async say(text: string, agent: string): Promise<void> {
    this.agent.options.agent = agent;
    const message = { id: crypto.randomUUID(), role: "user" as const, content: text };
    this.agent.addMessage(message);
    soon();
    try {
      await this.agent.runAgent();
    } catch (error) {
      // What wasn't heard isn't part of the conversation.
      if (!this.run || this.run.state !== "error") this.agent.setMessages(this.agent.messages.filter((m) => m.id !== message.id));
      throw error;
    }
  }
}
