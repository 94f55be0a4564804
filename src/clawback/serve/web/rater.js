// What can be said about an answer: good, bad, a score, an edit, a remark; saved at once, and taken back by Undo.
import { attempt, button, el, say } from "./dom.js";
import { write } from "./editor.js";
import { person, takeBack, tap } from "./server.js";

const SCORES = [1, 2, 3, 4, 5, 6, 7, 8, 9, 10];
const NAMES = { edit: "your edit", critique: "your remark" };

const named = (body, saved) => `Saved: ${body.kind === "rate" ? `${body.value} of 10` : NAMES[body.kind] ?? body.kind}.${saved.notice ? ` ${saved.notice}` : ""}`;

/**
 * `node` to show; `key(event)` does the same by keyboard. `card`: the answer, in whose place it is edited. `after(kind)` when something was saved.
 * `undo`: {possible(), run()} where Undo is about more than this turn.
 */
export function rater(turn, { after = () => {}, card, undo = null }) {
  if (person.role === "viewer") return { node: null, key: () => false };
  let standing = standingOf(turn);
  const back = undo ?? {
    possible: () => standing !== null,
    run: attempt(async () => { await takeBack(turn.id); standing = null; mark(); say("Taken back."); await after("undo"); }),
  };
  const buttons = {
    good: button("Good", () => give({ kind: "good" }), { key: "g", class: "good" }),
    bad: button("Bad", () => give({ kind: "bad" }), { key: "b", class: "bad" }),
  };
  const scores = SCORES.map((n) => button(String(n), () => give({ kind: "rate", value: n }), { class: "score", "aria-label": `${n} of 10` }));
  const undoButton = button("Undo", () => back.run(), { key: "u" });
  function mark() {
    buttons.good.setAttribute("aria-pressed", String(standing === "good"));
    buttons.bad.setAttribute("aria-pressed", String(standing === "bad"));
    scores.forEach((b, i) => b.setAttribute("aria-pressed", String(standing === i + 1)));
    undoButton.disabled = !back.possible();
  }
  async function save(body) {
    const saved = await tap(`turns/${turn.id}/feedback`, body);
    standing = body.kind === "rate" ? body.value : body.kind;
    mark();
    const text = saved?.training_started ? "Enough ratings have come together: a training run is being prepared." : saved && named(body, saved);
    if (text) say(text, false, { text: "Undo", key: "u", run: back.run });
    await after(body.kind);
  }
  const give = attempt(save);
  const writing = (kind) => () => write(turn, kind, card, (text) => save({ kind, text }));
  const edit = writing("edit"), remark = writing("critique");
  mark();
  const node = el("div", { class: "rater", role: "group", "aria-label": "Rate this answer" },
    el("div", { class: "row taps" }, buttons.good, buttons.bad,
      el("div", { class: "scores", role: "group", "aria-label": "Score from 1 to 10" }, scores),
      el("span", { class: "row others" }, button("Edit", edit, { key: "e" }), button("Remark", remark, { key: "r" }), undoButton)));
  const key = (event) => {
    const does = { g: () => give({ kind: "good" }), b: () => give({ kind: "bad" }), u: () => back.possible() && back.run(), e: edit, r: remark }[event.key];
    if (does) does();
    else if (/^[0-9]$/.test(event.key)) give({ kind: "rate", value: Number(event.key) || 10 });
    else return false;
    return true;
  };
  return { node, key };
}

/** What stands of a turn, as the buttons show it. */
function standingOf(turn) {
  const last = (turn.feedback ?? []).findLast((f) => ["rating", "edit", "critique"].includes(f.kind) && f.undone_at === null);
  if (!last) return null;
  if (last.kind !== "rating") return last.kind;
  if (last.value === 1) return "good";
  if (last.value === -1) return "bad";
  return Math.round((last.value + 1) * 4.5) + 1;
}
