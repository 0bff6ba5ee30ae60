import { Component, createRef } from "preact";
import { soon } from "./draw";

interface ComposerProps {
  agents: readonly string[];
  running: boolean;
  onSend(text: string, agent: string): Promise<void>;
}

/** A box to say something to an agent that the hub knows by name. */
export class Composer extends Component<ComposerProps> {
  private readonly box = createRef<HTMLTextAreaElement>();
  private agent = "";
  private error = "";

  private readonly send = async () => {
    const box = this.box.current!;
    const text = box.value;
    const { agents, running, onSend } = this.props;
    if (!text.trim() || running) return;
    this.error = "";
    box.value = "";
    this.fit();
    soon();
    try {
      await onSend(text, agents.includes(this.agent) ? this.agent : agents[0]!);
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

  override render({ agents, running }: ComposerProps) {
    return (
      <form class="composer" onSubmit={(e) => { e.preventDefault(); void this.send(); }}>
        {this.error && <div class="failed" role="alert">{this.error}</div>}
        <textarea ref={this.box} id="compose" rows={1} placeholder={running ? "A run is active" : "Say something to the agent"} aria-label="Message to the agent" onInput={this.fit}
          onKeyDown={(e) => { if (e.key === "Enter" && !e.shiftKey && !e.isComposing) { e.preventDefault(); void this.send(); } }} />
        <select aria-label="Agent" value={this.agent || agents[0]} onChange={(e) => { this.agent = e.currentTarget.value; }}>
          {agents.map((a) => <option key={a} value={a}>{a}</option>)}
        </select>
        <button class="primary" disabled={running} title={running ? "A run is active" : "Send (Enter)"}>Send</button>
      </form>
    );
  }
}
