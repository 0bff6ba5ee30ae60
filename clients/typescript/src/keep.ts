import type { BaseEvent, Message } from "@ag-ui/client";

/** How a bracket's snapshot is to be taken. */
export interface Taking {
  /** The conversation begins anew: its order is the snapshot's, not that of what the client happens to hold. */
  anew: boolean;
  /** Whatever the client holds stays, since the log doesn't know what the conversation began with. */
  keepAll: boolean;
}

/**
 * Which messages are the application's own: those that no event has named yet. Once the log is known to hold a message,
 * the log decides what becomes of it.
 */
export class Own {
  private readonly known: Set<string>;

  constructor(of?: Own) {
    this.known = new Set(of?.known);
  }

  /** Takes note of the messages that an event makes or restates. */
  note(event: BaseEvent): void {
    const e = event as unknown as {
      messageId?: string;
      parentMessageId?: string;
      toolCallId?: string;
      messages?: Message[];
      input?: { messages?: Message[] };
    };
    for (const id of [e.messageId, e.parentMessageId, e.toolCallId]) if (id !== undefined) this.known.add(id);
    for (const m of e.messages ?? e.input?.messages ?? []) this.known.add(m.id);
  }

  /**
   * The messages that a snapshot is to have instead of `listed`, so that the reducer doesn't drop any of the application's
   * own of those that the client holds.
   */
  protect(listed: Message[], held: readonly Message[], how: Taking | undefined): Message[] {
    const ids = new Set(listed.map((m) => m.id));
    const own = held.filter((m) => !ids.has(m.id) && (how?.keepAll || !this.known.has(m.id)));
    if (own.length === 0) return listed;
    if (how?.anew && !how.keepAll) return weave(listed, own, held);
    // The reducer leaves what it holds where it is. Of activities and reasoning it keeps all, unless a snapshot has any.
    const roles = new Set(listed.map((m) => m.role));
    return [...listed, ...own.filter((m) => (m.role !== "activity" && m.role !== "reasoning") || roles.has(m.role))];
  }
}

/** Puts each of own behind the message that it follows in held, or first. */
function weave(listed: Message[], own: Message[], held: readonly Message[]): Message[] {
  const mine = new Set(own);
  const ids = new Set(listed.map((m) => m.id));
  const behind = new Map<string, Message[]>([["", []]]);
  let anchor = "";
  for (const m of held) {
    if (ids.has(m.id)) anchor = m.id;
    else if (mine.has(m)) behind.set(anchor, [...(behind.get(anchor) ?? []), m]);
  }
  return [...behind.get("")!, ...listed.flatMap((m) => [m, ...(behind.get(m.id) ?? [])])];
}
