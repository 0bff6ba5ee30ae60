// What the tests in Chromium share: the browser, pages with the client in them, and something that serves these.
import fs from "node:fs";
import http from "node:http";
import os from "node:os";
import path from "node:path";
import { build } from "esbuild";
import { chromium } from "playwright-core";
import { here } from "../lib.mjs";

const root = path.join(here, "../../..");

/** The pages' modules, by file name: the client with each version of its peer, and what the tests do in the page. */
async function bundles() {
  const of = async (version, name) => {
    const alias = name ? { "@ag-ui/client": name } : {};
    const { outputFiles } = await build({ stdin: { contents: `export * from "./src/index.ts"; export * from "./test/browser/page.mjs";`, resolveDir: path.join(here, "..") }, bundle: true, format: "esm", target: "es2022", write: false, alias, logLevel: "warning" });
    return [`/${version}.js`, outputFiles[0].text];
  };
  return Object.fromEntries(await Promise.all([of("1.0.0"), of("0.0.59", "client059"), of("0.0.57", "client057")]));
}

/** Serves blank pages, the modules, and the example without a build step. */
export async function site() {
  const files = { ...(await bundles()), "/": "<!doctype html><meta charset=utf-8><link rel=icon href='data:,'><title>test</title><body>" };
  const example = path.join(root, "examples/html");
  const server = http.createServer((request, response) => {
    const { pathname } = new URL(request.url, "http://x");
    let body = files[pathname];
    if (pathname === "/html/") body = fs.readFileSync(path.join(example, "index.html"));
    if (pathname === "/html/aguihub.js") body = fs.readFileSync(path.join(here, "../dist/standalone.js"));
    if (body === undefined) return response.writeHead(404).end();
    response.writeHead(200, { "content-type": pathname.endsWith(".js") ? "text/javascript" : "text/html", "cache-control": "no-store" }).end(body);
  });
  await new Promise((r) => server.listen(0, "127.0.0.1", r));
  return { url: `http://127.0.0.1:${server.address().port}`, stop: () => { server.close(); server.closeAllConnections(); } };
}

/** Chromium with a profile of its own, which goes with it. */
export async function browser() {
  const dir = fs.mkdtempSync(path.join(os.tmpdir(), "aguihub-chromium-"));
  const context = await chromium.launchPersistentContext(dir, {
    executablePath: process.env.CHROMIUM ?? "/usr/bin/chromium",
    headless: true,
    viewport: { width: 900, height: 700 },
    args: ["--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking", "--disable-component-update", "--disable-sync", "--disable-dev-shm-usage"],
  });
  return { context, stop: async () => { await context.close(); fs.rmSync(dir, { recursive: true, force: true }); } };
}

/** A page with the client in it, as `window.client`; log has what the page complained of. */
export async function pageWith(context, url, version = "1.0.0") {
  const page = await context.newPage();
  page.log = [];
  page.on("pageerror", (e) => page.log.push(String(e)));
  page.on("console", (m) => m.type() === "error" && page.log.push(m.text()));
  await page.goto(url);
  await page.evaluate((file) => import(file).then((m) => { window.client = m; }), `/${version}.js`);
  return page;
}

/** A picture to look at, where SCREENSHOTS names a folder. */
export async function picture(page, name) {
  if (process.env.SCREENSHOTS) await page.screenshot({ path: path.join(process.env.SCREENSHOTS, `${name}.png`) });
}
