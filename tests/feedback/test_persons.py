"""One person is one person: the newest word counts, wherever it was said, and taking it back brings the one before again."""

from __future__ import annotations

import contextlib
import random
import sqlite3
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from clawback import feedback, store
from clawback.errors import NotFound
from clawback.feedback import command
from clawback.feedback.rater_statistics import raters
from clawback.paths import Home
from clawback.records import Feedback, Turn
from clawback.store import Store, connection

SURFACES = ("cli", "claude-code", "web", "mcp")
ASKED = ({"role": "user", "content": "question"},)


@pytest.fixture(scope="module")
def memory() -> Iterator[Store]:
    raw = sqlite3.connect(":memory:", isolation_level=None)
    raw.row_factory = sqlite3.Row
    raw.execute("PRAGMA foreign_keys = ON")
    connection._migrate(raw, Path("memory"))
    with Store(Path("memory"), raw) as opened:
        yield opened


@pytest.fixture
def db(home: Home) -> Iterator[Store]:
    with store.connect(home.database) as opened:
        for number in range(40):
            opened.add_turn(Turn("s", ASKED, f"answer {number}"))
        yield opened


def change_mind(rng: random.Random, say: Callable[[Feedback], None], undo: Callable[[], None]) -> list[float]:
    """Random words of one person on two surfaces; the ratings that stand, oldest first."""
    words: list[tuple[str, float]] = []
    surfaces = rng.sample(SURFACES, 2)
    for _ in range(rng.randint(1, 7)):
        source, what = rng.choice(surfaces), rng.choice(("good", "bad", "rate", "rate", "note", "undo"))
        if what == "undo":
            undo()
            words = words[:-1]
            continue
        score = rng.randint(1, 10)
        rest = {"note": "too long", "rate": f"{score} because"}.get(what, "")
        given, _ = command.understood(what, rest)
        say(replace(given, turn_id=1, source=source))
        value = {"note": 0.0, "good": 1.0, "bad": -1.0}.get(what, (2 * score - 11) / 9)
        words.append(("note" if what == "note" else "rating", value))
    return [value for kind, value in words if kind == "rating"]


def test_the_reward_is_that_of_the_last_word_of_2000_changes_of_mind() -> None:
    rng = random.Random(5)
    for _ in range(2000):
        rows: list[Feedback] = []

        def say(given: Feedback, rows: list[Feedback] = rows) -> None:
            rows.append(replace(given, id=len(rows) + 1))

        ratings = change_mind(rng, say, lambda rows=rows: rows and rows.pop())
        value, parts = feedback.reward(1, rows)
        assert value == pytest.approx(ratings[-1] if ratings else 0.0)
        assert len(parts) == bool(ratings)


def test_and_so_it_is_in_the_store_and_in_its_counts(memory: Store) -> None:
    rng = random.Random(6)
    good = bad = 0
    for _ in range(150):
        turn = memory.add_turn(Turn("s", ASKED, "answer")).id

        def undo(turn: int = turn) -> None:
            with contextlib.suppress(NotFound):
                feedback.undo(memory, turn)

        def say(given: Feedback, turn: int = turn) -> None:
            memory.add_feedback(replace(given, turn_id=turn))

        ratings = change_mind(rng, say, undo)
        value, parts = feedback.reward(turn, memory.feedback(turn_id=turn))
        assert value == pytest.approx(ratings[-1] if ratings else 0.0)
        assert len(parts) == bool(ratings)
        good, bad = good + (value > 0), bad + (value < 0)
    raw = memory._read("SELECT total(good), total(bad), total(number) FROM rating_counts")[0]
    assert (raw[0], raw[1]) == (good, bad)
    assert raw[2] <= 150, "each turn of a person counts once"


def test_what_was_said_last_counts_and_not_what_was_stored_last(db: Store) -> None:
    """A tap in an agent waits for its answer, while the person rates it elsewhere."""
    db.put_early(
        "claude-code:prompt:s:1",
        Feedback(0, "rating", -1.0, source="claude-code", created_at=time.time() - 60),
    )
    feedback.rate(db, 1, 1, source="cli")
    db.put_post("claude-code:prompt:s:1", 1)
    assert [s.reward for s in feedback.samples(db)] == [1.0]
    assert db.count_ratings() == (1, 0)
    assert feedback.undo(db, 1).source == "cli"
    assert [s.reward for s in feedback.samples(db)] == [-1.0]


def test_a_word_said_now_is_the_newest_whatever_the_clock_says(db: Store) -> None:
    db.add_feedback(Feedback(1, "rating", -1.0, created_at=4e9))  # the clock was years ahead
    feedback.rate(db, 1, 1, source="web")
    assert [s.reward for s in feedback.samples(db)] == [1.0]


def test_an_edit_and_a_good_rating_contradict_each_other_and_the_newer_counts(db: Store) -> None:
    feedback.rate(db, 1, 1, source="claude-code")
    feedback.edit(db, 1, "better", source="web")
    feedback.edit(db, 2, "better", source="web")
    feedback.rate(db, 2, 1, source="cli")
    feedback.rate(db, 3, -1, source="cli")
    feedback.edit(db, 3, "better", source="web")
    rewards = {s.turn_id: s.reward for s in reversed(feedback.samples(db))}
    assert rewards == {1: -0.5, 2: 1.0, 3: pytest.approx(-1.25 / 1.5)}


def test_of_two_preferences_between_the_same_turns_the_newer_counts(db: Store) -> None:
    feedback.prefer(db, 1, 2, source="cli")
    feedback.prefer(db, 2, 1, source="web")
    feedback.prefer(db, 1, 2, source="rater:anna")
    assert {s.turn_id: s.reward for s in feedback.samples(db)} == {1: 0.0, 2: 0.0}
    feedback.undo(db, person="rater:anna")
    assert {s.turn_id: s.reward for s in feedback.samples(db)} == {1: -0.5, 2: 0.5}


def test_raters_are_persons(db: Store) -> None:
    for turn in range(1, 9):
        feedback.rate(db, turn, 1, source="claude-code")
        feedback.rate(db, turn, -1 if turn % 2 else 1, source="cli")
        feedback.rate(db, turn, 1, source="mcp")
    [owner] = raters(db).raters
    assert (owner.source, owner.count, owner.kappa, owner.good) == ("owner", 8, None, 1.0)


def test_who_is_known_to_be_the_owner_is_one_person_with_them(db: Store) -> None:
    feedback.rate(db, 1, -1, source="cli")
    feedback.rate(db, 1, 1, source="slack:U1")
    assert [s.reward for s in feedback.samples(db)] == [0.0]
    assert db.identify("slack:U1", "owner") == 1
    assert [s.reward for s in feedback.samples(db)] == [1.0]
    assert db.count_ratings() == (1, 0)
    feedback.rate(db, 2, 1, source="slack:U1")
    assert {f.author for f in db.feedback()} == {"owner"}


def test_undo_of_one_person_takes_nothing_from_another(db: Store) -> None:
    feedback.rate(db, 1, 1, source="cli")
    feedback.rate(db, 1, -1, source="slack:U9")
    command.run(db, ["undo"], 1, source="slack:U9")
    command.run(db, ["undo"], 1, source="slack:U9")
    assert [(f.source, f.value) for f in db.feedback()] == [("cli", 1.0)]


def test_an_older_home_knows_its_persons(tmp_path: Path) -> None:
    raw = sqlite3.connect(tmp_path / "old.db", isolation_level=None)
    for file in sorted(connection.MIGRATIONS.glob("[0-9]*.sql")):
        if int(file.name[:4]) < 15:
            for statement in connection._statements(file.read_text("utf-8")):
                raw.execute(statement)
    raw.execute("PRAGMA user_version = 14")
    raw.execute("INSERT INTO sessions (id, name, agent, created_at) VALUES (1, 's', 'a', 0)")
    raw.execute("INSERT INTO turns (id, session_id, agent, kind, created_at) VALUES (1, 1, 'a', 'main', 0)")
    raw.execute("INSERT INTO bodies (turn_id, messages, prompt, response) VALUES (1, '[]', 'q', 'a')")
    rows = [("rating", -1, "claude-code"), ("rating", 5 / 9, "cli"), ("rating", -1, "rater:anna"), ("implicit", -1, "asked-again"), ("judge", 1, "judge:m")]  # fmt: skip
    raw.executemany(
        "INSERT INTO feedback (turn_id, kind, value, source, created_at) VALUES (1, ?, ?, ?, 5)", rows
    )
    raw.close()
    with store.connect(tmp_path / "old.db") as now:
        persons = [f.person for f in now.feedback()]
        assert persons == ["owner", "owner", "rater:anna", "asked-again", "judge:m"]
        assert [(f.score, f.scale) for f in now.feedback()][1] == (8.0, "1-10")
        assert now.count_ratings() == (1, 1)


def test_feedback_that_no_store_has_seen_has_an_author() -> None:
    given = Feedback(1, "rating", 1.0)
    assert replace(given, source="rater:anna").author == "rater:anna"
