// Reactions are seen by looking into the queues of the sessions that we know: often enough that none is taken out before,
// for OpenClaw empties a queue only when the next message of its session comes, and then we look first.
import { isGroup, isOpen, personOf } from "./host.js";
import { nameOf, read, sign } from "./reactions.js";
import { keep } from "./turns.js";
const EVERY_MS = 1_000;
const MOST_SESSIONS = 500;
const MOST_EVENTS = 5_000;
export class Watch {
    line;
    host;
    config;
    raters;
    sessions = new Map();
    done = new Map();
    messages = new Map();
    accounts = new Map();
    /** How often a reaction was taken away again: given anew it is another one. */
    removals = new Map();
    peek;
    timer;
    constructor(line, host, config, raters = []) {
        this.line = line;
        this.host = host;
        this.config = config;
        this.raters = raters;
    }
    /** False: this OpenClaw does not show its queues. */
    async start() {
        this.peek = await this.host.peek;
        if (!this.peek)
            return false;
        clearInterval(this.timer);
        this.timer = setInterval(() => [...this.sessions.keys()].forEach((key) => this.look(key)), EVERY_MS);
        this.timer.unref?.();
        return true;
    }
    stop() {
        clearInterval(this.timer);
    }
    know(sessionKey, sessionId) {
        keep(this.sessions, sessionKey, sessionId, MOST_SESSIONS);
    }
    /** A message of ours, and the account that sent it: a reaction does not say to which of several it came. */
    shown(name, channel, account) {
        keep(this.messages, name, true, MOST_EVENTS);
        const known = this.accounts.get(channel) ?? new Set();
        this.accounts.set(channel, known.add(account || "default"));
    }
    look(sessionKey) {
        if (!sessionKey || !this.peek)
            return;
        let events = [];
        try {
            events = this.peek(sessionKey);
        }
        catch {
            return; // a key that OpenClaw itself does not take for one
        }
        for (const event of events) {
            const seen = event.id && !this.done.has(event.id) ? read(event.contextKey) : undefined;
            if (event.id)
                keep(this.done, event.id, true, MOST_EVENTS);
            if (seen)
                void this.react(sessionKey, seen);
        }
    }
    async react(sessionKey, seen) {
        const value = sign(seen.emoji);
        const account = this.account(seen);
        if (value === undefined || account === undefined)
            return;
        const sender = { channel: seen.channel, account, id: seen.user, group: isGroup(sessionKey) };
        const known = !isOpen(this.config(), sender) || this.raters.includes(personOf(sender));
        if ((sender.group || !known) && !(await this.host.owns(this.config(), sender)))
            return;
        const message = nameOf(seen.channel, account, seen.chat, seen.message);
        const by = `${seen.channel}:${seen.user}`;
        const key = `${message}:${by}:${value}`;
        const before = this.removals.get(key) ?? 0;
        if (!seen.added)
            keep(this.removals, key, before + 1, MOST_EVENTS);
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
    account(seen) {
        const channels = this.config().channels;
        const named = Object.keys(channels?.[seen.channel]?.accounts ?? {});
        const all = [...new Set([...named, ...(this.accounts.get(seen.channel) ?? [])])];
        if (all.length <= 1)
            return all[0] ?? "default";
        const fit = all.filter((account) => this.messages.has(nameOf(seen.channel, account, seen.chat, seen.message)));
        return fit.length === 1 ? fit[0] : undefined;
    }
}
