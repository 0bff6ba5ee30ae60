import type { BaseEvent } from "@ag-ui/client";
import type { Closed } from "./close.js";

/** A control line of the hub: docs/contract.md, section 3. Fields that one doesn't have are undefined. */
export interface Control {
  control: string;
  id?: string | null;
  from?: string | null;
  run?: string | null;
  history?: "full" | "partial";
  hub?: string;
  mode?: Mode;
  reason?: string;
  code?: string;
  message?: string;
  retryAfterMs?: number;
}

export type Mode = "fresh" | "snapshot" | "events";

/** An event line. With an id one may resume after it. */
export interface EventLine {
  event: BaseEvent;
  id?: string;
}

export type Line = Control | EventLine;

/** What a wire tells. Nothing comes after closed. */
export interface WireSink {
  /** Something has come, whatever it was. */
  heard(): void;
  line(line: Line): void;
  closed(how: Closed): void;
}

/** A connection to the hub. */
export interface Wire {
  readonly kind: "websocket" | "sse";
  /** Sends a control line; false where that can't be done. */
  send(line: object): boolean;
  /** Ends it, without a word to the sink. */
  close(): void;
}
