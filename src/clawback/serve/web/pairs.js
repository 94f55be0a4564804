// Two answers to the same prompt, of which one is better: those that wait, and two that are drawn on the spot where none do.
import { answerCard } from "./answer.js";
import { attempt, button, el, fresh, say } from "./dom.js";
import { author } from "./names.js";
import { api, newestTap, takeBack, tap } from "./server.js";
import { ask, modelNames, turnOf } from "./talk.js";

const DRAWS = 4; // for two answers that differ
const same = (two) => two[0].response.trim() === two[1].response.trim();
const RECENT = 30, SAME = "Both answers are the same. Ask something else, or draw again.";
const shuffled = (two) => (Math.random() < 0.5 ? [...two].reverse() : [...two]);

export async function pairs(now) {
  const waiting = (await api("inbox/pairs?limit=50")).map((pair) => ({ ...pair, answers: shuffled(pair.answers) }));
  const recent = await api(`turns?limit=${RECENT}&kind=main`);
  const prompts = [...new Map(recent.filter((turn) => turn.prompt).map((turn) => [turn.prompt, turn])).values()];
  const node = el("div"), seen = [];
  let at = 0, pair = null, left = false, seed = 0;

  /** Two answers to a prompt: of a turn by the engine here, with its conversation; else the prompt alone is asked twice. */
  async function drawn(prompt) {
    const turn = prompts.find((one) => one.prompt === prompt);
    seed += 2;
    if (turn && !now.upstream) return (await api("pairs", { turn: turn.id, seed: turn.id + seed, keep: true, versions: now.live ? [] : [0, 0] })).answers;
    const listed = await modelNames(), model = now.upstream ? listed[0] : "clawback";
    return Promise.all([now.live && !now.upstream ? "clawback-base" : model, model].map(async (name) => {
      const session = `pair-${fresh()}`, one = { response: "", version: null, model: name };
      const asking = ask({ model: name, session, messages: [{ role: "user", content: prompt }], onVersion: (version) => { one.version = version; } });
      for await (const piece of asking) one.response += piece;
      return { ...one, turn: await turnOf(session, one.response) };
    }));
  }
  const draw = attempt(async (prompt) => {
    const place = at;
    show(el("p", { class: "quiet", role: "status" }, "Drawing two answers …"));
    try {
      let answers = await drawn(prompt);
      for (let draws = 1; draws < DRAWS && !now.upstream && same(answers) && !left && place === at; draws += 1) answers = await drawn(prompt);
      if (left || place !== at) return;
      if (same(answers)) { form(SAME, prompt); return; }
      if (answers.some((one) => !one.turn)) throw new Error("The answers were not recorded: they cannot be compared.");
      seen[at] = { prompt, answers: shuffled(answers) };
      next();
    } catch (error) { if (!left) form("", prompt); throw error; }
  });
  /** Asks what the two answers are to be about. */
  function form(why, prompt = prompts[at % (prompts.length || 1)]?.prompt ?? "") {
    const field = el("textarea", { rows: 3, id: "pair-prompt", required: true });
    field.value = prompt;
    const cost = now.upstream ? "The upstream is asked twice." : now.live ? "The base model and the live version answer." : "The model answers twice.";
    const submit = (event) => { event.preventDefault(); if (field.value.trim()) draw(field.value.trim()); };
    show(el("form", { class: "card write", onsubmit: submit }, el("p", {}, why || "No two answers to the same prompt wait for you. Draw two now:"),
      el("label", { for: "pair-prompt" }, "Your prompt"), field, el("p", { class: "quiet" }, cost), el("div", { class: "row" }, el("button", { class: "primary" }, "Draw two answers"))));
  }
  function next() {
    pair = seen[at] ?? waiting[at] ?? null;
    if (pair) showPair();
    else if (prompts.length && !now.upstream) draw(prompts[at % prompts.length].prompt); // by the engine here, which costs nothing
    else form(at ? "That was all that waits. Draw two more:" : "");
  }
  const step = () => { at += 1; next(); };
  const undo = attempt(async () => {
    const turn = newestTap(), place = [...Array(at + 1).keys()].findLast((i) => (seen[i] ?? waiting[i])?.answers.some((one) => one.turn === turn));
    if (turn === undefined) return;
    await takeBack(turn);
    say("Taken back.");
    if (place !== undefined) { at = place; next(); }
  });
  const saved = (text) => say(text, false, { text: "Undo", key: "u", run: undo });
  const prefer = attempt(async (better) => {
    if (!pair) return;
    const [good, bad] = [pair.answers[better], pair.answers[1 - better]];
    seen[at] = pair;
    if (await tap("preferences", { better: good.turn, worse: bad.turn })) saved(pair.why ? "Saved, for the gate." : author(good) === author(bad) ? `Saved: ${"AB"[better]} is better.` : `Saved: ${author(good)} is better than ${author(bad)} here.`);
    step();
  });
  const neither = attempt(async () => {
    if (!pair) return;
    // What a person finds equal is not asked about again.
    if (await tap("preferences", { better: pair.answers[0].turn, worse: pair.answers[1].turn, tie: true })) saved("Saved: neither is better.");
    step();
  });
  const show = (...parts) => node.replaceChildren(...parts);
  function showPair() {
    show(el("p", { class: "quiet", role: "status" }, pair.why || "After you choose, you see which version wrote which."),
      el("section", { class: "card prompt", "aria-label": "You asked" }, el("p", { class: "said" }, pair.prompt)),
      el("div", { class: "pair" }, pair.answers.map((one, i) => answerCard(one.response, { title: `Answer ${"AB"[i]}` }))),
      el("div", { class: "bar" }, el("div", { class: "row taps" },
        [0, 1].map((i) => button(`${"AB"[i]} is better`, () => prefer(i), { key: "ab"[i], class: "primary" })),
        button("Neither", neither, { key: "s" }), button("Skip", step, { key: "→" }), button("Undo", undo, { key: "u", disabled: newestTap() === undefined }))));
  }
  next();
  const key = (event) => {
    const does = { a: () => prefer(0), b: () => prefer(1), s: neither, ArrowRight: step, u: undo }[event.key];
    does?.();
    return Boolean(does);
  };
  return { parts: [node], key, leave: () => { left = true; } };
}
