// CopilotKit's runtime and the built page.
//
//   HUB_URL   the hub; http://127.0.0.1:8080
//   PORT      8002
import fs from "node:fs";
import http from "node:http";
import path from "node:path";
import { HubRunner } from "@aguihub/client/copilotkit";
import { CopilotRuntime } from "@copilotkit/runtime/v2";
import { createCopilotNodeListener } from "@copilotkit/runtime/v2/node";
import { SlowAgent } from "./agent.mjs";

const runtime = new CopilotRuntime({
  agents: { default: new SlowAgent() },
  runner: new HubRunner({ url: process.env.HUB_URL ?? "http://127.0.0.1:8080" }), // the one line
});
const copilotkit = createCopilotNodeListener({ runtime, basePath: "/api/copilotkit" });

const types = { ".html": "text/html; charset=utf-8", ".js": "text/javascript", ".css": "text/css" };
const dist = path.join(import.meta.dirname, "dist");
const server = http.createServer((request, response) => {
  const { pathname } = new URL(request.url, "http://here");
  if (pathname.startsWith("/api/copilotkit")) return copilotkit(request, response);
  const file = path.join(dist, pathname === "/" ? "index.html" : path.normalize(pathname));
  if (!file.startsWith(dist) || !fs.existsSync(file)) return response.writeHead(404).end();
  response.writeHead(200, { "content-type": types[path.extname(file)] ?? "application/octet-stream" });
  fs.createReadStream(file).pipe(response);
});
server.listen(Number(process.env.PORT ?? 8002), "127.0.0.1", () => console.log(`http://127.0.0.1:${server.address().port}/`));
