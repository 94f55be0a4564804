// Which message shows which answer. OpenClaw tells of a run's answer and of messages that were sent, but not of which
// belongs to which: that is found here, by text and by order, and where it is not certain nothing is said.
const MOST_RUNS = 500;
const MOST_OF_A_SESSION = 8;
export class Turns {
    runs = new Map();
    bySession = new Map();
    others = new Set();
    /** Somebody's prompt starts a run. */
    begin(id, sessionKey, session) {
        const known = this.runs.get(id);
        if (known)
            return known;
        const run = { id, session, text: "", seen: 0, told: false, waiting: [] };
        keep(this.runs, id, run, MOST_RUNS);
        const runs = [...(this.bySession.get(sessionKey) ?? []), run].slice(-MOST_OF_A_SESSION);
        keep(this.bySession, sessionKey, runs, MOST_RUNS);
        return run;
    }
    /** A run that is nobody's turn: our own answer to a command. */
    leaveOut(id) {
        this.others.add(id);
        if (this.others.size > MOST_RUNS)
            this.others.delete(this.others.values().next().value);
    }
    /** A part of an answer goes out. False: it belongs to no turn of a person's, and the person will see it. */
    sending(id, text) {
        const run = this.runs.get(id);
        if (run)
            run.text += bare(text);
        return Boolean(run) || this.others.has(id);
    }
    /** The run's answer is being told: the messages that showed it until now. */
    told(id) {
        const run = this.runs.get(id);
        if (!run)
            return [];
        run.told = true;
        return run.waiting.splice(0);
    }
    run(id) {
        return this.runs.get(id);
    }
    /** A message was sent: the run whose answer it goes on with. */
    sent(sessionKey, text) {
        const part = bare(text);
        if (!part)
            return undefined;
        for (const run of [...(this.bySession.get(sessionKey) ?? [])].reverse()) {
            if (run.text.startsWith(part, run.seen)) {
                run.seen += part.length;
                return run;
            }
        }
        return undefined;
    }
}
function bare(text) {
    return text.replace(/[\s*_~`#>\\]+/g, "");
}
/** Set, and forget the oldest beyond the limit. */
export function keep(map, key, value, most) {
    map.delete(key);
    map.set(key, value);
    if (map.size > most)
        map.delete(map.keys().next().value);
}
