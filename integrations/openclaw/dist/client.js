// The line to Clawback: events go one after the other, and wait where it is not running. Nobody waits for us longer than
// a command's answer may take.
import { createHmac, randomBytes } from "node:crypto";
const ASK_MS = 2_000;
const POST_MS = 10_000;
const MOST_EVENTS = 1_000;
const MOST_CHARACTERS = 16_000_000;
const RETRY_MS = [1_000, 2_000, 5_000, 15_000, 30_000];
/** The address, if it is one of this machine's own. */
export function loopback(url) {
    let read;
    try {
        read = new URL(url);
    }
    catch {
        return undefined;
    }
    const own = ["127.0.0.1", "localhost", "[::1]"].includes(read.hostname);
    return own && read.protocol === "http:" && !read.username && !read.password ? read.origin : undefined;
}
export class Line {
    origin;
    token;
    warn;
    send;
    queue = [];
    size = 0;
    running;
    failures = 0;
    timer;
    closed = false;
    refused = false;
    strange = false;
    constructor(origin, token, warn, send = fetch) {
        this.origin = origin;
        this.token = token;
        this.warn = warn;
        this.send = send;
    }
    /** Fire and forget. */
    tell(event) {
        this.add({ body: JSON.stringify(event), keep: true });
        if (!this.timer)
            void this.go();
    }
    /** Wait for the answer, but not long. With `keep` the event is brought later where it cannot be now. */
    async ask(event, keep) {
        const item = { body: JSON.stringify(event), keep };
        const answer = new Promise((resolve) => (item.answer = resolve));
        this.add(item);
        void this.go();
        let timer;
        const late = new Promise((resolve) => (timer = setTimeout(() => resolve({ kind: "late" }), ASK_MS)));
        const said = await Promise.race([answer, late]);
        clearTimeout(timer);
        delete item.answer;
        if (said.kind === "late" && !keep)
            this.drop(item);
        return said;
    }
    /** Everything that can be brought has been, or the time is over. */
    async drained(milliseconds) {
        let timer;
        const over = new Promise((resolve) => (timer = setTimeout(resolve, milliseconds)));
        await Promise.race([this.running ?? Promise.resolve(), over]);
        clearTimeout(timer);
    }
    close() {
        this.closed = true;
        clearTimeout(this.timer);
    }
    get waiting() {
        return this.queue.length;
    }
    add(item) {
        this.queue.push(item);
        this.size += item.body.length;
        let lost = 0;
        while (this.queue.length > MOST_EVENTS || (this.size > MOST_CHARACTERS && this.queue.length > 1)) {
            const oldest = this.queue[0];
            oldest.answer?.({ kind: "down" });
            this.drop(oldest);
            lost += 1;
        }
        if (lost)
            this.warn("Clawback has been away for long: the oldest events are forgotten");
    }
    drop(item) {
        const place = this.queue.indexOf(item);
        if (place < 0)
            return;
        this.queue.splice(place, 1);
        this.size -= item.body.length;
    }
    go() {
        clearTimeout(this.timer);
        this.timer = undefined;
        this.running ??= this.bring().finally(() => {
            this.running = undefined;
            if (this.queue.length && !this.timer && !this.closed)
                void this.go();
        });
        return this.running;
    }
    async bring() {
        while (this.queue.length && !this.closed) {
            const item = this.queue[0];
            const said = await this.post(item.body);
            if (said.kind === "down")
                return this.later();
            this.failures = 0;
            item.answer?.(said);
            this.drop(item);
        }
    }
    /** Clawback is away: who asks is told at once, what may wait waits. */
    later() {
        if (this.failures === 0)
            this.warn("Clawback does not answer; events wait for it");
        for (const item of [...this.queue]) {
            item.answer?.({ kind: "down" });
            if (!item.keep)
                this.drop(item);
        }
        if (!this.queue.length)
            return;
        const wait = RETRY_MS[Math.min(this.failures, RETRY_MS.length - 1)];
        this.failures += 1;
        this.timer = setTimeout(() => void this.go(), wait);
        this.timer.unref?.();
    }
    /** Who listens there is our Clawback, and nobody who took its port: it alone can make that of a random word. */
    async proved() {
        const asked = randomBytes(24).toString("base64url");
        const response = await this.send(`${this.origin}/api/hooks/proof`, {
            headers: { "X-Clawback-Nonce": asked },
            redirect: "error",
            signal: AbortSignal.timeout(POST_MS),
        });
        const said = await response.text();
        const port = new URL(this.origin).port || "80";
        const expected = createHmac("sha256", this.token).update(`clawback ${port} ${asked}`).digest("hex");
        if (said === expected)
            return true;
        if (!this.strange) {
            this.warn(`What answers on ${this.origin} is not this person's Clawback, and is told nothing; clawback init --agent openclaw sets the plugin up again`);
        }
        this.strange = true;
        return false;
    }
    async post(body) {
        try {
            if (!(await this.proved()))
                return { kind: "down" };
            this.strange = false;
            const response = await this.send(`${this.origin}/api/hooks/openclaw`, {
                method: "POST",
                headers: { "Content-Type": "application/json", "X-Clawback-Token": this.token },
                body,
                redirect: "error",
                signal: AbortSignal.timeout(POST_MS),
            });
            const text = await response.text();
            if (response.status >= 500)
                return { kind: "down" };
            if (!response.ok) {
                if (!this.refused)
                    this.warn(`Clawback refuses events (${response.status}); clawback init --agent openclaw sets the plugin up again`);
                this.refused = true;
                return { kind: "refused" };
            }
            this.refused = false;
            return { kind: "said", text: reply(text) };
        }
        catch {
            return { kind: "down" };
        }
    }
}
function reply(text) {
    try {
        const read = JSON.parse(text);
        const said = read?.reply;
        return typeof said === "string" ? said : "";
    }
    catch {
        return ""; // an empty body: there was nothing to say
    }
}
