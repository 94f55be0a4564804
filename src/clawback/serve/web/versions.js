// The versions by name, what the gate found, going back, and before and after.
import { answerCard } from "./answer.js";
import { attempt, button, el, say } from "./dom.js";
import { capital, story, who } from "./names.js";
import { api, person } from "./server.js";

export const versions = {
  title: "Versions",
  keys: [["Tab, Enter", "the buttons"]],
  async make({ now, redraw }) {
    const [found, recent] = await Promise.all([api("versions"), api("turns?limit=3&kind=main")]);
    const side = el("div", { tabindex: -1 });
    const act = (path, body, text) => attempt(async () => { await api(path, body); await redraw(); say(text); });
    const compare = (number) => attempt(async () => {
      side.replaceChildren(el("p", { class: "quiet", role: "status" }, "Asking both …"));
      side.focus();
      try {
        const rows = [];
        for (const turn of recent) rows.push(await api("pairs", { turn: turn.id, versions: [0, number], seed: 1 }));
        side.replaceChildren(el("h2", {}, `Before and after: the base model and version ${number}`), ...rows.map((row) => el("section", { "aria-label": "A prompt of yours" },
          el("div", { class: "card prompt" }, el("p", { class: "said" }, row.prompt)),
          el("div", { class: "pair" }, row.answers.map((a) => answerCard(a.response, { title: capital(who(a.version)) }))))));
      } catch (error) { side.replaceChildren(); throw error; }
    });
    const card = (v) => el("section", { class: `card version ${v.status}`, "aria-label": capital(who(v.number)) },
      el("div", { class: "row" }, el("h2", {}, capital(who(v.number))), el("span", { class: `badge ${v.status}` }, v.status)),
      el("p", {}, capital(story(v)), "."),
      v.stale ? el("p", { class: "bad" }, "It learned from feedback that was taken back since.") : null,
      v.report?.reasons?.length ? el("details", { class: "fold" }, el("summary", {}, capital(v.report.reasons[0])), el("ul", {}, v.report.reasons.slice(1).map((r) => el("li", {}, r)))) : null,
      person.role === "viewer" ? null : el("div", { class: "row buttons" },
        v.status === "live" && v.number !== 0 ? button("Roll back", act("rollback", {}, "Rolled back.")) : null,
        v.status === "retired" || (v.status === "candidate" && v.report?.accepted) ? button(v.number === 0 ? "Go back to it" : "Make live", act(`versions/${v.number}/promote`, {}, `${capital(who(v.number))} is live.`)) : null,
        v.number !== 0 && recent.length && !now.upstream ? button("Before and after", compare(v.number)) : null));
    const lacking = now.fresh >= now.threshold && now.missing_sign;
    const first = found.length > 1 ? null : el("p", { class: "card" }, "Nothing was learned yet. ", now.fresh < now.threshold ? `${now.threshold - now.fresh} more ratings start a run, or ` : lacking ? `A run needs answers that are rated ${lacking}: ` : "A run can start now: ", lacking ? el("a", { href: "#rate" }, "Rate") : el("a", { href: "#learning" }, "Train now"), ".");
    return { parts: [el("h1", {}, "Versions"), first, side, el("div", { class: "stack" }, found.map(card))] };
  },
};
