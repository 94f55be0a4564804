// Everything that was captured: search it, look at one turn with all that was said about it.
import { changes } from "./changes.js";
import { answerCard, message } from "./answer.js";
import { attempt, button, count, el, when } from "./dom.js";
import { author } from "./names.js";
import { rater } from "./rater.js";
import { api } from "./server.js";

const PAGE = 50;
const sign = (value) => (value > 0 ? "good" : value < 0 ? "bad" : "quiet");
const opinion = (turn) => (turn.reward === null ? "not rated" : `${turn.reward > 0 ? "+" : turn.reward < 0 ? "−" : ""}${Math.abs(turn.reward).toFixed(2)}`);
const calls = (turn) => `calls ${turn.calls.map((c) => c.name).join(", ")}`;

export const turns = {
  title: "Turns",
  keys: [["Tab, Enter", "open a turn"], ["g / b, 1 – 9, u", "rate the one that is open"], ["e / r", "edit its answer / write a remark"]],
  async make({ argument }) {
    const list = el("ul", { class: "rows", "aria-label": "Turns" }), detail = el("div", { class: "detail", tabindex: -1 });
    let timer = 0, oldest = 0, control = null;
    const search = el("input", { type: "search", placeholder: "Search", "aria-label": "Search", oninput: () => { clearTimeout(timer); timer = setTimeout(draw, 200); } });
    const pick = (label, options) => el("select", { "aria-label": label, onchange: () => draw() }, options.map(([value, text]) => el("option", { value }, text)));
    const rated = pick("Rated", [["", "rated or not"], ["yes", "rated"], ["no", "not rated"]]);
    const kind = pick("Kind", [["main", "conversations"], ["side", "side turns of agents"], ["", "both"]]);
    const more = button("Older ones", () => draw(oldest));
    const draw = attempt(async (before = 0) => {
      const query = new URLSearchParams({ limit: PAGE, text: search.value, rated: rated.value, kind: kind.value, before });
      // A search reads a few thousand turns at a time, and says where the next look begins.
      const got = search.value ? await api(`search?${query}`) : { turns: await api(`turns?${query}`) };
      const found = got.turns;
      oldest = got.before ?? (found.length < PAGE ? 0 : found.at(-1).id);
      more.hidden = !oldest;
      const rows = found.map((turn) => el("li", {}, el("button", { type: "button", class: "rowbutton", onclick: () => inspect(turn.id) },
        el("span", { class: "quiet meta" }, `${turn.id} · ${when(turn.created_at)} · ${turn.agent}`),
        el("span", { class: `mark ${sign(turn.reward)}` }, opinion(turn)),
        el("span", { class: "clip ask" }, turn.prompt || "(no question)"),
        el("span", { class: "clip quiet" }, turn.response || calls(turn)))));
      if (before) list.append(...rows);
      else list.replaceChildren(...(rows.length ? rows : [el("li", { class: "empty" }, oldest ? "No match among the newest turns." : "No turns.")]));
    });
    const inspect = attempt(async (id, quiet = false) => {
      const turn = await api(`turns/${id}`);
      const before = turn.messages.slice(0, -1), last = turn.messages.at(-1);
      const edits = turn.feedback.filter((f) => f.kind === "edit"), remarks = turn.feedback.filter((f) => f.kind === "critique" || (f.kind === "rating" && f.text));
      const card = answerCard(turn.response, { calls: turn.calls, cut: turn.cut });
      control = rater(turn, { card, after: async () => { await inspect(id, true); await draw(); } });
      detail.replaceChildren(el("section", { class: "card" },
        el("div", { class: "row" }, el("h2", {}, `Turn ${turn.id}`), el("span", { class: "grow" }), button("Close", () => { control = null; detail.replaceChildren(); })),
        el("p", { class: "quiet" }, `${turn.agent} · ${author(turn)} · ${when(turn.created_at)} · session ${turn.session}${turn.kind === "side" ? " · a side turn of the agent" : ""}`),
        before.length ? el("details", { class: "fold" }, el("summary", {}, `${count(before.length, "message")} before`), el("div", { class: "messages" }, before.map((m) => message(m.role, m.content)))) : null,
        last ? message(last.role, last.content) : null,
        card,
        turn.next_state.length ? el("details", { class: "fold" }, el("summary", {}, "What came next"), el("div", { class: "messages" }, turn.next_state.map((m) => message(m.role, m.content)))) : null,
        edits.map((f) => el("div", {}, el("h3", {}, `Edited ${when(f.created_at)}`), changes(turn.response, f.text))),
        remarks.map((f) => el("p", {}, el("strong", {}, "Remark: "), f.text)),
        el("p", {}, turn.reward === null ? "No feedback yet." : el("strong", { class: sign(turn.reward) }, `Reward ${opinion(turn)}`),
          turn.parts.length ? ` = ${turn.parts.map((p) => `${p.kind} ${p.value.toFixed(2)} × ${p.weight.toFixed(2)}`).join(" + ")}` : ""),
        control.node));
      if (!quiet) { detail.focus(); detail.scrollIntoView({ block: "start" }); }
    });
    await draw();
    if (/^\d{1,11}$/.test(argument ?? "")) await inspect(Number(argument), true);
    return { parts: [el("h1", {}, "Turns"), el("div", { class: "row filters" }, search, rated, kind), el("div", { class: "two" }, el("div", {}, list, more), detail)],
      key: (event) => control?.key(event) ?? false, leave: () => clearTimeout(timer) };
  },
};
