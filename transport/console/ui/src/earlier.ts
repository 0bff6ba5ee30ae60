import type { Message } from "@ag-ui/client";
import { answerOf, get, type Run } from "./hub";
import type { RunView } from "./session";

type Fields = Record<string, unknown>;

/** A run of the thread that ended before the page came, otherwise than it should. */
export interface Earlier {
  view: RunView;
  /** Ids of what its events made. */
  made: Set<string>;
}

/** Of how many runs it is asked, and how long they may be, in entries and in bytes: this is for the eye, and each is read as a whole. */
const most = 10;
const longest = 5_000;
const largest = 4_000_000;

/** The newest runs of a thread, beside one, that were cancelled or failed. */
export async function earlierRuns(thread: string, beside: string): Promise<Earlier[]> {
  const { runs } = await get<{ runs: Run[] }>("/v1/runs?limit=500");
  const broken = runs.filter((r) => r.thread === thread && r.run !== beside && (r.state === "cancelled" || r.state === "error") && r.entries <= longest);
  const found: Earlier[] = [];
  for (const r of broken.slice(0, most)) {
    const text = await read(r.run);
    if (text !== undefined) found.push(earlierOf(r.run, thread, text));
  }
  return found;
}

/** A run's events, a line each; undefined where they are too large. */
async function read(id: string): Promise<string | undefined> {
  const { body } = await answerOf(`/v1/runs/${encodeURIComponent(id)}/events`);
  const reader = body!.getReader();
  const decoder = new TextDecoder();
  let text = "";
  for (let size = 0; ; ) {
    const { done, value } = await reader.read();
    if (done) return text;
    if ((size += value.length) > largest) return void reader.cancel();
    text += decoder.decode(value, { stream: true });
  }
}

function earlierOf(id: string, thread: string, text: string): Earlier {
  const earlier: Earlier = { view: { id, thread, state: "running", error: "" }, made: new Set() };
  for (const line of text.split("\n")) {
    const { event } = (line ? JSON.parse(line) : {}) as { event?: Fields };
    if (!event) continue;
    if (event["type"] === "RUN_FINISHED" || event["type"] === "RUN_ERROR") Object.assign(earlier.view, ending(event));
    for (const name of ["messageId", "parentMessageId", "toolCallId"]) if (typeof event[name] === "string") earlier.made.add(event[name]);
  }
  return earlier;
}

/** The last message that a run has brought; undefined where none of its is there. */
export const lastOf = ({ made }: Earlier, messages: readonly Message[]): string | undefined => messages.findLast((m) => made.has(m.id))?.id;

/** What a terminal event makes of a run. */
export function ending(e: Fields): Partial<RunView> {
  if (e["type"] === "RUN_ERROR") return { state: "error", error: String(e["message"]) };
  const outcome = (e["outcome"] as { type?: string } | undefined)?.type;
  if (outcome === "interrupt" || outcome === "interrupted") return { state: "interrupted" };
  return { state: outcome === "cancelled" ? "cancelled" : "finished" };
}
