import type { AgentSubscriber, BaseEvent } from "@ag-ui/client";
import { Observable, type Subscriber } from "rxjs";
import type { Taking } from "./keep.js";
import type { Link, Step } from "./link.js";
import { isTerminal, Open } from "./open.js";
import { Slices } from "./timing.js";

/** What a flight needs of its agent. */
export interface FlightHost {
  /** Everything up to the cursor has been applied. */
  applied(cursor: string | undefined): void;
  /** Whether a run of the link's thread is active beside the one that has ended. */
  anotherRuns(link: Link, ended: string | null): Promise<boolean>;
  /** The client takes a RUN_STARTED after a RUN_ERROR. */
  readonly goesOnAfterError: boolean;
  /** A conversation begins anew, with the bracket that follows; what is pending will be told again. */
  forget(taking: Taking): void;
}

/** The most events that are put into the pipeline before they must have been applied. Long ones take longer: then it is fewer. */
const mostBurst = 64;

/** How long another run that is active may take to show itself, in milliseconds. */
const otherRunWait = 5_000;

/**
 * One connectAgent() or runAgent(): what goes from a link into the official client's pipeline. Events go in no faster than
 * the reducer takes them, and behind each batch goes a mark that tells when it has been applied.
 */
export class Flight {
  /** Resolves when it is over. */
  readonly settled: Promise<void>;
  /** The pipeline has asked for events. */
  begun = false;
  /** It was detached, maybe before it began. */
  detached = false;
  /** It took all of a run, or nothing. */
  clean = true;
  link: Link | undefined;
  /** Subscribers of callers who joined. */
  readonly joined: AgentSubscriber[] = [];
  promise: Promise<unknown> | undefined;
  /** Events that are in the pipeline and may not have been applied. */
  underWay = 0;
  /** How the next MESSAGES_SNAPSHOT is to be taken; owned by the reducer's side. */
  taking: Taking | undefined;

  private settle!: () => void;
  private readonly open = new Open();
  private readonly slices = new Slices();
  private burst = mostBurst;
  /** The place behind the last step of which all is in the pipeline. */
  private behind: string | undefined;
  private inject: ((e: BaseEvent) => void) | undefined;
  private readonly marks = new Map<BaseEvent, () => void>();
  private closed = false;

  constructor(
    private readonly host: FlightHost,
    /** The link is another's, and stays open behind the run's end. */
    readonly shared: boolean,
  ) {
    this.settled = new Promise((resolve) => (this.settle = resolve));
  }

  /** The events of a link. prepare runs once they are asked for. */
  events(make: () => Link, prepare?: (fail: (error: unknown) => void) => void): Observable<BaseEvent> {
    return new Observable<BaseEvent>((sub) => {
      this.begun = true;
      if (this.detached) return sub.complete();
      const link = (this.link = make());
      prepare?.((error) => sub.error(error));
      this.pump(link, sub).catch((error: unknown) => sub.error(error));
      return () => this.leave();
    });
  }

  /** Ends it without a word. */
  leave(): void {
    if (this.closed) return;
    this.closed = true;
    if (this.open.running) this.clean = false;
    if (this.shared) this.link?.wake();
    else this.link?.close();
    for (const done of this.marks.values()) done();
  }

  /** The call is over. */
  end(): void {
    this.leave();
    this.settle();
  }

  /** What the reducer gets: the pipeline's events and our marks among them. */
  merge(events: Observable<BaseEvent>): Observable<BaseEvent> {
    return new Observable<BaseEvent>((sub) => {
      this.inject = (e) => sub.next(e);
      const s = events.subscribe(sub);
      return () => {
        this.inject = undefined;
        s.unsubscribe();
      };
    });
  }

  /** Whether an event that the reducer got is a mark, which it then isn't to look at. */
  marked(event: BaseEvent): boolean {
    const done = this.marks.get(event);
    done?.();
    return done !== undefined;
  }

  /** Calls back when all that was put in so far has been applied. */
  private mark(done: () => void): void {
    if (!this.inject) return done();
    const event = { type: "RAW", event: null } as unknown as BaseEvent;
    this.marks.set(event, () => {
      this.marks.delete(event);
      done();
    });
    this.inject(event);
  }

  /** Waits until all that was put in so far has been applied, and lets the page have its turn. */
  private async applied(): Promise<void> {
    const n = this.underWay;
    const { behind } = this;
    this.behind = undefined;
    await new Promise<void>((resolve) =>
      this.mark(() => {
        if (!this.closed) this.host.applied(behind);
        resolve();
      }),
    );
    this.underWay = 0;
    if (!this.slices.over) {
      if (n >= this.burst) this.burst = Math.min(mostBurst, this.burst * 2);
      return;
    }
    this.burst = Math.max(1, n >> 1);
    await this.slices.next();
  }

  private put(sub: Subscriber<BaseEvent>, event: BaseEvent): void {
    this.open.take(event);
    this.underWay++;
    sub.next(event);
  }

  /** Takes steps until the run's end. */
  private async pump(link: Link, sub: Subscriber<BaseEvent>): Promise<void> {
    for (;;) {
      if (link.steps.length === 0) {
        await this.applied();
        await link.next();
        this.slices.begin();
      }
      if (this.closed) return;
      const step = link.steps[0];
      if (!step) {
        if (link.over?.error) sub.error(link.over.error);
        else if (link.over) sub.complete();
        if (link.over) return;
        continue;
      }
      if (step.idle) {
        await this.applied();
        link.steps.shift();
        if (this.shared) continue;
        return sub.complete();
      }
      const ended = await this.take(link, step, sub);
      if (this.closed) return;
      if (step.at >= step.events.length && link.steps[0] === step) link.steps.shift();
      if (ended && (await this.isOver(link, ended))) return this.closed ? undefined : sub.complete();
    }
  }

  /** Puts a step into the pipeline, as a whole or up to the end of the run; returns the terminal event where that was it. */
  private async take(link: Link, step: Step, sub: Subscriber<BaseEvent>): Promise<BaseEvent | undefined> {
    let skipStart = false;
    if (step.at === 0) skipStart = this.enter(link, step, sub);
    let lastStart = step.events.length;
    while (--lastStart >= 0 && step.events[lastStart]!.type !== "RUN_STARTED");
    while (step.at < step.events.length) {
      const event = step.events[step.at++]!;
      if (skipStart && event.type === "RUN_STARTED") {
        skipStart = false;
        continue;
      }
      this.put(sub, event);
      if (this.closed) return undefined;
      // A terminal event before another start tells of an earlier run, or of one in between.
      const goesOn = step.at <= lastStart && (event.type !== "RUN_ERROR" || this.host.goesOnAfterError);
      if (isTerminal(event) && !goesOn) {
        if (step.at >= step.events.length) this.behind = step.cursor;
        await this.applied();
        return event;
      }
      if (this.underWay >= this.burst) await this.applied();
      if (this.closed) return undefined;
    }
    this.behind = step.cursor ?? this.behind;
    return undefined;
  }

  /** Prepares for a bracket. Returns whether its first RUN_STARTED is to be left out: the pipeline takes no second one. */
  private enter(link: Link, step: Step, sub: Subscriber<BaseEvent>): boolean {
    const reset = step.reset || (step.mode === "fresh" && this.open.running);
    if (!reset && step.mode !== "fresh") return false;
    const skip = this.open.running;
    for (const e of this.open.closings()) this.put(sub, e);
    const known = step.events.some((e) => e.type === "STATE_SNAPSHOT");
    const taking = { anew: true, keepAll: link.history === "partial" && !reset, state: reset && !known };
    this.mark(() => {
      this.host.forget(taking);
      this.taking = taking;
    });
    return skip;
  }

  /** Whether nothing more is to be shown after the terminal event of a run. */
  private async isOver(link: Link, terminal: BaseEvent): Promise<boolean> {
    if (link.target.kind === "runs" || this.shared) return true;
    if (terminal.type === "RUN_ERROR" && !this.host.goesOnAfterError) return true;
    const asked = this.host.anotherRuns(link, link.run);
    if (await this.comes(link, asked)) return false;
    if (!(await asked)) return true;
    return !(await this.comes(link, new Promise((resolve) => setTimeout(resolve, otherRunWait))));
  }

  /** Whether more events come before `limit` resolves. Steps without any only move the place. */
  private async comes(link: Link, limit: Promise<unknown>): Promise<boolean> {
    let late = false;
    const end = limit.then(() => (late = true));
    for (;;) {
      let step: Step | undefined;
      while ((step = link.steps[0]) && step.at >= step.events.length) {
        this.host.applied(step.cursor);
        link.steps.shift();
      }
      if (step) return true;
      if (late || this.closed || link.over) return false;
      await Promise.race([end, link.next()]);
    }
  }
}
