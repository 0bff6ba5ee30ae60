import type { AgentConfig } from "@ag-ui/client";
import type { ConnectionStatus } from "./status.js";
import type { Timing } from "./timing.js";
import type { Line } from "./wire.js";

/** How to bring a client on that was away: by snapshots, by the missed events while they are few, or by the smaller. */
export type Catchup = "auto" | "snapshot" | "events";

/** "auto" takes a WebSocket, and server-sent events where WebSockets don't get through. */
export type Transport = "auto" | "websocket" | "sse";

/** Why a token is asked for. */
export interface TokenRequest {
  /** The last one was refused or is about to expire: one from a cache won't do. */
  refresh: boolean;
}

/** The part of the WebSocket standard that is used. */
export interface HubSocket {
  readonly readyState: number;
  send(data: string): void;
  close(code?: number, reason?: string): void;
  onopen: ((e: never) => void) | null;
  onmessage: ((e: never) => void) | null;
  onerror: ((e: never) => void) | null;
  onclose: ((e: never) => void) | null;
}

/** A WebSocket class: the global one, or that of a library. */
export type WebSocketConstructor = new (url: string, protocols?: string[]) => object;

export interface HubAgentOptions extends AgentConfig {
  /** Where the hub is: "https://hub.example.com", with a path if it is mounted at one, or a path of the page's own origin. */
  url: string;
  /** Attach to this run. Without it an attach is to the agent's thread, whichever run is active there. */
  runId?: string;
  /** The name of the agent at the hub that runAgent() calls: `--agent name=…`. */
  agent?: string;
  /** Gives the token to show to the hub. Called for each connection. */
  getToken?: (request: TokenRequest) => string | undefined | Promise<string | undefined>;
  /** "auto" by default. */
  catchup?: Catchup;
  /** "auto" by default. */
  transport?: Transport;
  /** The class to connect with where there is no global one, as in Node 20. */
  WebSocket?: WebSocketConstructor;
  /** On a thread: follow the branch of this run. */
  head?: string;
  /** Called at each change of the connection, but for its cursor and its lag. */
  onConnectionState?: (status: ConnectionStatus) => void;
  /** Called when the cursor has moved: everything up to it has been applied. */
  onCursor?: (cursor: string) => void;
  /** Called with each line of the hub as it comes, before it is applied: for tools that show the wire. It must not change the line. */
  onLine?: (line: Line) => void;
  /** For tests, and for networks that are unlike others. */
  timing?: Partial<Timing>;
}
