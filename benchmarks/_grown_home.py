"""A home that has grown: as many turns as wanted, in seconds for a million, by SQL alone. Every row is one that Clawback could have written."""

from __future__ import annotations

import random

from clawback import store
from clawback.paths import Home

SESSION = 5
"""Turns of a session."""
RATED = 50
"""One turn of so many has a rating by the person."""
JUDGED = 20
"""One of so many a judge's vote."""
RUNS = 200
"""Runs at most that have used ratings."""
BEGAN = 1_500_000_000.0

_WORDS = [
    "river",
    "stone",
    "lamp",
    "paper",
    "garden",
    "window",
    "bread",
    "cloud",
    "winter",
    "harbour",
    "letter",
    "music",
    "glass",
    "forest",
    "market",
    "engine",
    "copper",
    "island",
    "ribbon",
    "saddle",
]


def grow(
    home: Home, turns: int, *, seed: int = 0, rated: int = RATED, newest: int = 4096, runs: int = RUNS
) -> None:
    """Fill an empty home."""
    home.create()
    chance = random.Random(seed)
    sentences = [" ".join(chance.choices(_WORDS, k=12)) for _ in range(256)]
    with store.connect(home.database) as db:
        raw = db._db
        raw.execute("PRAGMA synchronous = OFF")
        raw.execute("PRAGMA cache_size = -400000")
        raw.execute("CREATE TEMP TABLE said (i INTEGER PRIMARY KEY, text TEXT)")
        raw.executemany("INSERT INTO said VALUES (?, ?)", enumerate(sentences))
        raw.execute("BEGIN")
        raw.execute(
            "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < ?)"
            f" INSERT INTO sessions (id, name, agent, cwd, created_at) SELECT i, printf('grown-%016x', i), 'claude-code', '/home/me/work', {BEGAN} + i * {SESSION} FROM n",
            (-(-turns // SESSION),),
        )
        number = "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < ?)"
        raw.execute(
            f"{number} INSERT INTO turns (id, session_id, agent, kind, model, version, cwd, event_id, created_at, seen_at)"
            f" SELECT i, (i - 1) / {SESSION} + 1, 'claude-code', CASE i % 3 WHEN 0 THEN 'side' ELSE 'main' END, 'clawback', i * ? / ?, '/home/me/work',"
            f" printf('event-%016x', i), {BEGAN} + i, {BEGAN} + i FROM n",
            (turns, runs, turns + 1),
        )
        # Each turn has the one before in its messages, but for the first of a session.
        prompt = "(SELECT text FROM said WHERE said.i = {0} * 7919 % 256) || ' ' || {0} || '?'"
        answer = " || '. ' || ".join(
            f"(SELECT text FROM said WHERE said.i = {{0}} * {step} % 256)" for step in (31, 57, 83, 101)
        )
        before, now, said = prompt.format("(n.i - 1)"), prompt.format("n.i"), answer.format("(n.i - 1)")
        message = "json_object('role', '{}', 'content', {})"
        alone = message.format("user", now)
        raw.execute(
            f"{number} INSERT INTO bodies (turn_id, messages, prompt, response)"
            f" SELECT i, CASE i % {SESSION} WHEN 1 THEN json_array({alone})"
            f" ELSE json_array({message.format('user', before)}, {message.format('assistant', said)}, {alone}) END,"
            f" {now}, {answer.format('n.i')} FROM n",
            (turns,),
        )
        raw.execute(
            f"{number} INSERT INTO places (place, turn_id) SELECT randomblob(32), i FROM n ORDER BY 1",
            (turns,),
        )
        raw.execute(
            f"INSERT INTO feedback (turn_id, kind, value, source, event_id, created_at)"
            f" SELECT id, 'rating', CASE WHEN id * 7 / {rated} % 3 = 0 THEN -1 ELSE 1 END, 'cli', printf('tap-%d', id), {BEGAN} + id"
            f" FROM turns WHERE id % {rated} = 1"
        )
        raw.execute(
            "INSERT INTO feedback (turn_id, kind, value, source, event_id, created_at)"
            f" SELECT id, 'judge', 1, 'judge:other', printf('vote-%d', id), {BEGAN} + id FROM turns WHERE id % {JUDGED} = 2"
        )
        _runs(db, newest, runs)
        raw.execute("COMMIT")
        raw.execute("ANALYZE")
        raw.execute("PRAGMA wal_checkpoint(TRUNCATE)")


def _runs(db: store.Store, newest: int, most: int) -> None:
    """Versions 1 … with the runs that made them, each of the newest ratings that there were."""
    raw = db._db
    given = [row[0] for row in raw.execute("SELECT id FROM feedback WHERE kind = 'rating' ORDER BY id")]
    runs = min(most, max(1, len(given) // 32))
    for run in range(1, runs + 1):
        raw.execute(
            "INSERT INTO runs (id, status, base, base_revision, algorithm, recipe, seed, parent, created_at, finished_at)"
            " VALUES (?, 'done', 'embedded', '', 'auto', '{}', 0, ?, ?, ?)",
            (run, run - 1, BEGAN + run, BEGAN + run),
        )
        report = '{"evidence": {"gain": 0.1, "kl": 1.0, "perplexity_ratio": 1.05}, "probability": 0.97}'
        raw.execute(
            "INSERT INTO versions (number, status, base, parent, run_id, created_at, report) VALUES (?, 'retired', 'embedded', ?, ?, ?, ?)",
            (run, run - 1, run, BEGAN + run, report),
        )
        # The last ones are fresh.
        upto = (len(given) - min(20, len(given) // 2)) * run // runs
        used = given[max(0, upto - newest) : upto]
        raw.executemany(
            "INSERT INTO run_feedback VALUES (?, ?, ?)",
            [(run, i, "held_out" if i % 8 == 0 else "train") for i in used],
        )
    raw.execute("INSERT OR REPLACE INTO state VALUES ('last_version', ?)", (str(runs),))
