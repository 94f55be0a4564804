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
export const api = (path, body) => send(path, body === undefined ? undefined : JSON.stringify(body), "application/json");

/** The same with a body as it is, such as a part of a file. */
export async function send(path, body, type = "application/octet-stream") {
  const answer = await fetch(`/api/${path}`, {
    method: body === undefined ? "GET" : "POST",
    headers: { authorization: `Bearer ${token.get()}`, "content-type": type },
    body,
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

const taps = []; // what was said here since the page was opened, the newest last: {turn, event}

/** The turn that the newest tap was about; undefined where there was none, or all were taken back. */
export const newestTap = () => taps.at(-1)?.turn;

/** Say something about a turn (or prefer one). A tap that the server cannot take now is kept and sent again; its id makes it count once. */
export async function tap(path, body) {
  const one = { path, body: body.kind === "undo" ? body : { ...body, event_id: `page:${fresh()}` } };
  if (body.kind !== "undo") taps.push({ turn: body.better ?? Number(/turns\/(\d+)\//.exec(path)[1]), event: one.body.event_id });
  try {
    const saved = await api(one.path, one.body);
    document.dispatchEvent(new CustomEvent("rated", { detail: saved }));
    return saved;
  } catch (error) {
    if (error instanceof Refused && error.status < 500) {
      if (body.kind !== "undo") taps.splice(taps.findIndex((t) => t.event === one.body.event_id), 1);
      throw error;
    }
    keep([...waiting(), one]);
    say("The server does not answer. Your rating is kept here and sent again.", true);
    return null;
  }
}

/** Take the newest word on a turn back, also one that the server does not have yet. */
export async function takeBack(turn) {
  const at = taps.findLastIndex((one) => one.turn === turn), event = taps[at]?.event;
  if (at >= 0) taps.splice(at, 1);
  const left = waiting().filter((one) => one.body.event_id !== event);
  if (event && left.length < waiting().length) keep(left);
  else await tap(`turns/${turn}/feedback`, { kind: "undo" });
}

async function again() {
  const kept = waiting();
  for (const one of kept) {
    try { await api(one.path, one.body); } catch (error) { if (!(error instanceof Refused && error.status < 500)) return; }
    keep(waiting().slice(1));
  }
  if (kept.length) {
    say("The ratings that were waiting are saved.");
    document.dispatchEvent(new CustomEvent("rated", { detail: {} }));
  }
}
setInterval(() => { if (waiting().length) again(); }, RETRY);
