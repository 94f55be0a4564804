// Answers that are rated one after another: a tap saves the rating and shows the next; Undo goes back to the last one that was rated.
import { answerCard, conversationOf, promptCard, stepsOf } from "./answer.js";
import { attempt, button, el, say } from "./dom.js";
import { rater } from "./rater.js";
import { api, newestTap, takeBack } from "./server.js";

const TAPS = ["good", "bad", "rate"];

export const KEYS = [["g / b", "good / bad, and on to the next"], ["1 – 9, 0", "a score from 1 to 10"], ["← / →", "back / next"],
  ["u", "undo the last thing that you said"], ["e / r", "edit the answer / write a remark"], ["Ctrl Enter / Esc", "save / leave what you write"], ["c", "unfold the conversation"]];

/**
 * `path`: where the API has these turns. `label`: what the prompt is called. `line(turn, place)`: the text above it. `extras(turn)`: parts
 * for under the answer and beside Back and Next, {below, buttons}.
 */
export function queue(turns, { path, label, line, extras = () => ({}) }) {
  const node = el("div"), status = el("p", { class: "quiet grow", role: "status" });
  let at = 0, control = null, fold = null;
  const move = (by) => { at = Math.min(Math.max(at + by, 0), turns.length - 1); draw(); };
  const reload = async (place) => {
    const turn = turns[place];
    turns[place] = { ...turn, ...(await api(`${path}/${turn.id}`).catch(() => ({}))), steps: turn.steps };
  };
  const undo = {
    possible: () => newestTap() !== undefined || turns[at].feedback.some((one) => one.undone_at === null && one.kind !== "implicit"),
    run: attempt(async () => {
      const turn = newestTap() ?? turns[at].id, place = turns.findIndex((one) => one.id === turn);
      await takeBack(turn);
      if (place >= 0) { await reload(place); at = place; }
      draw();
      say(place >= 0 ? "Taken back." : `Taken back, of turn ${turn}.`);
    }),
  };
  // A tap is all that is said of most answers, so the next one comes up.
  const after = (shown) => async (kind) => {
    const place = turns.findIndex((one) => one.id === shown.id);
    await reload(place);
    if (place !== at) return;
    if (TAPS.includes(kind) && at < turns.length - 1) move(1);
    else draw();
  };
  function draw() {
    const turn = turns[at], card = answerCard(turn.response, { calls: turn.calls, cut: turn.cut }), { below, buttons } = extras(turn);
    control = rater(turn, { after: after(turn), card, undo });
    fold = conversationOf(turn, path);
    status.replaceChildren(line(turn, at));
    const where = el("div", { class: "row where" }, status, buttons ?? null,
      button("Back", () => move(-1), { key: "←", disabled: at === 0 }), button("Next", () => move(1), { key: "→", disabled: at === turns.length - 1 }));
    node.replaceChildren(...[where, promptCard(turn, label, path), fold, stepsOf(turn.steps), card, below, el("div", { class: "bar" }, control.node)].filter(Boolean));
  }
  function key(event) {
    const does = { ArrowLeft: () => move(-1), ArrowRight: () => move(1), c: () => { if (fold) fold.open = !fold.open; } }[event.key];
    if (does) does();
    return Boolean(does) || control.key(event);
  }
  draw();
  return { node, key };
}
