import { copy } from "./copy";
import type { Session } from "./session";
import type { Theme } from "./theme";

interface HeaderProps {
  session: Session | undefined;
  offline: boolean;
  theme: Theme;
  act: Actions;
}

export interface Actions {
  drop(): void;
  offline(): void;
  cancel(): void;
  theme(): void;
  help(): void;
  home(): void;
}

/** What the connection is at, in words; how it is, for its colour. */
function connection(session: Session, offline: boolean): [words: string, is: "good" | "wait" | "bad" | "idle"] {
  const { status, failure, run } = session;
  const unknown = status.error?.code !== "unknown_run" ? "" : run ? "the run is there no more; waiting" : "no such run yet; waiting";
  if (failure) return [failure.message, "bad"];
  if (session.over) return ["ended", "idle"];
  if (session.unbegun && status.state !== "offline") return ["entries are there, but none begins the run; waiting", "wait"];
  switch (status.state) {
    case "live":
      return [run && !session.running && session.target.kind === "thread" ? "live, waiting for the next run" : "live", "good"];
    case "offline":
      return [offline ? "offline, as you asked" : "the browser is offline", "bad"];
    case "waiting":
      return unknown ? [unknown, "wait"] : ["connection lost, coming back", "bad"];
    case "catching-up":
      return ["catching up", "wait"];
    default:
      if (unknown) return [unknown, "wait"]; // it asks again
      return session.target.kind === "thread" && status.hub && !run ? ["no run yet: waiting for one", "good"] : [status.reconnects > 0 ? "connecting again" : "connecting", "wait"];
  }
}

export function Header({ session, offline, theme, act }: HeaderProps) {
  const [words, is] = session ? connection(session, offline) : ["", "idle"];
  return (
    <header class="top">
      <a class="brand" href="?" onClick={(e) => { e.preventDefault(); act.home(); }} aria-label="aguihub, to the start">
        <svg viewBox="0 0 20 20" width="20" height="20" aria-hidden="true"><path d="M2 10h4M14 5h4M14 10h4M14 15h4M6 10l8-5M6 10h8M6 10l8 5" /><circle cx="6" cy="10" r="2.4" /></svg>
        aguihub
      </a>
      <div class="target">
        {session && <><span class="dim">{session.target.kind}</span> <b>{session.target.id}</b></>}
      </div>
      {session && <div class={"connection " + is} role="status" id="connection"><i />{words}</div>}
      <div class="actions">
        {session && !session.over && (
          <>
            <button id="drop" onClick={act.drop} title="Break the connection: it comes back with its cursor (d)">Drop</button>
            <button id="offline" aria-pressed={offline} onClick={act.offline} title="Behave as if the network were gone (o)">{offline ? "Go online" : "Go offline"}</button>
            <button id="cancel" class="danger" disabled={!session.running} onClick={act.cancel} title="Ask the hub to end the run, for everybody (Shift+X)">Cancel run</button>
          </>
        )}
        <button id="theme" onClick={act.theme} title="Light, dark or as the system has it (t)" aria-label={"Theme: " + theme}>{{ auto: "◐", light: "☀", dark: "☾" }[theme]}</button>
        <button id="help" onClick={act.help} title="Shortcuts (?)" aria-label="Shortcuts">?</button>
      </div>
    </header>
  );
}

/** Figures of the attach. */
export function Strip({ session }: { session: Session }) {
  const { status, agent } = session;
  const { latency, rate } = session;
  const { kind, id } = session.target;
  const cursor = agent.cursor;
  const line = ["aguihub attach", kind === "thread" ? "--thread" : "", quote(id), cursor ? "--after " + cursor : ""].filter(Boolean).join(" ");
  return (
    <dl class="strip" aria-label="Position">
      <div>
        <dt>Cursor</dt>
        <dd>
          <span class="mono" id="cursor">{cursor ? cursor.split(".")[0] : "–"}</span>
          {cursor && <button onClick={() => copy(cursor, "Cursor copied")} title="Copy the cursor">copy</button>}
          <button onClick={() => copy(line, "Command copied")} title={"Copy " + line}>as command</button>
        </dd>
      </div>
      <Figure name="Latency" title="From an entry's time in Redis to its arrival here, the middle of the last 64; two clocks are compared" value={latency === undefined ? "–" : latency < -50 || latency > 86_400_000 ? "clocks differ" : Math.max(0, latency) + " ms"} />
      <Figure name="Events/s" title="Events of the last second" value={rate} />
      <Figure name="Lag" title="Events that have come and aren't applied yet" value={agent.lag} />
      <Figure name="Reconnects" title="Connections after the first" value={status.reconnects} />
      {status.resets > 0 && <Figure name="Resets" title="How often it had to begin anew, since it couldn't be continued" value={status.resets} warn />}
      {status.lagged > 0 && <Figure name="Lagged" title="How often the hub had to catch this page up" value={status.lagged} warn />}
      <Figure name="History" title="Partial where the hub doesn't know what the conversation began with" value={status.history ?? "–"} warn={status.history === "partial"} />
    </dl>
  );
}

function Figure({ name, value, title, warn }: { name: string; value: string | number; title: string; warn?: boolean }) {
  return <div title={title} class={warn ? "warn" : ""}><dt>{name}</dt><dd id={"figure-" + name.replace("/", "").toLowerCase()}>{value}</dd></div>;
}

/** A word for a shell. */
const quote = (s: string) => (/^[\w.:@-]+$/.test(s) ? s : "'" + s.replaceAll("'", `'\\''`) + "'");
