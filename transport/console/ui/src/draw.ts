// One picture of everything, drawn at most once a frame: what comes is applied event by event, what is shown isn't.

/**
 * Least time between two pictures of what comes by itself, in milliseconds, and how much longer than the last one took: the
 * rest belongs to what comes.
 */
const pace = 32;
const share = 3;
const mostPace = 400;

let picture: () => void = () => {};
let queued = false;
let waiting = false;
let next = 0;
const channel = new MessageChannel();

export function start(draw: () => void): void {
  picture = draw;
  now(); // a page that is there takes keys
}

/** Draws at once: what the next key depends on. */
export function now(): void {
  picture();
}

/** Draws in the next frame: what somebody did. */
export function soon(): void {
  if (queued) return;
  queued = true;
  requestAnimationFrame(() => {
    queued = false;
    const begun = performance.now();
    picture();
    // What the browser makes of it counts, too: layout and paint come before the next task.
    channel.port1.onmessage = () => {
      const now = performance.now();
      next = now + Math.min(mostPace, Math.max(pace, share * (now - begun)));
    };
    channel.port2.postMessage(0);
  });
}

/** Draws before long: what came by itself. */
export function later(): void {
  if (queued || waiting) return;
  const wait = next - performance.now();
  if (wait <= 0) return soon();
  waiting = true;
  setTimeout(() => {
    waiting = false;
    soon();
  }, wait);
}
