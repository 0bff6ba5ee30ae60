import type { TokenRequest } from "./options.js";

/** Where a hub is, and what to show to it. */
export interface HubAddress {
  url: string;
  getToken?: ((request: TokenRequest) => string | undefined | Promise<string | undefined>) | undefined;
}

/** The hub's address without a slash at its end; a path is one of the page's own origin. */
export function baseOf(url: string): string {
  const page = (globalThis as { location?: { href: string } }).location?.href;
  return new URL(url, page).href.replace(/[?#].*$/, "").replace(/\/+$/, "");
}

/**
 * Asks a hub by HTTP. Where it refuses the token, a new one is asked for and shown, once. A body that streams can't be sent
 * again: whoever sends one asks again, with anew.
 */
export async function request(hub: HubAddress, path: string, init: RequestInit, accept = "application/json", anew = false): Promise<Response> {
  const ask = async (refresh: boolean) => {
    const token = await hub.getToken?.({ refresh });
    const headers: Record<string, string> = { accept };
    if (init.body) headers["content-type"] = "application/json";
    Object.assign(headers, init.headers);
    if (token) headers["authorization"] = "Bearer " + token;
    return fetch(baseOf(hub.url) + path, { ...init, headers, cache: "no-store" });
  };
  const answer = await ask(anew);
  return answer.status === 401 && !anew && hub.getToken && !(init.body instanceof ReadableStream) ? ask(true) : answer;
}

/** How long a hub may take to answer what it needn't think about, in milliseconds. A network may swallow an answer and not say so. */
export const answerWait = 10_000;

/** Ends a request that isn't answered in time. */
export const inTime = (wait = answerWait) => AbortSignal.timeout(wait);

/** A run, as a list of runs has it. */
export interface RunSummary {
  run: string;
  state: string;
  startedAtMs?: number;
}

/** A thread's runs, newest first; none where nobody knows the thread, undefined where the hub couldn't be asked. */
export async function runsOf(hub: HubAddress, thread: string, wait = answerWait): Promise<RunSummary[] | undefined> {
  try {
    const answer = await request(hub, "/v1/threads/" + encodeURIComponent(thread), { signal: inTime(wait) });
    if (answer.status === 404) return [];
    return answer.ok ? ((await answer.json()) as { runs: RunSummary[] }).runs : undefined;
  } catch {
    return undefined;
  }
}

/** Whether a run has no end yet. */
export const goesOn = (r: { state: string }) => /^(running|cancel_requested|stalled)$/.test(r.state);

/** Asks the hub to end a run, for everybody. */
export function cancel(hub: HubAddress, run: string, reason?: string): Promise<Response> {
  return request(hub, `/v1/runs/${encodeURIComponent(run)}/cancel`, { method: "POST", body: JSON.stringify(reason ? { reason } : {}), signal: inTime() });
}
