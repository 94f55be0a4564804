// Asking a model by the server's own API, and finding the turn that an answer was recorded as.
import { api, token } from "./server.js";

const LOOKS = 20, PAUSE = 250; // for the turn of an answer; behind a proxy it is recorded a moment later

/** The header that Clawback takes the token from under /v1/, and never passes on to an upstream. */
const header = () => ({ "x-clawback-token": token.get() });

/** Asks, and hands on each piece of text as it comes. Throws what the server says where it refuses. */
export async function* ask({ model, session, messages, signal, onVersion = () => {} }) {
  const answer = await fetch("/v1/chat/completions", {
    method: "POST",
    signal,
    headers: { ...header(), "content-type": "application/json", "x-session-id": session, "x-turn-type": "main" },
    body: JSON.stringify({ model, stream: true, messages: messages.map(({ role, content }) => ({ role, content })) }),
  });
  if (!answer.ok) throw new Error((await answer.json().catch(() => ({}))).error?.message ?? `The server answered ${answer.status}.`);
  const version = answer.headers.get("x-clawback-version");
  onVersion(version === null ? null : Number(version));
  yield* pieces(answer.body);
}

/** The pieces of text of a stream of `chat.completion.chunk` events. */
async function* pieces(stream) {
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
export async function turnOf(session, text) {
  for (let look = 0; look < LOOKS; look += 1) {
    const [turn] = await api(`turns?limit=1&session=${encodeURIComponent(session)}`);
    if (turn && turn.response.trim() === text.trim()) return turn.id;
    await new Promise((done) => setTimeout(done, PAUSE));
  }
  return undefined;
}

/** The names of the models that can be asked; none where they cannot be listed. */
export async function modelNames() {
  try {
    return (await (await fetch("/v1/models", { headers: header() })).json()).data.map((model) => model.id);
  } catch { return []; }
}
