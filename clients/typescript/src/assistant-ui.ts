import type { Message, State } from "@ag-ui/client";
import { ExportedMessageRepository } from "@assistant-ui/react";
import { fromAgUiMessages } from "@assistant-ui/react-ag-ui";
import type { HubAgent } from "./agent.js";
import { refusal } from "./errors.js";
import { inTime } from "./request.js";

export interface HubHistoryOptions {
  /** As given to useAgUiRuntime(). True by default. */
  showThinking?: boolean;
}

/** A part of what resume() tells: assistant-ui's ChatModelRunResult. */
interface Progress {
  // eslint-disable-next-line @typescript-eslint/no-explicit-any -- parts of whichever version
  content?: any;
  // eslint-disable-next-line @typescript-eslint/no-explicit-any -- a MessageStatus
  status?: any;
  metadata?: { custom: Record<string, unknown> };
}

/** assistant-ui's ThreadHistoryAdapter. */
export interface HubHistory {
  load(): Promise<ReturnType<typeof ExportedMessageRepository.fromArray> & { state?: State; unstable_resume?: boolean }>;
  resume(options: { abortSignal: AbortSignal }): AsyncGenerator<Progress, void, unknown>;
  append(): Promise<void>;
}

/** The id of the message that waits for answers where the run that asks has said nothing else. assistant-ui keeps it to itself, being blank. */
const silent = "aguihub-interrupt";

/**
 * The history of an agent's thread for assistant-ui's AG-UI runtime: what the thread holds, and the answer that is under
 * way, from where it stands. Nothing needs to be stored, since the hub has it all.
 */
export function hubHistory(agent: HubAgent, options: HubHistoryOptions = {}): HubHistory {
  const { showThinking = true } = options;
  const resumed = new Map<string, Message[]>(); // answers by the ids of their questions
  const renamed = new Map<string, string>(); // ids in the chat to those of the conversation
  let question: string | undefined; // whose answer is resumed
  agent.restore = (messages) => restore(messages.map((m) => ({ ...m, id: renamed.get(m.id) ?? m.id })), resumed);
  const shown = (messages: readonly Message[]) => fromAgUiMessages(messages, { showThinking });
  return {
    async load() {
      const held = await conversation(agent);
      const [asked, answer] = split(held.messages);
      question = asked.at(-1)?.id;
      const state = held.state == null ? {} : { state: held.state };
      if (held.activeRun) return { ...ExportedMessageRepository.fromArray(told(shown(asked), renamed)), ...state, unstable_resume: true };
      const waits = await interrupts(agent);
      const all = shown([...asked, ...answer]);
      if (waits && all.at(-1)?.role !== "assistant") all.push({ id: silent, role: "assistant", content: [] });
      const repository = ExportedMessageRepository.fromArray(told(all, renamed));
      const last = repository.messages.at(-1);
      if (waits && last) last.message = { ...last.message, ...waits, metadata: { ...last.message.metadata, ...waits.metadata } };
      return { ...repository, ...state };
    },

    async *resume({ abortSignal }) {
      let wake = () => {};
      let changed = true;
      let over: { error?: unknown } | undefined;
      const tell = () => {
        changed = true;
        wake();
      };
      const connected = agent.connectAgent(undefined, { onMessagesChanged: tell, onRunErrorEvent: ({ event }) => void (over ??= { error: new Error(event.message) }) });
      connected.then(() => (over ??= {}), (error: unknown) => (over = { error })).finally(tell);
      abortSignal.addEventListener("abort", tell, { once: true });
      while (!abortSignal.aborted) {
        if (changed) {
          changed = false;
          const [asked, answer] = split(agent.messages, question);
          const last = asked.at(-1);
          if (last) resumed.set(last.id, [...answer]);
          yield { content: shown(answer).flatMap((m) => (m.role === "assistant" && Array.isArray(m.content) ? (m.content as unknown[]) : [])) };
        } else if (over) {
          if (over.error) throw over.error;
          const waits = waiting(agent);
          if (waits) yield waits;
          return;
        } else await new Promise<void>((resolve) => (wake = resolve));
      }
    },

    async append() {},
  };
}

/**
 * What was asked last, with all before it, and what came of it. A question that the chat is at stays that one, whatever is asked
 * from elsewhere meanwhile: what came of that belongs behind the answer, not in its place.
 */
function split(messages: readonly Message[], question?: string): [Message[], Message[]] {
  const asked = messages.findLastIndex((m) => m.role === "user" && m.id === question);
  const n = (asked < 0 ? messages.findLastIndex((m) => m.role === "user") : asked) + 1;
  return [messages.slice(0, n), messages.slice(n)];
}

/** Messages as assistant-ui takes them: it refuses a whole history in which an id stands twice, as agents write some. */
function told<M extends { id?: string | undefined }>(messages: M[], renamed: Map<string, string>): M[] {
  const ids = new Set<string>();
  return messages.map((m) => {
    let id = m.id ?? "";
    for (let n = 2; ids.has(id); n++) id = `${m.id ?? ""}~${n}`;
    ids.add(id);
    if (m.id === undefined || id === m.id) return m;
    renamed.set(id, m.id);
    return { ...m, id };
  });
}

/**
 * The messages of a conversation as the hub has them. assistant-ui shows an answer that was resumed as one message with
 * an id of its own: told to the hub like that, it would stand there twice.
 */
function restore(messages: Message[], resumed: Map<string, Message[]>): Message[] {
  const out: Message[] = [];
  for (let i = 0; i < messages.length; ) {
    const question = messages[i++]!;
    out.push(question);
    const answer = resumed.get(question.id);
    if (!answer) continue;
    if (i === messages.length) resumed.delete(question.id); // it is asked anew
    const shown: Message[] = [];
    while (i < messages.length && messages[i]!.role !== "user") shown.push(messages[i++]!);
    if (shown.length === 0) continue;
    const results = new Set(answer.map((m) => m.role === "tool" && m.toolCallId));
    out.push(...answer, ...shown.filter((m) => m.role === "tool" && !results.has(m.toolCallId)));
  }
  return out;
}

interface Conversation {
  messages: Message[];
  state: State;
  activeRun: string | null;
}

async function conversation(agent: HubAgent): Promise<Conversation> {
  const answer = await agent.request(`/v1/threads/${encodeURIComponent(agent.threadId)}/messages`, { signal: inTime() });
  if (answer.status === 404) return { messages: [], state: null, activeRun: null };
  if (!answer.ok) throw await refusal(answer);
  return (await answer.json()) as Conversation;
}

/** What a message says whose run waits for answers, as assistant-ui has it. */
function waiting(agent: HubAgent): Progress | undefined {
  const pending = agent.pendingInterrupts;
  if (pending.length === 0) return undefined;
  return { status: { type: "requires-action", reason: "interrupt" }, metadata: { custom: { agui: { interrupts: pending } } } };
}

/** The look-up doesn't tell of interrupts; an attach does. */
async function interrupts(agent: HubAgent): Promise<Progress | undefined> {
  const newest = (await agent.runsOf(agent.threadId))?.[0];
  if (newest?.state !== "interrupted") return undefined;
  await agent.connectAgent();
  return waiting(agent);
}
