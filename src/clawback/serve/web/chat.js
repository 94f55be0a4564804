// Talking to the live version here: the answer streams in, and can be rated with one tap.
import { message } from "./answer.js";
import { current, listOf } from "./conversations.js";
import { attempt, button, copyButton, el, say } from "./dom.js";
import { markdown } from "./markdown.js";
import { capital, who } from "./names.js";
import { rater } from "./rater.js";
import { api } from "./server.js";
import { ask, modelNames, turnOf } from "./talk.js";

const EMBEDDED = "The embedded demonstration model answers here. It knows only about a hundred animals, cities and foods: try “Tell me about the otter.”";
const HINT = "Ask something. Rate each answer with one tap: the next version learns from your ratings.";

export const chat = {
  title: "Chat",
  keys: [["Enter", "send (Shift Enter: a new line)"], ["Esc", "leave the text; g, b, 1 – 9 then rate the last answer"], ["/", "back to the text"],
    ["e / r", "edit the last answer / write a remark"], ["a", "answer again"]],
  async make({ now, redraw }) {
    const talk = current.get(), view = new Conversation(talk, now);
    const [models, list] = await Promise.all([names(now), listOf(talk.session, attempt(async (chosen) => { view.leave(); current.set(chosen); await redraw(); }))]);
    view.models(models);
    const another = button("New conversation", () => { view.leave(); current.clear(); redraw(); });
    return {
      parts: [el("div", { class: "row head" }, el("h1", {}, "Chat"), el("span", { class: "grow" }), view.pick, another),
        el("div", { class: "talk" }, list, el("div", { class: "talking" }, view.system, view.welcome, view.log, view.compose))],
      key: (event) => view.key(event),
      leave: () => view.leave(),
      focus: view.field,
    };
  },
};

/** The messages on the screen, the field under them, and what is asked at the moment. */
class Conversation {
  constructor(talk, now) {
    this.talk = talk;
    this.asking = null;
    this.control = null; // rates the last answer
    this.log = el("div", { class: "messages chat", role: "log", "aria-label": "Conversation" });
    this.field = el("textarea", { rows: 2, "aria-label": "Your message", placeholder: "Ask something …" });
    this.send = el("button", { class: "primary" }, "Send");
    this.stop = button("Stop", () => this.asking?.abort(), { hidden: true });
    this.compose = el("form", { class: "bar compose", onsubmit: (event) => this.submit(event) }, this.field, this.send, this.stop);
    this.welcome = talk.messages.length ? null : el("p", { class: "card empty" }, now.model === "embedded" && !now.upstream ? EMBEDDED : HINT);
    this.again = button("Answer again", () => this.answerAgain(), { key: "a" });
    this.system = this.systemPrompt();
    this.field.addEventListener("keydown", (event) => {
      if (event.key === "Enter" && !event.shiftKey && !event.isComposing) this.submit(event);
      if (event.key === "Escape") { document.getElementById("view").focus({ preventScroll: true }); event.stopPropagation(); }
    });
    for (const one of talk.messages) this.rated(this.show(one), one);
  }

  systemPrompt() {
    const field = el("textarea", { rows: 3, "aria-label": "System prompt", placeholder: "You answer briefly …" });
    field.value = this.talk.system ?? "";
    field.addEventListener("change", () => { this.talk.system = field.value; current.set(this.talk); });
    return el("details", { class: "fold", open: Boolean(field.value) }, el("summary", {}, "System prompt"), field);
  }

  models(models) {
    this.pick = el("select", { "aria-label": "Who answers" }, models.map(([value, text]) => el("option", { value }, text)));
  }

  show(one) {
    const line = message(one.role, one.content);
    if (one.version !== undefined) line.querySelector(".role").textContent = capital(one.version === null ? "model" : who(one.version));
    this.log.append(line);
    return line;
  }

  /** Under an answer: its buttons, and what counts as a use of it. */
  async rated(line, one) {
    if (one.role !== "assistant") return;
    const row = el("div", { class: "row under" }, copyButton(one.content, { "aria-label": "Copy the answer" }));
    line.append(row);
    if (one === this.talk.messages.at(-1)) row.append(this.again);
    if (!one.turn) return;
    try {
      const turn = await api(`turns/${one.turn}`), made = rater(turn, { card: line.querySelector(".markdown") });
      if (made.node) line.append(made.node);
      const used = (kind) => { api(`turns/${one.turn}/use`, { kind }).catch(() => {}); }; // how often answers are used is a figure of the report
      line.addEventListener("click", (event) => { if (event.target.closest("a[href]")) used("click"); else if (event.target.closest(".code-head button, .under button:first-child")) used("copy"); });
      line.addEventListener("copy", () => used("copy"));
      if (one === this.talk.messages.at(-1)) this.control = made;
    } catch { /* it was forgotten meanwhile */ }
  }

  submit(event) {
    event.preventDefault();
    const text = this.field.value.trim();
    if (!text || this.asking) return;
    this.field.value = "";
    this.welcome?.remove();
    const question = { role: "user", content: text };
    this.talk.messages.push(question);
    this.answer(this.show(question));
  }

  /** Another answer to the last question; the first one stays a turn, and the two can be compared under A or B. */
  answerAgain() {
    if (this.asking || this.talk.messages.at(-1)?.role !== "assistant") return;
    const replaced = { one: this.talk.messages.pop(), line: this.log.lastElementChild };
    replaced.line.remove();
    this.answer(null, replaced);
  }

  async answer(asked, replaced = null) {
    const { talk } = this, one = { role: "assistant", content: "", version: null }, line = this.show(one), body = el("div", { "aria-busy": "true" });
    const system = talk.system?.trim() ? [{ role: "system", content: talk.system.trim() }] : [];
    line.append(body);
    line.scrollIntoView({ block: "end" });
    this.under(true);
    let frame = 0;
    const draw = () => { cancelAnimationFrame(frame); frame = requestAnimationFrame(() => body.replaceChildren(markdown(one.content || "…"))); };
    draw();
    try {
      const onVersion = (version) => { one.version = version; line.querySelector(".role").textContent = capital(version === null ? "model" : who(version)); };
      for await (const piece of ask({ model: this.pick.value || "clawback", session: talk.session, messages: [...system, ...talk.messages], signal: this.asking.signal, onVersion })) { one.content += piece; draw(); }
      talk.messages.push(one);
      one.turn = await turnOf(talk.session, one.content);
    } catch (error) {
      if (one.content) { if (talk.messages.at(-1) !== one) talk.messages.push(one); } else this.unanswered(line, asked, replaced);
      if (error.name !== "AbortError") say(error.message, true);
    }
    cancelAnimationFrame(frame);
    if (one.content) body.replaceWith(markdown(one.content));
    this.under(false);
    current.set(talk);
    if (!one.content) return;
    await this.rated(line, one);
    line.scrollIntoView({ block: "end" });
  }

  /** Nothing came: the question is in the field again, or the answer before it stands again. */
  unanswered(line, asked, replaced) {
    line.remove();
    if (replaced) {
      this.talk.messages.push(replaced.one);
      this.log.append(replaced.line);
      return;
    }
    this.field.value = this.talk.messages.pop().content;
    asked.remove();
  }

  under(way) {
    this.asking = way ? new AbortController() : null;
    this.send.hidden = way;
    this.stop.hidden = !way;
    this.again.disabled = way;
  }

  key(event) {
    if (event.key === "/") this.field.focus();
    else if (event.key === "a") this.answerAgain();
    else return this.control?.key(event) ?? false;
    return true;
  }

  leave() { this.asking?.abort(); }
}

/** The models that can be asked, with a name for each. */
async function names(now) {
  const ids = await modelNames();
  if (now.upstream) return ids.map((id) => [id, id]);
  return ids.map((id) => [id, id === "clawback" ? `${capital(who(now.live))} (live)` : id === "clawback-base" ? "The base model" : capital(who(Number(id.replace("clawback-v", ""))))])
    .filter(([id]) => id === "clawback" || id !== (now.live === 0 ? "clawback-base" : `clawback-v${now.live}`));
}
