// What people say, without what OpenClaw puts around it; and which of it is a command of ours.

const INTERNAL = /<<<BEGIN_OPENCLAW_INTERNAL_CONTEXT>>>[\s\S]*?(?:<<<END_OPENCLAW_INTERNAL_CONTEXT>>>|$)/g;
const STAMP = /^\s*\[(?:Mon|Tue|Wed|Thu|Fri|Sat|Sun) \d{4}-\d\d-\d\d \d\d:\d\d[^\]\n]{0,40}\] ?/;
const BLOCK = /^[^\n]{0,80}⟦openclaw:ctx⟧\n```json\n[\s\S]*?\n```\n*/;
const ADMIN = new Set(["train", "rollback", "reset"]);
const RATING = new Set(["good", "bad", "rate", "remark", "note"]);
const MOST_OF_A_RESULT = 20_000;

/** OpenClaw's mark on what one session sends to another: a model's words, not a person's. */
export function isBetweenSessions(text: string): boolean {
  return text.startsWith("[Inter-session message]");
}

/** The prompt as the person wrote it. */
export function plain(text: string): string {
  let rest = text.replace(INTERNAL, "").replace(STAMP, "");
  while (BLOCK.test(rest)) rest = rest.replace(BLOCK, "");
  return rest.trim();
}

/** `/rl good`, `rl: good`, `/clawback:rl good` → its first word ("status" where none is given); undefined for anything else. */
export function command(text: string): string | undefined {
  const found = /^(?:\/rl(?=\s|$)|\/clawback:rl(?=\s|$)|rl:)\s*(\S*)/i.exec(text.trim());
  return found ? (found[1] || "status").toLowerCase() : undefined;
}

/** Words that change more than a rating. */
export function isAdmin(word: string): boolean {
  return ADMIN.has(word);
}

/** Words whose meaning is kept where they wait: said now, they still hold in an hour. */
export function canWait(word: string): boolean {
  return RATING.has(word);
}

/** The text of a message: OpenClaw has it as a string or in parts. */
export function textOf(content: unknown): string {
  if (typeof content === "string") return content;
  if (!Array.isArray(content)) return "";
  return content
    .filter((part): part is { text: string } => part?.type === "text" && typeof part.text === "string")
    .map((part) => part.text)
    .join("\n");
}

/** What the model said last. */
export function lastAnswer(messages: readonly unknown[]): string {
  for (let index = messages.length - 1; index >= 0; index -= 1) {
    const message = messages[index] as { role?: unknown; content?: unknown } | undefined;
    if (message?.role === "assistant") return textOf(message.content).trim();
    if (message?.role === "user") return "";
  }
  return "";
}

/** The model's own word for why it stopped ("stop", "length", "aborted"…); "" where OpenClaw has none. */
export function lastEnding(messages: readonly unknown[]): string {
  for (let index = messages.length - 1; index >= 0; index -= 1) {
    const message = messages[index] as { role?: unknown; stopReason?: unknown } | undefined;
    if (message?.role === "assistant") return typeof message.stopReason === "string" ? message.stopReason : "";
    if (message?.role === "user") return "";
  }
  return "";
}

/** The tool calls and their results since the last prompt, as chat messages; without the answer itself. */
export function workOf(messages: readonly unknown[]): Record<string, unknown>[] {
  const work: Record<string, unknown>[] = [];
  for (const each of messages) {
    const message = each as { role?: unknown; content?: unknown; toolCallId?: unknown } | undefined;
    if (message?.role === "user") work.length = 0;
    if (message?.role === "toolResult") {
      const content = textOf(message.content).slice(0, MOST_OF_A_RESULT);
      work.push({ role: "tool", tool_call_id: String(message.toolCallId ?? ""), content });
    }
    if (message?.role === "assistant") {
      const calls = callsOf(message.content);
      const said = { role: "assistant", content: textOf(message.content).trim() };
      work.push(calls.length ? { ...said, tool_calls: calls } : said);
    }
  }
  const last = work[work.length - 1];
  return last?.["role"] === "assistant" && !last["tool_calls"] ? work.slice(0, -1) : work;
}

function callsOf(content: unknown): Record<string, unknown>[] {
  if (!Array.isArray(content)) return [];
  return content
    .filter((part): part is { id: unknown; name: unknown; arguments: unknown } => part?.type === "toolCall")
    .map((part) => ({ id: part.id, name: part.name, arguments: part.arguments }));
}
