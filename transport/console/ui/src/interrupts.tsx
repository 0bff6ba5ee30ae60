import type { Interrupt, ResumeEntry } from "@ag-ui/client";
import { Component } from "preact";
import { soon } from "./draw";
import { Long } from "./text";

interface InterruptsProps {
  interrupts: readonly Interrupt[];
  /** Who gets the answers; undefined where the hub knows no agent, or what is shown is no thread. */
  agent: string | undefined;
  /** Why nobody can be answered, where that is so. */
  hint: string;
  onAnswer(resume: ResumeEntry[]): Promise<void>;
}

type Fields = Record<string, unknown>;

/** What interrupts ask, and a form to answer them. All of a thread's are answered at once: the hub takes no less. */
export class Interrupts extends Component<InterruptsProps> {
  private readonly given = new Map<string, ResumeEntry>();
  private readonly texts = new Map<string, string>();
  private sending = false;
  private error = "";

  private readonly send = async () => {
    const { interrupts, onAnswer } = this.props;
    const resume = interrupts.map((i) => this.given.get(i.id));
    if (this.sending || !resume.every((r) => r !== undefined)) return;
    this.sending = true;
    this.error = "";
    soon();
    try {
      await onAnswer(resume);
    } catch (error) {
      this.error = error instanceof Error ? error.message : String(error);
    }
    this.sending = false;
    this.given.clear();
    soon();
  };

  /** Takes an answer. The only one is sent at once. */
  private give(entry: ResumeEntry): void {
    this.given.set(entry.interruptId, entry);
    if (this.props.interrupts.length === 1) void this.send();
    soon();
  }

  private resolve(i: Interrupt, payload: unknown): void {
    this.give({ interruptId: i.id, status: "resolved", payload });
  }

  private one(i: Interrupt, able: boolean) {
    const given = this.given.get(i.id);
    const said = (payload: unknown) => given?.status === "resolved" && JSON.stringify(given.payload) === JSON.stringify(payload);
    const expired = i.expiresAt !== undefined && Date.parse(i.expiresAt) <= Date.now();
    const off = !able || this.sending;
    const decision = decisionOf(i.responseSchema);
    const answer = (e: SubmitEvent) => {
      e.preventDefault();
      const text = this.texts.get(i.id) ?? "";
      if (text.trim()) this.resolve(i, valueOf(text, i.responseSchema));
    };
    return (
      <fieldset key={i.id} class="interrupt" disabled={off}>
        <legend>{i.toolCallId ? "A tool call waits for an answer" : "Waits for an answer"}</legend>
        <Long text={i.message ?? i.reason} />
        {i.expiresAt && <div class="dim">{expired ? "Expired" : "Expires"} {new Date(i.expiresAt).toLocaleString()}{expired && ": it can only be cancelled"}</div>}
        <div class="answers">
          {decision && !expired && (
            <>
              <button aria-pressed={said(decision(true))} onClick={() => this.resolve(i, decision(true))}>Approve</button>
              <button aria-pressed={said(decision(false))} onClick={() => this.resolve(i, decision(false))}>Deny</button>
            </>
          )}
          {!expired && (
            <form onSubmit={answer as never}>
              <input aria-label="Answer, as text or JSON" placeholder={(decision ? "or " : "") + "an answer in words, or as JSON"} autocomplete="off"
                onInput={(e) => this.texts.set(i.id, e.currentTarget.value)} />
              <button aria-pressed={given?.status === "resolved" && !(decision && (said(decision(true)) || said(decision(false))))}>Answer</button>
            </form>
          )}
          <button class="danger" aria-pressed={given?.status === "cancelled"} onClick={() => this.give({ interruptId: i.id, status: "cancelled" })}>Cancel</button>
        </div>
        {i.responseSchema && <div class="dim mono">expects {JSON.stringify(i.responseSchema).slice(0, 400)}</div>}
      </fieldset>
    );
  }

  override render({ interrupts, agent, hint }: InterruptsProps) {
    const left = interrupts.filter((i) => !this.given.has(i.id)).length;
    return (
      <section class="interrupts" aria-label="Interrupts">
        {interrupts.map((i) => this.one(i, agent !== undefined))}
        {hint && <p class="dim">{hint}</p>}
        {this.error && <p class="failed" role="alert">{this.error}</p>}
        {interrupts.length > 1 && agent !== undefined && (
          <button class="primary" disabled={left > 0 || this.sending} onClick={() => void this.send()}>{left > 0 ? `${left} more to answer` : "Send the answers"}</button>
        )}
      </section>
    );
  }
}

/** How an approval is said; undefined where the agent expects something else. */
function decisionOf(schema: Fields | undefined): ((yes: boolean) => unknown) | undefined {
  if (schema === undefined) return (approved) => ({ approved });
  if (schema["type"] === "boolean") return (yes) => yes;
  const properties = schema["properties"] as Fields | undefined;
  const name = ["approved", "approve", "accepted", "confirmed"].find((n) => properties !== undefined && Object.hasOwn(properties, n));
  return name === undefined ? undefined : (yes) => ({ [name]: yes });
}

/** What somebody wrote, as the value that is meant: JSON where it is that and no string is expected. */
function valueOf(text: string, schema: Fields | undefined): unknown {
  if (schema?.["type"] === "string") return text;
  try {
    return JSON.parse(text) as unknown;
  } catch {
    return text;
  }
}
