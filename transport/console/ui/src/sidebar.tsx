import { Component } from "preact";
import type { Runs } from "./runs";
import type { Target } from "./session";

interface SidebarProps {
  runs: Runs;
  /** Changes with the list: what the list is drawn for. */
  list: unknown;
  target: Target | undefined;
  view: "runs" | "threads";
  minute: number;
  onView(view: "runs" | "threads"): void;
  onTarget(target: Target): void;
}

/** The runs or threads that there are, and a form for those one knows of. */
export class Sidebar extends Component<SidebarProps> {
  override shouldComponentUpdate(next: SidebarProps): boolean {
    const p = this.props;
    return next.list !== p.list || next.target !== p.target || next.view !== p.view || next.minute !== p.minute || next.runs.error !== this.error || next.runs.more !== this.more;
  }

  private error: string | undefined;
  private more = false;

  override render({ runs, target, view, onView, onTarget }: SidebarProps) {
    this.error = runs.error;
    this.more = runs.more;
    const open = (e: SubmitEvent) => {
      e.preventDefault();
      const field = (e.currentTarget as HTMLFormElement).elements.namedItem("id") as HTMLInputElement;
      const id = field.value.trim();
      if (id) onTarget({ kind: view === "runs" ? "run" : "thread", id });
      field.value = "";
    };
    const items = view === "runs"
      ? runs.list.map((r) => ({ id: r.run, state: r.state, small: [ago(r.startedAtMs), count(r.entries, "entry", "entries"), r.thread] }))
      : runs.threads.map((t) => ({ id: t.thread, state: t.newest.state, small: [ago(t.newest.startedAtMs), count(t.runs, "run", "runs")] }));
    const kind = view === "runs" ? "run" : "thread";
    return (
      <nav class="sidebar" aria-label="Runs and threads">
        <div class="tabs" role="group" aria-label="What to list">
          <button aria-pressed={view === "threads"} onClick={() => onView("threads")}>Threads</button>
          <button aria-pressed={view === "runs"} onClick={() => onView("runs")}>Runs</button>
        </div>
        <form class="attach" onSubmit={open as never}>
          <input name="id" placeholder={`Attach to a ${kind} by id`} aria-label={`Id of a ${kind}`} autocomplete="off" spellcheck={false} maxLength={256} />
        </form>
        {runs.error && <p class="hint failed">The hub doesn't answer: {runs.error}</p>}
        {runs.known && items.length === 0 && !runs.error && <p class="hint">No {kind} yet.</p>}
        <ul class="targets">
          {items.map((i) => (
            <li key={i.id}>
              <a title={i.id} href={`?${kind}=${encodeURIComponent(i.id)}`} aria-current={target?.kind === kind && target.id === i.id ? "true" : undefined}
                onClick={(e) => { if (e.ctrlKey || e.metaKey || e.shiftKey) return; e.preventDefault(); onTarget({ kind, id: i.id }); }}>
                <span class="name">{i.id}</span>
                <small><span class={"state " + i.state}>{i.state.replace("_", " ")}</span> · {i.small.filter(Boolean).join(" · ")}</small>
              </a>
            </li>
          ))}
        </ul>
        {runs.more && <button class="more" onClick={() => runs.showMore()}>Older ones</button>}
      </nav>
    );
  }
}

const count = (n: number, one: string, many: string) => `${n} ${n === 1 ? one : many}`;

function ago(ms: number | undefined): string {
  if (!ms) return "";
  const s = Math.max(0, Math.round((Date.now() - ms) / 1000));
  if (s < 10) return "just now";
  if (s < 60) return `${Math.floor(s / 10) * 10} s ago`;
  return s < 3600 ? Math.round(s / 60) + " min ago" : new Date(ms).toLocaleString();
}
