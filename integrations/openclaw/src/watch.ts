// Reactions are seen by looking into the queues of the sessions that we know: often enough that none is taken out before,
// for OpenClaw empties a queue only when the next message of its session comes, and then we look first.

import type { OpenClawConfig } from "openclaw/plugin-sdk/plugin-entry";
import type { Line } from "./client.js";
import { isGroup, isOpen, personOf, type Host, type SystemEvent } from "./host.js";
import { nameOf, read, sign, type Seen } from "./reactions.js";
import { keep } from "./turns.js";

const EVERY_MS = 1_000;
const MOST_SESSIONS = 500;
const MOST_EVENTS = 5_000;

export class Watch {
  private readonly sessions = new Map<string, string>();
  private readonly done = new Map<string, true>();
  private readonly messages = new Map<string, true>();
  private readonly accounts = new Map<string, Set<string>>();
  /** How often a reaction was taken away again: given anew it is another one. */
  private readonly removals = new Map<string, number>();
  private peek: ((sessionKey: string) => SystemEvent[]) | undefined;
  private timer: ReturnType<typeof setInterval> | undefined;

  constructor(
    private readonly line: Line,
    private readonly host: Host,
    private readonly config: () => OpenClawConfig,
    private readonly raters: readonly string[] = [],
  ) {}

  /** False: this OpenClaw does not show its queues. */
  async start(): Promise<boolean> {
    this.peek = await this.host.peek;
    if (!this.peek) return false;
    clearInterval(this.timer);
    this.timer = setInterval(() => [...this.sessions.keys()].forEach((key) => this.look(key)), EVERY_MS);
    this.timer.unref?.();
    return true;
  }

  stop(): void {
    clearInterval(this.timer);
  }

  know(sessionKey: string, sessionId: string): void {
    keep(this.sessions, sessionKey, sessionId, MOST_SESSIONS);
  }

  /** A message of ours, and the account that sent it: a reaction does not say to which of several it came. */
  shown(name: string, channel: string, account: string): void {
    keep(this.messages, name, true, MOST_EVENTS);
    const known = this.accounts.get(channel) ?? new Set<string>();
    this.accounts.set(channel, known.add(account || "default"));
  }

  look(sessionKey: string | undefined): void {
    if (!sessionKey || !this.peek) return;
    let events: SystemEvent[] = [];
    try {
      events = this.peek(sessionKey);
    } catch {
      return; // a key that OpenClaw itself does not take for one
    }
    for (const event of events) {
      const seen = event.id && !this.done.has(event.id) ? read(event.contextKey) : undefined;
      if (event.id) keep(this.done, event.id, true, MOST_EVENTS);
      if (seen) void this.react(sessionKey, seen);
    }
  }

  private async react(sessionKey: string, seen: Seen): Promise<void> {
    const value = sign(seen.emoji);
    const account = this.account(seen);
    if (value === undefined || account === undefined) return;
    const sender = { channel: seen.channel, account, id: seen.user, group: isGroup(sessionKey) };
    const known = !isOpen(this.config(), sender) || this.raters.includes(personOf(sender));
    if ((sender.group || !known) && !(await this.host.owns(this.config(), sender))) return;
    const message = nameOf(seen.channel, account, seen.chat, seen.message);
    const by = `${seen.channel}:${seen.user}`;
    const key = `${message}:${by}:${value}`;
    const before = this.removals.get(key) ?? 0;
    if (!seen.added) keep(this.removals, key, before + 1, MOST_EVENTS);
    this.line.tell({
      event: "reaction",
      session: this.sessions.get(sessionKey) ?? sessionKey,
      message,
      value: seen.added ? value : 0,
      by,
      id: before ? `${key}#${before}` : key,
    });
  }

  /** Undefined where it might be one of several. */
  private account(seen: Seen): string | undefined {
    const channels = this.config().channels as Record<string, { accounts?: object } | undefined> | undefined;
    const named = Object.keys(channels?.[seen.channel]?.accounts ?? {});
    const all = [...new Set([...named, ...(this.accounts.get(seen.channel) ?? [])])];
    if (all.length <= 1) return all[0] ?? "default";
    const fit = all.filter((account) => this.messages.has(nameOf(seen.channel, account, seen.chat, seen.message)));
    return fit.length === 1 ? fit[0] : undefined;
  }
}
