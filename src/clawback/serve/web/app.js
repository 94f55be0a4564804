// The frame of the page: the token, calls to the API, which view is shown, and keys.
import { views } from "/views.js";

const KEY = "clawback-token";
const given = new URLSearchParams(location.hash.slice(1)).get("token");
if (given) {
  sessionStorage.setItem(KEY, given);
  history.replaceState(null, "", "/#rate"); // so that it is in no bookmark and no picture of the screen
}

export function el(name, attributes = {}, ...children) {
  const made = document.createElement(name);
  for (const [key, value] of Object.entries(attributes)) {
    if (key.startsWith("on")) made.addEventListener(key.slice(2), value);
    else if (value === true) made.setAttribute(key, "");
    else if (value !== false && value !== null && value !== undefined) made.setAttribute(key, value);
  }
  made.append(...children.flat().filter((c) => c !== null && c !== undefined && c !== false));
  return made;
}

export function say(text, wrong = false) {
  const line = document.getElementById("said");
  line.textContent = text;
  line.classList.toggle("wrong", wrong);
}

export async function api(path, body) {
  const answer = await fetch(`/api/${path}`, {
    method: body === undefined ? "GET" : "POST",
    headers: { authorization: `Bearer ${sessionStorage.getItem(KEY) ?? ""}`, "content-type": "application/json" },
    body: body === undefined ? undefined : JSON.stringify(body),
  });
  const data = await answer.json();
  if (!answer.ok) {
    if (answer.status === 401) askForToken();
    throw new Error(data.error ?? `The server answered ${answer.status}.`);
  }
  return data;
}

function askForToken() {
  const field = el("input", { type: "password", autocomplete: "off", "aria-label": "Token", size: 48 });
  const enter = (event) => {
    event.preventDefault();
    sessionStorage.setItem(KEY, field.value.trim());
    show();
  };
  document.getElementById("view").replaceChildren(
    el("form", { class: "card", onsubmit: enter },
      el("h1", {}, "Who is there?"),
      el("p", {}, "The token is the content of the file named token in your Clawback home; `clawback serve` prints an address that holds it."),
      el("div", { class: "row" }, field, el("button", { class: "primary" }, "Enter"))));
  field.focus();
}

let current = null;
let turn = 0;

export async function show() {
  const name = views[location.hash.slice(1)] ? location.hash.slice(1) : "rate";
  const mine = ++turn;
  current?.leave?.();
  current = null;
  for (const link of document.querySelectorAll("nav a")) {
    if (link.hash === `#${name}`) link.setAttribute("aria-current", "page");
    else link.removeAttribute("aria-current");
  }
  try {
    const made = await views[name].make();
    if (mine !== turn) { made.leave?.(); return; }
    current = made;
    document.getElementById("view").replaceChildren(...made.parts);
    await refresh();
  } catch (error) {
    if (mine === turn) say(error.message, true);
  }
}

async function refresh() {
  const now = await api("status");
  const live = now.live === 0 ? "the base model" : `version ${now.live}`;
  const run = now.run ? ` · training ${now.run.progress.phase ?? ""}` : "";
  document.getElementById("live").textContent =
    `${live} is live · ${now.good} good, ${now.bad} bad · ${Math.min(now.fresh, now.threshold)}/${now.threshold} until the next run${run}`;
  if (now.warning) say(now.warning);
}

document.querySelector("nav").append(
  ...Object.entries(views).map(([name, view], i) => el("a", { href: `#${name}`, title: `Key ${i + 1}` }, view.title)));
addEventListener("hashchange", show);
addEventListener("keydown", (event) => {
  if (event.ctrlKey || event.metaKey || event.altKey) return;
  const field = event.target.closest?.("input:not([type=range]), textarea, select");
  if (field) return;
  if (current?.key?.(event)) { event.preventDefault(); return; }
  const name = Object.keys(views)[Number(event.key) - 1];
  if (name && !current?.digits) location.hash = name;
});
show();
