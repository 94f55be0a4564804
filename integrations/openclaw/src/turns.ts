// Which message shows which answer. OpenClaw tells of a run's answer and of messages that were sent, but not of which
// belongs to which: that is found here, by text and by order, and where it is not certain nothing is said.

const MOST_RUNS = 500;
const MOST_OF_A_SESSION = 8;

export interface Run {
  id: string;
  session: string;
  /** Its parts as they go out, put together (spaces and markup left out). */
  text: string;
  /** How much of the text has been seen in messages. */
  seen: number;
  /** The answer has been told, so its messages may be. */
  told: boolean;
  waiting: string[];
}

export class Turns {
  private readonly runs = new Map<string, Run>();
  private readonly bySession = new Map<string, Run[]>();
  private readonly others = new Set<string>();

  /** Somebody's prompt starts a run. */
  begin(id: string, sessionKey: string, session: string): Run {
    const known = this.runs.get(id);
    if (known) return known;
    const run = { id, session, text: "", seen: 0, told: false, waiting: [] };
    keep(this.runs, id, run, MOST_RUNS);
    const runs = [...(this.bySession.get(sessionKey) ?? []), run].slice(-MOST_OF_A_SESSION);
    keep(this.bySession, sessionKey, runs, MOST_RUNS);
    return run;
  }

  /** A run that is nobody's turn: our own answer to a command. */
  leaveOut(id: string): void {
    this.others.add(id);
    if (this.others.size > MOST_RUNS) this.others.delete(this.others.values().next().value as string);
  }

  /** A part of an answer goes out. False: it belongs to no turn of a person's, and the person will see it. */
  sending(id: string, text: string): boolean {
    const run = this.runs.get(id);
    if (run) run.text += bare(text);
    return Boolean(run) || this.others.has(id);
  }

  /** The run's answer is being told: the messages that showed it until now. */
  told(id: string): string[] {
    const run = this.runs.get(id);
    if (!run) return [];
    run.told = true;
    return run.waiting.splice(0);
  }

  run(id: string): Run | undefined {
    return this.runs.get(id);
  }

  /** A message was sent: the run whose answer it goes on with. */
  sent(sessionKey: string, text: string): Run | undefined {
    const part = bare(text);
    if (!part) return undefined;
    for (const run of [...(this.bySession.get(sessionKey) ?? [])].reverse()) {
      if (run.text.startsWith(part, run.seen)) {
        run.seen += part.length;
        return run;
      }
    }
    return undefined;
  }
}

function bare(text: string): string {
  return text.replace(/[\s*_~`#>\\]+/g, "");
}

/** Set, and forget the oldest beyond the limit. */
export function keep<K, V>(map: Map<K, V>, key: K, value: V, most: number): void {
  map.delete(key);
  map.set(key, value);
  if (map.size > most) map.delete(map.keys().next().value as K);
}
