export { HubAgent } from "./agent.js";
export { HubError } from "./errors.js";
export type { Catchup, HubAgentOptions, TokenRequest, Transport, WebSocketConstructor } from "./options.js";
export type { ConnectionState, ConnectionStatus } from "./status.js";
export type { Timing } from "./timing.js";
export type { Watch } from "./watch.js";
export type { Control, EventLine, Line, Mode } from "./wire.js";
