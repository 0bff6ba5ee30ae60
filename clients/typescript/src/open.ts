import type { BaseEvent } from "@ag-ui/client";

type Fields = Record<string, string | undefined>;

/** What is opened, by what, and what closes it; `key` names the field that they share. Closings are sent in this order. */
const pairs = [
  { start: "TEXT_MESSAGE_START", end: "TEXT_MESSAGE_END", key: "messageId" },
  { start: "TOOL_CALL_START", end: "TOOL_CALL_END", key: "toolCallId" },
  { start: "REASONING_MESSAGE_START", end: "REASONING_MESSAGE_END", key: "messageId" },
  { start: "REASONING_START", end: "REASONING_END", key: "messageId" },
  { start: "THINKING_TEXT_MESSAGE_START", end: "THINKING_TEXT_MESSAGE_END", key: "" },
  { start: "THINKING_START", end: "THINKING_END", key: "" },
  { start: "STEP_STARTED", end: "STEP_FINISHED", key: "stepName" },
  { start: "SUBAGENT_STARTED", end: "SUBAGENT_FINISHED", key: "subagentRunId" },
] as const;

const starts = new Map<string, number>(pairs.map((p, i) => [p.start, i]));
const ends = new Map<string, number>([...pairs.map((p, i) => [p.end, i] as const), ["SUBAGENT_ERROR", pairs.length - 1]]);

export const isTerminal = (e: BaseEvent) => e.type === "RUN_FINISHED" || e.type === "RUN_ERROR";

/** What is open in a pipeline, so that a reset can close it: the verifier would refuse what follows otherwise. */
export class Open {
  /** A run has started and hasn't ended. */
  running = false;
  private items = pairs.map(() => new Map<string, Fields>());

  /** Takes note of an event that went into the pipeline. */
  take(e: BaseEvent): void {
    if (e.type === "RUN_STARTED" || isTerminal(e)) {
      this.running = e.type === "RUN_STARTED";
      for (const m of this.items) m.clear();
      return;
    }
    const opens = starts.get(e.type);
    const i = opens ?? ends.get(e.type);
    if (i === undefined) return;
    const { key } = pairs[i]!;
    const fields = e as unknown as Fields;
    const closing: Fields = key ? { [key]: fields[key] } : {};
    if (fields["subagentRunId"] !== undefined) closing["subagentRunId"] = fields["subagentRunId"];
    // A step's name counts within its lane, an id everywhere.
    const id = key === "stepName" ? JSON.stringify([closing["subagentRunId"], closing[key]]) : (fields[key] ?? "");
    if (opens === undefined) this.items[i]!.delete(id);
    else this.items[i]!.set(id, closing);
  }

  /** The events that close all that is open but for the run. */
  closings(): BaseEvent[] {
    return pairs.flatMap(({ end }, i) => [...this.items[i]!.values()].reverse().map((f) => ({ type: end, ...f }) as unknown as BaseEvent));
  }
}
