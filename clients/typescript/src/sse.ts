import type { BaseEvent } from "@ag-ui/client";
import { codeOfStatus } from "./close.js";
import { refusal } from "./errors.js";
import { Slices } from "./timing.js";
import type { Control, Wire, WireSink } from "./wire.js";

/**
 * The SSE binding: docs/contract.md, section 4, read with fetch, since EventSource can't send a token. It is told to the
 * sink in the control lines of the WebSocket binding, so that there is one reader for both: events without an id are held
 * back until one has an id or an id stands alone, which is the end of a bracket.
 */
export function openStream(url: string, token: string | undefined, resumes: boolean, sink: WireSink): Wire {
  const abort = new AbortController();
  let over = false;
  const end = (code: number, reason: string, retryAfterMs?: number) => {
    if (over) return;
    over = true;
    sink.closed(retryAfterMs === undefined ? { code, reason } : { code, reason, retryAfterMs });
  };
  const bracket = (fresh: boolean) => sink.line({ control: "catchup", mode: fresh ? "fresh" : "events" });
  let terminal = false;
  const block = (text: string) => {
    let data = "";
    let name = "";
    let id: string | undefined;
    for (const line of text.split("\n")) {
      const colon = line.indexOf(":");
      if (colon < 1) continue;
      const value = line.slice(line[colon + 1] === " " ? colon + 2 : colon + 1);
      switch (line.slice(0, colon)) {
        case "data":
          data += (data && "\n") + value;
          break;
        case "event":
          name = value;
          break;
        case "id":
          id = value;
          break;
        case "retry":
          sink.line({ control: "draining", retryAfterMs: Number(value) });
      }
    }
    if (name === "reset") {
      sink.line(JSON.parse(data) as Control);
      bracket(true);
    } else if (data) {
      const event = JSON.parse(data) as BaseEvent;
      terminal = event.type === "RUN_FINISHED" || event.type === "RUN_ERROR";
      sink.line(id === undefined ? { event } : { event, id });
    } else if (id !== undefined) {
      sink.line({ control: "live", id });
    }
  };
  const read = async () => {
    const headers: Record<string, string> = { accept: "text/event-stream" };
    if (token) headers["authorization"] = "Bearer " + token;
    const answer = await fetch(url, { headers, signal: abort.signal, cache: "no-store" });
    sink.heard();
    if (answer.status !== 200 || !answer.body) {
      const wait = Number(answer.headers.get("retry-after")) * 1000 || undefined;
      const why = await refusal(answer);
      return end(codeOfStatus(answer.status), why.message, wait);
    }
    bracket(!resumes);
    const reader = answer.body.getReader();
    const decoder = new TextDecoder();
    const slices = new Slices();
    let rest: string[] = [];
    for (;;) {
      const { done, value } = await reader.read();
      if (over) return;
      if (done) break;
      sink.heard();
      const text = decoder.decode(value, { stream: true });
      rest.push(text);
      if (!text.includes("\n")) continue; // amid a large event: looked at once, not with each piece
      const blocks = rest.join("").split("\n\n");
      rest = [blocks.pop() ?? ""];
      slices.begin();
      for (const b of blocks) {
        if (!over) block(b);
        if (slices.over) await slices.next();
      }
    }
    end(terminal ? 1000 : 1006, "the stream ended");
  };
  read().catch((error: unknown) => end(1006, String(error)));
  return {
    kind: "sse",
    send: () => false,
    close() {
      over = true;
      abort.abort();
    },
  };
}
