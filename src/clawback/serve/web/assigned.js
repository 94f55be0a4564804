// What somebody who was invited is asked about: the question, the answer, and nothing of what others think of it or who wrote it.
import { answerCard, conversationOf, promptCard, rater } from "./answer.js";
import { button, el } from "./dom.js";
import { api } from "./server.js";

export const assigned = {
  title: "Rate",
  keys: [["g / b", "good / bad, and on to the next"], ["1 – 9, 0", "a score from 1 to 10"], ["← / →", "back / next"], ["u", "undo"],
    ["e / r", "edit the answer / write a remark"], ["c", "unfold the conversation"]],
  async make() {
    const turns = await api("assigned");
    const host = el("div"), page = { parts: [el("h1", {}, "How was this answer?"), host] };
    if (!turns.length) {
      host.append(el("p", { class: "card empty" }, "Nothing is assigned to you yet. Come back later."));
      return page;
    }
    let at = 0, control = null, fold = null;
    const move = (by) => { at = Math.min(Math.max(at + by, 0), turns.length - 1); draw(); };
    const after = (shown) => async (kind) => {
      const place = turns.findIndex((t) => t.id === shown.id);
      turns[place] = { ...shown, ...(await api(`assigned/${shown.id}`).catch(() => ({}))) };
      if (["good", "bad", "rate"].includes(kind) && place === at && at < turns.length - 1) move(1);
      else tell();
    };
    const status = el("p", { class: "quiet", role: "status" });
    const tell = () => { status.textContent = `${at + 1} of ${turns.length} · ${turns.filter((t) => t.feedback.length).length} done`; };
    function draw() {
      const turn = turns[at];
      tell();
      control = rater(turn, { after: after(turn) });
      fold = conversationOf(turn, "assigned");
      host.replaceChildren(
        status,
        promptCard(turn, "The question", "assigned"),
        fold, answerCard(turn.response, { calls: turn.calls, cut: turn.cut }),
        el("div", { class: "bar" }, control.node, el("div", { class: "row" },
          button("Back", () => move(-1), { key: "←", disabled: at === 0 }), button("Next", () => move(1), { key: "→", disabled: at === turns.length - 1 }))));
    }
    page.key = (event) => {
      const does = { ArrowLeft: () => move(-1), ArrowRight: () => move(1), c: () => { if (fold) fold.open = !fold.open; } }[event.key];
      if (does) does();
      return Boolean(does) || control.key(event);
    };
    draw();
    return page;
  },
};
