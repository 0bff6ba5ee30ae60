import { Component, createRef } from "preact";
import { soon } from "./draw";

interface ComposerProps {
  agents: readonly string[];
  /** The one of them that is spoken to. */
  agent: string;
  onAgent(agent: string): void;
  /** Why nothing can be said now; empty where something can. */
  busy: string;
  onSend(text: string): Promise<void>;
}

/** A box to say something to an agent that the hub knows by name. */
export class Composer extends Component<ComposerProps> {
  private readonly box = createRef<HTMLTextAreaElement>();
  private error = "";

  private readonly send = async () => {
    const box = this.box.current!;
    const text = box.value;
    const { busy, onSend } = this.props;
    if (!text.trim() || busy) return;
    this.error = "";
    box.value = "";
    this.fit();
    soon();
    try {
      await onSend(text);
    } catch (error) {
      this.error = error instanceof Error ? error.message : String(error);
      box.value ||= text;
      soon();
    }
  };

  /** As high as what is written in it. */
  private readonly fit = () => {
    const box = this.box.current!;
    box.style.height = "auto";
    box.style.height = Math.min(180, box.scrollHeight + 2) + "px";
  };

  override render({ agents, agent, onAgent, busy }: ComposerProps) {
    return (
      <form class="composer" onSubmit={(e) => { e.preventDefault(); void this.send(); }}>
        {this.error && <div class="failed" role="alert">{this.error}</div>}
        <textarea ref={this.box} id="compose" rows={1} placeholder={busy || "Say something to the agent"} aria-label="Message to the agent" onInput={this.fit}
          onKeyDown={(e) => { if (e.key === "Enter" && !e.shiftKey && !e.isComposing) { e.preventDefault(); void this.send(); } }} />
        <select aria-label="Agent" value={agent} onChange={(e) => onAgent(e.currentTarget.value)}>
          {agents.map((a) => <option key={a} value={a}>{a}</option>)}
        </select>
        <button class="primary" disabled={busy !== ""} title={busy || "Send (Enter)"}>Send</button>
      </form>
    );
  }
}
