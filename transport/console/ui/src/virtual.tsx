import { elementScroll, observeElementOffset, observeElementRect, Virtualizer } from "@tanstack/virtual-core";
import { type AriaRole, Component, type ComponentChildren, createRef, type RefObject } from "preact";
import { soon } from "./draw";

export interface VirtualProps<T> {
  /** Gets the list, as long as it is there. */
  handle: RefObject<VirtualList<T> | null>;
  items: readonly T[];
  keyOf(item: T): string | number;
  row(item: T): ComponentChildren;
  /** The height of a row that hasn't been measured, in pixels. */
  estimate: number;
  /** All rows are as high as estimated. */
  even?: boolean;
  class: string;
  label: string;
  role: AriaRole;
  rowRole?: AriaRole;
  /** Below the last row. */
  footer?: ComponentChildren;
  onKeyDown?: (e: KeyboardEvent) => void;
  active?: string | undefined;
}

/** How near to its end a list must stand to stay there, in pixels. */
const nearEnd = 40;

/** A list of which only the rows that are seen are in the page. It stays at its end, unless somebody scrolls up. */
export class VirtualList<T> extends Component<VirtualProps<T>> {
  private readonly box = createRef<HTMLDivElement>();
  private readonly list: Virtualizer<HTMLDivElement, HTMLDivElement>;
  private unmount: (() => void) | undefined;
  private lastTop = 0;
  /** Stays at the end. */
  following = true;

  constructor(props: VirtualProps<T>) {
    super(props);
    this.list = new Virtualizer(this.options(props));
    // A list that stays at its end is moved by us alone.
    this.list.shouldAdjustScrollPositionOnItemSizeChange = (row, _delta, list) => !this.following && row.start < (list.scrollOffset ?? 0);
  }

  private options(props: VirtualProps<T>) {
    return {
      count: props.items.length,
      getScrollElement: () => this.box.current,
      estimateSize: () => props.estimate,
      getItemKey: this.keyAt,
      overscan: 6,
      scrollToFn: elementScroll,
      observeElementRect,
      observeElementOffset,
      onChange: this.moved,
    };
  }

  override componentDidMount(): void {
    this.props.handle.current = this;
    this.unmount = this.list._didMount();
    this.list._willUpdate();
    this.componentDidUpdate();
    soon();
  }

  override componentDidUpdate(): void {
    this.list._willUpdate();
    const box = this.box.current;
    if (this.following && box) {
      box.scrollTop = box.scrollHeight;
      this.lastTop = box.scrollTop;
    }
  }

  override componentWillUnmount(): void {
    this.unmount?.();
    this.props.handle.current = null;
  }

  /** Goes to the end and stays there. */
  toEnd(): void {
    this.following = true;
    soon();
  }

  show(index: number): void {
    this.following = false;
    this.list.scrollToIndex(index, { align: "auto" });
  }

  // Whatever grows or shrinks isn't somebody scrolling up: then the end is where it was, or nearer.
  private readonly scrolled = () => {
    const box = this.box.current!;
    const was = this.following;
    const left = box.scrollHeight - box.scrollTop - box.clientHeight;
    const up = box.scrollTop < this.lastTop - 1;
    if (left <= 1 || (!up && left < nearEnd)) this.following = true;
    else if (up) this.following = false;
    this.lastTop = box.scrollTop;
    if (was !== this.following) soon();
  };

  // The browser's own way to the start is broken off by each row that turns out to be of another height.
  private readonly keys = (e: KeyboardEvent) => {
    this.props.onKeyDown?.(e);
    if (e.defaultPrevented || e.target !== this.box.current || (e.key !== "Home" && e.key !== "End")) return;
    e.preventDefault();
    if (e.key === "End") return this.toEnd();
    this.following = false;
    this.list.scrollToOffset(0);
  };

  // The same for the same list: with a new one all of it would be laid out anew.
  private keyAt = (i: number) => this.props.keyOf(this.props.items[i]!);
  private of: readonly T[] | undefined;

  /** What the last picture shows. */
  private drawn = "";

  private get place(): string {
    const { range } = this.list;
    return `${range?.startIndex} ${range?.endIndex} ${this.list.getTotalSize()}`;
  }

  // The list tells of each move, and twice of its beginning and end; of ours too.
  private readonly moved = () => {
    if (this.place !== this.drawn) soon();
  };

  // One for all rows: a new one at each picture would measure all of them each time.
  private readonly measure = (el: HTMLDivElement | null) => this.list.measureElement(el);

  override render(props: VirtualProps<T>) {
    if (this.of !== props.items) {
      this.of = props.items;
      this.keyAt = (i) => this.props.keyOf(this.props.items[i]!);
    }
    this.list.setOptions(this.options(props));
    // Where it is about to stand, so that one picture is enough.
    if (this.following && this.list.scrollOffset !== null) this.list.scrollOffset = this.list.getTotalSize();
    const seen = this.list.getVirtualItems().filter((v) => v.index < props.items.length);
    this.drawn = this.place;
    return (
      <div class={"list " + props.class} ref={this.box} role={props.role} aria-label={props.label} aria-activedescendant={props.active} tabIndex={0} onScroll={this.scrolled} onKeyDown={this.keys}>
        <div class="list-space" style={{ height: this.list.getTotalSize() + "px" }}>
          <div class="list-seen" style={{ transform: `translateY(${seen[0]?.start ?? 0}px)` }}>
            {seen.map((v) => (
              <div key={v.key} data-index={v.index} ref={props.even ? null : this.measure} role={props.rowRole ?? "presentation"}>
                {props.row(props.items[v.index]!)}
              </div>
            ))}
          </div>
        </div>
        {props.footer}
      </div>
    );
  }
}
