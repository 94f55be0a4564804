// The server: the token, calls to the API, and taps, which are kept here until the server has them.
import { fresh, say } from "./dom.js";

const KEY = "clawback-token", WAITING = "clawback-taps";
const RETRY = 5000;

export const token = {
  get: () => sessionStorage.getItem(KEY) ?? "",
  set: (value) => sessionStorage.setItem(KEY, value),
};

/** Whose token it is, as `GET /api/me` tells. */
export const person = { role: "owner", name: "", assigned: 0, done: 0 };

export class Refused extends Error {
  constructor(message, status) { super(message); this.status = status; }
}

/** GET, or POST where there is a body. Throws `Refused` with the server's sentence, `TypeError` where there is no server. */
export async function api(path, body) {
  const answer = await fetch(`/api/${path}`, {
    method: body === undefined ? "GET" : "POST",
    headers: { authorization: `Bearer ${token.get()}`, "content-type": "application/json" },
    body: body === undefined ? undefined : JSON.stringify(body),
  });
  const data = await answer.json().catch(() => ({}));
  if (answer.ok) return data;
  if (answer.status === 401) document.dispatchEvent(new Event("locked"));
  throw new Refused(typeof data.error === "string" ? data.error : `The server answered ${answer.status}.`, answer.status);
}

// Under the token that they were given with: whoever enters another one rates turns of their own.
const place = () => `${WAITING}:${token.get()}`;
const waiting = () => JSON.parse(sessionStorage.getItem(place()) ?? "[]");
const keep = (taps) => sessionStorage.setItem(place(), JSON.stringify(taps));

/** Say something about a turn (or prefer one). A tap that the server cannot take now is kept and sent again; its id makes it count once. */
export async function tap(path, body) {
  const one = { path, body: body.kind === "undo" ? body : { ...body, event_id: `page:${fresh()}` } };
  try {
    const saved = await api(one.path, one.body);
    document.dispatchEvent(new CustomEvent("rated", { detail: saved }));
    return saved;
  } catch (error) {
    if (error instanceof Refused && error.status < 500) throw error;
    keep([...waiting(), one]);
    say("The server does not answer. Your rating is kept here and sent again.", true);
    return null;
  }
}

async function again() {
  const taps = waiting();
  for (const one of taps) {
    try { await api(one.path, one.body); } catch (error) { if (!(error instanceof Refused && error.status < 500)) return; }
    keep(waiting().slice(1));
  }
  if (taps.length) {
    say("The ratings that were waiting are saved.");
    document.dispatchEvent(new CustomEvent("rated", { detail: {} }));
  }
}
setInterval(() => { if (waiting().length) again(); }, RETRY);
