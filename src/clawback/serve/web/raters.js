// Who rates, how far they agree, and what they see differently.
import { el } from "./dom.js";
import { api } from "./server.js";

const two = (value) => (value === null ? "" : value.toFixed(2));
const mark = (value) => `${value > 0 ? "+" : value < 0 ? "−" : ""}${Math.abs(value).toFixed(2)}`;
const table = (label, head, rows) => el("div", { class: "wide", tabindex: 0, role: "region", "aria-label": label }, el("table", { class: "stacks" },
  el("thead", {}, el("tr", {}, head.map((h) => el("th", { scope: "col" }, h)))), el("tbody", {}, rows.map((row) => el("tr", {}, row.map((cell, i) => el("td", { "data-label": head[i] }, String(cell))))))));

export const raters = {
  title: "Raters",
  under: "more",
  about: "Who rates, how far they agree, and whom you invited.",
  keys: [],
  async make() {
    const found = await api("raters");
    const people = found.raters.map((r) => [r.source, r.judge ? "judge" : "person", r.count, `${Math.round(r.good * 100)} %`, r.kappa === null ? "" : `${two(r.kappa)} (${r.common})`, r.outliers.length, two(r.weight)]);
    const invited = found.invited.map((i) => [i.name, i.role, i.role === "viewer" ? "" : `${i.done} of ${i.assigned}`]);
    const apart = found.disagreements.map((d) => el("li", { class: "card" }, el("p", { class: "clip" }, `${d.turn_id} · ${d.prompt || "(no question)"}`),
      el("p", { class: "quiet" }, d.said.map(([who, value, weight]) => `${who} ${mark(value)} × ${two(weight)}`).join(", "), ` → reward in training ${mark(d.reward)}`)));
    return { parts: [el("h1", {}, "Raters"),
      people.length ? table("Raters", ["rater", "kind", "ratings", "good", "agreement κ (turns)", "outliers", "weight"], people) : el("p", { class: "card empty" }, "Nobody has rated anything yet."),
      found.alpha === null ? null : el("p", {}, `Krippendorff's α of all people: ${two(found.alpha)} (1 is full agreement, 0 is chance)`),
      el("h2", {}, "Invited"), invited.length ? table("Invited", ["name", "role", "done"], invited) : el("p", { class: "quiet" }, "Nobody yet: ", el("code", {}, "clawback raters invite NAME")),
      el("h2", {}, "Disagreements"), apart.length ? el("ul", { class: "stack plain" }, apart) : el("p", { class: "quiet" }, "There is no answer that one rater liked and another did not.")] };
  },
};
