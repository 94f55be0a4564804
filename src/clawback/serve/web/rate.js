// The answers that wait for a rating, most informative first; or two answers side by side, of which one is better.
import { answerCard, conversationOf, promptCard, rater, stepsOf } from "./answer.js";
import { attempt, button, el, say, when } from "./dom.js";
import { author, who } from "./names.js";
import { api, tap } from "./server.js";

const MODES = [["answers", "One answer"], ["pairs", "A or B"]];
let mode = "answers";

export const rate = {
  title: "Rate",
  keys: [["g / b", "good / bad, and on to the next"], ["1 – 9, 0", "a score from 1 to 10"], ["← / →", "back / next"], ["u", "undo"],
    ["e / r", "edit the answer / write a remark"], ["c", "unfold the conversation"], ["a / b", "A or B is better (two answers)"]],
  async make({ now, redraw }) {
    const choice = el("div", { class: "modes", role: "group", "aria-label": "What to rate" }, MODES.map(([name, text]) =>
      button(text, () => { mode = name; redraw(); }, { "aria-pressed": String(mode === name) })));
    const page = await (mode === "pairs" ? pairs(now) : answers(now));
    page.parts.unshift(el("div", { class: "row head" }, el("h1", {}, mode === "pairs" ? "Which is better?" : "How was this answer?"), el("span", { class: "grow" }), choice));
    return page;
  },
};

const nothing = (text) => ({ parts: [el("p", { class: "card empty" }, text)] });

async function answers(now) {
  const turns = await api("inbox?limit=100");
  if (!turns.length) return nothing("There is no answer to rate. Talk to your agent or to the model (Chat), and come back.");
  const host = el("div");
  const page = { parts: [host] };
  let at = 0, control = null, fold = null;
  const move = (by) => { at = Math.min(Math.max(at + by, 0), turns.length - 1); draw(); };
  // A tap is all that is said of most answers, so the next one comes up; who wants to add something goes back.
  const after = (shown) => async (kind) => {
    const place = turns.findIndex((t) => t.id === shown.id);
    turns[place] = { ...shown, ...(await api(`turns/${shown.id}`).catch(() => ({}))), steps: shown.steps };
    if (["good", "bad", "rate"].includes(kind) && place === at && at < turns.length - 1) move(1);
  };
  const both = (turn, place) => attempt(async () => {
    place.replaceChildren(el("p", { class: "quiet", role: "status" }, "Asking both versions …"));
    try {
      const got = await api("pairs", { turn: turn.id, seed: turn.id });
      place.replaceChildren(el("div", { class: "pair" }, got.answers.map((one) => answerCard(one.response, { title: `Asked again: ${who(one.version)}` }))));
    } catch (error) { place.replaceChildren(); throw error; }
  });
  function draw() {
    const turn = turns[at], again = el("div");
    control = rater(turn, { after: after(turn) });
    fold = conversationOf(turn);
    host.replaceChildren(...[
      el("p", { class: "quiet", role: "status" }, `${at + 1} of ${turns.length} · ${turn.agent === "gate" ? "the gate asks, to decide about a new version" : turn.agent}${turn.model || turn.version !== null ? ` · ${author(turn)}` : ""} · ${when(turn.created_at)}`),
      promptCard(turn),
      fold,
      stepsOf(turn.steps),
      answerCard(turn.response, { calls: turn.calls, cut: turn.cut }),
      again,
      el("div", { class: "bar" }, control.node,
        el("div", { class: "row" },
          button("Back", () => move(-1), { key: "←", disabled: at === 0 }),
          button("Next", () => move(1), { key: "→", disabled: at === turns.length - 1 }),
          now.upstream || now.live === 0 ? null : button("Ask both versions again", both(turn, again), { class: "quiet-button" }))),
    ].filter(Boolean));
  }
  page.key = (event) => {
    const does = { ArrowLeft: () => move(-1), ArrowRight: () => move(1), c: () => { if (fold) fold.open = !fold.open; } }[event.key];
    if (does) does();
    return Boolean(does) || control.key(event);
  };
  draw();
  return page;
}

async function pairs(now) {
  const found = (await api("inbox/pairs?limit=50")).map((pair) => ({ ...pair, answers: shuffled(pair.answers) }));
  const twice = !now.upstream && now.live !== 0;
  const recent = twice ? await api("turns?limit=30&kind=main") : [];
  const prompts = [...new Map(recent.map((t) => [t.prompt, t])).values()];
  if (!found.length && !prompts.length) {
    return nothing("There are no two answers to the same prompt yet. There will be once a version is live, or after you ask the same thing twice.");
  }
  const host = el("div");
  const page = { parts: [host] };
  let at = 0, pair = null, left = false;
  const next = attempt(async () => {
    if (left) return;
    pair = found[at] ?? null;
    draw();
    if (pair || !prompts.length) return;
    const turn = prompts[(at - found.length) % prompts.length], mine = at;
    const got = await api("pairs", { turn: turn.id, seed: turn.id + at, keep: true });
    if (mine !== at || left) return;
    pair = { prompt: got.prompt, answers: shuffled(got.answers) };
    draw();
  });
  const step = () => { at += 1; next(); };
  const prefer = attempt(async (better) => {
    if (!pair) return;
    const [good, bad] = [pair.answers[better], pair.answers[1 - better]];
    const saved = await tap("preferences", { better: good.turn, worse: bad.turn });
    if (saved) say(good.version === null && !good.model ? "Saved, for the gate." : `Saved: ${author(good)} is better than ${author(bad)} here.`);
    step();
  });
  const neither = attempt(async () => {
    if (!pair) return;
    // The gate does not ask again about what a person finds equal; of other pairs nothing is stored.
    if (pair.why && (await tap("preferences", { better: pair.answers[0].turn, worse: pair.answers[1].turn, tie: true }))) say("Saved: neither is better.");
    step();
  });
  function draw() {
    host.replaceChildren(...[
      el("p", { class: "quiet", role: "status" }, pair ? (pair.why || "After you choose, you see which version wrote which.") : found.length + prompts.length ? "Asking both versions …" : "That was all."),
      pair ? el("section", { class: "card prompt", "aria-label": "You asked" }, el("p", { class: "said" }, pair.prompt)) : null,
      pair ? el("div", { class: "pair" }, pair.answers.map((one, i) => answerCard(one.response, { title: `Answer ${"AB"[i]}` }))) : null,
      el("div", { class: "bar" }, el("div", { class: "row taps" },
        [0, 1].map((i) => button(`${"AB"[i]} is better`, () => prefer(i), { key: "ab"[i], class: "primary", disabled: !pair })),
        button("Neither", neither, { key: "→", disabled: !pair }))),
    ].filter(Boolean));
  }
  page.key = (event) => {
    const does = { a: () => prefer(0), b: () => prefer(1), ArrowRight: neither }[event.key];
    does?.();
    return Boolean(does);
  };
  page.leave = () => { left = true; };
  next();
  return page;
}

const shuffled = (two) => (Math.random() < 0.5 ? [...two].reverse() : [...two]);
