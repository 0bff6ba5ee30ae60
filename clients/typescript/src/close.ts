import { HubError } from "./errors.js";

/** How a connection ended. */
export interface Closed {
  /** A close code of the hub's contract, section 3; 1006 where the connection just broke. */
  code: number;
  reason: string;
  /** The hub's word on when to come back, in milliseconds. */
  retryAfterMs?: number;
}

/** Codes after which nothing is to be gained by coming back. 4401 and 4404 are looked at by themselves. */
const final: Record<number, string> = {
  1003: "bad_frame",
  1009: "message_too_big",
  4400: "bad_request",
  4403: "forbidden",
  4413: "conversation_too_large",
};

/** The error that a close code stands for. */
export function closeError(c: Closed): HubError {
  const code = final[c.code] ?? (c.code === 4401 ? "unauthorized" : c.code === 4404 ? "unknown_run" : "closed");
  return new HubError(code, c.reason || "the connection was closed with " + c.code, c.code);
}

export function isFinal(code: number): boolean {
  return code in final;
}

/** The close code that a WebSocket would have had, for the HTTP status of a refused event stream. */
export function codeOfStatus(status: number): number {
  switch (status) {
    case 204:
      return 1000;
    case 400:
    case 405:
      return 4400;
    case 401:
      return 4401;
    case 403:
      return 4403;
    case 404:
      return 4404;
    case 413:
      return 4413;
    case 429:
      return 4429;
    case 503:
      return 1013;
    default:
      return 1011;
  }
}
