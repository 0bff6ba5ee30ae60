import type { Message } from "@ag-ui/client";
import { Component, type ComponentChildren } from "preact";
import { useState } from "preact/hooks";
import { soon } from "./draw";
import { same } from "./same";
import type { RunView } from "./session";
import { Long, Markdown } from "./text";
import { Watched } from "./watched";

/** A message with what belongs to it, as the conversation shows it. */
export interface Item {
  key: string;
  message: Message;
  /** Results of its tool calls, in the calls' order. */
  results: (string | undefined)[];
  /** The message is still being written, and which of its calls are. */
  open: boolean;
  openCalls: boolean[];
  /** How an earlier run ended here, where it didn't finish. */
  end: Pick<RunView, "id" | "state" | "error"> | undefined;
}

interface ItemProps {
  item: Item;
  folds: Map<string, boolean>;
}

type Call = { id: string; function: { name: string; arguments: string } };

const roles: Record<string, string> = { user: "User", assistant: "Assistant", system: "System", developer: "Developer", tool: "Tool result", reasoning: "Reasoning", activity: "Activity" };

/** How many tool calls or parts of a message are shown at once. */
const firstCalls = 40;

/** One message. The official reducer copies all messages at each event: only one that differs is drawn again. */
export class MessageView extends Component<ItemProps> {
  override shouldComponentUpdate(next: ItemProps): boolean {
    return next.folds !== this.props.folds || this.folded !== foldsOf(next) || !same(next.item, this.props.item);
  }

  private folded = "";

  override render({ item, folds }: ItemProps) {
    const { message: m } = item;
    const calls = ("toolCalls" in m && m.toolCalls ? m.toolCalls : []) as Call[];
    this.folded = foldsOf({ item, folds });
    return (
      <article class={`message ${m.role}`} aria-label={roles[m.role] ?? m.role} aria-busy={item.open}>
        {m.role === "reasoning" ? <Reasoning item={item} folds={folds} /> : <Plain item={item} />}
        <Some of={calls}>{(c, i) => <CallView key={c.id} call={c} result={item.results[i]} open={item.openCalls[i] ?? false} id={item.key + " " + i} folds={folds} />}</Some>
        {item.end && <div class="end" title={item.end.id}><span class={"state " + item.end.state}>{item.end.state}</span> {item.end.error.slice(0, 500)}</div>}
      </article>
    );
  }
}

/** What of an item is folded how, to see whether that has changed. */
function foldsOf({ item, folds }: ItemProps): string {
  let text = String(folds.get(item.key));
  for (let i = 0; i < item.results.length; i++) text += " " + String(folds.get(item.key + " " + i));
  return text;
}

function Plain({ item }: { item: Item }) {
  const { message: m } = item;
  const content: unknown = m.content;
  const name = "name" in m && typeof m.name === "string" ? m.name : "";
  const head = m.role === "activity" ? `Activity · ${m.activityType}` : m.role === "user" || (m.role === "assistant" && !name) ? "" : [roles[m.role] ?? m.role, name].filter(Boolean).join(" · ");
  return (
    <>
      {head && <div class="role">{head}</div>}
      {m.role === "activity" ? (
        <Watched value={content} label="Activity" />
      ) : typeof content === "string" ? (
        m.role === "tool" ? <Loose text={content} /> : content || item.open ? <div class={item.open ? "body writing" : "body"}><Markdown text={content} writing={item.open} /></div> : null
      ) : Array.isArray(content) ? (
        <Some of={content as unknown[]}>{(part, i) => <Part key={i} part={part} />}</Some>
      ) : content === undefined || content === null ? (
        item.open ? <div class="body writing" /> : null
      ) : (
        <Watched value={content} label="Content" />
      )}
    </>
  );
}

/** A part of a message that isn't only text. Nothing is loaded: the page may load nothing from elsewhere. */
function Part({ part }: { part: unknown }) {
  const p = part as { type?: string; text?: string } | null;
  if (p?.type === "text" && typeof p.text === "string") return <div class="body"><Markdown text={p.text} /></div>;
  return <Watched value={part} label="Part" />;
}

function Fold({ id, open, folds, head, children, class: name }: { id: string; open: boolean; folds: Map<string, boolean>; head: ComponentChildren; children: () => ComponentChildren; class: string }) {
  const is = folds.get(id) ?? open;
  const toggle = () => {
    folds.set(id, !is);
    soon();
  };
  return (
    <div class={name + (is ? " open" : "")}>
      <button class="fold" aria-expanded={is} onClick={toggle}>{head}</button>
      {is && <div class="folded">{children()}</div>}
    </div>
  );
}

function Reasoning({ item, folds }: ItemProps) {
  const content: unknown = item.message.content;
  const text = typeof content === "string" ? content : JSON.stringify(content);
  const head = item.open ? <span class="busy">Thinking …</span> : <span>Thought{text ? <span class="dim"> · {text.replace(/\s+/g, " ").slice(0, 90)}</span> : null}</span>;
  return (
    <Fold id={item.key} open={item.open} folds={folds} head={head} class="thought">
      {() => <div class={item.open ? "body writing" : "body"}><Long text={text} writing={item.open} /></div>}
    </Fold>
  );
}

function CallView({ call, result, open, id, folds }: { call: Call; result: string | undefined; open: boolean; id: string; folds: Map<string, boolean> }) {
  const state = open ? "calling …" : result === undefined ? "no result yet" : "done";
  const head = (
    <>
      <span class="tool-name">{call.function.name || "tool"}</span>
      <span class="tool-brief">{call.function.arguments.slice(0, 120)}</span>
      <span class={"tool-state" + (open ? " busy" : result === undefined ? "" : " good")}>{state}</span>
    </>
  );
  return (
    <Fold id={id} open={false} folds={folds} head={head} class="call">
      {() => (
        <>
          <div class="role">Arguments</div>
          {open ? <Long class="mono" text={call.function.arguments} writing /> : <Loose text={call.function.arguments} />}
          {result !== undefined && <><div class="role">Result</div><Loose text={result} /></>}
          <div class="role mono">{call.id}</div>
        </>
      )}
    </Fold>
  );
}

/** The longest text that is read as JSON to be shown as a tree. */
const mostJson = 200_000;

/** A text that often is JSON. */
function Loose({ text }: { text: string }) {
  const value = json(text);
  return value === undefined ? <Long class="mono" text={text} /> : <Watched value={value} label="Value" />;
}

function json(text: string): object | undefined {
  if (text.length > mostJson || !/^\s*[[{]/.test(text)) return undefined;
  try {
    return JSON.parse(text) as object;
  } catch {
    return undefined;
  }
}

/** A list of which the first few are shown, and the rest when asked for. */
export function Some<T>({ of, children }: { of: readonly T[]; children: (item: T, i: number) => ComponentChildren }) {
  const [shown, show] = useState(firstCalls);
  return (
    <>
      {of.slice(0, shown).map(children)}
      {of.length > shown && <button class="more" onClick={() => show(shown + 4 * firstCalls)}>{of.length - shown} more</button>}
    </>
  );
}
