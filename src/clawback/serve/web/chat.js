// Talking to the live version here: the answer streams in, and can be rated with one tap.
import { message, rater } from "./answer.js";
import { button, el, fresh, say } from "./dom.js";
import { markdown } from "./markdown.js";
import { capital, who } from "./names.js";
import { api, token } from "./server.js";

const KEPT = "clawback-chat";
const EMBEDDED = "The embedded demonstration model answers here. It knows only about a hundred animals, cities and foods: try “Tell me about the otter.”";
const HINT = "Ask something. Rate each answer with one tap: the next version learns from your ratings.";
const LOOKS = 20, PAUSE = 250; // for the turn of an answer; behind a proxy it is recorded a moment later

/** The header that Clawback takes the token from under /v1/, and never passes on to an upstream. */
const ours = () => ({ "x-clawback-token": token.get() });
const kept = () => JSON.parse(sessionStorage.getItem(KEPT) ?? "null") ?? { session: `page-${fresh()}`, messages: [] };
const keep = (talk) => sessionStorage.setItem(KEPT, JSON.stringify(talk));

export const chat = {
  title: "Chat",
  keys: [["Enter", "send (Shift Enter: a new line)"], ["Esc", "leave the text; then g, b, 1 – 9 rate the last answer"]],
  async make({ now, redraw }) {
    let talk = kept(), control = null, asking = null;
    const models = await names(now);
    const log = el("div", { class: "messages chat", role: "log", "aria-label": "Conversation" });
    const field = el("textarea", { rows: 2, "aria-label": "Your message", placeholder: "Ask something …" });
    const pick = models.length > 1 ? el("select", { "aria-label": "Who answers" }, models.map(([value, text]) => el("option", { value }, text))) : null;
    const send = el("button", { class: "primary" }, "Send");
    const stop = button("Stop", () => asking?.abort());
    stop.hidden = true;

    function show(one) {
      const line = message(one.role, one.content);
      if (one.version !== undefined) line.querySelector(".role").textContent = capital(one.version === null ? "model" : who(one.version));
      log.append(line);
      return line;
    }
    async function rated(line, one) {
      if (!one.turn) return;
      try {
        const turn = await api(`turns/${one.turn}`);
        const made = rater(turn);
        if (made.node) line.append(made.node);
        const used = (kind) => { api(`turns/${one.turn}/use`, { kind }).catch(() => {}); }; // how often answers are used is a figure of the report
        line.addEventListener("click", (event) => { if (event.target.closest("a[href]")) used("click"); else if (event.target.closest(".code-head button")) used("copy"); });
        line.addEventListener("copy", () => used("copy"));
        control = made;
      } catch { /* it was forgotten meanwhile */ }
    }
    const welcome = talk.messages.length ? null : el("p", { class: "card empty" }, now.model === "embedded" ? EMBEDDED : HINT);
    async function ask(text) {
      welcome?.remove();
      const said = { role: "user", content: text };
      show(said);
      talk.messages.push(said);
      const one = { role: "assistant", content: "", version: null };
      const line = show(one);
      const body = el("div", { "aria-busy": "true" });
      line.append(body);
      line.scrollIntoView({ block: "end" });
      asking = new AbortController();
      send.hidden = true;
      stop.hidden = false;
      let drawn = 0;
      const draw = () => { cancelAnimationFrame(drawn); drawn = requestAnimationFrame(() => { body.replaceChildren(markdown(one.content || "…")); log.scrollTop = log.scrollHeight; }); };
      try {
        const answer = await fetch("/v1/chat/completions", {
          method: "POST",
          signal: asking.signal,
          headers: { ...ours(), "content-type": "application/json", "x-session-id": talk.session, "x-turn-type": "main" },
          body: JSON.stringify({ model: pick?.value ?? models[0]?.[0] ?? "clawback", stream: true, messages: talk.messages.map(({ role, content }) => ({ role, content })) }),
        });
        if (!answer.ok) throw new Error((await answer.json().catch(() => ({}))).error?.message ?? `The server answered ${answer.status}.`);
        const version = answer.headers.get("x-clawback-version");
        one.version = version === null ? null : Number(version);
        line.querySelector(".role").textContent = capital(version === null ? "model" : who(one.version));
        for await (const piece of pieces(answer.body)) { one.content += piece; draw(); }
        talk.messages.push(one);
        one.turn = await turnOf(talk.session, one.content);
      } catch (error) {
        if (one.content) talk.messages.push(one);
        else { talk.messages.pop(); field.value = text; line.previousElementSibling.remove(); line.remove(); }
        if (error.name !== "AbortError") say(error.message, true);
      }
      cancelAnimationFrame(drawn);
      if (one.content) body.replaceChildren(markdown(one.content));
      body.removeAttribute("aria-busy");
      asking = null;
      send.hidden = false;
      stop.hidden = true;
      keep(talk);
      await rated(line, one);
      line.scrollIntoView({ block: "end" });
    }
    const submit = (event) => {
      event.preventDefault();
      const text = field.value.trim();
      if (!text || asking) return;
      field.value = "";
      ask(text);
    };
    field.addEventListener("keydown", (event) => {
      if (event.key === "Enter" && !event.shiftKey && !event.isComposing) submit(event);
      if (event.key === "Escape") { field.blur(); event.stopPropagation(); }
    });
    for (const one of talk.messages) {
      const line = show(one);
      if (one.turn) rated(line, one);
    }
    return {
      parts: [
        el("div", { class: "row head" }, el("h1", {}, "Chat"), el("span", { class: "grow" }), pick,
          button("New conversation", () => { asking?.abort(); sessionStorage.removeItem(KEPT); redraw(); })),
        welcome,
        log,
        el("form", { class: "bar compose", onsubmit: submit }, field, send, stop),
      ],
      key: (event) => control?.key(event) ?? false,
      leave: () => asking?.abort(),
      focus: field,
    };
  },
};

/** The models that can be asked, with a name for each. */
async function names(now) {
  try {
    const answer = await fetch("/v1/models", { headers: ours() });
    const ids = (await answer.json()).data.map((model) => model.id);
    if (now.upstream) return ids.map((id) => [id, id]);
    return ids.map((id) => [id, id === "clawback" ? `${capital(who(now.live))} (live)` : id === "clawback-base" ? "The base model" : capital(who(Number(id.replace("clawback-v", ""))))])
      .filter(([id]) => id === "clawback" || id !== (now.live === 0 ? "clawback-base" : `clawback-v${now.live}`));
  } catch { return []; }
}

/** The pieces of text of a stream of `chat.completion.chunk` events. */
export async function* pieces(stream) {
  let rest = "";
  for await (const bytes of stream.pipeThrough(new TextDecoderStream())) {
    rest += bytes;
    const lines = rest.split("\n");
    rest = lines.pop();
    for (const line of lines) {
      if (!line.startsWith("data:") || line.includes("[DONE]")) continue;
      const event = JSON.parse(line.slice(5));
      if (event.error) throw new Error(event.error.message ?? "The answer broke off.");
      const text = event.choices?.[0]?.delta?.content;
      if (text) yield text;
    }
  }
}

/** The number of the turn that an answer was recorded as. */
async function turnOf(session, text) {
  for (let look = 0; look < LOOKS; look += 1) {
    const [turn] = await api(`turns?limit=1&session=${encodeURIComponent(session)}`);
    if (turn && turn.response.trim() === text.trim()) return turn.id;
    await new Promise((done) => setTimeout(done, PAUSE));
  }
  return undefined;
}
