import type { Message, ResumeEntry } from "@ag-ui/client";
import { Component, createRef } from "preact";
import { soon } from "./draw";
import { Interrupts } from "./interrupts";
import { type Item, MessageView } from "./message";
import type { Session } from "./session";
import { VirtualList } from "./virtual";

interface ConversationProps {
  session: Session;
  /** Who gets answers to interrupts; undefined where the hub knows no agent. */
  agent: string | undefined;
  onAnswer(resume: ResumeEntry[]): Promise<void>;
}

/** The messages of the attach, as a conversation: results of tools stand with their calls. */
export class Conversation extends Component<ConversationProps> {
  private readonly list = createRef<VirtualList<Item>>();
  private source: readonly Message[] | undefined;
  private opened = "";
  private items: Item[] = [];

  override render({ session, agent, onAnswer }: ConversationProps) {
    const opened = [...session.open, session.run?.id, session.running, session.ends.size].join("\n");
    if (this.source !== session.messages || this.opened !== opened) {
      this.items = itemsOf(session);
      this.source = session.messages;
      this.opened = opened;
    }
    const away = this.list.current && !this.list.current.following;
    return (
      <div class="talk">
        <VirtualList
          handle={this.list}
          class="messages"
          role="log"
          label="Conversation"
          items={this.items}
          keyOf={(i) => i.key}
          row={(i) => <MessageView item={i} folds={session.folds} />}
          estimate={90}
          footer={<Foot session={session} agent={agent} onAnswer={onAnswer} />}
        />
        {away && <button class="to-end" onClick={() => { this.list.current?.toEnd(); soon(); }}>To the newest ↓</button>}
      </div>
    );
  }
}

/** What the run is at, below the messages. */
function Foot({ session, agent, onAnswer }: ConversationProps) {
  const { run } = session;
  const interrupts = session.running ? [] : session.agent.pendingInterrupts;
  const thread = session.target.kind === "thread";
  return (
    <div class="foot">
      {session.unbegun && <p class="hint">The run has entries, but none that begins it, so nothing can be shown: its <code>RUN_STARTED</code> is missing, or withheld. The tab <b>Withheld</b> says why; the page goes on waiting.</p>}
      {!run && !session.unbegun && session.messages.length === 0 && !session.failure && <p class="hint">Nothing here yet. The page waits for {session.target.kind === "run" ? "the run" : "a run of the thread"} to be published{session.target.kind === "run" && " under this very id"}.</p>}
      {run?.state === "error" && <div class="failed" role="alert"><b>The run failed.</b> {run.error.slice(0, 2_000)}</div>}
      {interrupts.length > 0 && (
        <Interrupts key={interrupts.map((i) => i.id).join("\n")} interrupts={interrupts} agent={thread ? agent : undefined} onAnswer={onAnswer}
          hint={!agent ? "To answer from here, start the hub with --agent name=URL." : thread ? `The agent ${agent} gets the answer.` : "Open the thread to answer."} />
      )}
      {run && (
        <div class="dim" id="run-line">
          <span class={"state " + run.state}>{run.state}</span> {run.id}
          {session.steps.map((s, i) => <span key={i} class="step">{s}</span>)}
        </div>
      )}
    </div>
  );
}

function itemsOf({ messages, open, ends, run }: Session): Item[] {
  const calls = new Set<string>();
  const results = new Map<string, string>();
  for (const m of messages) {
    if (m.role === "assistant") for (const c of m.toolCalls ?? []) calls.add(c.id);
    else if (m.role === "tool" && typeof m.content === "string") results.set(m.toolCallId, m.content);
  }
  const seen = new Map<string, number>(); // ids repeat in real streams
  const items: Item[] = [];
  for (const m of messages) {
    const end = ends.get(m.id);
    const ended = end && end.id !== run?.id ? end : undefined; // of the run that is shown the foot tells
    if (m.role === "tool" && calls.has(m.toolCallId) && results.get(m.toolCallId) === m.content) {
      const last = items.at(-1);
      if (last) last.end ??= ended;
      continue;
    }
    const name = m.role + " " + m.id;
    const n = seen.get(name) ?? 0;
    seen.set(name, n + 1);
    const toolCalls = (m.role === "assistant" && m.toolCalls) || [];
    items.push({
      key: n === 0 ? name : `${name} ${n}`,
      message: m,
      results: toolCalls.map((c) => results.get(c.id)),
      open: open.has(m.id),
      end: ended,
      openCalls: toolCalls.map((c) => open.has(c.id)),
    });
  }
  return items;
}
