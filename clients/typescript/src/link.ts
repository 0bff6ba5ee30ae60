import type { BaseEvent } from "@ag-ui/client";
import { type Closed, closeError, isFinal } from "./close.js";
import { HubError } from "./errors.js";
import type { Catchup, HubAgentOptions, TokenRequest } from "./options.js";
import { openSocket } from "./socket.js";
import { openStream } from "./sse.js";
import type { ConnectionStatus } from "./status.js";
import { backoff, type Timing } from "./timing.js";
import type { Control, Line, Mode, Wire } from "./wire.js";

/** What is attached to. */
export interface Target {
  kind: "runs" | "threads";
  id: string;
  /** A run that is watched from its first event, by a client that has all that came before. Where it must begin anew it gets all. */
  fromStart?: boolean;
}

/** What belongs together: a bracket as a whole, or the events of one entry. */
export interface Step {
  mode: Mode;
  events: BaseEvent[];
  /** How many of the events have been taken already. */
  at: number;
  /** The place behind it; undefined where there is none. */
  cursor: string | undefined;
  /** What came before is void. */
  reset: boolean;
  /** There is no run to show: the thread has none yet. */
  idle: boolean;
}

/** What a link needs of its agent. */
export interface LinkHost {
  readonly options: HubAgentOptions;
  readonly timing: Timing;
  base(): string;
  report(patch: Partial<ConnectionStatus>): void;
  count(what: "reconnects" | "resets" | "lagged" | "skipped"): void;
  /** A thread's runs, as the look-up tells them; undefined where it couldn't. */
  runsOf(thread: string): Promise<{ run: string; state: string }[] | undefined>;
}

/** Handshakes that must fail before WebSockets count as blocked: two, or more where they have worked before. */
const failuresBlocked = 2;
const failuresUnlikely = 6;

/** A connection that has lived for so long was a good one: the next wait begins small again. Milliseconds. */
const goodAfter = 1_000;

/**
 * A subscription to a run or a thread that survives drops: it connects again with the cursor of the last step. Its steps
 * wait in a queue, in order, each once, without a gap; whoever takes them calls {@link next} when there are none.
 */
export class Link {
  readonly steps: Step[] = [];
  /** Set when nothing more will come: the run's end, or an error. */
  over: { error?: HubError } | undefined;
  /** The run that the hub said it is at. */
  run: string | null = null;
  history: "full" | "partial" | null = null;
  /** The hub has answered for the target. */
  attached = false;

  private position = "";
  private wire: Wire | undefined;
  private sequence = 0; // of connections: what an earlier one still tells is not listened to
  private part: BaseEvent[] = [];
  private bracket: Mode | undefined;
  private resetting = false;
  private waiters: (() => void)[] = [];
  private timer: ReturnType<typeof setTimeout> | undefined;
  private silence: ReturnType<typeof setTimeout> | undefined;
  private heardAt = 0;
  private connections = 0;
  private failures = 0;
  private blocked = 0;
  private worked = false;
  private sse: boolean;
  private refresh = false;
  private retryAfterMs: number | undefined;
  private liveAt = 0;
  private unlisten: () => void = () => {};

  constructor(
    private readonly host: LinkHost,
    readonly target: Target,
  ) {
    this.sse = host.options.transport === "sse" || (host.options.transport !== "websocket" && !this.socketClass());
  }

  private socketClass() {
    return this.host.options.WebSocket ?? (globalThis as { WebSocket?: HubAgentOptions["WebSocket"] }).WebSocket;
  }

  /** Begins, once. */
  open(): void {
    this.listen();
    void this.connect();
  }

  /** Ends it; the steps that are there stay. */
  close(): void {
    if (!this.over) this.finish();
  }

  /** Forgets where it is, and attaches afresh. */
  restart(): void {
    if (this.over) return;
    this.drop();
    this.steps.length = 0;
    this.position = "";
    this.resetting = false;
    void this.connect();
  }

  /** Resolves when there is a step, nothing more to come, or somebody called {@link wake}. */
  next(): Promise<void> {
    if (this.steps.length > 0 || this.over) return Promise.resolve();
    return new Promise((resolve) => this.waiters.push(resolve));
  }

  wake(): void {
    for (const w of this.waiters.splice(0)) w();
  }

  /** Breaks the present connection, as a network may, and comes back after the usual wait. */
  cut(): void {
    if (this.wire) this.closed({ code: 1006, reason: "cut by the application" }, undefined, 1);
  }

  send(line: object): boolean {
    return this.wire?.send(line) ?? false;
  }

  /** How many events wait. */
  get waiting(): number {
    return this.steps.reduce((n, s) => n + s.events.length - s.at, 0);
  }

  private finish(error?: HubError): void {
    this.drop();
    this.unlisten();
    this.over = error ? { error } : {};
    this.host.report(error ? { state: "idle", error } : { state: "idle" });
    this.wake();
  }

  /** Leaves the present connection, and what came of it in part. */
  private drop(): void {
    this.sequence++;
    clearTimeout(this.timer);
    clearTimeout(this.silence);
    this.wire?.close();
    this.wire = undefined;
    this.part = [];
    this.bracket = undefined;
  }

  private async connect(): Promise<void> {
    const mine = ++this.sequence;
    const late = () => mine !== this.sequence || this.over !== undefined;
    if (offline()) return this.host.report({ state: "offline" });
    if (this.connections++ > 0) this.host.count("reconnects");
    this.host.report({ state: "connecting" });
    let token: string | undefined;
    try {
      token = await this.token({ refresh: this.refresh });
    } catch (error) {
      return late() ? undefined : this.again(new HubError("token", "no token: " + String(error)));
    }
    if (late()) return;
    let lines = 0;
    const kind = this.sse ? "sse" : "websocket";
    const sink = {
      heard: () => late() || this.heard(),
      line: (line: Line) => {
        if (late()) return;
        lines++;
        if (kind === "websocket") this.worked = true;
        this.host.options.onLine?.(line);
        this.line(line);
      },
      closed: (how: Closed) => late() || this.closed(how, kind, lines),
    };
    this.host.report({ transport: kind });
    this.heardAt = Date.now(); // a page that is shown now needn't ask yet
    this.silence = setTimeout(() => sink.closed({ code: 1006, reason: "no answer" }), this.host.timing.handshake);
    try {
      if (kind === "sse") {
        this.wire = openStream(this.url("sse"), token, this.position !== "", sink);
        if (this.target.kind === "threads" && !this.position) void this.askWhetherIdle(late);
      } else {
        const Socket = this.socketClass();
        if (!Socket) throw new Error("there is no WebSocket class here: give one, or take another transport");
        this.wire = openSocket(Socket, this.url("ws").replace(/^http/, "ws"), token, sink);
      }
    } catch (error) {
      this.finish(new HubError("connect", String(error)));
    }
  }

  private async token(request: TokenRequest): Promise<string | undefined> {
    return this.host.options.getToken?.(request);
  }

  private url(binding: "ws" | "sse"): string {
    const { catchup = "auto" satisfies Catchup, head } = this.host.options;
    const q = new URLSearchParams();
    if (binding === "ws") q.set("catchup", catchup);
    if (this.position) q.set("after", this.position);
    else if (this.target.fromStart && !this.resetting) q.set("from", "start");
    if (head && this.target.kind === "threads") q.set("head", head);
    return `${this.host.base()}/v1/${this.target.kind}/${encodeURIComponent(this.target.id)}/${binding}?${q.toString()}`;
  }

  /** Over SSE the hub doesn't say that a thread has no run. */
  private async askWhetherIdle(late: () => boolean): Promise<void> {
    const runs = await this.host.runsOf(this.target.id);
    if (!late() && runs?.length === 0 && !this.attached) this.push("events", undefined, true);
  }

  private heard(): void {
    this.heardAt = Date.now();
    clearTimeout(this.silence);
    this.silence = setTimeout(() => this.ask(), this.host.timing.silence);
  }

  /** Asks whether the hub is there, where that can be asked, and connects anew where it isn't. */
  private ask(): void {
    clearTimeout(this.silence);
    const wait = this.send({ control: "ping" }) ? this.host.timing.answer : 0;
    this.silence = setTimeout(() => this.closed({ code: 1006, reason: "silent" }, undefined, 1), wait);
  }

  private line(line: Line): void {
    if ("event" in line) {
      this.part.push(line.event);
      const whole = this.bracket === undefined || this.bracket === "events";
      if (line.id !== undefined && whole) this.push("events", line.id);
      return;
    }
    this.control(line);
  }

  private control(c: Control): void {
    switch (c.control) {
      case "attached":
        this.attached = true;
        this.refresh = false; // the token holds
        this.run = c.run ?? null;
        this.history = c.history ?? null;
        this.host.report({ run: this.run, history: this.history, hub: c.hub ?? null });
        if (!c.run) this.push("events", undefined, true);
        return;
      case "reset":
        this.resetting = true;
        this.position = "";
        this.part = [];
        this.bracket = undefined;
        this.liveAt = 0;
        return this.host.count("resets");
      case "catchup":
        this.refresh = false;
        if (this.liveAt && c.from) this.host.count("lagged");
        this.bracket = c.mode ?? "fresh";
        return this.host.report({ state: "catching-up" });
      case "live":
        this.attached = true;
        // Over SSE a run that follows another is restated without a bracket's beginning.
        this.push(this.bracket ?? "snapshot", c.id ?? undefined);
        this.bracket = undefined;
        this.liveAt ||= Date.now();
        return this.host.report({ state: "live", error: null });
      case "skipped":
        if (c.id && this.attached) this.push("events", c.id); // before, none of the run's entries has begun it
        return this.host.count("skipped");
      case "draining":
        this.retryAfterMs = c.retryAfterMs;
        return;
      case "expiring":
        void this.renew();
    }
  }

  private async renew(): Promise<void> {
    const mine = this.sequence;
    const token = await this.token({ refresh: true }).catch(() => undefined);
    if (token && mine === this.sequence) this.send({ control: "token", token });
  }

  /** Ends a step. One without events only moves the place. */
  private push(mode: Mode, cursor: string | undefined, idle = false): void {
    const events = this.part;
    this.part = [];
    if (cursor) this.position = cursor;
    this.steps.push({ mode, events, at: 0, cursor, reset: this.resetting && !idle, idle });
    if (!idle) this.resetting = false;
    for (const e of events) if (e.type === "RUN_STARTED") this.run = (e as unknown as { runId: string }).runId;
    this.wake();
  }

  private closed(how: Closed, kind: "websocket" | "sse" | undefined, lines: number): void {
    const lived = this.liveAt && Date.now() - this.liveAt >= goodAfter;
    this.liveAt = 0;
    // A body that was cut may look as if it had ended: then something is left that has no end.
    const whole = this.part.length === 0 && this.bracket === undefined;
    this.drop();
    if (how.code === 1000 && this.target.kind === "runs" && whole) return this.finish();
    if (isFinal(how.code)) return this.finish(closeError(how));
    if (lived) this.failures = 0;
    if (how.code === 4401) {
      if (this.refresh || !this.host.options.getToken) return this.finish(closeError(how));
      this.refresh = true;
    }
    if (how.code === 4410) {
      this.position = "";
      this.resetting = true;
    }
    if (how.code === 1006) this.weighTransport(kind, lines);
    this.again(how.code === 1000 ? null : closeError(how), how);
  }

  /** Decides by which transport to come back after a connection that broke. */
  private weighTransport(kind: "websocket" | "sse" | undefined, lines: number): void {
    if ((this.host.options.transport ?? "auto") !== "auto" || !this.socketClass()) return;
    if (lines > 0) {
      if (kind === "websocket") this.blocked = 0;
      return;
    }
    if (kind === "sse") {
      // Nothing gets through: that isn't about WebSockets. They get one more try before the next stream.
      this.sse = false;
      this.blocked = failuresBlocked - 1;
    } else if (++this.blocked >= (this.worked ? failuresUnlikely : failuresBlocked)) {
      this.sse = true;
    }
  }

  /** Comes back after a while. */
  private again(error: HubError | null, how?: Closed): void {
    const { timing } = this.host;
    let wait = backoff(timing, this.failures++);
    const asked = how?.retryAfterMs ?? this.retryAfterMs;
    this.retryAfterMs = undefined;
    if (asked !== undefined && asked >= 0) wait = asked * (1 + Math.random() / 4);
    if (how?.code === 4404) wait += timing.unknown;
    this.host.report({ state: offline() ? "offline" : "waiting", error });
    this.timer = setTimeout(() => void this.connect(), wait);
  }

  /** Heeds what a browser knows of its network, and of pages that were asleep. */
  private listen(): void {
    const target = globalThis as unknown as Partial<EventTarget>;
    const { addEventListener, removeEventListener } = target;
    if (!addEventListener || !removeEventListener) return;
    const awake = () => {
      if (this.over) return;
      if (this.wire) return void (Date.now() - this.heardAt > this.host.timing.answer && this.ask());
      clearTimeout(this.timer);
      this.failures = 0;
      void this.connect();
    };
    const visible = () => globalThis.document?.visibilityState === "visible" && awake();
    const gone = () => {
      if (this.over) return;
      this.liveAt = 0;
      this.drop();
      this.host.report({ state: "offline" });
    };
    const pairs: [string, () => void, Partial<EventTarget> | undefined][] = [
      ["online", awake, target],
      ["offline", gone, target],
      ["pageshow", awake, target],
      ["resume", awake, globalThis.document],
      ["visibilitychange", () => void visible(), globalThis.document],
    ];
    for (const [name, f, on] of pairs) on?.addEventListener?.(name, f);
    this.unlisten = () => pairs.forEach(([name, f, on]) => on?.removeEventListener?.(name, f));
  }
}

function offline(): boolean {
  return (globalThis as { navigator?: { onLine?: boolean } }).navigator?.onLine === false;
}
