import { Component } from "preact";
import { changes, same } from "./same";
import { Tree } from "./tree";

const nothing: ReadonlySet<string> = new Set();

/** A value that changes while it is looked at, with what the last change touched marked. */
export class Watched extends Component<{ value: unknown; label: string }> {
  private before: unknown = this.props.value;
  private changed = nothing;

  override shouldComponentUpdate(next: { value: unknown }): boolean {
    return next.value !== this.props.value && !same(next.value, this.props.value);
  }

  override render({ value, label }: { value: unknown; label: string }) {
    if (value !== this.before) {
      this.changed = changes(this.before, value);
      this.before = value;
    }
    return (
      <div class="tree" role="tree" aria-label={label}>
        <Tree value={value} changed={this.changed} />
      </div>
    );
  }
}
