// What somebody who was invited is asked about: the question, the answer, and nothing of what others think of it or who wrote it.
import { el } from "./dom.js";
import { KEYS, queue } from "./queue.js";
import { api } from "./server.js";

export const assigned = {
  title: "Rate",
  keys: KEYS,
  async make() {
    const turns = await api("assigned"), heading = el("h1", {}, "How was this answer?");
    if (!turns.length) return { parts: [heading, el("p", { class: "card empty" }, "Nothing is assigned to you yet. Come back later.")] };
    const rated = () => turns.filter((one) => one.feedback.some((f) => f.undone_at === null)).length;
    const { node, key } = queue(turns, { path: "assigned", label: "The question", line: (_, at) => `${at + 1} of ${turns.length} · ${rated()} done` });
    return { parts: [heading, node], key };
  },
};
