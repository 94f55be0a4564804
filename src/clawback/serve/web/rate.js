// The answers that wait for a rating, most informative first; or two answers side by side, of which one is better.
import { answerCard } from "./answer.js";
import { attempt, button, count, el, say, when } from "./dom.js";
import { author, who } from "./names.js";
import { pairs } from "./pairs.js";
import { KEYS, queue } from "./queue.js";
import { api } from "./server.js";

const MODES = [["answers", "One answer"], ["pairs", "A or B"]];
let mode = "answers";

export const rate = {
  title: "Rate",
  keys: [...KEYS, ["a / b / s", "A or B is better, or neither (two answers)"]],
  async make({ now, redraw, refresh }) {
    const choice = el("div", { class: "modes", role: "group", "aria-label": "What to rate" }, MODES.map(([name, text]) =>
      button(text, () => { mode = name; redraw(); }, { "aria-pressed": String(mode === name) })));
    const page = await (mode === "pairs" ? pairs(now) : answers(now));
    const heading = el("h1", {}, mode === "pairs" ? "Which is better?" : "How was this answer?");
    page.parts.unshift(el("div", { class: "row head" }, heading, el("span", { class: "grow" }), choice), waitingRule(now, redraw, refresh));
    return page;
  },
};

/** The first rule that the ratings speak for and that no model is told of before the owner says yes; null for none. */
function waitingRule({ rules: [rule, ...more] }, redraw, refresh) {
  if (!rule) return null;
  const keep = attempt(async () => { await api(`rules/${rule.id}/keep`, {}); await refresh(); await redraw(); say(`Rule ${rule.id} counts.`); });
  return el("section", { class: "card row", "aria-label": "A rule that waits for your yes" },
    el("span", { class: "grow" }, `Your ratings speak for “${rule.text.replace(/\.$/, "")}”. No answer is drawn under it before you say yes.`),
    button("Yes, keep it", keep), el("a", { href: "#rules" }, more.length ? `${count(more.length, "more rule")} to decide on` : "All rules"));
}

/** What stands here before anything can be rated. */
function nothing(now) {
  const ways = [["#chat", "Ask something in Chat", "and rate the answer"], ["#connect", "Connect your agent", "so that its answers come here"],
    ["#files", "Import a history", "of ChatGPT, Claude, Open WebUI and others"]];
  return { parts: [el("div", { class: "card" }, el("p", {}, now.turns ? "There is no answer to rate: all that wait are rated." : "There is no answer to rate yet."),
    el("ul", {}, ways.map(([href, text, why]) => el("li", {}, el("a", { href }, text), ` ${why}`))))] };
}

async function answers(now) {
  const turns = await api("inbox?limit=100");
  if (!turns.length) return nothing(now);
  const both = (turn, place) => attempt(async () => {
    place.replaceChildren(el("p", { class: "quiet", role: "status" }, "Asking both versions …"));
    try {
      const got = await api("pairs", { turn: turn.id, seed: turn.id });
      place.replaceChildren(el("div", { class: "pair" }, got.answers.map((one) => answerCard(one.response, { title: `Asked again: ${who(one.version)}` }))));
    } catch (error) { place.replaceChildren(); throw error; }
  });
  const line = (turn, at) => `${at + 1} of ${turns.length} · ${turn.agent === "gate" ? "the gate asks, to decide about a new version" : turn.agent}${turn.model || turn.version !== null ? ` · ${author(turn)}` : ""} · ${when(turn.created_at)}`;
  const extras = (turn) => {
    if (now.upstream || now.live === 0) return {};
    const below = el("div");
    return { below, buttons: button("Ask both versions again", both(turn, below), { class: "quiet-button" }) };
  };
  const { node, key } = queue(turns, { path: "turns", label: "You asked", line, extras });
  return { parts: [node], key };
}
