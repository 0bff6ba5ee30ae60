import type { Line } from "@aguihub/client";
import { later } from "./draw";

/** A line of the hub, as it came. */
export interface Row {
  /** Its number since the attach. */
  n: number;
  /** The cursor; undefined for what was restated, and for most control lines. */
  id: string | undefined;
  at: number;
  family: Family;
  type: string;
  json: string;
  /** Its summary, once it has been seen. */
  brief?: string;
}

export const families = ["run", "text", "tool", "reasoning", "state", "activity", "other", "control", "withheld"] as const;
export type Family = (typeof families)[number];

/** Bounds of what is kept: rows, and characters. Older rows are let go, and counted. */
const mostRows = 20_000;
const mostChars = 64 << 20;

/** How long a search may hold the page, in milliseconds. */
const slice = 6;

/** What came over the wire, the newest of it, and which of that is to be shown. */
export class Timeline {
  rows: Row[] = [];
  /** Rows that were let go. */
  gone = 0;
  /** Rows in all. */
  total = 0;
  text = "";
  readonly hidden = new Set<Family>();
  searching = false;
  private found: Row[] | undefined; // undefined: all
  private chars = 0;
  private search = 0;

  get shown(): readonly Row[] {
    return this.found ?? this.rows;
  }

  push(line: Line): void {
    const control = !("event" in line);
    const type = control ? line.control : line.event.type;
    const json = JSON.stringify(control ? line : line.event);
    const row: Row = { n: ++this.total, id: control ? (line.id ?? undefined) : line.id, at: Date.now(), family: familyOf(type, control), type, json };
    this.rows.push(row);
    this.chars += json.length;
    if (this.found && !this.searching && this.wants(row)) this.found.push(row);
    if (this.rows.length > mostRows * 1.1 || this.chars > mostChars * 1.1) this.letGo();
  }

  private letGo(): void {
    let n = 0;
    while (this.rows.length - n > 1 && (this.rows.length - n > mostRows || this.chars > mostChars)) this.chars -= this.rows[n++]!.json.length;
    this.rows = this.rows.slice(n);
    this.gone += n;
    const first = this.rows[0]!.n;
    if (this.found) this.found = this.found.filter((r) => r.n >= first);
  }

  /** Shows only rows that have the text, of families that aren't hidden. A long list is searched bit by bit. */
  filter(text: string, toggle?: Family): void {
    this.text = text;
    if (toggle && !this.hidden.delete(toggle)) this.hidden.add(toggle);
    const mine = ++this.search;
    if (text === "" && this.hidden.size === 0) {
      this.found = undefined;
      this.searching = false;
      return later();
    }
    const found: Row[] = [];
    let next = 0; // the number of the row to look at next: rows come and go meanwhile
    this.searching = true;
    const step = () => {
      if (mine !== this.search) return;
      const end = performance.now() + slice;
      for (let i = Math.max(0, next - (this.rows[0]?.n ?? 0)); i < this.rows.length; i++) {
        const row = this.rows[i]!;
        next = row.n + 1;
        if (this.wants(row)) found.push(row);
        if (performance.now() > end) {
          later();
          return void setTimeout(step);
        }
      }
      this.found = found;
      this.searching = false;
      later();
    };
    step();
  }

  private wants(row: Row): boolean {
    if (this.hidden.has(row.family)) return false;
    const text = this.text.toLowerCase();
    return text === "" || row.type.toLowerCase().includes(text) || row.json.toLowerCase().includes(text) || (row.id?.includes(text) ?? false);
  }
}

function familyOf(type: string, control: boolean): Family {
  if (control) return type === "skipped" ? "withheld" : "control";
  if (type.startsWith("RUN_") || type.startsWith("STEP_") || type.startsWith("SUBAGENT_")) return "run";
  if (type.startsWith("TEXT_") || type === "MESSAGES_SNAPSHOT") return "text";
  if (type.startsWith("TOOL_")) return "tool";
  if (type.startsWith("REASONING_") || type.startsWith("THINKING_")) return "reasoning";
  if (type.startsWith("STATE_")) return "state";
  return type.startsWith("ACTIVITY_") ? "activity" : "other";
}

/** The longest text that is taken apart for its summary. */
const mostBrief = 2_000;

/** What a row says in one line. */
export function brief(row: Row): string {
  return (row.brief ??= summary(row));
}

function summary(row: Row): string {
  if (row.json.length > mostBrief) return row.json.slice(0, 200);
  const { type, control, ...rest } = JSON.parse(row.json) as Record<string, unknown>;
  if (typeof rest["delta"] === "string") return JSON.stringify(rest["delta"]);
  if (control === "skipped") return [rest["reason"], rest["detail"]].filter(Boolean).join(": ");
  return Object.entries(rest)
    .map(([k, v]) => `${k} ${typeof v === "string" ? v : JSON.stringify(v)}`)
    .join("  ")
    .slice(0, 200);
}
