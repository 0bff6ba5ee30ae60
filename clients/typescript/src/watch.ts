/** A thread that is watched: docs/clients.md. */
export interface Watch {
  /** Stops watching. The agent keeps what it holds. Resolves when nothing more is applied. */
  stop(): Promise<void>;
  /** Resolves when it was stopped; rejects when it can't go on. */
  readonly done: Promise<void>;
}
