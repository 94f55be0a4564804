// What a model wrote, as Markdown. Nothing of it ever runs: its own HTML is shown as text, marked makes tags of the rest, and DOMPurify
// lets a short list of them through. The page's content security policy stands behind both.
import { Marked } from "./vendor/marked.js";
import DOMPurify from "./vendor/purify.js";
import { colour } from "./colours.js";
import { copyButton, el } from "./dom.js";

const SPECIAL = { "&": "&amp;", "<": "&lt;", ">": "&gt;", '"': "&quot;", "'": "&#39;" };
const escape = (text) => text.replace(/[&<>"']/g, (sign) => SPECIAL[sign]);

const marked = new Marked({
  gfm: true,
  breaks: true,
  renderer: {
    html: ({ text }) => escape(text),
    // A picture from elsewhere would tell its server that it was looked at: it becomes a link.
    image: ({ href, text }) => `<a href="${escape(href)}">${escape(text || "picture")} (picture)</a>`,
    checkbox: ({ checked }) => (checked ? "☑ " : "☐ "),
    heading({ tokens, depth }) {
      const level = Math.min(6, depth + 2); // under the headings of the page
      return `<h${level}>${this.parser.parseInline(tokens)}</h${level}>\n`;
    },
  },
});

const ALLOWED = {
  ALLOWED_TAGS: [
    "p", "br", "hr", "strong", "em", "del", "code", "pre", "blockquote", "ul", "ol", "li", "a",
    "h3", "h4", "h5", "h6", "table", "thead", "tbody", "tr", "th", "td",
  ],
  ALLOWED_ATTR: ["href", "start", "align", "class"],
  ALLOWED_URI_REGEXP: /^(?:https?|mailto):/i,
  ALLOW_DATA_ATTR: false,
  ALLOW_ARIA_ATTR: false,
  RETURN_DOM_FRAGMENT: true,
};

/** Text → a `div` that holds it as Markdown. */
export function markdown(text) {
  const host = el("div", { class: "markdown" });
  try {
    host.append(DOMPurify.sanitize(marked.parse(text), ALLOWED));
  } catch {
    host.append(el("p", { class: "said" }, text)); // whatever it is, it is shown
  }
  for (const link of host.querySelectorAll("a")) {
    if (!link.hasAttribute("href")) link.replaceWith(...link.childNodes);
    else Object.assign(link, { target: "_blank", rel: "noopener noreferrer nofollow" });
  }
  for (const block of host.querySelectorAll("pre")) framed(block);
  for (const table of host.querySelectorAll("table")) {
    const frame = el("div", { class: "wide", tabindex: 0, role: "region", "aria-label": "Table" });
    table.replaceWith(frame);
    frame.append(table);
  }
  return host;
}

/** A block of code with its language and a button that copies it. */
function framed(block) {
  const code = block.textContent;
  const language = /(?:^|\s)language-(\S{1,20})/.exec(block.firstElementChild?.className ?? "")?.[1] ?? "";
  const frame = el("div", { class: "code" }, el("div", { class: "code-head" }, el("span", {}, language || "text"), copyButton(code)));
  block.setAttribute("tabindex", "0");
  block.setAttribute("role", "region");
  block.setAttribute("aria-label", `Code${language ? `, ${language}` : ""}`);
  block.replaceWith(frame);
  frame.append(block);
  colour(block.firstElementChild ?? block, code, language);
}
