// Writing about an answer: an edit stands in the place of the answer, a remark under it.
import { changes } from "./changes.js";
import { button, el, kbd, say } from "./dom.js";

const KINDS = {
  edit: { label: "How the answer should read", rows: 8, start: (turn) => turn.response },
  critique: { label: "Your remark: what was wrong, or right?", rows: 3, start: () => "" },
};
const drafts = new Map(); // turn and kind → what was typed and not saved
let close = () => {};

/** Ctrl+Enter saves, Esc leaves; what was typed is there again when the editor is opened again. `save(text)` rejects where it is not saved. */
export function write(turn, kind, card, save) {
  close();
  const { label, rows, start } = KINDS[kind], name = `${turn.id} ${kind}`, isEdit = kind === "edit";
  const field = el("textarea", { rows, "aria-label": label });
  field.value = drafts.get(name) ?? start(turn);
  const shown = el("div", { "aria-live": "off" });
  const compare = () => { if (isEdit) shown.replaceChildren(changes(turn.response, field.value)); };
  const submit = async (event) => {
    event?.preventDefault();
    if (!field.value.trim()) { say(isEdit ? "An answer cannot be empty." : "Write your remark first.", true); return; }
    if (isEdit && field.value === turn.response) { leave(); say("Nothing was changed."); return; }
    try { await save(field.value); } catch (error) { say(error.message, true); return; }
    drafts.delete(name);
    leave();
  };
  const form = el("form", { class: "card write editor", onsubmit: submit },
    el("label", {}, label, field),
    el("div", { class: "row keys" }, el("button", { class: "primary" }, "Save ", kbd("Ctrl Enter")), button("Cancel ", () => leave(), {})),
    isEdit ? el("details", { class: "fold", open: true }, el("summary", {}, "What you changed"), shown) : null);
  form.querySelector(".keys button:last-child").append(...kbd("Esc"));
  const leave = close = () => {
    close = () => {};
    if (isEdit && form.isConnected) form.replaceWith(card);
    else form.remove();
    document.getElementById("view").focus({ preventScroll: true });
  };
  field.addEventListener("input", () => { drafts.set(name, field.value); compare(); });
  form.addEventListener("keydown", (event) => {
    if (event.key === "Escape") leave();
    else if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) submit(event);
    else return;
    event.stopPropagation();
  });
  if (isEdit) card.replaceWith(form);
  else card.after(form);
  compare();
  field.focus();
  form.scrollIntoView({ block: "nearest" });
}
