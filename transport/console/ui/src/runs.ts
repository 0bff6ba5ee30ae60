import { later, soon } from "./draw";
import { get, type Run } from "./hub";

/** How often the list is asked for, in milliseconds. */
const pace = 2_000;
const page = 100;
const most = 2_000;

export interface Thread {
  thread: string;
  runs: number;
  newest: Run;
}

/** The hub's runs, newest first, asked for again and again while the page is seen. */
export class Runs {
  list: readonly Run[] = [];
  threads: readonly Thread[] = [];
  /** There are older ones. */
  more = false;
  /** The list has come once. */
  known = false;
  error: string | undefined;
  private wanted = page;
  private timer: ReturnType<typeof setTimeout> | undefined;
  private asking = false;

  constructor(private readonly changed: () => void) {
    document.addEventListener("visibilitychange", () => document.visibilityState === "visible" && this.refresh());
  }

  refresh(): void {
    clearTimeout(this.timer);
    if (!this.asking) void this.ask();
  }

  showMore(): void {
    this.wanted = Math.min(most, this.wanted + page);
    this.refresh();
    soon();
  }

  private async ask(): Promise<void> {
    this.asking = true;
    try {
      const all: Run[] = [];
      let cursor: string | null = "";
      while (cursor !== null && all.length < this.wanted) {
        const answer: { runs: Run[]; cursor: string | null } = await get(`/v1/runs?limit=${page}` + (cursor ? "&cursor=" + encodeURIComponent(cursor) : ""));
        all.push(...answer.runs);
        cursor = answer.cursor;
      }
      this.take(all);
      this.more = cursor !== null && this.wanted < most;
      this.error = undefined;
    } catch (error) {
      this.error = error instanceof Error ? error.message : String(error);
    }
    this.asking = false;
    later();
    if (document.visibilityState === "visible") this.timer = setTimeout(() => this.refresh(), pace);
  }

  private take(all: Run[]): void {
    const byThread = new Map<string, Thread>();
    for (const run of all) {
      if (!run.thread) continue;
      const t = byThread.get(run.thread);
      if (t) t.runs++;
      else byThread.set(run.thread, { thread: run.thread, runs: 1, newest: run });
    }
    this.list = all;
    this.threads = [...byThread.values()];
    this.known = true;
    this.changed();
  }
}
