// What was played: the newest episodes, and one of them with what was said and what each reply brought.
import { message } from "./answer.js";
import { attempt, button, count, el, sentence, when } from "./dom.js";
import { api } from "./server.js";

const PAGE = 100;
const sign = (one) => (one.status === "failed" ? "bad" : one.return > 0 ? "good" : one.return < 0 ? "bad" : "quiet");
const SPEAKERS = { user: "environment" };
const number = (value) => `${value > 0 ? "+" : value < 0 ? "−" : ""}${Number(Math.abs(value).toFixed(3))}`;

export const episodes = {
  title: "Episodes",
  under: "more",
  about: "What was played in environments, with the reward of each reply.",
  keys: [["Tab, Enter", "open an episode"]],
  async make() {
    const list = el("ul", { class: "rows", "aria-label": "Episodes" }), detail = el("div", { class: "detail", tabindex: -1 });
    const pick = (label, options) => el("select", { "aria-label": label, onchange: () => draw() }, options.map(([value, text]) => el("option", { value }, text)));
    const split = pick("Tasks", [["", "all tasks"], ["train", "training"], ["test", "held out"]]);
    const status = pick("Status", [["", "any status"], ["completed", "completed"], ["truncated", "truncated"], ["failed", "failed"], ["aborted", "aborted"]]);
    const paid = (step) => el("p", { class: "quiet" }, step.reward === null ? "no reward" : `reward ${number(step.reward)}`,
      step.unparsable ? `, could not be read: ${number(step.penalty)}` : "", ` · ${count(step.end - step.start, "token")} · update ${step.update}`);
    const draw = attempt(async () => {
      const found = await api(`episodes?${new URLSearchParams({ limit: PAGE, split: split.value, status: status.value })}`);
      list.replaceChildren(...(found.length ? found.map((one) => el("li", {}, el("button", { type: "button", class: "rowbutton", onclick: () => inspect(one.id) },
        el("span", { class: "quiet meta" }, `${one.id} · ${when(one.created_at)}${one.run ? ` · run ${one.run}` : ""}`),
        el("span", { class: `mark ${sign(one)}` }, one.status === "failed" ? "failed" : number(one.return)),
        el("span", { class: "clip ask" }, one.task),
        el("span", { class: "clip quiet" }, `${count(one.turns, "turn")}, ${one.stop_reason}${one.unparsable ? `, ${one.unparsable} unreadable` : ""}`)))) : [el("li", { class: "empty" }, sentence("No episodes yet. `clawback env train TASK` plays some."))]));
    });
    const inspect = attempt(async (id) => {
      const one = await api(`episodes/${id}`), steps = new Map(one.replies.map((place, i) => [place, one.steps[i]]));
      detail.replaceChildren(el("section", { class: "card" },
        el("div", { class: "row" }, el("h2", {}, `Episode ${one.id}`), el("span", { class: "grow" }), button("Close", () => detail.replaceChildren())),
        el("p", { class: "quiet" }, `${one.environment} · ${one.task} · seed ${one.seed} · ${one.split === "test" ? "held out" : "training"}`),
        el("div", { class: "messages" }, one.messages.map((m, place) => [message(SPEAKERS[m.role] ?? m.role, m.text), steps.has(place) ? paid(steps.get(place)) : null])),
        el("p", {}, el("strong", { class: sign(one) }, `Return ${number(one.return)}`), ` in ${count(one.turns, "turn")}: ${one.status}, ${one.stop_reason}`)));
      detail.focus();
      detail.scrollIntoView({ block: "start" });
    });
    await draw();
    return { parts: [el("h1", {}, "Episodes"), el("div", { class: "row filters" }, split, status), el("div", { class: "two" }, list, detail)] };
  },
};
