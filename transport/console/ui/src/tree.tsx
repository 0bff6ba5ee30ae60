import { useState } from "preact/hooks";
import { child } from "./same";
import { Long } from "./text";

/** How many members are shown at once, and how deep a tree unfolds by itself. */
const firstMembers = 100;
const openDepth = 3;
const openMembers = 30;

interface TreeProps {
  value: unknown;
  /** Paths that have changed of late. */
  changed: ReadonlySet<string>;
  name?: string;
  path?: string;
  depth?: number;
}

/** A JSON value, which unfolds member by member. */
export function Tree({ value, changed, name, path = "", depth = 0 }: TreeProps) {
  const mark = changed.has(path) ? " changed" : "";
  const key = name === undefined ? null : <span class="key">{name}</span>;
  if (typeof value !== "object" || value === null) {
    return (
      <div class={"leaf" + mark} role="treeitem">
        {key}
        <Value value={value} />
      </div>
    );
  }
  return <Inner value={value} changed={changed} name={name} path={path} depth={depth} mark={mark} />;
}

function Inner({ value, changed, name, path, depth, mark }: { value: object; changed: ReadonlySet<string>; name: string | undefined; path: string; depth: number; mark: string }) {
  const keys = Object.keys(value);
  const [open, setOpen] = useState(depth < openDepth && keys.length <= openMembers);
  const [shown, show] = useState(firstMembers);
  const list = Array.isArray(value);
  if (keys.length === 0) {
    return (
      <div class={"leaf" + mark} role="treeitem">
        {name !== undefined && <span class="key">{name}</span>}
        <span class="dim">{list ? "[ ]" : "{ }"}</span>
      </div>
    );
  }
  const members = () => (
    <>
      {keys.slice(0, shown).map((k) => (
        <Tree key={k} name={k} value={(value as Record<string, unknown>)[k]} changed={changed} path={child(path, k)} depth={depth + 1} />
      ))}
      {keys.length > shown && <button class="more" onClick={() => show(shown + 4 * firstMembers)}>{keys.length - shown} more</button>}
    </>
  );
  if (name === undefined) return members();
  return (
    <div class={"branch" + mark} role="treeitem" aria-expanded={open}>
      <button class="fold" aria-expanded={open} onClick={() => setOpen(!open)}>
        <span class="key">{name}</span>
        <span class="dim">{list ? `list of ${keys.length}` : open ? "" : "{ " + keys.slice(0, 4).join(", ").slice(0, 60) + (keys.length > 4 ? ", …" : "") + " }"}</span>
      </button>
      {open && <div class="members" role="group">{members()}</div>}
    </div>
  );
}

function Value({ value }: { value: unknown }) {
  if (typeof value === "string") return <Long class="string" text={value} />;
  return <span class={value === null ? "null" : typeof value}>{String(value)}</span>;
}
