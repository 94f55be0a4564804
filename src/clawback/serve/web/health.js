// What `clawback doctor` finds.
import { count, el, sentence } from "./dom.js";
import { api } from "./server.js";

export const health = {
  title: "Health",
  keys: [],
  async make() {
    const now = await api("health");
    const wrong = now.findings.filter((f) => !f.ok), well = now.findings.filter((f) => f.ok);
    const row = (f) => el("li", { class: "card" }, el("strong", { class: f.ok ? "good" : "bad" }, f.ok ? "OK " : "Check "), sentence(f.what), f.fix ? el("p", { class: "quiet" }, sentence(f.fix)) : null);
    return { parts: [el("h1", {}, wrong.length ? count(wrong.length, "problem") : "No problems"),
      el("p", { class: "quiet" }, `${count(now.recorded, "turn")} recorded since the server started${now.not_recorded ? `, ${now.not_recorded} not` : ""}.`),
      el("ul", { class: "stack plain" }, [...wrong, ...well].map(row))] };
  },
};
