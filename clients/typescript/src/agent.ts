import { AbstractAgent, type AgentStateMutation, type AgentSubscriber, type BaseEvent, type Message, type RunAgentInput } from "@ag-ui/client";
import type { RunAgentParameters, RunAgentResult } from "@ag-ui/client";
import { Observable } from "rxjs";
import { HubError, refusal } from "./errors.js";
import { Flight, type FlightHost } from "./flight.js";
import { Own, type Taking, withActivitiesOf } from "./keep.js";
import { Link, type LinkHost, type Target } from "./link.js";
import type { HubAgentOptions } from "./options.js";
import { baseOf, cancel, goesOn, request, type RunSummary, runsOf } from "./request.js";
import { type ConnectionStatus, freshStatus } from "./status.js";
import { backoff, defaultTiming, type Timing } from "./timing.js";
import type { Watch } from "./watch.js";

/** How often the bridge is asked again for a run, where it couldn't be reached or its answer was lost. */
const mostPosts = 3;

/** What watches a thread on behalf of all who asked. */
interface Watcher {
  link: Link;
  users: number;
  done: Promise<void>;
}

/**
 * An agent that lives at a hub. connectAgent() attaches to the thread's active run, or to the run given, wherever it
 * stands, and follows it over drops to its end; runAgent() starts a run through the hub's bridge, and the run outlives
 * the page. Leaving never ends a run: abortRun() does.
 */
export class HubAgent extends AbstractAgent implements LinkHost, FlightHost {
  // Set by setUp(), since a clone is made without a constructor.
  declare readonly options: HubAgentOptions;
  declare readonly timing: Timing;
  private declare own: Own;
  private declare added: Message[];
  private declare current: ConnectionStatus;
  private declare listeners: Set<(status: ConnectionStatus) => void>;
  private declare flight: Flight | undefined;
  private declare watcher: Watcher | undefined;
  private declare connecting: boolean;
  private declare runId: string | undefined;
  /** @internal What a run is asked with in place of the messages that the application calls the conversation. */
  declare restore: ((messages: Message[]) => Message[]) | undefined;

  constructor(options: HubAgentOptions) {
    super(options);
    this.setUp(options);
  }

  private setUp(options: HubAgentOptions, of?: HubAgent): void {
    Object.assign(this, {
      options: { ...options },
      timing: { ...defaultTiming, ...options.timing },
      own: new Own(of?.own),
      added: [],
      current: freshStatus(),
      listeners: new Set(),
      flight: undefined,
      watcher: undefined,
      connecting: false,
      runId: undefined,
      restore: of?.restore,
    });
  }

  /** A second agent with what this one holds, that isn't attached. */
  override clone(): HubAgent {
    const copy = super.clone() as HubAgent;
    copy.setUp(this.options, this);
    copy.isRunning = false;
    return copy;
  }

  // ---- what is known of the connection

  /** A copy of what is known of the connection now. */
  get connection(): ConnectionStatus {
    return { ...this.current, lag: this.lag };
  }

  /** The newest place that has been applied; null before the first. */
  get cursor(): string | null {
    return this.current.cursor;
  }

  /** Events that have come and aren't applied yet. */
  get lag(): number {
    return ((this.flight?.link ?? this.watcher?.link)?.waiting ?? 0) + (this.flight?.underWay ?? 0);
  }

  /** Connections after the first, of the present or last attach. */
  get reconnects(): number {
    return this.current.reconnects;
  }

  /** "partial" where the hub doesn't know what the conversation began with. */
  get history(): "full" | "partial" | null {
    return this.current.history;
  }

  /** Calls listener at each change of the connection, but for its cursor and its lag. Returns what ends that. */
  onConnectionState(listener: (status: ConnectionStatus) => void): () => void {
    this.listeners.add(listener);
    return () => void this.listeners.delete(listener);
  }

  /** @internal */
  report(patch: Partial<ConnectionStatus>): void {
    Object.assign(this.current, patch);
    const status = this.connection;
    for (const f of [this.options.onConnectionState, ...this.listeners]) f?.(status);
  }

  /** @internal */
  count(what: "reconnects" | "resets" | "lagged" | "skipped"): void {
    this.report({ [what]: this.current[what] + 1 });
  }

  /** @internal */
  applied(cursor: string | undefined): void {
    if (!cursor) return;
    this.current.cursor = cursor;
    this.options.onCursor?.(cursor);
  }

  // ---- attaching

  /**
   * Attaches to the active run, or the last one, and resolves at its end. A second call while the first goes on joins it:
   * there is one attachment. It begins with all that the run's conversation holds, so the agent needn't hold anything.
   */
  override connectAgent(parameters?: RunAgentParameters, subscriber?: AgentSubscriber): Promise<RunAgentResult> {
    const f = this.flight;
    if (f && this.connecting && (!f.detached || !f.begun)) {
      f.detached = false; // detached before it began: as a component does that React mounts twice
      if (subscriber) f.joined.push(subscriber);
      return f.promise as Promise<RunAgentResult>;
    }
    if (f) return f.settled.then(() => this.connectAgent(parameters, subscriber));
    if (this.watcher) return Promise.resolve({ result: undefined, newMessages: [] }); // between two runs
    return this.attach(parameters, subscriber);
  }

  private attach(parameters?: RunAgentParameters, subscriber?: AgentSubscriber): Promise<RunAgentResult> {
    this.connecting = true;
    return this.fly(() => super.connectAgent(parameters, subscriber));
  }

  /** Starts a run of the agent that is named in the options, and resolves at its end. */
  override async runAgent(parameters?: RunAgentParameters, subscriber?: AgentSubscriber): Promise<RunAgentResult> {
    if (this.flight && this.watcher) throw new HubError("run_active", "a run of the thread is active");
    if (this.flight) await this.detachActiveRun(); // without one a watch goes on: the run is shown over its connection
    await this.flight?.settled;
    return this.fly(() => super.runAgent(parameters, subscriber));
  }

  private fly(call: () => Promise<RunAgentResult>): Promise<RunAgentResult> {
    const f = (this.flight = new Flight(this, this.watcher !== undefined));
    this.added = [];
    if (!f.shared) this.current = { ...freshStatus(), cursor: this.current.cursor };
    const promise = call().finally(() => {
      f.end();
      if (this.flight === f) this.flight = undefined;
      this.connecting = false;
    });
    f.promise = promise;
    return promise;
  }

  protected override connect(input: RunAgentInput): Observable<BaseEvent> {
    const { runId } = this.options;
    return this.flight!.events(() => this.linkTo(runId ? { kind: "runs", id: runId } : { kind: "threads", id: input.threadId }));
  }

  override run(input: RunAgentInput): Observable<BaseEvent> {
    const f = this.flight;
    if (!f) throw new HubError("no_flight", "run() is for runAgent() to call");
    this.runId = input.runId;
    return f.events(
      () => this.linkTo({ kind: "runs", id: input.runId, fromStart: true }),
      (fail) => void this.post(input, f).catch(fail),
    );
  }

  /** The watched thread's link, or one of its own. */
  private linkTo(target: Target): Link {
    if (this.flight!.shared) return this.watcher!.link;
    const link = new Link(this, target);
    link.open();
    return link;
  }

  /**
   * Asks the bridge to start a run. Its answer isn't read: the run is read from the hub, like any other. Where the answer is
   * lost it is asked again: a run that is there already is the one that was asked for.
   */
  private async post(input: RunAgentInput, f: Flight): Promise<void> {
    const { agent } = this.options;
    if (!agent) throw new HubError("no_agent", "the options name no agent to run");
    const body = JSON.stringify(this.restore ? { ...input, messages: this.restore(input.messages) } : input);
    for (let failures = 0; ; failures++) {
      let answer: Response;
      try {
        answer = await this.request("/v1/agents/" + encodeURIComponent(agent), { method: "POST", body }, "text/event-stream");
      } catch (error) {
        if (f.link?.run === input.runId) return; // it got there
        if (failures === mostPosts) throw new HubError("unreachable", String(error));
        await new Promise((resolve) => setTimeout(resolve, backoff(this.timing, failures)));
        continue;
      }
      if (answer.ok) return void (await answer.body?.cancel());
      const why = await refusal(answer);
      if (failures > 0 && (why.code === "run_exists" || f.link?.run === input.runId)) return;
      throw why;
    }
  }

  /** Doesn't refuse because of interrupts that wait for an answer: to look at a thread is no answer. */
  protected override onInitialize(input: RunAgentInput, subscribers: AgentSubscriber[]): Promise<void> {
    if (!this.connecting) return super.onInitialize(input, subscribers);
    const pending = this.pendingInterrupts;
    this.pendingInterrupts = [];
    const done = super.onInitialize(input, subscribers); // looks at once
    this.pendingInterrupts = pending;
    return done;
  }

  /** Leaves the run, which goes on, and stops watching the thread. */
  override async detachActiveRun(): Promise<void> {
    const f = this.flight;
    this.watcher?.link.close();
    this.watcher = undefined;
    if (!f) return;
    f.detached = true;
    if (!f.begun) return; // it will find out, unless it is wanted again
    await super.detachActiveRun();
    f.leave();
  }

  // ---- the thread

  /**
   * Follows the agent's thread: connectAgent() for the run that is active or was the last, then for each that starts,
   * whoever starts it, over one connection. Several calls share one watch, which ends when each has stopped.
   */
  watchThread(): Watch {
    const w = (this.watcher ??= this.startWatcher());
    w.users++;
    let stopped = false;
    return {
      done: w.done,
      stop: async () => {
        if (!stopped) w.users--;
        stopped = true;
        await Promise.resolve(); // a component that React mounts twice is back by now
        if (w.users > 0 || this.watcher !== w) return;
        this.watcher = undefined;
        w.link.close();
        await this.detachActiveRun();
      },
    };
  }

  private startWatcher(): Watcher {
    this.current = { ...freshStatus(), cursor: this.current.cursor };
    const link = new Link(this, { kind: "threads", id: this.threadId });
    const w: Watcher = { link, users: 0, done: Promise.resolve() };
    w.done = Promise.resolve(this.flight?.settled).then(() => this.watch(w));
    w.done.catch(() => {}); // the status has it, too
    return w;
  }

  private async watch(w: Watcher): Promise<void> {
    const { link } = w;
    if (this.watcher === w) link.open();
    while (this.watcher === w) {
      await link.next();
      if (this.watcher !== w) return;
      if (this.flight) {
        await this.flight.settled; // of a runAgent()
        continue;
      }
      const step = link.steps[0];
      if (!step) {
        this.watcher = undefined;
        if (link.over?.error) throw link.over.error;
        return;
      }
      if (step.at >= step.events.length) {
        this.applied(step.cursor);
        link.steps.shift();
        continue;
      }
      const call = this.attach();
      const f = this.flight as Flight | undefined;
      try {
        await call;
      } catch (error) {
        if (this.watcher === w) this.watcher = undefined;
        link.close();
        throw error;
      }
      if (f && !f.clean && !link.over) link.restart(); // left amid a run: what is left of it has no beginning
    }
  }

  /** Breaks the connection, as a network may: the agent comes back with its cursor. To see what a drop does. */
  dropConnection(): void {
    (this.flight?.link ?? this.watcher?.link)?.cut();
  }

  // ---- ending a run

  /** Asks the hub to end the run, for everybody. The run ends with what its agent makes of that. */
  override abortRun(): void {
    this.cancelRun().catch((error: unknown) => this.report({ error: error instanceof HubError ? error : new HubError("cancel", String(error)) }));
  }

  /** Like abortRun(); resolves when the run has been asked, and rejects where it can't be. */
  async cancelRun(reason?: string): Promise<void> {
    const link = this.flight?.link ?? this.watcher?.link;
    const run = link?.run ?? this.runId ?? this.options.runId;
    if (!run) throw new HubError("no_run", "there is no run to cancel");
    try {
      const answer = await cancel(this.options, run, reason);
      if (!answer.ok) throw await refusal(answer);
    } catch (error) {
      if (error instanceof HubError) throw error;
      if (!link?.send({ control: "cancel", reason })) throw new HubError("unreachable", String(error));
    }
  }

  // ---- requests

  /** @internal */
  base(): string {
    return baseOf(this.options.url);
  }

  /** @internal */
  request(path: string, init: RequestInit, accept?: string): Promise<Response> {
    return request(this.options, path, init, accept);
  }

  /** @internal */
  runsOf(thread: string): Promise<RunSummary[] | undefined> {
    return runsOf(this.options, thread, this.timing.answer);
  }

  /** @internal */
  async anotherRuns(link: Link, ended: string | null): Promise<boolean> {
    const runs = await this.runsOf(link.target.id);
    const since = runs?.find((r) => r.run === ended)?.startedAtMs ?? 0;
    return runs?.some((r) => r.run !== ended && goesOn(r) && (r.startedAtMs ?? 0) >= since) ?? false;
  }

  // ---- the reducer

  protected override apply(input: RunAgentInput, events: Observable<BaseEvent>, subscribers: AgentSubscriber[]): Observable<AgentStateMutation> {
    const f = this.flight;
    if (!f) return super.apply(input, events, subscribers);
    const first: AgentSubscriber = {
      onEvent: ({ event, messages }) => (f.marked(event) ? { stopPropagation: true } : this.before(f, event, messages)),
    };
    const last: AgentSubscriber = {
      // Up to 0.0.57 the reducer adds a call again whose start is repeated to re-open it.
      onToolCallStartEvent: ({ event, messages }) =>
        this.repeatsCalls && messages.some((m) => m.role === "assistant" && m.toolCalls?.some((c) => c.id === event.toolCallId)) ? { stopPropagation: true } : undefined,
    };
    // The pipeline reads the same list when it tells of changes.
    const all = [first, ...subscribers, ...f.joined, last];
    subscribers.push(...f.joined);
    f.joined.length = 0;
    f.joined.push = (...more) => {
      all.splice(all.length - 1, 0, ...more);
      return subscribers.push(...more);
    };
    return super.apply(input, f.merge(events), all);
  }

  /** Looks at an event before the reducer takes it. */
  private before(f: Flight, event: BaseEvent, messages: readonly Message[]): AgentStateMutation | undefined {
    let mutation: AgentStateMutation | undefined;
    if (this.added.length > 0) {
      const ids = new Set(messages.map((m) => m.id));
      messages = [...messages, ...this.added.filter((m) => !ids.has(m.id))];
      this.added = [];
      mutation = { messages: messages as Message[] };
    }
    if (event.type === "MESSAGES_SNAPSHOT") {
      const snapshot = event as unknown as { messages: Message[] };
      const listed = snapshot.messages;
      const how = f.taking;
      f.taking = undefined;
      snapshot.messages = this.own.protect(listed, messages, how);
      if (how?.anew && !how.keepAll) mutation = { messages: [] };
      else if (this.keepsActivities) mutation = { ...mutation, messages: withActivitiesOf(snapshot.messages, messages) };
      if (how?.state) mutation = { ...mutation, state: {} };
      this.own.note({ ...event, messages: listed } as unknown as BaseEvent, messages);
      return mutation;
    }
    this.own.note(event, messages);
    return mutation;
  }

  /** @internal */
  forget(_taking: Taking): void {
    this.pendingInterrupts = [];
  }

  override addMessage(message: Message): void {
    if (this.flight) this.added.push(message); // the reducer has a list of its own
    super.addMessage(message);
  }

  override addMessages(messages: Message[]): void {
    if (this.flight) this.added.push(...messages);
    super.addMessages(messages);
  }

  /** The version of the official client, as a number that compares: 1.0.0 is 1_000_000, 0.0.57 is 57. */
  private get version(): number {
    const agent = this as unknown as { maxProtocolVersion?: string; maxVersion?: string };
    return (agent.maxProtocolVersion ?? agent.maxVersion ?? "0").split(".").reduce((n, part) => n * 1000 + (parseInt(part, 10) || 0), 0);
  }

  private get repeatsCalls(): boolean {
    return this.version <= 57;
  }

  // Up to 0.0.57 the reducer keeps the activities that it holds, whatever a snapshot says of them.
  private get keepsActivities(): boolean {
    return this.version <= 57;
  }

  /** @internal */
  get goesOnAfterError(): boolean {
    return this.version >= 59;
  }
}
