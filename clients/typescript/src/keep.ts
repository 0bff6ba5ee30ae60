import type { BaseEvent, Message } from "@ag-ui/client";

/** How a bracket's snapshot is to be taken. */
export interface Taking {
  /** The conversation begins anew: its order is the snapshot's, not that of what the client happens to hold. */
  anew: boolean;
  /** Whatever the client holds stays, since the log doesn't know what the conversation began with. */
  keepAll: boolean;
  /** The state begins anew, too, and the bracket doesn't tell it. */
  state: boolean;
}

/**
 * Which messages are the application's own: those that the client held before any event named them, though one may have
 * since. No snapshot drops these. What events made, the log decides about.
 */
export class Own {
  private readonly known: Set<string>;
  private readonly mine: Set<string>;

  constructor(of?: Own) {
    this.known = new Set(of?.known);
    this.mine = new Set(of?.mine);
  }

  /** Takes note of the messages that an event makes or restates; held are those that the client held before it. */
  note(event: BaseEvent, held: readonly Message[]): void {
    const e = event as unknown as {
      messageId?: string;
      parentMessageId?: string;
      toolCallId?: string;
      messages?: Message[];
      input?: { messages?: Message[] };
    };
    const ids = [e.messageId, e.parentMessageId, e.toolCallId, ...(e.messages ?? e.input?.messages ?? []).map((m) => m.id)];
    const unknown = ids.filter((id) => id !== undefined && !this.known.has(id) && !this.mine.has(id)) as string[];
    if (unknown.length === 0) return;
    const before = new Set(held.map((m) => m.id));
    for (const id of unknown) (before.has(id) ? this.mine : this.known).add(id);
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

/** What a client holds, its activities as a snapshot has them; as they are where that has none. */
export function withActivitiesOf(listed: readonly Message[], held: readonly Message[]): Message[] {
  const told = new Map(listed.filter((m) => m.role === "activity").map((m) => [m.id, m]));
  return held.flatMap((m) => (m.role !== "activity" || told.size === 0 ? [m] : (told.get(m.id) ?? [])));
}

/** Puts each of own behind the message that it follows in held, or first. Agents exist whose messages share an id. */
function weave(listed: Message[], own: Message[], held: readonly Message[]): Message[] {
  const mine = new Set(own);
  const places = new Map<string, Message[]>();
  for (const m of listed) places.set(m.id, [...(places.get(m.id) ?? []), m]);
  const behind = new Map<Message | undefined, Message[]>();
  let anchor: Message | undefined;
  for (const m of held) {
    const place = places.get(m.id);
    if (place) anchor = place.length > 1 ? place.shift() : place[0];
    else if (mine.has(m)) behind.set(anchor, [...(behind.get(anchor) ?? []), m]);
  }
  return [undefined, ...listed].flatMap((m) => [...(m ? [m] : []), ...(behind.get(m) ?? [])]);
}
