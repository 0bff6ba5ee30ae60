import type { BaseEvent } from "@ag-ui/client";
import { Observable, type Subscriber } from "rxjs";
import { HubAgent } from "./agent.js";
import { Flight } from "./flight.js";
import type { Taking } from "./keep.js";
import { Link, type Target } from "./link.js";

/**
 * Hands a run or a thread on as events, for a client elsewhere that holds nothing of it but what it gets from here. What
 * HubAgent does to its own messages where it must begin anew, this says by snapshots.
 */
export class Relay extends HubAgent {
  private out: Subscriber<BaseEvent> | undefined;
  private told = false;
  private anew: Taking | undefined;

  /** The events, to the run's end. */
  relay(target: Target): Observable<BaseEvent> {
    return new Observable<BaseEvent>((out) => {
      this.out = out;
      const make = () => {
        const link = new Link(this, target);
        link.open();
        return link;
      };
      return new Flight(this, false).events(make).subscribe({
        next: (event) => this.pass(event),
        error: (error: unknown) => out.error(error),
        complete: () => out.complete(),
      });
    });
  }

  private pass(event: BaseEvent): void {
    const { anew } = this;
    if (anew && event.type === "MESSAGES_SNAPSHOT") {
      this.anew = undefined;
      if (!anew.keepAll) this.out?.next({ type: event.type, messages: [] } as unknown as BaseEvent);
      if (anew.state) this.out?.next({ type: "STATE_SNAPSHOT", snapshot: {} } as unknown as BaseEvent);
    }
    this.told = true;
    this.out?.next(event);
  }

  /** @internal */
  override forget(taking: Taking): void {
    if (this.told) this.anew = taking;
  }
}
