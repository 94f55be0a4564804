// Clawback in opencode: prompts, answers and tool calls are recorded, and `/rl good` rates the last answer without asking a model.
// `clawback init --agent opencode` puts this file into opencode's plugins folder, with the path of its hook in the next line.
const HOOK = "clawback-hook";

import { spawnSync } from "node:child_process";

const WAIT_MS = 5_000;
const MOST_SESSIONS = 200;
const COMMAND = /^\s*["']?\s*(?:\/(?:rl|cl)\b|rl:)/i;

/** One event, as a program of Clawback's takes it; the sentence that it answers with, or "". Nothing that goes wrong reaches opencode. */
function tell(event) {
  try {
    const done = spawnSync(HOOK, ["opencode"], { input: JSON.stringify(event), encoding: "utf8", timeout: WAIT_MS });
    return done.stdout ? String(JSON.parse(done.stdout).reply ?? "") : "";
  } catch {
    return "";
  }
}

/** What the person typed, without what opencode or a plugin adds. `opencode run` puts quotes around an argument with blanks. */
function words(parts) {
  const own = parts.filter((part) => part.type === "text" && !part.synthetic && !part.ignored);
  return own.map((part) => part.text ?? "").join("\n").trim().replace(/^"([^"]*)"$/, "$1");
}

/** Tool calls with their results, as chat messages, and the text after the last of them. */
function read(messages) {
  const work = [];
  let text = "";
  for (const parts of messages) {
    const said = parts.filter((part) => part.type === "text" && !part.synthetic).map((part) => part.text ?? "").join("").trim();
    const tools = parts.filter((part) => part.type === "tool" && part.state);
    if (!tools.length) {
      text = [text, said].filter(Boolean).join("\n");
      continue;
    }
    const before = [text, said].filter(Boolean).join("\n");
    text = "";
    const calls = tools.map((part) => ({ id: part.callID, name: part.tool, arguments: JSON.stringify(part.state.input ?? {}) }));
    work.push({ role: "assistant", content: before, tool_calls: calls });
    for (const part of tools) {
      work.push({ role: "tool", tool_call_id: part.callID, content: String(part.state.output ?? part.state.error ?? "") });
    }
  }
  return { work, text };
}

export const Clawback = async ({ client, directory }) => {
  /** Session → the prompt that is being answered, and the messages of its answer as far as they have come. */
  const open = new Map();
  const children = new Set();

  /** In the conversation (no model reads it) and as a toast. Nobody waits for it: the session is busy with the command itself. */
  function show(sessionID, sentence) {
    if (process.argv.includes("run")) process.stderr.write(`${sentence}\n`);
    const shown = { type: "text", text: sentence, ignored: true };
    void client.session.prompt({ path: { id: sessionID }, body: { noReply: true, parts: [shown] } }).catch(() => undefined);
    void client.tui.showToast({ body: { message: sentence, variant: "info" } }).catch(() => undefined);
  }

  async function rate(sessionID, text) {
    const sentence = tell({ event: "prompt", session: sessionID, text, last: false });
    show(sessionID, sentence || "Clawback did not answer. `clawback doctor` says why.");
    // Nothing else keeps opencode from asking the model.
    throw new Error(sentence || "Clawback did not answer.");
  }

  function finish(sessionID) {
    const turn = open.get(sessionID);
    if (!turn) return;
    open.delete(sessionID);
    const infos = [...turn.infos.values()].filter((info) => !info.summary);
    const last = infos.at(-1);
    const { work, text } = read(infos.map((info) => [...(turn.parts.get(info.id)?.values() ?? [])]));
    const about = { session: sessionID, id: turn.id, cwd: directory };
    if (!text) {
      tell({ event: "failed", ...about });
      return;
    }
    const aborted = last?.error?.name === "MessageAbortedError";
    const ending = aborted ? "interrupted" : last?.error ? "error" : (last?.finish ?? "");
    tell({ event: "answer", ...about, text, work, ending, model: [last?.providerID, last?.modelID].filter(Boolean).join("/") });
  }

  return {
    "chat.message": async ({ sessionID }, { message, parts }) => {
      const text = words(parts);
      if (!text || children.has(sessionID)) return;
      if (COMMAND.test(text)) await rate(sessionID, text.replace(/^["']/, ""));
      if (open.has(sessionID)) finish(sessionID);
      if (open.size > MOST_SESSIONS) open.delete(open.keys().next().value);
      open.set(sessionID, { id: message.id, infos: new Map(), parts: new Map() });
      tell({ event: "prompt", session: sessionID, id: message.id, text, last: true });
    },
    "command.execute.before": async ({ command, sessionID, arguments: rest }) => {
      if (command === "rl" || command === "cl") await rate(sessionID, `/rl ${rest}`);
    },
    event: async ({ event: { type, properties } }) => {
      if (type === "session.created" && properties.info.parentID) children.add(properties.info.id);
      if (type === "message.updated" && properties.info.role === "assistant") {
        const turn = open.get(properties.info.sessionID);
        if (turn && properties.info.parentID === turn.id) turn.infos.set(properties.info.id, properties.info);
      }
      if (type === "message.part.updated") {
        const { part } = properties;
        const turn = open.get(part.sessionID);
        if (!turn) return;
        if (!turn.parts.has(part.messageID)) turn.parts.set(part.messageID, new Map());
        turn.parts.get(part.messageID).set(part.id, part);
      }
      if (type === "session.idle") finish(properties.sessionID);
    },
  };
};
