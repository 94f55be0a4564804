// Versions and sources under names that a person understands.
import { count, day, when } from "./dom.js";

export const who = (number) => (number === 0 ? "the base model" : `version ${number}`);
export const capital = (text) => text[0].toUpperCase() + text.slice(1);

const MADE = { search: "a prompt, found by a search", hand: "a prompt, written by hand" };

/** "trained Sunday on 41 ratings, live since today at 14:20" */
export function story(version, now = new Date()) {
  if (version.number === 0) {
    return version.status === "live" ? "untrained; it answers now" : "untrained; you can always go back to it";
  }
  const made = MADE[version.run_id === null && version.prompt && version.origin?.author] ?? "trained";
  const trained = `${made} ${day(version.created_at, now)}${version.ratings ? ` on ${count(version.ratings, "rating")}` : ""}`;
  const then = {
    live: version.promoted_at ? `live since ${when(version.promoted_at, now)}` : "live",
    retired: version.promoted_at ? `live from ${when(version.promoted_at, now)} until a newer one` : "no longer live",
    rejected: "rejected by the gate",
    candidate: version.report?.again_at ? "waits until you have said which of two answers is better (A or B)" : "not live yet",
  }[version.status];
  return `${trained}, ${then}`;
}

/** Who wrote a turn. */
export const author = (turn) =>
  turn.version !== null && turn.version !== undefined ? who(turn.version) : (turn.model || "unknown model");
