import type { Closed } from "./close.js";
import type { HubSocket, WebSocketConstructor } from "./options.js";
import { Slices } from "./timing.js";
import type { Line, Wire, WireSink } from "./wire.js";

/** The WebSocket binding: docs/contract.md, section 3. */
const subprotocol = "ag-ui.hub.v1.json";

/** Connects; throws where the class can't. A token goes as a second subprotocol, since browsers can't send header fields. */
export function openSocket(Socket: WebSocketConstructor, url: string, token: string | undefined, sink: WireSink): Wire {
  const ws = new Socket(url, token ? [subprotocol, "ag-ui.bearer." + token] : [subprotocol]) as HubSocket;
  let over = false;
  let ended: Closed | undefined;
  const waiting: string[] = [];
  let reading = false;
  const slices = new Slices();
  const end = (code: number, reason: string) => {
    ended ??= { code, reason };
    if (over || reading) return;
    over = true;
    sink.closed(ended);
  };
  /** Tells what has come. A message may have thousands of lines, and many may have come at once. */
  const read = async () => {
    if (reading) return;
    reading = true;
    slices.begin();
    try {
      for (let text; (text = waiting.shift()) !== undefined; ) {
        for (const line of text.split("\n")) {
          if (over) return;
          if (line) sink.line(JSON.parse(line) as Line);
          if (slices.over) await slices.next();
        }
      }
    } catch (error) {
      // A frame that isn't JSON comes from something between us and the hub.
      waiting.length = 0;
      ws.close();
      ended = { code: 1006, reason: "a message that can't be read: " + String(error) };
    }
    reading = false;
    if (ended) end(ended.code, ended.reason);
  };
  ws.onopen = () => over || sink.heard();
  ws.onmessage = (e: { data: unknown }) => {
    if (over) return;
    sink.heard();
    waiting.push(String(e.data));
    void read();
  };
  ws.onerror = () => {}; // followed by onclose; where it isn't handled the ws library throws
  ws.onclose = (e: { code?: number; reason?: string }) => end(e.code ?? 1006, e.reason ?? "");
  return {
    kind: "websocket",
    send(line) {
      if (over || ws.readyState !== 1) return false;
      ws.send(JSON.stringify(line));
      return true;
    },
    close() {
      over = true;
      ws.close(1000);
    },
  };
}
