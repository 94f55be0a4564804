// The frame of the page: which view is shown, the line at the top, keys, and the token.
import { assigned } from "./assigned.js";
import { chat } from "./chat.js";
import { connect } from "./connect.js";
import { attempt, button, el, kbd, say, sentence } from "./dom.js";
import { episodes } from "./episodes.js";
import { files } from "./files.js";
import { health } from "./health.js";
import { learning } from "./learning.js";
import { more } from "./more.js";
import { who } from "./names.js";
import { prompts } from "./prompts.js";
import { rate } from "./rate.js";
import { raters } from "./raters.js";
import { rules } from "./rules.js";
import { api, person, token } from "./server.js";
import { setup } from "./setup.js";
import { turns } from "./turns.js";
import { versions } from "./versions.js";

const all = { rate, chat, turns, learning, versions, rules, more, connect, files, prompts, setup, raters, health, episodes };
let views = all;
const EVERY = 10_000;

const given = new URLSearchParams(location.hash.slice(1)).get("token");
if (given) {
  token.set(given);
  history.replaceState(null, "", "#rate"); // so that it is in no bookmark and no picture of the screen
}

function askForToken() {
  const field = el("input", { type: "password", autocomplete: "off", id: "token", size: 40 });
  const enter = (event) => { event.preventDefault(); token.set(field.value.trim()); ready = false; latest = null; say(""); show(); };
  document.getElementById("view").replaceChildren(
    el("form", { class: "card write", onsubmit: enter },
      el("h1", {}, "Who is there?"),
      el("p", {}, "The token is the content of the file named token in your Clawback home. ", el("code", {}, "clawback serve"), " prints an address that holds it. On a server of several people it is the one that you were given."),
      el("label", { for: "token" }, "Token"), el("div", { class: "row" }, field, el("button", { class: "primary" }, "Enter"))));
  field.focus();
}

let current = null;
let shown = null; // the address of the view on the screen
let turn = 0;
let locked = false;
let ready = false; // whether it is known whose token it is
let latest = null; // what the server knew last

/** Shows the view that the address names: its name at once, then its data. */
async function show(event) {
  const mine = ++turn, again = shown === location.hash && !event, main = document.getElementById("view");
  const focused = main.contains(document.activeElement);
  locked = false;
  current?.leave?.();
  current = null;
  let name = "";
  try {
    if (!ready) await known();
    if (mine !== turn) return;
    const [asked, argument] = location.hash.slice(1).split("/");
    name = views[asked] ? asked : Object.keys(views)[0];
    frame(name, again);
    const now = latest ?? await refresh();
    if (latest !== now) refresh().catch(() => {});
    const made = await views[name].make({ now, redraw: () => show(), refresh, argument, views });
    if (mine !== turn) { made.leave?.(); return; }
    current = { ...made, keys: views[name].keys };
    shown = location.hash;
    main.replaceChildren(...made.parts.filter(Boolean));
    main.removeAttribute("aria-busy");
    if (!again) scrollTo(0, 0);
    if (event) (made.focus && matchMedia("(pointer: fine)").matches ? made.focus : main).focus({ preventScroll: true }); // what was asked for by a link is where one is
    else if (again && focused && !main.contains(document.activeElement)) main.focus({ preventScroll: true });
  } catch (error) {
    if (mine !== turn || locked) return;
    say(error.message, true);
    if (name && !again) main.replaceChildren(el("h1", {}, views[name].title), el("p", { class: "card" }, error.message, " ", button("Try again", () => show())));
    main.removeAttribute("aria-busy");
  }
}

/** The menu, the title, and the heading of a view whose data is still to come. */
function frame(name, again) {
  const main = document.getElementById("view"), view = views[name], tab = view.under ?? name;
  for (const link of document.querySelectorAll("nav a")) {
    if (link.hash === `#${tab}`) link.setAttribute("aria-current", tab === name ? "page" : "true");
    else link.removeAttribute("aria-current");
  }
  document.title = `${view.title} · Clawback`;
  main.dataset.view = name;
  main.setAttribute("aria-busy", "true");
  if (!again) main.replaceChildren(el("h1", {}, view.title), el("p", { class: "quiet loading", role: "status" }, "Loading …"));
}

/** Whose token it is, and the pages that are for them. */
async function known() {
  const before = person.role;
  Object.assign(person, await api("me"));
  ready = true;
  if (views !== all && person.role === before) return;
  const { turns, learning, versions, rules, raters, episodes, more } = all;
  views = { owner: { ...all, ...(person.assigned ? { assigned } : {}) }, rater: { rate: assigned }, viewer: { turns, learning, versions, rules, raters, episodes, more } }[person.role];
  document.querySelector("nav").replaceChildren(...Object.entries(views).filter(([, view]) => !view.under).map(([name, view]) =>
    el("a", { href: `#${name}` }, icon(name), el("span", {}, name === "assigned" ? "Assigned to you" : view.title))));
}

let warned = "", skipped = "";

/** The line at the top, from what the server knows now. */
async function refresh() {
  const line = document.getElementById("live");
  if (person.role === "rater") {
    Object.assign(person, await api("me"));
    line.replaceChildren(el("span", { class: "now" }, `${person.name}: ${person.done} of ${person.assigned} done`));
    return latest = person;
  }
  const now = latest = await api("status");
  const share = Math.min(now.towards_run, now.threshold);
  line.replaceChildren(
    el("span", { class: "now" }, `${who(now.live)} is live`),
    el("span", { class: "taps" }, `${now.good} good, ${now.bad} bad`),
    now.run ? el("span", { class: "run" }, now.run.interrupted ? "a run was interrupted" : `${now.run.status === "preparing" ? "run" : "training"}: ${now.run.text}`)
      : el("span", { class: "fresh", title: now.nothing_to_gain }, share < now.threshold ? `${now.threshold - share} more ratings until the next run` : now.missing_sign ? `the next run needs answers that are rated ${now.missing_sign}` : "enough ratings for a run"));
  tellNews(now.news);
  if (now.warning && now.warning !== warned) say(now.warning);
  warned = now.warning;
  if (now.nothing_to_gain && now.nothing_to_gain !== skipped) say(`${now.nothing_to_gain}.`);
  skipped = now.nothing_to_gain;
  return now;
}

const line = document.getElementById("news");
const decide = (keep) => attempt(async () => { const { text } = await api("news", { keep }); await refresh(); say(text); });

/** What a run brought since the person last looked, with one key to keep it or to go back. */
function tellNews(news) {
  const text = (news?.sentence ?? "").replace("`clawback inbox --rate`", "under Rate, A or B");
  line.hidden = !news;
  if (line.dataset.text === text) return;
  line.dataset.text = text;
  line.replaceChildren(...(news ? [el("p", {}, sentence(text)), person.role === "viewer" || !news.live ? null : el("div", { class: "row" }, button("Keep", decide(true), { key: "y" }), button("Go back", decide(false), { key: "n" }))].filter(Boolean) : []));
}

function help() {
  const dialog = document.getElementById("help");
  const news = line.querySelector("button") ? [["y / n", "keep the new version / go back"]] : [];
  const rows = [...(current?.keys ?? []), ...news, ["m", "to the menu"], ["?", "this help"], ["Esc", "close it"]];
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
  more: "M5 12h.01M12 12h.01M19 12h.01",
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
document.addEventListener("rated", attempt(() => refresh()));
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
