import { copy } from "./copy";
import type { Hint } from "./hub";

/** What a newcomer sees where there is nothing to look at yet. */
export function Welcome({ hint, empty }: { hint: Hint | undefined; empty: boolean }) {
  const lines = hint ? linesOf(hint.publish) : [];
  return (
    <section class="welcome" aria-label="Start">
      <h1>{empty ? "Waiting for the first run" : "Choose a run or a thread"}</h1>
      <p>{empty ? "Publish one from a terminal. It shows up here at once:" : "They stand at the side, newest first. Or publish one from a terminal:"}</p>
      {lines.length > 0 && (
        <div class="code">
          <pre>{lines.join("\n")}</pre>
          <button onClick={() => copy(lines.join("\n"))}>Copy</button>
        </div>
      )}
      <p class="dim">Then reload this page, open it twice, or drop the connection: nothing is lost, nothing is doubled.</p>
    </section>
  );
}

/** The line that the hub prints, and what makes a run of it. */
function linesOf(first: string): string[] {
  const event = /\{.*\}/;
  const others = [
    `{"type":"TEXT_MESSAGE_START","messageId":"m1","role":"assistant"}`,
    `{"type":"TEXT_MESSAGE_CONTENT","messageId":"m1","delta":"Hello"}`,
    `{"type":"TEXT_MESSAGE_END","messageId":"m1"}`,
    `{"type":"RUN_FINISHED","threadId":"t1","runId":"r1"}`,
  ];
  return [first, ...others.map((e) => first.replace(event, () => e))];
}
