// The rules: how often each was kept, by model and week, what the ratings say of it, and each breach one click from its turn.
import { attempt, button, count, day, el, say, sentence, when } from "./dom.js";
import { api, person } from "./server.js";

const WEEKS = 8;
const percent = (one) => (one?.checked ? `${Math.round((100 * one.kept) / one.checked)} %` : "–");
const share = (one) => (one?.checked ? `${percent(one)} of ${one.checked}` : "–");
const tone = (one) => (!one?.checked ? "quiet" : one.kept / one.checked >= 0.9 ? "good" : "bad");
const whose = (rule) => ({ owner: "your words", list: "from our list" }[rule.author] ?? `proposed by ${rule.author}`);
const STATUS = { believed: "believed", proposed: "waits for your yes", dropped: "your ratings do not speak for it", withdrawn: "withdrawn" };

const turnLink = (id) => el("a", { href: `#turns/${id}` }, `turn ${id}`);

/** Cells of a week and a model, the newest week first. */
function table(receipt) {
  const models = receipt.models.map((one) => one.model), weeks = receipt.weeks.slice(-WEEKS).reverse();
  if (!models.length) return null;
  return el("div", { class: "wide", tabindex: 0, role: "region", "aria-label": "Kept, by week and model" }, el("table", {},
    el("thead", {}, el("tr", {}, el("th", { scope: "col" }, "Week of"), models.map((name) => el("th", { scope: "col" }, name)))),
    el("tbody", {}, weeks.map(({ week }) => el("tr", {}, el("th", { scope: "row" }, week), models.map((name) => {
      const cell = receipt.by_model_and_week[name]?.[week];
      return el("td", { class: tone(cell) }, share(cell));
    })))),
    el("tfoot", {}, el("tr", {}, el("th", { scope: "row" }, "All"), receipt.models.map((one) => el("td", { class: tone(one) }, share(one)))))));
}

function ratings({ liked_kept, liked_broken, disliked_kept, disliked_broken }) {
  const rows = [["For it: liked, and kept it", liked_kept], ["For it: disliked, and broke it", disliked_broken],
    ["Against it: liked, and broke it", liked_broken], ["Against it: disliked, and kept it", disliked_kept]].filter(([, turns]) => turns.length);
  if (!rows.length) return el("p", { class: "quiet" }, "No rated answer says anything about it yet.");
  return el("ul", {}, rows.map(([text, turns]) => el("li", {}, `${text}: ${turns.length} (`, turns.slice(-6).flatMap((id, i) => (i ? [", ", turnLink(id)] : [turnLink(id)])), turns.length > 6 ? ", …)" : ")")));
}

function breaches(receipt) {
  const broken = receipt.checked - receipt.kept;
  if (!receipt.breaches.length) return el("p", { class: "quiet" }, receipt.checked ? "No recorded answer breaks it." : "No answer was checked yet.");
  return el("div", {}, el("h3", {}, `Breaches, ${receipt.breaches.length} of ${broken}`),
    el("ul", { class: "rows breaches" }, receipt.breaches.map((one) => el("li", {}, el("a", { class: "rowbutton", href: `#turns/${one.turn}` },
      el("span", { class: "quiet meta" }, `turn ${one.turn} · ${when(one.created_at)} · ${one.model}`),
      one.place ? el("span", { class: "clip" }, `Line ${one.line}: ${one.place}`) : null)))));
}

export const rules = {
  title: "Rules",
  keys: [["Tab, Enter", "the buttons"]],
  async make({ redraw }) {
    const found = await api("rules"), owner = person.role === "owner";
    const act = (path, text) => attempt(async () => { await api(path, {}); await redraw(); say(text); });
    const card = (rule) => {
      const detail = el("div", { hidden: true });
      const open = button("Receipts", attempt(async () => {
        detail.hidden = !detail.hidden;
        open.setAttribute("aria-expanded", String(!detail.hidden));
        if (detail.hidden || detail.childElementCount) return;
        const receipt = await api(`rules/${rule.id}`);
        detail.replaceChildren(table(receipt) ?? "", el("h3", {}, "Your ratings"), ratings(receipt.ratings), breaches(receipt));
      }), { "aria-expanded": "false" });
      return el("section", { class: `card rule ${rule.status}`, "aria-label": `Rule ${rule.id}` },
        el("div", { class: "row" }, el("h2", {}, rule.text), el("span", { class: `badge ${rule.status}` }, STATUS[rule.status])),
        el("p", { class: "quiet" }, `Rule ${rule.id} · ${whose(rule)} · ${day(rule.created_at)} · ${rule.judged ? "a judge checks it" : `code checks it: ${rule.check}`}`),
        rule.checked ? el("p", {}, el("strong", { class: tone(rule) }, `Kept in ${percent(rule)}`), ` of ${count(rule.checked, "answer")}; in the last week ${share(rule.last_week)}.`)
          : el("p", { class: "quiet" }, "No answer was checked yet."),
        rule.models.length ? el("ul", { class: "plain models" }, rule.models.slice(0, 5).map((one) => el("li", {}, el("span", {}, one.model), el("meter", { min: 0, max: one.checked, value: one.kept, "aria-label": `${one.model}: ${share(one)}` }), el("span", { class: tone(one) }, share(one))))) : null,
        el("div", { class: "row buttons" }, open,
          owner && rule.status !== "withdrawn" ? button("Withdraw it", act(`rules/${rule.id}/drop`, `Rule ${rule.id} is withdrawn.`)) : null,
          owner && (rule.status !== "believed" || (rule.author !== "owner" && !rule.evidence.accepted)) ? button("Yes, keep it", act(`rules/${rule.id}/keep`, `Rule ${rule.id} counts.`), { class: "primary" }) : null),
        detail);
    };
    const field = el("input", { id: "rule", maxlength: 200, size: 40, placeholder: "Never apologise.", autocomplete: "off" });
    const add = attempt(async (event) => { event.preventDefault(); const made = await api("rules", { text: field.value }); await redraw(); say(`Rule ${made.id}: ${made.text}`); });
    const form = owner ? el("form", { class: "card write", onsubmit: add }, el("label", { for: "rule" }, "What do you want of every answer? One sentence."),
      el("div", { class: "row" }, field, el("button", { class: "primary" }, "Add the rule"))) : null;
    const differs = owner && found.prompt_differs ? el("div", { class: "card row" }, el("span", { class: "grow" }, "The live prompt does not say all of your rules, or says withdrawn ones."),
      button("Put them into the prompt", act("rules/use", "The prompt has your rules."))) : null;
    const listed = found.rules.filter((rule) => rule.status !== "withdrawn"), gone = found.rules.filter((rule) => rule.status === "withdrawn");
    return { parts: [el("h1", {}, "Rules"), el("p", { class: "quiet" }, sentence("How often each was kept in the recorded answers, whichever model gave them. `clawback rules` shows the same.")), form, differs,
      listed.length ? el("div", { class: "stack" }, listed.map(card)) : el("p", { class: "card empty" }, "There are no rules yet."),
      gone.length ? el("details", { class: "fold" }, el("summary", {}, `${count(gone.length, "rule")} withdrawn`), el("div", { class: "stack" }, gone.map(card))) : null] };
  },
};
