// An agent on TanStack AI: its reading of RunAgentInput, its loop over tools, its interrupts, its event stream. Only the model
// is a stub, and does what the user's last message says. Prints its address.
import http from "node:http";
import { chat, chatParamsFromRequest, toServerSentEventsResponse, toolDefinition } from "@tanstack/ai";
import { BaseTextAdapter } from "@tanstack/ai/adapters";

const textOf = (m) => typeof m.content === "string" ? m.content : (m.content ?? m.parts ?? []).map((p) => p.content ?? p.text ?? "").join("");

class Stub extends BaseTextAdapter {
  name = "stub";

  constructor() { super({}, "stub-1"); }

  async structuredOutput() { throw new Error("not asked for"); }

  async *chatStream({ messages, threadId, runId, logger }) {
    const id = { threadId, runId };
    const last = messages.at(-1);
    const asked = textOf(messages.filter((m) => m.role === "user").at(-1) ?? {});
    const model = this.model;
    yield { type: "RUN_STARTED", ...id, model, timestamp: Date.now() };
    const call = last?.role !== "tool" && /^(add|ask|show)/.exec(asked)?.[1];
    if (call) {
      const toolCallId = `call-${runId}`, args = JSON.stringify({ a: 2, b: 3 });
      yield { type: "TOOL_CALL_START", toolCallId, toolCallName: call, toolName: call, index: 0, model, timestamp: Date.now() };
      for (const delta of [args.slice(0, 4), args.slice(4)]) yield { type: "TOOL_CALL_ARGS", toolCallId, delta, model, timestamp: Date.now() };
      yield { type: "TOOL_CALL_END", toolCallId, toolCallName: call, toolName: call, input: { a: 2, b: 3 }, model, timestamp: Date.now() };
      yield { type: "RUN_FINISHED", ...id, finishReason: "tool_calls", model, timestamp: Date.now() };
      return;
    }
    if (asked.startsWith("fail")) throw new Error("the model is away");
    const messageId = `m-${runId}`;
    yield { type: "TEXT_MESSAGE_START", messageId, role: "assistant", model, timestamp: Date.now() };
    for (const delta of ["You said: ", asked, last?.role === "tool" ? `; the tool said ${textOf(last)}` : "", " ✓"]) {
      if (delta) yield { type: "TEXT_MESSAGE_CONTENT", messageId, delta, model, timestamp: Date.now() };
    }
    yield { type: "TEXT_MESSAGE_END", messageId, model, timestamp: Date.now() };
    yield { type: "RUN_FINISHED", ...id, finishReason: "stop", usage: { promptTokens: 1, completionTokens: 2, totalTokens: 3 }, model, timestamp: Date.now() };
  }
}

const numbers = { type: "object", properties: { a: { type: "number" }, b: { type: "number" } }, required: ["a", "b"] };
const sum = async ({ a, b }) => ({ sum: a + b });
const tools = [
  toolDefinition({ name: "add", description: "adds", inputSchema: numbers }).server(sum),
  toolDefinition({ name: "ask", description: "adds, if it may", inputSchema: numbers, needsApproval: true }).server(sum),
];

const server = http.createServer(async (req, res) => {
  const left = new AbortController();
  res.on("close", () => left.abort());
  const chunks = [];
  for await (const c of req) chunks.push(c);
  const request = new Request("http://agent.invalid/run", { method: "POST", headers: { "content-type": "application/json" }, body: Buffer.concat(chunks) });
  let response;
  try {
    const { messages, threadId, runId, parentRunId, resume, tools: frontend } = await chatParamsFromRequest(request);
    const shown = frontend.map((t) => toolDefinition({ name: t.name, description: t.description, inputSchema: t.parameters }).client());
    response = toServerSentEventsResponse(chat({
      adapter: new Stub(), messages, threadId, runId, parentRunId, resume, tools: [...tools, ...shown], abortController: left,
    }), { abortController: left });
  } catch (e) { response = e instanceof Response ? e : new Response(String(e?.stack ?? e), { status: 500 }); }
  res.writeHead(response.status, Object.fromEntries(response.headers));
  try { for await (const piece of response.body) res.write(piece); } catch { /* the caller has left */ }
  res.end();
});
server.listen(0, "127.0.0.1", () => console.log(`http://127.0.0.1:${server.address().port}/`));
process.stdin.on("end", () => process.exit(0)).resume();
