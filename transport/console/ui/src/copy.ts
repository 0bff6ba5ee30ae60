import { soon } from "./draw";

/** What the page has to say for a moment, to screen readers too. */
export let notice = "";
let timer: ReturnType<typeof setTimeout> | undefined;

export function say(text: string): void {
  notice = text;
  clearTimeout(timer);
  timer = setTimeout(() => {
    notice = "";
    soon();
  }, 4_000);
  soon();
}

export function copy(text: string, what = "Copied"): void {
  navigator.clipboard.writeText(text).then(
    () => say(what),
    () => say("The browser doesn't let this page copy"),
  );
}
