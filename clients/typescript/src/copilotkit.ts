import type { BaseEvent, RunAgentInput } from "@ag-ui/client";
import { Observable } from "rxjs";
import { HubError } from "./errors.js";
import { type InProcessAgent, LocalRun } from "./localrun.js";
import type { HubAgentOptions } from "./options.js";
import { Relay } from "./relay.js";
import { cancel, goesOn, type HubAddress, runsOf } from "./request.js";
import type { Rejection } from "./upload.js";

export type { InProcessAgent } from "./localrun.js";
export type { Rejection } from "./upload.js";

export interface HubRunnerOptions extends Pick<HubAgentOptions, "url" | "getToken" | "transport" | "WebSocket"> {
  /** What to do about a run of a thread whose last one goes on, here or elsewhere: refuse it, as CopilotKit does, or cancel the last one. "throw" by default. */
  onConcurrentRun?: "throw" | "supersede";
  /** Called with each event of an agent that the hub didn't take, since AG-UI clients would reject it. Warns on the console by default. */
  onRejected?: (rejection: Rejection) => void;
  /** For how long the hub may be away before a run is given up, in milliseconds. 60,000. */
  patience?: number;
}

/**
 * CopilotKit's AgentRunner, with the hub as its memory: what an agent of this process does is published there, and read
 * from there, by this process and every other one. A request that is left doesn't end its run.
 */
export class HubRunner {
  private readonly active = new Map<string, LocalRun>();

  constructor(private readonly options: HubRunnerOptions) {}

  /** Runs an agent, whoever listens. Throws where the thread has a run already. */
  run(request: { threadId: string; agent: InProcessAgent; input: RunAgentInput }): Observable<BaseEvent> {
    const { threadId, input } = request;
    const last = this.active.get(threadId);
    if (last && !this.supersedes) throw new Error("Thread already running");
    last?.cancel();
    const { patience = 60_000, onRejected = warn } = this.options;
    const run = new LocalRun(this.options, threadId, request.agent, input, patience, onRejected);
    this.active.set(threadId, run);
    const done = this.perform(run);
    done.catch(() => {}); // whoever follows hears it; nobody may
    return new Observable<BaseEvent>((sub) => {
      done.catch((error: unknown) => sub.error(error));
      return this.relay().relay({ kind: "runs", id: run.runId, fromStart: true }).subscribe(sub);
    });
  }

  /** What there is of a thread and the run that goes on, to its end; nothing where the thread has no run. */
  connect(request: { threadId: string }): Observable<BaseEvent> {
    return this.relay().relay({ kind: "threads", id: request.threadId });
  }

  /** Whether a run of the thread goes on, in whichever process. */
  async isRunning(request: { threadId: string }): Promise<boolean> {
    const runs = await runsOf(this.options, request.threadId);
    return this.active.has(request.threadId) || (runs?.some(goesOn) ?? false);
  }

  /** Asks the thread's run to end, in whichever process it is; false where there is none, or another one than named. */
  async stop(request: { threadId: string; runId?: string }): Promise<boolean> {
    const wanted = (run: string) => request.runId === undefined || request.runId === run;
    const local = this.active.get(request.threadId);
    if (local && wanted(local.runId)) return local.cancel();
    const run = (await runsOf(this.options, request.threadId))?.find((r) => goesOn(r) && wanted(r.run));
    return run !== undefined && run.state !== "cancel_requested" && (await cancel(this.options, run.run)).ok;
  }

  private get supersedes(): boolean {
    return this.options.onConcurrentRun === "supersede";
  }

  private relay(): Relay {
    const { url, getToken, transport, WebSocket } = this.options;
    return new Relay({ url, ...(getToken && { getToken }), ...(transport && { transport }), ...(WebSocket && { WebSocket }) });
  }

  /** Sees a run through. */
  private async perform(run: LocalRun): Promise<void> {
    try {
      await this.makeWay(this.options, run);
      await run.perform();
    } finally {
      if (this.active.get(run.threadId) === run) this.active.delete(run.threadId);
    }
  }

  /** Sees to it that the thread has no other run. */
  private async makeWay(hub: HubAddress, run: LocalRun): Promise<void> {
    const others = (await runsOf(hub, run.threadId))?.filter((r) => r.run !== run.runId && goesOn(r)) ?? [];
    if (others.length === 0) return;
    if (!this.supersedes) throw new HubError("thread_busy", "Thread already running");
    await Promise.all(others.map((r) => cancel(hub, r.run)));
  }
}

function warn(r: Rejection): void {
  console.warn(`aguihub: event ${r.index} of run ${r.run} was left out (${r.reason}): ${r.detail ?? r.path}`);
}
