// The line to Clawback: events go one after the other, and wait where it is not running. Nobody waits for us longer than
// a command's answer may take.

import { createHmac, randomBytes } from "node:crypto";

const ASK_MS = 2_000;
const POST_MS = 10_000;
const MOST_EVENTS = 1_000;
const MOST_CHARACTERS = 16_000_000;
const RETRY_MS = [1_000, 2_000, 5_000, 15_000, 30_000];

export type Event = Record<string, unknown>;
/** What came of a question: the sentence, or why there is none. */
export type Said = { kind: "said"; text: string } | { kind: "down" | "refused" | "late" };
type Send = (url: string, init: RequestInit) => Promise<Response>;

interface Item {
  body: string;
  /** It may wait while Clawback is away. */
  keep: boolean;
  answer?: (said: Said) => void;
}

/** The address, if it is one of this machine's own. */
export function loopback(url: string): string | undefined {
  let read: URL;
  try {
    read = new URL(url);
  } catch {
    return undefined;
  }
  const own = ["127.0.0.1", "localhost", "[::1]"].includes(read.hostname);
  return own && read.protocol === "http:" && !read.username && !read.password ? read.origin : undefined;
}

export class Line {
  private readonly queue: Item[] = [];
  private size = 0;
  private running: Promise<void> | undefined;
  private failures = 0;
  private timer: ReturnType<typeof setTimeout> | undefined;
  private closed = false;
  private refused = false;
  private strange = false;

  constructor(
    private readonly origin: string,
    private readonly token: string,
    private readonly warn: (line: string) => void,
    private readonly send: Send = fetch,
  ) {}

  /** Fire and forget. */
  tell(event: Event): void {
    this.add({ body: JSON.stringify(event), keep: true });
    if (!this.timer) void this.go();
  }

  /** Wait for the answer, but not long. With `keep` the event is brought later where it cannot be now. */
  async ask(event: Event, keep: boolean): Promise<Said> {
    const item: Item = { body: JSON.stringify(event), keep };
    const answer = new Promise<Said>((resolve) => (item.answer = resolve));
    this.add(item);
    void this.go();
    let timer: ReturnType<typeof setTimeout> | undefined;
    const late = new Promise<Said>((resolve) => (timer = setTimeout(() => resolve({ kind: "late" }), ASK_MS)));
    const said = await Promise.race([answer, late]);
    clearTimeout(timer);
    delete item.answer;
    if (said.kind === "late" && !keep) this.drop(item);
    return said;
  }

  /** Everything that can be brought has been, or the time is over. */
  async drained(milliseconds: number): Promise<void> {
    let timer: ReturnType<typeof setTimeout> | undefined;
    const over = new Promise<void>((resolve) => (timer = setTimeout(resolve, milliseconds)));
    await Promise.race([this.running ?? Promise.resolve(), over]);
    clearTimeout(timer);
  }

  close(): void {
    this.closed = true;
    clearTimeout(this.timer);
  }

  get waiting(): number {
    return this.queue.length;
  }

  private add(item: Item): void {
    this.queue.push(item);
    this.size += item.body.length;
    let lost = 0;
    while (this.queue.length > MOST_EVENTS || (this.size > MOST_CHARACTERS && this.queue.length > 1)) {
      const oldest = this.queue[0] as Item;
      oldest.answer?.({ kind: "down" });
      this.drop(oldest);
      lost += 1;
    }
    if (lost) this.warn("Clawback has been away for long: the oldest events are forgotten");
  }

  private drop(item: Item): void {
    const place = this.queue.indexOf(item);
    if (place < 0) return;
    this.queue.splice(place, 1);
    this.size -= item.body.length;
  }

  private go(): Promise<void> {
    clearTimeout(this.timer);
    this.timer = undefined;
    this.running ??= this.bring().finally(() => {
      this.running = undefined;
      if (this.queue.length && !this.timer && !this.closed) void this.go();
    });
    return this.running;
  }

  private async bring(): Promise<void> {
    while (this.queue.length && !this.closed) {
      const item = this.queue[0] as Item;
      const said = await this.post(item.body);
      if (said.kind === "down") return this.later();
      this.failures = 0;
      item.answer?.(said);
      this.drop(item);
    }
  }

  /** Clawback is away: who asks is told at once, what may wait waits. */
  private later(): void {
    if (this.failures === 0) this.warn("Clawback does not answer; events wait for it");
    for (const item of [...this.queue]) {
      item.answer?.({ kind: "down" });
      if (!item.keep) this.drop(item);
    }
    if (!this.queue.length) return;
    const wait = RETRY_MS[Math.min(this.failures, RETRY_MS.length - 1)] as number;
    this.failures += 1;
    this.timer = setTimeout(() => void this.go(), wait);
    this.timer.unref?.();
  }

  /** Who listens there is our Clawback, and nobody who took its port: it alone can make that of a random word. */
  private async proved(): Promise<boolean> {
    const asked = randomBytes(24).toString("base64url");
    const response = await this.send(`${this.origin}/api/hooks/proof`, {
      headers: { "X-Clawback-Nonce": asked },
      redirect: "error",
      signal: AbortSignal.timeout(POST_MS),
    });
    const said = await response.text();
    const port = new URL(this.origin).port || "80";
    const expected = createHmac("sha256", this.token).update(`clawback ${port} ${asked}`).digest("hex");
    if (said === expected) return true;
    if (!this.strange) {
      this.warn(`What answers on ${this.origin} is not this person's Clawback, and is told nothing; clawback init --agent openclaw sets the plugin up again`);
    }
    this.strange = true;
    return false;
  }

  private async post(body: string): Promise<Said> {
    try {
      if (!(await this.proved())) return { kind: "down" };
      this.strange = false;
      const response = await this.send(`${this.origin}/api/hooks/openclaw`, {
        method: "POST",
        headers: { "Content-Type": "application/json", "X-Clawback-Token": this.token },
        body,
        redirect: "error",
        signal: AbortSignal.timeout(POST_MS),
      });
      const text = await response.text();
      if (response.status >= 500) return { kind: "down" };
      if (!response.ok) {
        if (!this.refused) this.warn(`Clawback refuses events (${response.status}); clawback init --agent openclaw sets the plugin up again`);
        this.refused = true;
        return { kind: "refused" };
      }
      this.refused = false;
      return { kind: "said", text: reply(text) };
    } catch {
      return { kind: "down" };
    }
  }
}

function reply(text: string): string {
  try {
    const read: unknown = JSON.parse(text);
    const said = (read as { reply?: unknown } | null)?.reply;
    return typeof said === "string" ? said : "";
  } catch {
    return ""; // an empty body: there was nothing to say
  }
}
