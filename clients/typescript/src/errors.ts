/** Why an attach or a run couldn't go on. What a later attempt could mend is never thrown: it is tried again. */
export class HubError extends Error {
  override readonly name = "HubError";
  /**
   * @param code a stable word: the hub's error code, or one of this client's own
   * @param status the WebSocket's close code or the HTTP status; 0 where there was neither
   */
  constructor(
    readonly code: string,
    message: string,
    readonly status = 0,
  ) {
    super(message);
  }
}

/** The error that a refused HTTP request tells: an RFC 9457 problem where the hub answered, else the bare status. */
export async function refusal(answer: Response): Promise<HubError> {
  let code = "http_" + answer.status;
  let message = "the hub answered " + answer.status;
  try {
    const problem = (await answer.json()) as { code?: unknown; detail?: unknown; title?: unknown };
    if (typeof problem.code === "string") code = problem.code;
    const text = problem.detail ?? problem.title;
    if (typeof text === "string") message = text;
  } catch {
    // A proxy's page.
  }
  return new HubError(code, message, answer.status);
}
