/** How long things may take, in milliseconds. The defaults are those of the hub's contract; tests shorten them. */
export interface Timing {
  /** Nothing heard for so long: ask whether the hub is there. 45,000. */
  silence: number;
  /** … and no answer for so long: connect anew. A look-up may take as long. 10,000. */
  answer: number;
  /** How long a handshake may take. 15,000. */
  handshake: number;
  /** Most of the first wait before a reconnect; it doubles with each failure. 500. */
  first: number;
  /** Most of any wait before a reconnect. 30,000. */
  most: number;
  /** Least wait before asking again for a run that the hub doesn't know. 5,000. */
  unknown: number;
}

export const defaultTiming: Timing = {
  silence: 45_000,
  answer: 10_000,
  handshake: 15_000,
  first: 500,
  most: 30_000,
  unknown: 5_000,
};

/** The wait before attempt n (0 is the first): exponential with full jitter, so that many clients don't come at once. */
export function backoff(timing: Timing, n: number): number {
  return Math.random() * Math.min(timing.most, timing.first * 2 ** Math.min(n, 20));
}

/** How long the page waits for its turn at most, in milliseconds. */
const turn = 8;

let channel: MessageChannel | undefined;
const turns: (() => void)[] = [];

/** Resolves in a later task, so that a page gets to draw between batches of events. Timers would be throttled in the background. */
function nextTask(): Promise<void> {
  return new Promise((resolve) => {
    const immediate = (globalThis as { setImmediate?: (f: () => void) => unknown }).setImmediate;
    if (immediate) return void immediate(resolve);
    if (typeof MessageChannel === "undefined") return void setTimeout(resolve, 0);
    if (!channel) {
      channel = new MessageChannel(); // one for all: they cost
      channel.port1.onmessage = () => turns.shift()?.();
    }
    turns.push(resolve);
    channel.port2.postMessage(0);
  });
}

/** Work that is done in slices, between which the page gets its turn. */
export class Slices {
  private since = Date.now();

  /** Whether the slice has been long enough. */
  get over(): boolean {
    return Date.now() - this.since > turn;
  }

  /** Begins one: what was before was somebody else's. */
  begin(): void {
    this.since = Date.now();
  }

  /** Gives the page its turn. */
  async next(): Promise<void> {
    await nextTask();
    this.begin();
  }
}
