// A turn as it is shown everywhere: the conversation before it, the steps that led to it, the answer, and what can be said about it.
import { changes } from "./changes.js";
import { attempt, button, count, el, say } from "./dom.js";
import { markdown } from "./markdown.js";
import { api, person, tap } from "./server.js";

const PICTURE = /^data:image\/(png|jpeg|webp|gif);base64,/;
const MARK = "[image]";
const SCORES = [1, 2, 3, 4, 5, 6, 7, 8, 9, 10];

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

/** Good, bad, a score, an edit, a remark, undo: saved at once. `node` to show; `key(event)` does the same by keyboard. */
export function rater(turn, { after = () => {} } = {}) {
  if (person.role === "viewer") return { node: null, key: () => false };
  let said = standing(turn);
  const more = el("div", { class: "more" });
  const buttons = {
    good: button("Good", () => give({ kind: "good" }), { key: "g", class: "good" }),
    bad: button("Bad", () => give({ kind: "bad" }), { key: "b", class: "bad" }),
  };
  const scores = SCORES.map((n) => button(String(n), () => give({ kind: "rate", value: n }), { class: "score", "aria-label": `${n} of 10` }));
  const undo = button("Undo", () => give({ kind: "undo" }), { key: "u" });
  const mark = () => {
    buttons.good.setAttribute("aria-pressed", String(said === "good"));
    buttons.bad.setAttribute("aria-pressed", String(said === "bad"));
    scores.forEach((b, i) => b.setAttribute("aria-pressed", String(said === i + 1)));
    undo.disabled = said === null;
  };
  const give = attempt(async (body) => {
    const saved = await tap(`turns/${turn.id}/feedback`, body);
    said = body.kind === "undo" ? null : body.kind === "rate" ? body.value : body.kind;
    mark();
    more.replaceChildren();
    if (saved) say(saved.training_started ? "Enough ratings have come together: a training run is being prepared." : body.kind === "undo" ? "Taken back." : `Saved: ${body.kind === "rate" ? `${body.value} of 10` : body.kind}.${saved.notice ? ` ${saved.notice}` : ""}`);
    after(body.kind);
  });
  const writing = (label, value, kind, withChanges) => {
    const field = el("textarea", { rows: kind === "edit" ? 10 : 3, "aria-label": label });
    field.value = value;
    const shown = el("div", { "aria-live": "off" });
    const show = () => withChanges && shown.replaceChildren(el("p", { class: "quiet" }, "What you changed"), changes(turn.response, field.value));
    field.addEventListener("input", show);
    more.replaceChildren(el("form", { class: "write", onsubmit: (event) => { event.preventDefault(); if (field.value.trim()) give({ kind, text: field.value }); } },
      el("label", {}, label, field), shown,
      el("div", { class: "row" }, el("button", { class: "primary" }, "Save"), button("Cancel", () => more.replaceChildren()))));
    show();
    field.focus();
  };
  const edit = () => writing("How the answer should read", turn.response, "edit", true);
  const note = () => writing("What was wrong", "", "critique", false);
  mark();
  const node = el("div", { class: "rater", role: "group", "aria-label": "Rate this answer" },
    el("div", { class: "row taps" }, buttons.good, buttons.bad,
      el("div", { class: "scores", role: "group", "aria-label": "Score from 1 to 10" }, scores),
      el("span", { class: "row others" }, button("Edit", edit, { key: "e" }), button("Remark", note, { key: "r" }), undo)), more);
  const key = (event) => {
    const does = { g: () => give({ kind: "good" }), b: () => give({ kind: "bad" }), u: () => said !== null && give({ kind: "undo" }), e: edit, r: note }[event.key];
    if (does) { does(); return true; }
    if (/^[0-9]$/.test(event.key)) { give({ kind: "rate", value: Number(event.key) || 10 }); return true; }
    return false;
  };
  return { node, key };
}

/** What stands of a turn, as the buttons show it. */
function standing(turn) {
  const last = (turn.feedback ?? []).findLast((f) => ["rating", "edit", "critique"].includes(f.kind) && f.undone_at === null);
  if (!last) return null;
  if (last.kind !== "rating") return last.kind;
  if (last.value === 1) return "good";
  if (last.value === -1) return "bad";
  return Math.round((last.value + 1) * 4.5) + 1;
}

