import { HubError } from "@aguihub/client";

// The hub that served the page, and what it is asked beside attaches.

/** The hub's address: that of the page, whatever path it is mounted at. */
export const base = new URL(".", location.href).href.replace(/\/$/, "");

export interface Run {
  run: string;
  thread?: string;
  parent?: string;
  state: string;
  startedAtMs?: number;
  newestAtMs?: number;
  entries: number;
}

export interface Withheld {
  id: string;
  reason: string;
  detail?: string;
}

export interface Detail extends Run {
  history: string;
  cursor: string;
  withheld: Withheld[];
  withheldByReason: Record<string, number>;
}

/** What the hub tells whoever has just opened the page. */
export interface Hint {
  version: string;
  publish: string;
}

const tokenKey = "aguihub-token";
let asked: Promise<string | undefined> | undefined;
let declined = false; // asked once, and not again until a reload
let prompt: (refused: boolean) => Promise<string | undefined> = () => Promise.resolve(undefined);

/** Sets how somebody is asked for a token, where the hub wants one; refused where it had one and didn't take it. */
export function onTokenNeeded(ask: (refused: boolean) => Promise<string | undefined>): void {
  prompt = ask;
}

/**
 * Gives one who asks the hub the token to show, which lives as long as the tab. Somebody is asked for one only if what this
 * one was given last is what is kept: another may have got a new one meanwhile.
 */
export function tokens(): (request: { refresh: boolean }) => Promise<string | undefined> {
  let last: string | undefined;
  return async ({ refresh }) => {
    const kept = sessionStorage.getItem(tokenKey) ?? undefined;
    if (!refresh || kept !== last) return (last = kept);
    if (declined) return undefined;
    asked ??= prompt(kept !== undefined).finally(() => (asked = undefined));
    const token = await asked;
    declined = !token;
    if (token) sessionStorage.setItem(tokenKey, token);
    return (last = token);
  };
}

/** Asks for a path and reads JSON. */
export async function get<T>(path: string, signal?: AbortSignal): Promise<T> {
  return (await answerOf(path, signal)).json() as Promise<T>;
}

/** The answer for a path. Asks for a token where the hub wants one. */
export async function answerOf(path: string, signal?: AbortSignal): Promise<Response> {
  const getToken = tokens();
  const ask = async (refresh: boolean) => {
    const token = await getToken({ refresh });
    return fetch(base + path, { headers: token ? { authorization: "Bearer " + token } : {}, cache: "no-store", signal: signal ?? null });
  };
  let answer = await ask(false);
  if (answer.status === 401) answer = await ask(true);
  if (answer.ok) return answer;
  const problem = (await answer.json().catch(() => ({}))) as { code?: string; detail?: string; title?: string };
  throw new HubError(problem.code ?? "http_" + answer.status, problem.detail ?? problem.title ?? "the hub answered " + answer.status, answer.status);
}

export const isActive = (state: string) => state === "running" || state === "cancel_requested" || state === "stalled";
