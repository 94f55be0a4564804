// What an edit changed, word by word.
import "./vendor/diff.js";
import { el } from "./dom.js";

const MOST_MS = 200;

export function changes(before, after) {
  const { Diff } = globalThis;
  const parts = Diff.diffWordsWithSpace(before, after, { timeout: MOST_MS })
    ?? Diff.diffLines(before, after, { timeout: MOST_MS })
    ?? [{ removed: true, value: before }, { added: true, value: after }];
  return el("p", { class: "said changes" },
    parts.map((part) => el(part.added ? "ins" : part.removed ? "del" : "span", {}, part.value)));
}
