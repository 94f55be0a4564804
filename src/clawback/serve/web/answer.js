// A turn as it is shown everywhere: the conversation before it, the steps that led to it, and the answer.
import { attempt, count, el } from "./dom.js";
import { markdown } from "./markdown.js";
import { api } from "./server.js";

const PICTURE = /^data:image\/(png|jpeg|webp|gif);base64,/;
const MARK = "[image]";

export function textOf(content) {
  if (typeof content === "string") return content;
  if (!Array.isArray(content)) return content ? JSON.stringify(content) : "";
  return content.filter((b) => !addressOf(b)).map((b) => b.text ?? (b.type === "image_url" ? MARK : `[${b.type ?? "something"}]`)).join("\n");
}

/** Where a part of a message has a picture with it; nothing that would have to be asked for. */
const addressOf = (part) => {
  const address = part?.type === "image_url" ? part.image_url?.url ?? part.image_url : null;
  return typeof address === "string" && PICTURE.test(address) ? address : null;
};

/** The pictures that came with a message. */
export function picturesOf(content) {
  const found = Array.isArray(content) ? content.map(addressOf).filter(Boolean) : [];
  return found.map((src, i) => el("img", { class: "seen", src, alt: found.length > 1 ? `Picture ${i + 1} of ${found.length}` : "The picture" }));
}

/** What was asked, with its pictures, which a list has no room for: they are loaded when the card is shown. */
export function promptCard(turn, label = "You asked", path = "turns") {
  const text = el("p", { class: "said" }, turn.prompt || "(no question was recorded)");
  const card = el("section", { class: "card prompt", "aria-label": label }, text);
  if (turn.prompt.includes(MARK)) attempt(async () => {
    const whole = await api(`${path}/${turn.id}`);
    const asked = whole.messages.findLast((m) => m.role === "user" && (textOf(m.content) || picturesOf(m.content).length));
    const pictures = picturesOf(asked?.content);
    if (!pictures.length) return;
    text.textContent = textOf(asked.content);
    card.append(...pictures);
  })();
  return card;
}

/** One message of a conversation. */
export function message(role, content, calls = []) {
  const text = textOf(content);
  const name = { user: "You", assistant: "Model", system: "System", tool: "Tool", environment: "Environment" }[role] ?? role;
  const body = role === "assistant" ? markdown(text) : el("p", { class: "said" }, text);
  return el("div", { class: `message ${role}` }, el("span", { class: "role" }, name), text ? body : null, picturesOf(content), calls.map(call));
}

function call(one) {
  const given = typeof one.arguments === "string" ? one.arguments : JSON.stringify(one.arguments ?? {}, null, 1);
  return el("details", { class: "call" }, el("summary", {}, `calls ${one.name ?? "a tool"}`), el("pre", { tabindex: 0, role: "region", "aria-label": `What ${one.name} is given` }, given));
}

/** The tool calls that led to an answer, folded. */
export function stepsOf(steps) {
  if (!steps?.length) return null;
  const names = [...new Set(steps.flatMap((s) => s.calls.map((c) => c.name)))].slice(0, 4).join(", ");
  return el("details", { class: "fold" },
    el("summary", {}, `${count(steps.length, "step")} before the answer: ${names}`),
    el("ol", {}, steps.map((s) => el("li", {}, s.response ? markdown(s.response) : null, s.calls.map(call)))));
}

/** What was said before, loaded when it is unfolded; null where nothing was. The last message is the prompt, which is shown anyway. */
export function conversationOf({ id, before: length }, path = "turns") {
  if (!length) return null;
  const inside = el("div", { class: "messages" });
  const fold = el("details", { class: "fold", ontoggle: attempt(async () => {
    if (!fold.open || inside.childElementCount) return;
    const turn = await api(`${path}/${id}`);
    const before = turn.messages.slice(0, -1);
    inside.replaceChildren(...before.map((m) => message(m.role, m.content, (m.tool_calls ?? []).map((c) => c.function ?? c))));
  }) }, el("summary", {}, "The conversation before"), inside);
  return fold;
}

/** `cut`: how the answer was cut, in words. */
export function answerCard(text, { title, calls = [], chosen = false, cut = "" } = {}) {
  return el("article", { class: `card answer${chosen ? " chosen" : ""}` }, el("h2", title ? {} : { class: "unseen" }, title ?? "The answer"),
    text ? markdown(text) : null, calls.map(call), cut ? el("p", { class: "quiet", role: "note" }, `This answer ${cut}.`) : null);
}
