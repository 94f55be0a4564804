// Making elements, saying something in the live region, and times as a person says them.

export function el(name, attributes = {}, ...children) {
  const made = document.createElement(name);
  for (const [key, value] of Object.entries(attributes)) {
    if (key.startsWith("on")) made.addEventListener(key.slice(2), value);
    else if (value === true) made.setAttribute(key, "");
    else if (value !== false && value !== null && value !== undefined) made.setAttribute(key, value);
  }
  made.append(...children.flat(2).filter((c) => c !== null && c !== undefined && c !== false));
  return made;
}

/** A sentence whose commands stand between backticks. */
export const sentence = (text) => text.split("`").map((part, i) => (i % 2 ? el("code", {}, part) : part));

export const kbd = (...keys) => keys.map((key) => el("kbd", { "aria-hidden": "true" }, key));

/** A button with the key that does the same. */
export function button(text, onclick, { key, ...attributes } = {}) {
  return el("button", { type: "button", "aria-keyshortcuts": key, onclick, ...attributes }, text, key ? [" ", kbd(key)] : null);
}

/** A button that copies a text. */
export function copyButton(text, attributes = {}) {
  const copy = el("button", { type: "button", class: "small", ...attributes, onclick: async () => {
    try { await navigator.clipboard.writeText(text); copy.textContent = "Copied"; } catch { copy.textContent = "Select and copy it"; }
  } }, "Copy");
  return copy;
}

/** A command for a terminal, with its Copy button. */
export const command = (text, label = "Command") => el("div", { class: "command" },
  el("pre", { tabindex: 0, role: "region", "aria-label": label }, el("code", {}, text)), copyButton(text, { "aria-label": `Copy: ${text}` }));

let fading = 0;

/**
 * One line at the bottom, which screen readers read out. What went wrong stays; the rest goes after a while.
 * `action`: a button in it, {text, key, run}.
 */
export function say(text, wrong = false, action = null) {
  const line = document.getElementById("said");
  clearTimeout(fading);
  line.replaceChildren(el("span", {}, text), ...(action && text ? [button(action.text, action.run, { key: action.key })] : []));
  line.classList.toggle("wrong", wrong);
  line.classList.toggle("shown", Boolean(text));
  if (!wrong) fading = setTimeout(() => line.classList.remove("shown"), action ? 8000 : 5000);
}

/** Runs a job and says what went wrong with it, if something did. */
export const attempt = (job) => async (...given) => {
  try { return await job(...given); } catch (error) { say(error.message, true); }
};

const clock = (date) => date.toLocaleTimeString("en", { hour: "2-digit", minute: "2-digit", hour12: false });
const midnight = (date) => new Date(date.getFullYear(), date.getMonth(), date.getDate());

/** Seconds since 1970 → "today", "yesterday", "Sunday", "12 May", "12 May 2025". */
export function day(seconds, now = new Date()) {
  const then = new Date(seconds * 1000);
  const days = Math.round((midnight(now) - midnight(then)) / 86_400_000);
  if (days === 0) return "today";
  if (days === 1) return "yesterday";
  if (days > 1 && days < 7) return then.toLocaleDateString("en", { weekday: "long" });
  const year = then.getFullYear() === now.getFullYear() ? undefined : "numeric";
  return then.toLocaleDateString("en-GB", { day: "numeric", month: "long", year });
}

/** "today at 14:20", "Sunday at 09:05", "12 May". */
export function when(seconds, now = new Date()) {
  const name = day(seconds, now);
  return /\d/.test(name) ? name : `${name} at ${clock(new Date(seconds * 1000))}`;
}

export function duration(seconds) {
  if (seconds < 90) return `about ${Math.max(1, Math.round(seconds))} s`;
  const minutes = Math.round(seconds / 60);
  if (minutes < 90) return `about ${minutes} min`;
  return `about ${Math.floor(minutes / 60)} h${minutes % 60 ? ` ${minutes % 60} min` : ""}`;
}

export const count = (number, noun) => `${number} ${noun}${number === 1 ? "" : "s"}`;

/** An id that no other tap has; `crypto.randomUUID` is not there on plain HTTP from another machine. */
export function fresh() {
  return Array.from(crypto.getRandomValues(new Uint8Array(12)), (b) => b.toString(16).padStart(2, "0")).join("");
}
