// Code in colours, by the tokenizer of speed-highlight, which is loaded with the first block of code. It hands out pieces of text: no HTML is made.
import { el } from "./dom.js";

const MOST = 6000; // characters: some texts take the square of their length
const NAMES = { python: "py", javascript: "js", jsx: "js", mjs: "js", typescript: "ts", tsx: "ts", shell: "bash", sh: "bash", zsh: "bash", console: "bash", rust: "rs", golang: "go",
  cpp: "c", "c++": "c", h: "c", markdown: "md", yml: "yaml", dockerfile: "docker", perl: "pl", makefile: "make", patch: "diff", svg: "xml", conf: "ini" };

/** Puts a block's code into colours where its language is known; else it stays as it is. */
export async function colour(block, code, language) {
  const name = NAMES[language.toLowerCase()] ?? language.toLowerCase();
  if (!name || code.length > MOST) return;
  const [{ tokenizeWith }, languages] = await Promise.all([import("./vendor/highlight/tokenize.js"), import("./vendor/highlight/languages/index.js")]);
  if (!Object.hasOwn(languages, name)) return;
  const pieces = [];
  tokenizeWith(code, languages[name], (text, type) => pieces.push(type ? el("span", { class: `token-${type}` }, text) : text), { languages });
  block.replaceChildren(...pieces);
}
