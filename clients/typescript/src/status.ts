import type { HubError } from "./errors.js";

/**
 * idle: not attached · connecting · catching-up: what was missed is coming · live · waiting: for the next attempt ·
 * offline: until the browser says that there is a network
 */
export type ConnectionState = "idle" | "connecting" | "catching-up" | "live" | "waiting" | "offline";

/** What is known of an agent's connection. */
export interface ConnectionStatus {
  state: ConnectionState;
  transport: "websocket" | "sse" | null;
  /** The newest place that has been applied; null before the first. */
  cursor: string | null;
  /** Events that have come and aren't applied yet. */
  lag: number;
  /** Connections after the first, of this attach. */
  reconnects: number;
  /** Resets of this attach: it began anew, since it couldn't be continued. */
  resets: number;
  /** How often the hub had to drop this client's queue and catch it up, during this attach. */
  lagged: number;
  /** Entries of this attach that the hub withheld, since the official client would have rejected them. */
  skipped: number;
  /** "partial": the hub doesn't know what the conversation began with. Null while that isn't known. */
  history: "full" | "partial" | null;
  /** The run that the attach is at. */
  run: string | null;
  /** The hub's name. */
  hub: string | null;
  /** Why the last connection ended, if it wasn't by its end. */
  error: HubError | null;
}

export function freshStatus(): ConnectionStatus {
  return {
    state: "idle",
    transport: null,
    cursor: null,
    lag: 0,
    reconnects: 0,
    resets: 0,
    lagged: 0,
    skipped: 0,
    history: null,
    run: null,
    hub: null,
    error: null,
  };
}
