import type { BaseEvent, Message } from "@ag-ui/client";

/**
 * Lets a text grow without a copy of all messages, which the official reducer makes at each event: a thousand times a
 * second that is most of what the page does, and what the browser then has to sweep holds it up for long. To be called
 * before the reducer takes an event. In the build that this page has of it (the version is pinned) the messages that it
 * shows to subscribers are its own, unless they are frozen: the text is written there, as it would, and what is shown gets
 * a message anew. Returns the messages to show; undefined where the reducer is to take the event itself.
 */
export function grow(event: BaseEvent, own: readonly Message[], shown: readonly Message[]): Message[] | undefined {
  if (event.type !== "TEXT_MESSAGE_CONTENT" && event.type !== "REASONING_MESSAGE_CONTENT") return undefined;
  const { messageId, delta, metadata } = event as unknown as { messageId: string; delta: string; metadata?: unknown };
  if (metadata !== undefined || Object.isFrozen(own) || own.length !== shown.length) return undefined;
  const at = own.findIndex((m) => m.id === messageId);
  const message = own[at];
  const before = shown[at];
  if (!message || !before || before.id !== messageId || message.role === "activity" || typeof message.content !== "string") return undefined;
  message.content += delta;
  return (shown as Message[]).with(at, { ...before, content: message.content } as Message);
}
