// The frame of the page: which view is shown, the line at the top, keys, and the token.
import { assigned } from "./assigned.js";
import { chat } from "./chat.js";
import { attempt, button, el, kbd, say, sentence } from "./dom.js";
import { episodes } from "./episodes.js";
import { health } from "./health.js";
import { learning } from "./learning.js";
import { who } from "./names.js";
import { prompts } from "./prompts.js";
import { rate } from "./rate.js";
import { raters } from "./raters.js";
import { rules } from "./rules.js";
import { api, person, token } from "./server.js";
import { turns } from "./turns.js";
import { versions } from "./versions.js";

const all = { rate, chat, turns, learning, versions, rules, prompts, raters, health, episodes };
let views = all;
const EVERY = 10_000;

const given = new URLSearchParams(location.hash.slice(1)).get("token");
if (given) {
  token.set(given);
  history.replaceState(null, "", "#rate"); // so that it is in no bookmark and no picture of the screen
}

function askForToken() {
  const field = el("input", { type: "password", autocomplete: "off", id: "token", size: 40 });
  const enter = (event) => { event.preventDefault(); token.set(field.value.trim()); say(""); show(); };
  document.getElementById("view").replaceChildren(
    el("form", { class: "card write", onsubmit: enter },
      el("h1", {}, "Who is there?"),
      el("p", {}, "The token is the content of the file named token in your Clawback home. ", el("code", {}, "clawback serve"), " prints an address that holds it. On a server of several people it is the one that you were given."),
      el("label", { for: "token" }, "Token"), el("div", { class: "row" }, field, el("button", { class: "primary" }, "Enter"))));
  field.focus();
}

let current = null;
let turn = 0;
let locked = false;

async function show(event) {
  const mine = ++turn;
  locked = false;
  current?.leave?.();
  current = null;
  try {
    await known();
    if (mine !== turn) return;
    const [asked, argument] = location.hash.slice(1).split("/"), name = views[asked] ? asked : Object.keys(views)[0];
    for (const link of document.querySelectorAll("nav a")) {
      if (link.hash === `#${name}`) link.setAttribute("aria-current", "page");
      else link.removeAttribute("aria-current");
    }
    document.title = `${views[name].title} · Clawback`;
    const now = await refresh();
    const made = await views[name].make({ now, redraw: show, refresh, argument });
    if (mine !== turn) { made.leave?.(); return; }
    current = { ...made, keys: views[name].keys };
    const main = document.getElementById("view");
    main.replaceChildren(...made.parts.filter(Boolean));
    main.dataset.view = name;
    scrollTo(0, 0);
    if (event) (made.focus && matchMedia("(pointer: fine)").matches ? made.focus : main).focus({ preventScroll: true }); // what was asked for by a link is where one is
  } catch (error) {
    if (mine === turn && !locked) say(error.message, true);
  }
}

/** Whose token it is, and the pages that are for them. */
async function known() {
  const before = person.role;
  Object.assign(person, await api("me"));
  if (views !== all && person.role === before) return;
  const { turns, learning, versions, rules, raters, episodes } = all;
  views = { owner: { ...all, ...(person.assigned ? { assigned } : {}) }, rater: { rate: assigned }, viewer: { turns, learning, versions, rules, raters, episodes } }[person.role];
  document.querySelector("nav").replaceChildren(...Object.entries(views).filter(([, view]) => !view.hidden).map(([name, view]) =>
    el("a", { href: `#${name}` }, icon(name), el("span", {}, name === "assigned" ? "Assigned to you" : view.title))));
}

let warned = "";

/** The line at the top, from what the server knows now. */
async function refresh() {
  const line = document.getElementById("live");
  if (person.role === "rater") {
    Object.assign(person, await api("me"));
    line.replaceChildren(el("span", { class: "now" }, `${person.name}: ${person.done} of ${person.assigned} done`));
    return person;
  }
  const now = await api("status");
  const share = Math.min(now.fresh, now.threshold);
  line.replaceChildren(
    el("span", { class: "now" }, `${who(now.live)} is live`),
    el("span", { class: "taps" }, `${now.good} good, ${now.bad} bad`),
    now.run ? el("span", { class: "run" }, now.run.interrupted ? "a run was interrupted" : `${now.run.status === "preparing" ? "run" : "training"}: ${now.run.text}`)
      : el("span", { class: "fresh" }, share < now.threshold ? `${now.threshold - share} more ratings until the next run` : "enough ratings for a run"));
  tellNews(now.news);
  if (now.warning && now.warning !== warned) say(now.warning);
  warned = now.warning;
  return now;
}

const line = document.getElementById("news");
const decide = (keep) => attempt(async () => { const { text } = await api("news", { keep }); await refresh(); say(text); });

/** What a run brought since the person last looked, with one key to keep it or to go back. */
function tellNews(news) {
  const text = news?.sentence ?? "";
  line.hidden = !news;
  if (line.dataset.text === text) return;
  line.dataset.text = text;
  line.replaceChildren(...(news ? [el("p", {}, sentence(text)), person.role === "viewer" || !news.live ? null : el("div", { class: "row" }, button("Keep", decide(true), { key: "y" }), button("Go back", decide(false), { key: "n" }))].filter(Boolean) : []));
}

function help() {
  const dialog = document.getElementById("help");
  const rows = [...(current?.keys ?? []), ["m", "to the menu"], ["?", "this help"], ["Esc", "close it"]];
  dialog.replaceChildren(el("h2", { id: "help-title" }, "Keys"),
    el("dl", {}, rows.map(([keys, text]) => [el("dt", {}, kbd(keys).map((k) => { k.removeAttribute("aria-hidden"); return k; })), el("dd", {}, text)])),
    button("Close", () => dialog.close(), { class: "primary" }));
  dialog.showModal();
}

const ICONS = {
  rate: "M7 11v9H4v-9zm3 9h7.5a2 2 0 0 0 2-1.6l1.2-6A2 2 0 0 0 18.7 10H14l.7-4.2A1.8 1.8 0 0 0 13 4l-3 6.5z",
  chat: "M4 5h16v11H9l-5 4z",
  turns: "M4 6h16M4 12h16M4 18h10",
  learning: "M4 19V5m0 14h16M7 15l4-5 3 3 5-7",
  versions: "M12 4l8 4-8 4-8-4zm-8 8l8 4 8-4M4 16l8 4 8-4",
  rules: "M5 4h14v16H5zm3 5l1.500 1.500L12 8m2 1.500h3M8 15l1.500 1.500L12 14m2 1.500h3",
  prompts: "M5 5h14v10h-8l-4 4v-4H5zm3 3h8m-8 4h5",
  health: "M4 12h4l2-6 4 12 2-6h4",
  raters: "M8 11a3 3 0 1 0 0-6 3 3 0 0 0 0 6zm-5 8c0-3 2-5 5-5s5 2 5 5m3-8a2.5 2.5 0 1 0 0-5m5 13c0-3-1.500-5-4-5",
};
ICONS.assigned = ICONS.rate;
function icon(name) {
  const made = document.createElementNS("http://www.w3.org/2000/svg", "svg");
  made.setAttribute("viewBox", "0 0 24 24");
  made.setAttribute("aria-hidden", "true");
  const path = document.createElementNS("http://www.w3.org/2000/svg", "path");
  path.setAttribute("d", ICONS[name]);
  made.append(path);
  return made;
}

document.getElementById("helper").addEventListener("click", help);
document.querySelector(".skip").addEventListener("click", (event) => { event.preventDefault(); document.getElementById("view").focus(); });
document.addEventListener("locked", () => { locked = true; askForToken(); });
document.addEventListener("rated", attempt(refresh));
document.addEventListener("visibilitychange", () => { if (!document.hidden) refresh().catch(() => {}); });
setInterval(() => { if (!document.hidden && !locked) refresh().catch(() => {}); }, EVERY);
addEventListener("hashchange", show);
addEventListener("keydown", (event) => {
  if (event.ctrlKey || event.metaKey || event.altKey || document.getElementById("help").open) return;
  if (event.target.closest?.("input, textarea, select")) return;
  if (event.key === "?") help();
  else if (event.key === "m") document.querySelector("nav a[aria-current]")?.focus();
  else if (!current?.key?.(event)) {
    const keep = { y: true, n: false }[event.key];
    if (keep === undefined || !line.querySelector("button")) return;
    decide(keep)();
  }
  event.preventDefault();
});
show();
