// What `clawback doctor` finds: one line where all is well, else the problems.
import { count, el, sentence } from "./dom.js";
import { capital } from "./names.js";
import { api } from "./server.js";

export const health = {
  title: "Health",
  under: "more",
  about: "What works here, what does not, and how to mend it.",
  keys: [],
  async make() {
    const now = await api("health");
    const wrong = now.findings.filter((f) => !f.ok), advice = now.findings.filter((f) => f.ok && f.fix), well = now.findings.filter((f) => f.ok && !f.fix);
    const row = (f) => el("li", { class: "card" }, f.ok ? null : el("strong", { class: "bad" }, "Problem: "), sentence(f.ok ? `${capital(f.what)}.` : f.what), f.fix ? el("p", { class: "quiet" }, sentence(f.fix)) : null);
    const recorded = `${count(now.recorded, "turn")} recorded since the server started${now.not_recorded ? `, ${now.not_recorded} not` : ""}.`;
    return { parts: [el("h1", {}, wrong.length ? count(wrong.length, "problem") : "All is well"),
      el("p", { class: wrong.length ? "quiet" : "good" }, `${count(well.length, "check")} passed. ${recorded}`),
      wrong.length || advice.length ? el("ul", { class: "stack plain" }, [...wrong, ...advice].map(row)) : null,
      el("details", { class: "fold" }, el("summary", {}, "What was checked"), el("ul", {}, well.map((f) => el("li", {}, sentence(f.what)))))] };
  },
};
