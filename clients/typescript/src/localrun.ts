import type { BaseEvent, RunAgentInput } from "@ag-ui/client";
import { isTerminal, Open } from "./open.js";
import { cancel, goesOn, type HubAddress, inTime, request } from "./request.js";
import { type Rejection, Upload } from "./upload.js";

/** The part of an AbstractAgent that is used. */
export interface InProcessAgent {
  // eslint-disable-next-line @typescript-eslint/no-explicit-any -- any version's parameters
  runAgent(parameters?: any, subscriber?: any): Promise<unknown>;
  abortRun(): void;
  detachActiveRun?(): Promise<void>;
}

/** How often the hub is asked whether somebody wants the run to end, in milliseconds. */
const look = 1_000;

/** How long an agent that was aborted may take to end by itself, in milliseconds. Most agents' abortRun() does nothing. */
const grace = 3_000;

/** A run of an agent of this process, which is published to the hub. */
export class LocalRun {
  readonly runId: string;
  private readonly upload: Upload;
  private readonly open = new Open();
  /** Calls of this run that have no result: models refuse a conversation with such. */
  private readonly calls = new Set<string>();
  private begun = false;
  private ended = false;
  private asked = false;
  private looking = false;
  private patience: ReturnType<typeof setTimeout> | undefined;
  private leave: () => void = () => {};

  constructor(
    private readonly hub: HubAddress,
    readonly threadId: string,
    private readonly agent: InProcessAgent,
    private readonly input: RunAgentInput,
    patience: number,
    rejected: (r: Rejection) => void,
  ) {
    this.runId = input.runId;
    this.upload = new Upload(hub, this.runId, input, patience, rejected);
  }

  /** Runs the agent. Resolves when all of the run is in the log; rejects where it can't be, and aborts the agent. */
  async perform(): Promise<void> {
    const watch = setInterval(() => void this.look(), look);
    const left = new Promise<void>((resolve) => (this.leave = resolve));
    const run = async () => this.agent.runAgent(this.input, { onEvent: (p: { event: BaseEvent }) => this.take(p.event) });
    const running = this.asked ? Promise.resolve() : run();
    try {
      await Promise.race([running, left, this.upload.done]);
      this.end();
    } catch (error) {
      this.end(error instanceof Error ? error.message : String(error));
    }
    running.catch(() => {}); // left behind
    clearInterval(watch);
    clearTimeout(this.patience);
    this.upload.finish();
    try {
      await this.upload.done;
    } catch (error) {
      this.abort();
      throw error;
    }
  }

  /** Asks the agent to end, and tells the hub. False where it was asked already. */
  cancel(): boolean {
    if (this.asked || this.ended) return false;
    void cancel(this.hub, this.runId).catch(() => {}); // others see that it was asked; it ends anyhow
    this.abort();
    return true;
  }

  private abort(): void {
    this.asked = true;
    this.patience = setTimeout(() => {
      this.leave();
      void this.agent.detachActiveRun?.();
    }, grace);
    try {
      this.agent.abortRun();
    } catch (error) {
      console.error("aguihub: abortRun() failed:", error);
    }
  }

  /** Asks the hub whether the run is to end, or has been ended. */
  private async look(): Promise<void> {
    if (this.looking) return;
    this.looking = true;
    try {
      const answer = await request(this.hub, "/v1/runs/" + encodeURIComponent(this.runId), { signal: inTime() });
      const { state } = (await answer.json()) as { state: string }; // a problem has none
      if (!answer.ok || this.asked || this.ended) return;
      if (state === "cancel_requested" || !goesOn({ state })) this.abort();
    } catch {
      // The next time.
    } finally {
      this.looking = false;
    }
  }

  private take(event: BaseEvent): Promise<void> | undefined {
    if (this.ended) return undefined;
    if (event.type === "RUN_STARTED" || event.type === "RUN_FINISHED") event = this.named(event);
    if (event.type === "RUN_STARTED") this.begun = true;
    if (isTerminal(event)) this.ended = true;
    const { toolCallId } = event as { toolCallId?: string };
    if (event.type === "TOOL_CALL_START" && toolCallId) this.calls.add(toolCallId);
    if (event.type === "TOOL_CALL_RESULT" && toolCallId) this.calls.delete(toolCallId);
    this.open.take(event);
    return this.upload.add(event);
  }

  /** The run and the thread are those that were asked for, whatever an agent calls them. */
  private named(event: BaseEvent): BaseEvent {
    return { ...event, threadId: this.threadId, runId: this.runId } as BaseEvent;
  }

  /** Ends the run where the agent hasn't, as CopilotKit's own runner does. */
  private end(failure?: string): void {
    if (this.ended) return;
    const put = (event: object) => void this.take(event as BaseEvent);
    if (!this.begun) put({ type: "RUN_STARTED" });
    for (const e of this.open.closings()) put(e);
    const message = failure ?? (this.asked ? "Run stopped by user" : "Run ended without emitting a terminal event");
    const [status, reason] = this.asked ? ["stopped", "stop_requested"] : ["error", "missing_terminal_event"];
    const content = JSON.stringify({ status, reason, message });
    for (const id of [...this.calls]) put({ type: "TOOL_CALL_RESULT", toolCallId: id, messageId: id + "-result", role: "tool", content });
    if (this.asked) put({ type: "RUN_FINISHED", outcome: { type: "cancelled" } });
    else put({ type: "RUN_ERROR", message, code: "INCOMPLETE_STREAM" });
  }
}
