import { Component, type ComponentChildren } from "preact";
import { useState } from "preact/hooks";
import { copy } from "./copy";
import { full, markdown } from "./markdown";

/** How much of a long text is shown at first; each click shows four times as much, up to what a page can lay out. */
const firstChars = 4_000;
const mostChars = 256_000;

/** A text that may be very long. While it is written its end is shown, later its beginning. */
export function Long({ text, class: name = "", writing = false }: { text: string; class?: string; writing?: boolean }) {
  const [shown, show] = useState(firstChars);
  if (text.length <= shown) return <div class={"plain " + name}>{text}</div>;
  if (writing) return <div class={"plain " + name}><span class="dim">{size(text.length - firstChars)} before this … </span>{text.slice(-firstChars)}</div>;
  return (
    <div class={"plain " + name}>
      {text.slice(0, shown)}
      <span class="cut"> … </span>
      <div class="more">
        <span class="dim">{size(shown)} of {size(text.length)}</span>
        {shown < mostChars && <button onClick={() => show(shown * 4)}>Show more</button>}
        <button onClick={() => copy(text)}>Copy all</button>
      </div>
    </div>
  );
}

export function size(n: number): string {
  return n < 1_000 ? `${n} characters` : n < 1_000_000 ? `${Math.round(n / 1_000)} k characters` : `${(n / 1_000_000).toFixed(1)} M characters`;
}

/** How often a text may cost too much before it is plain: once may be the machine's fault. */
const strikes = 3;

/** A text that may be Markdown. Once it has proved too much it stays plain. Where the page has no time for it in this frame it stays as it was for one more. */
export class Markdown extends Component<{ text: string; writing?: boolean }> {
  private costly = 0;
  private content: ComponentChildren;
  private frame = 0; // in which it is tried again

  override componentWillUnmount(): void {
    cancelAnimationFrame(this.frame);
  }

  override shouldComponentUpdate(next: Markdown["props"]): boolean {
    return next.text !== this.props.text || next.writing !== this.props.writing;
  }

  override render({ text, writing = false }: Markdown["props"]) {
    cancelAnimationFrame(this.frame);
    if (full()) this.frame = requestAnimationFrame(() => this.forceUpdate());
    else this.content = this.costly < strikes ? markdown(text, () => this.costly++) : undefined;
    return this.content === undefined ? <Long text={text} writing={writing} /> : <div class="markdown">{this.content}</div>;
  }
}
