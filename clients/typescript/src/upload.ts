import { HubError, refusal } from "./errors.js";
import { answerWait, type HubAddress, request } from "./request.js";
import { backoff, defaultTiming } from "./timing.js";

/** What the hub didn't take of what was sent: docs/contract.md, section 5. */
export interface Rejection {
  run: string;
  /** Which of the run's events, from 0. */
  index: number;
  path: string;
  reason: string;
  detail?: string;
}

/**
 * Behind so many characters or events, or milliseconds, what comes next goes with another request, so that the hub says
 * what it has: until then it is kept to be sent again. While nothing comes the last request stays open: it is what tells
 * the hub that the producer lives.
 */
const most = { size: 256 << 10, events: 512, ms: 2_000 };

/** A comment is sent after so much silence, in milliseconds: a proxy may take a silent request for a dead one. */
const stillThere = 5_000;

/** So many characters may wait before the agent is asked to, and so many before the run is given up. */
const comfortable = 1 << 20;
const tooMuch = 32 << 20;

/** Refusals that may be over the next time. 404 and 405 may come from a proxy whose hub is away; the hub itself never gives them here. */
const passing = (e: HubError) => e.status >= 500 || [404, 405, 408, 429].includes(e.status) || e.code === "run_busy" || e.code === "truncated";

/**
 * Appends a run's events to the hub, in order, each once: as they come, over requests that each stream for a while, and
 * again from the last one that is acknowledged where a request breaks.
 */
export class Upload {
  private queue: string[] = []; // the first `sent` of these are under way
  private size = 0;
  private sent = 0;
  private acknowledged = 0;
  private ended = false;
  private failure: unknown;
  private refused = false; // the last token was
  private wakers: (() => void)[] = [];
  private stop = new AbortController(); // of the present request
  private readonly producer = "client-" + Math.random().toString(36).slice(2) + Math.random().toString(36).slice(2);
  /** Resolves when all is in the log and finish() was called; rejects when that can't be any more. */
  readonly done: Promise<void>;

  /**
   * @param input the RunAgentInput: what the run's conversation began with
   * @param patience for how long the hub may be away, in milliseconds
   */
  constructor(
    private readonly hub: HubAddress,
    private readonly run: string,
    private readonly input: unknown,
    private readonly patience: number,
    private readonly rejected: (r: Rejection) => void,
  ) {
    this.done = this.work().catch((error: unknown) => {
      this.failure = error ?? new HubError("upload", "the upload failed");
      this.wake();
      throw error;
    });
    this.done.catch(() => {}); // whoever waits for it hears it
  }

  /** Takes an event. What it returns resolves when there is room for more. */
  add(event: object): Promise<void> | undefined {
    if (this.ended || this.failure) return undefined;
    const block = `data: ${JSON.stringify(event)}\n\n`;
    this.queue.push(block);
    this.size += block.length;
    if (this.size > tooMuch) this.stop.abort(); // the hub takes nothing, and doesn't say so
    this.wake();
    return this.size > comfortable ? this.until(() => this.size <= comfortable || this.failure !== undefined) : undefined;
  }

  /** Nothing more will come. */
  finish(): void {
    this.ended = true;
    this.wake();
  }

  private wake(): void {
    for (const w of this.wakers.splice(0)) w();
  }

  private async until(test: () => boolean): Promise<void> {
    while (!test()) await new Promise<void>((resolve) => this.wakers.push(resolve));
  }

  private async work(): Promise<void> {
    let heard = Date.now();
    for (let failures = 0; ; ) {
      await this.until(() => this.queue.length > 0 || this.ended);
      if (this.queue.length === 0) return;
      if (failures === 0) heard = Date.now();
      const before = this.acknowledged;
      let error: HubError;
      try {
        await this.post();
        failures = 0;
        this.refused = false;
        continue;
      } catch (e) {
        error = e instanceof HubError ? e : new HubError("unreachable", String((e as Error)?.cause ?? e));
      }
      if (error.status === 401 && this.hub.getToken && !this.refused) {
        this.refused = true; // it may have ended while the request was open, which is no fault
        continue;
      }
      if (error.status && !passing(error)) throw error;
      if (this.size > tooMuch) throw new HubError("too_much_waits", "the hub is away, and too much waits for it: " + error.message);
      if (Date.now() - heard > this.patience) throw error;
      if (this.acknowledged > before) failures = 0;
      await new Promise((resolve) => setTimeout(resolve, backoff({ ...defaultTiming, most: 2_000 }, failures++)));
    }
  }

  /** One request. */
  private async post(): Promise<void> {
    this.sent = 0;
    let gone = false;
    const stop = (this.stop = new AbortController());
    // A network may swallow all and not say so: it is to take what is sent, or the hub to answer, within this time.
    let watchdog: ReturnType<typeof setTimeout> | undefined;
    const watch = () => (watchdog = setTimeout(() => stop.abort(new HubError("no_answer", "the hub doesn't answer")), Math.min(answerWait, this.patience / 4)));
    const encoder = new TextEncoder();
    const until = Date.now() + most.ms;
    let size = 0;
    const more = () => this.queue.length > this.sent;
    const over = () => size >= most.size || this.sent >= most.events || (this.sent > 0 && Date.now() >= until);
    const pull = async (controller: ReadableStreamDefaultController<Uint8Array>) => {
      clearTimeout(watchdog);
      const timer = setTimeout(() => this.wake(), stillThere);
      const waited = Date.now();
      const silent = () => Date.now() - waited >= stillThere - 1;
      await this.until(() => gone || more() || this.ended || silent());
      clearTimeout(timer);
      if (gone) return;
      const blocks = over() ? [] : this.queue.slice(this.sent, most.events);
      if (blocks.length > 0) {
        let text = blocks.join("");
        if (this.acknowledged + this.sent === 0) text = `event: input\ndata: ${JSON.stringify(this.input)}\n\n` + text;
        this.sent += blocks.length;
        size += text.length;
        controller.enqueue(encoder.encode(text));
      } else if (more() || this.ended) controller.close();
      else controller.enqueue(encoder.encode(":\n"));
      watch();
    };
    const leave = () => {
      gone = true;
      this.wake();
    };
    const body = new ReadableStream<Uint8Array>({ pull, cancel: leave }, { highWaterMark: 0 });
    const headers = {
      "content-type": "text/event-stream",
      "aguihub-producer": this.producer,
      "aguihub-epoch": "1",
      "aguihub-seq": String(this.acknowledged),
    };
    watch();
    try {
      const init = { method: "POST", body, headers, duplex: "half", signal: stop.signal } as RequestInit;
      const answer = await request(this.hub, `/v1/runs/${encodeURIComponent(this.run)}/events`, init, undefined, this.refused);
      if (!answer.ok) throw await refusal(answer);
      this.tell((await answer.json()) as { rejected?: Rejection[] });
    } finally {
      clearTimeout(watchdog);
      leave();
    }
    this.acknowledged += this.sent;
    for (const block of this.queue.splice(0, this.sent)) this.size -= block.length;
    this.wake();
  }

  private tell(answer: { rejected?: Rejection[] }): void {
    const behindInput = this.acknowledged === 0 ? 1 : 0;
    for (const r of answer.rejected ?? []) this.rejected({ ...r, run: this.run, index: this.acknowledged + r.index - behindInput });
  }
}
