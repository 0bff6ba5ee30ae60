// A small AG-UI agent over HTTP, without any dependency: it takes a RunAgentInput by POST and answers with an event stream.
//
//   node examples/node/agent.mjs            # http://127.0.0.1:8000/
//
// It knows nothing of aguihub. Put your own agent in its place.
import http from "node:http";
import { setTimeout as sleep } from "node:timers/promises";

const port = Number(process.env.PORT ?? 8000);
const pause = Number(process.env.PAUSE_MS ?? 120); // between two words

/** What the last message of the user says, whether it is a text or parts. */
function question(messages) {
  const content = messages.findLast((m) => m.role === "user")?.content ?? "";
  return typeof content === "string" ? content : content.map((part) => part.text ?? "").join(" ");
}

async function* answer({ threadId, runId, messages }) {
  yield { type: "RUN_STARTED", threadId, runId };
  const messageId = `answer-${runId}`;
  yield { type: "TEXT_MESSAGE_START", messageId, role: "assistant" };
  const text = `You said "${question(messages)}". This answer takes its time, so that you can reload the page, close it, or open it twice: none of that stops me.`;
  for (const word of text.split(/(?<= )/)) {
    yield { type: "TEXT_MESSAGE_CONTENT", messageId, delta: word };
    await sleep(pause);
  }
  yield { type: "TEXT_MESSAGE_END", messageId };
  yield { type: "RUN_FINISHED", threadId, runId };
}

const server = http.createServer(async (request, response) => {
  if (request.method !== "POST") return response.writeHead(405, { allow: "POST" }).end();
  let body = "";
  for await (const chunk of request.setEncoding("utf8")) body += chunk;
  let input;
  try { input = JSON.parse(body); } catch { return response.writeHead(400).end("not JSON\n"); }
  response.writeHead(200, { "content-type": "text/event-stream", "cache-control": "no-cache" });
  for await (const event of answer(input)) {
    if (response.destroyed) { console.log(`run ${input.runId} was broken off`); return; }
    response.write(`data: ${JSON.stringify(event)}\n\n`);
  }
  response.end();
  console.log(`run ${input.runId} is done`);
});
server.listen(port, "127.0.0.1", () => console.log(`agent at http://127.0.0.1:${server.address().port}/`));
