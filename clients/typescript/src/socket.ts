import type { HubSocket, WebSocketConstructor } from "./options.js";
import type { Line, Wire, WireSink } from "./wire.js";

/** The WebSocket binding: docs/contract.md, section 3. */
const subprotocol = "ag-ui.hub.v1.json";

/** Connects; throws where the class can't. A token goes as a second subprotocol, since browsers can't send header fields. */
export function openSocket(Socket: WebSocketConstructor, url: string, token: string | undefined, sink: WireSink): Wire {
  const ws = new Socket(url, token ? [subprotocol, "ag-ui.bearer." + token] : [subprotocol]) as HubSocket;
  let over = false;
  const end = (code: number, reason: string) => {
    if (over) return;
    over = true;
    sink.closed({ code, reason });
  };
  ws.onopen = () => over || sink.heard();
  ws.onmessage = (e: { data: unknown }) => {
    if (over) return;
    sink.heard();
    try {
      for (const line of String(e.data).split("\n")) if (line && !over) sink.line(JSON.parse(line) as Line);
    } catch (error) {
      // A frame that isn't JSON comes from something between us and the hub.
      ws.close();
      end(1006, "a message that can't be read: " + String(error));
    }
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
