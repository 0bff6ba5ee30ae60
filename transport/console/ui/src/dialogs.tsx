import { Component, createRef } from "preact";

export const shortcuts: [keys: string, what: string][] = [
  ["/", "filter the timeline"],
  ["j  k", "next, previous in the list"],
  ["1 – 4", "timeline, state, withheld, run"],
  ["c", "write to the agent"],
  ["e", "to the newest message"],
  ["d", "drop the connection"],
  ["o", "go offline, and back"],
  ["Shift+X", "cancel the run"],
  ["t", "light, dark, or as the system has it"],
  ["↑ ↓", "in the timeline: from event to event"],
  ["Esc", "close what is open, leave a field"],
  ["?", "this list"],
];

/** A modal dialog that is open as long as it is in the page. */
class Modal extends Component<{ label: string; onClose(): void }> {
  private readonly dialog = createRef<HTMLDialogElement>();

  override componentDidMount(): void {
    this.dialog.current!.showModal();
  }

  override render({ label, onClose, children }: Modal["props"] & { children?: preact.ComponentChildren }) {
    return <dialog ref={this.dialog} aria-label={label} onClose={onClose} onClick={(e) => { if (e.target === e.currentTarget) onClose(); }}>{children}</dialog>;
  }
}

export function Help({ onClose }: { onClose(): void }) {
  return (
    <Modal label="Shortcuts" onClose={onClose}>
      <h2>Shortcuts</h2>
      <dl class="keys">{shortcuts.map(([k, what]) => <div key={k}><dt><kbd>{k}</kbd></dt><dd>{what}</dd></div>)}</dl>
      <form method="dialog"><button>Close</button></form>
    </Modal>
  );
}

export function TokenForm({ refused, onToken }: { refused: boolean; onToken(token: string | undefined): void }) {
  const field = createRef<HTMLInputElement>();
  return (
    <Modal label="Token" onClose={() => onToken(undefined)}>
      <h2>This hub asks for a token</h2>
      {refused && <p class="failed" role="alert">It refused the one that it was given: another issuer's, or one that has ended.</p>}
      <p class="dim">It is kept until this tab is closed.</p>
      <form onSubmit={(e) => { e.preventDefault(); onToken(field.current!.value.trim() || undefined); }}>
        <input ref={field} type="password" aria-label="Token" autocomplete="off" />
        <button class="primary">Use it</button>
      </form>
    </Modal>
  );
}
