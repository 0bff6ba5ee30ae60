// An agent in the process of the runtime, that needs no model: it thinks of a tool, then answers word by word. Put your own in its place.
import { AbstractAgent } from "@ag-ui/client";
import { Observable } from "rxjs";

const pause = Number(process.env.PAUSE_MS ?? 120); // between two words
const sleep = (ms, signal) => new Promise((resolve) => { setTimeout(resolve, ms); signal.addEventListener("abort", resolve); });

export class SlowAgent extends AbstractAgent {
  run({ threadId, runId, messages }) {
    const stop = (this.stop = new AbortController());
    return new Observable((sub) => {
      const say = (event) => sub.next(event);
      (async () => {
        const asked = messages.findLast((m) => m.role === "user")?.content ?? "";
        say({ type: "RUN_STARTED", threadId, runId });
        say({ type: "TOOL_CALL_START", toolCallId: `call-${runId}`, toolCallName: "look_around" });
        say({ type: "TOOL_CALL_ARGS", toolCallId: `call-${runId}`, delta: "{}" });
        say({ type: "TOOL_CALL_END", toolCallId: `call-${runId}` });
        say({ type: "TOOL_CALL_RESULT", toolCallId: `call-${runId}`, messageId: `result-${runId}`, role: "tool", content: "all is well" });
        const messageId = `answer-${runId}`;
        say({ type: "TEXT_MESSAGE_START", messageId, role: "assistant" });
        const text = `You said "${asked}". This answer takes its time, so that you can reload the page, or open it twice: none of that stops me.`;
        for (const delta of text.split(/(?<= )/)) {
          if (stop.signal.aborted) break; // the runner ends the run
          say({ type: "TEXT_MESSAGE_CONTENT", messageId, delta });
          await sleep(pause, stop.signal);
        }
        if (!stop.signal.aborted) {
          say({ type: "TEXT_MESSAGE_END", messageId });
          say({ type: "RUN_FINISHED", threadId, runId });
        }
        sub.complete();
      })();
    });
  }
  abortRun() { this.stop?.abort(); }
}
