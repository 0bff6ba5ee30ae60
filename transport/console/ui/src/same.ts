/** Whether two JSON values are the same. */
export function same(a: unknown, b: unknown): boolean {
  if (a === b) return true;
  if (typeof a !== "object" || typeof b !== "object" || a === null || b === null || Array.isArray(a) !== Array.isArray(b)) return false;
  const keys = Object.keys(a);
  if (keys.length !== Object.keys(b).length) return false;
  return keys.every((k) => Object.hasOwn(b, k) && same((a as Record<string, unknown>)[k], (b as Record<string, unknown>)[k]));
}

/** The most nodes that are compared to mark what changed. */
const mostNodes = 20_000;

/**
 * The paths (as a tree names its nodes, by keys that are joined) at which b differs from a: leaves, and whatever holds them.
 * Where there are too many nodes to look at, those that weren't count as unchanged.
 */
export function changes(a: unknown, b: unknown): ReadonlySet<string> {
  const found = new Set<string>();
  let left = mostNodes;
  const look = (x: unknown, y: unknown, path: string): boolean => {
    if (x === y || left-- <= 0) return false;
    const inner = typeof y === "object" && y !== null;
    if (!inner || typeof x !== "object" || x === null || Array.isArray(x) !== Array.isArray(y)) {
      found.add(path);
      return true;
    }
    const before = x as Record<string, unknown>;
    const keys = Object.keys(y);
    let changed = keys.length !== Object.keys(before).length;
    for (const k of keys) changed = look(Object.hasOwn(before, k) ? before[k] : undefined, (y as Record<string, unknown>)[k], child(path, k)) || changed;
    if (changed) found.add(path);
    return changed;
  };
  look(a, b, "");
  return found;
}

/** The path of a member. */
export const child = (path: string, key: string) => path + "\u0000" + key;
