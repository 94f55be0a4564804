// The prompts that were learned or written: the live one, what each changed, going back, and a yes to new sentences.
import { changes } from "./changes.js";
import { attempt, button, count, day, el, say, sentence } from "./dom.js";
import { capital, who } from "./names.js";
import { api } from "./server.js";

const PHASES = {
  initialisation: "Rate some more answers: a first search needs a few dozen ratings.",
  online: "The live prompt answers and is rated.",
  refinement: "There are enough ratings for a search: `clawback prompts optimize` looks for a better prompt.",
};
const AUTHORS = { search: "found by a search", hand: "written by hand", run: "read from ratings by a training run" };

export const prompts = {
  title: "Prompts",
  under: "more",
  about: "Learned prompts, for models whose weights you do not have.",
  keys: [["↑, ↓", "the prompt before, the next"], ["Tab, Enter", "the buttons"]],
  async make({ redraw }) {
    const found = await api("prompts");
    const act = (job, text) => attempt(async () => { await job(); await redraw(); say(text); });
    const use = (v) => act(() => api(`prompts/${v.number}/use`, { seen: v.unseen }), `${capital(who(v.number))} is live.`);
    const card = (v) => el("section", { class: `card version ${v.status}`, tabindex: -1, "aria-label": capital(who(v.number)) },
      el("div", { class: "row" }, el("h2", {}, capital(who(v.number))), el("span", { class: `badge ${v.status}` }, v.status),
        v.speaks && v.status !== "live" ? el("span", { class: "badge live" }, "its prompt is live") : null),
      el("p", {}, `${capital(AUTHORS[v.author] ?? "entered")} ${day(v.created_at)}${v.ratings ? `, from ${count(v.ratings, "rating")}` : ""}.`,
        v.again_at ? " It waits until you have said which of two answers is better (A or B)." : ""),
      v.trained ? el("p", { class: "quiet" }, v.prompt ? "With its own adapter." : "The prompt is trained into its weights.") : null,
      el("h3", {}, `Against ${who(v.parent)}`),
      v.prompt || v.before ? changes(v.before, v.prompt) : null,
      v.unseen.length ? el("div", {}, el("h3", { class: "bad" }, "New sentences that nobody has accepted yet"), el("ul", {}, v.unseen.map((one) => el("li", {}, one)))) : null,
      v.reasons.length ? el("details", { class: "fold" }, el("summary", {}, capital(v.reasons[0])), el("ul", {}, v.reasons.slice(1).map((r) => el("li", {}, r)))) : null,
      el("div", { class: "row buttons" },
        v.status === "live" && v.number !== 0 ? button("Roll back", act(() => api("rollback", {}), "Rolled back.")) : null,
        v.prompt && v.status !== "live" ? button(v.unseen.length ? `Accept ${count(v.unseen.length, "sentence")} and use it` : v.accepted || v.status === "retired" ? "Use it" : "Use it anyway", use(v)) : null));
    const cards = found.versions.map(card);
    const live = el("section", { class: "card prompt", "aria-label": "The live prompt" }, el("p", { class: "said" }, found.prompt || "No prompt is live."));
    const key = (event) => {
      const step = { ArrowDown: 1, ArrowUp: -1 }[event.key];
      if (!step || !cards.length) return false;
      const at = cards.findIndex((one) => one.contains(document.activeElement));
      cards[at < 0 ? (step > 0 ? 0 : cards.length - 1) : Math.min(cards.length - 1, Math.max(0, at + step))].focus();
      return true;
    };
    return { key, parts: [el("h1", {}, "Prompts"), el("p", { class: "quiet" }, sentence(`${capital(who(found.live))} is live. ${PHASES[found.phase]}`)), cards.length ? live : null,
      cards.length ? el("div", { class: "stack" }, cards) : el("p", { class: "card empty" }, "No prompt was learned or written yet.")] };
  },
};
