// "Go offline": the page hears what it would hear of a network that is gone. What heeds the browser's word heeds this.

export let offline = false;

export function goOffline(gone: boolean): void {
  offline = gone;
  if (gone) Object.defineProperty(navigator, "onLine", { configurable: true, get: () => false });
  else delete (navigator as { onLine?: boolean }).onLine; // the browser's own is behind it
  dispatchEvent(new Event(gone ? "offline" : "online"));
}
