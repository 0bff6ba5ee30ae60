import MarkdownIt from "markdown-it";
import { type ComponentChildren, h } from "preact";

// Markdown as elements, never as markup: what the parser says is taken piece by piece, and what isn't listed here is text.

type Tokens = ReturnType<InstanceType<typeof MarkdownIt>["parse"]>;

const parser = new MarkdownIt("default", { html: false, linkify: false, breaks: true });

/** Elements that Markdown may make. */
const tags = new Set(["p", "h1", "h2", "h3", "h4", "h5", "h6", "ul", "ol", "li", "blockquote", "table", "thead", "tbody", "tr", "th", "td", "em", "strong", "s", "br", "hr"]);

/** Where a link may lead. */
const schemes = /^(https?:|mailto:)/i;

/** The longest text that is taken for Markdown, and for how long the page may wait for it. */
const mostChars = 16_384;
const mostMs = 50;
const mostDepth = 60;

/** For how long texts were read in this frame. */
let spent = 0;

/** Whether the page has waited long enough in this frame: what is left has to wait for the next. */
export const full = () => spent > mostMs;

/** A text as Markdown; undefined where it is too long to be more than plain. Calls costly where that took too long. */
export function markdown(text: string, costly: () => void): ComponentChildren | undefined {
  if (text.length > mostChars) return undefined;
  if (spent === 0) requestAnimationFrame(() => (spent = 0));
  const begun = performance.now();
  const content = elements(parser.parse(text, {}));
  const took = performance.now() - begun;
  spent += Math.max(took, 0.001);
  if (took > mostMs) costly();
  return content;
}

/** A frame of elements that are being made. */
interface Frame {
  tag: string;
  attributes: Record<string, string>;
  children: ComponentChildren[];
}

function elements(tokens: Tokens): ComponentChildren {
  const stack: Frame[] = [{ tag: "", attributes: {}, children: [] }];
  const top = () => stack.at(-1)!;
  for (const token of tokens) {
    if (token.nesting === 1) {
      stack.push(open(token));
    } else if (token.nesting === -1) {
      const { tag, attributes, children } = stack.pop()!;
      if (stack.length > mostDepth || tag === "") top().children.push(children);
      else top().children.push(h(tag, attributes, children));
    } else top().children.push(leaf(token));
  }
  return stack[0]!.children;
}

function open(token: Tokens[number]): Frame {
  if (token.hidden) return { tag: "", attributes: {}, children: [] };
  if (token.tag === "a") {
    const href = String(token.attrGet("href") ?? "");
    if (!schemes.test(href)) return { tag: "span", attributes: { class: "dead-link", title: href.slice(0, 200) }, children: [] };
    return { tag: "a", attributes: { href, target: "_blank", rel: "noopener noreferrer nofollow" }, children: [] };
  }
  return { tag: tags.has(token.tag) ? token.tag : "span", attributes: {}, children: [] };
}

function leaf(token: Tokens[number]): ComponentChildren {
  switch (token.type) {
    case "inline":
      return elements(token.children ?? []);
    case "softbreak":
    case "hardbreak":
      return h("br", null);
    case "hr":
      return h("hr", null);
    case "code_inline":
      return h("code", null, token.content);
    case "fence":
    case "code_block":
      return h("pre", null, h("code", null, token.content));
    case "image":
      return h("span", { class: "dead-link", title: String(token.attrGet("src") ?? "").slice(0, 200) }, "image: " + (token.content || "…"));
    default:
      return token.content;
  }
}
