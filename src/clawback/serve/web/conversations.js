// The conversation under way in Chat, and the earlier ones, which the server has.
import { textOf } from "./answer.js";
import { el, fresh, when } from "./dom.js";
import { api } from "./server.js";

const KEPT = "clawback-chat";

/** What is said at the moment: {session, system, messages: [{role, content, version?, turn?}]}. */
export const current = {
  get: () => JSON.parse(sessionStorage.getItem(KEPT) ?? "null") ?? { session: `page-${fresh()}`, system: "", messages: [] },
  set: (talk) => sessionStorage.setItem(KEPT, JSON.stringify(talk)),
  clear: () => sessionStorage.removeItem(KEPT),
};

/** An earlier conversation as it ended, with the turns of its answers. */
async function earlier(name) {
  const { turns } = await api(`sessions/${encodeURIComponent(name)}`);
  const main = turns.filter((turn) => turn.kind === "main"), newest = await api(`turns/${main[0].id}`);
  const messages = [], system = newest.messages.filter((one) => one.role === "system").map((one) => textOf(one.content)).join("\n");
  const turnFor = (place, text) => main.find((turn) => turn.before === place - 1 && turn.response.trim() === text.trim());
  const add = (content, turn) => messages.push({ role: "assistant", content, version: turn?.version ?? null, turn: turn?.id });
  newest.messages.forEach((one, place) => {
    if (one.role === "assistant") add(textOf(one.content), turnFor(place, textOf(one.content)));
    else if (one.role === "user") messages.push({ role: "user", content: textOf(one.content) });
  });
  add(newest.response, newest);
  return { session: name, system, messages };
}

/** The list of conversations; `open(talk)` when one is chosen. */
export async function listOf(session, open) {
  const all = await api("conversations?limit=50");
  const row = (one) => el("li", {}, el("button", { type: "button", class: "rowbutton", "aria-current": one.name === session ? "true" : null, onclick: async () => open(await earlier(one.name)) },
    el("span", { class: "clip" }, one.title || "(no question)"), el("span", { class: "quiet clip" }, `${when(one.newest)} · ${one.answers}`)));
  const fold = el("details", { class: "fold talks", open: matchMedia("(min-width: 70rem)").matches },
    el("summary", {}, `Conversations (${all.length})`),
    all.length ? el("ul", { class: "rows", "aria-label": "Conversations" }, all.map(row)) : el("p", { class: "quiet" }, "None yet."));
  return fold;
}
