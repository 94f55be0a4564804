"""What is asked for often costs no more in a home of ten times the turns: counted in steps of SQLite's machine, not in seconds."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from benchmarks import growth
from benchmarks._grown_home import SESSION, grow
from benchmarks.growth import EVERYDAY, in_store
from clawback import config, feedback, store
from clawback.admin import rating_inbox
from clawback.feedback import turn_reward
from clawback.jobs import inputs
from clawback.paths import Home
from clawback.records import Turn
from clawback.store import connection
from clawback.store.connection import open_database

FEW, MANY = 600, 6_000
RATED = 4
"""One turn in so many: more than any limit of this test in both homes."""


@pytest.fixture(scope="module")
def grown(tmp_path_factory: pytest.TempPathFactory) -> dict[int, Home]:
    homes = {}
    for turns in (FEW, MANY):
        homes[turns] = Home(tmp_path_factory.mktemp("grown") / str(turns))
        grow(homes[turns], turns, rated=RATED, newest=40, runs=4)
        with store.connect(homes[turns].database) as db:
            feedback.rate(
                db, turns, 1.0
            )  # else the first test that rates, whichever that is, changes what the newest rating is
    return homes


@pytest.fixture(autouse=True)
def small_limits(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rating_inbox, "LOOKED_AT", 20)
    monkeypatch.setattr(rating_inbox, "HEARD", 40)
    monkeypatch.setattr(turn_reward, "LATELY", 40)
    monkeypatch.setattr(growth, "LEARNS_FROM", 32)


@pytest.mark.parametrize("what", EVERYDAY)
def test_it_costs_no_more_with_ten_times_the_turns(
    what: str, grown: dict[int, Home], monkeypatch: pytest.MonkeyPatch
) -> None:
    if what == "search":
        monkeypatch.setattr(store.Store.search, "__kwdefaults__", {"look": 200})
    if what == "turns for a judge":
        monkeypatch.setattr("clawback.store.turns.FOLLOWED", 200)
    if what == "pairs":
        for bound in ("MOST_GUESSES", "MOST_PAIRS", "MOST_REPEATED"):
            monkeypatch.setattr(f"clawback.admin.pair_questions.{bound}", 20)
    if what == "health":
        monkeypatch.setattr("clawback.admin.health.GLANCE", 0)
    few, many = (steps(EVERYDAY[what], grown[turns], monkeypatch) for turns in (FEW, MANY))
    # A tree is a level deeper here and there.
    assert many <= 1.3 * few + 200, f"{few} steps with {FEW} turns, {many} with {MANY}"


def steps(action: Callable[[Home], Any], home: Home, patch: pytest.MonkeyPatch) -> int:
    """Instructions that SQLite carries out for it, on whatever connections."""
    count = 0

    def one() -> int:
        nonlocal count
        count += 1
        return 0

    def counted(path: Path, **more: Any) -> sqlite3.Connection:
        db = open_database(path, **more)
        db.set_progress_handler(one, 1)
        return db

    with patch.context() as during:
        for module in ("store", "turn_store"):
            during.setattr(f"clawback.store.{module}.open_database", counted)
        action(home)
    assert count
    return count


def test_the_counting_would_see_what_grows(grown: dict[int, Home], monkeypatch: pytest.MonkeyPatch) -> None:
    everything = in_store(lambda db: db._read("SELECT total(seen_at) FROM turns"))
    few, many = (steps(everything, grown[turns], monkeypatch) for turns in (FEW, MANY))
    assert many > 5 * few


def test_a_search_goes_on_to_the_first_turn(grown: dict[int, Home]) -> None:
    with store.connect(grown[FEW].database) as db:
        wanted = [t.id for t in db.turns(limit=-1, text="stone", kind="main")]
        found: list[int] = []
        before, looks = None, 0
        while before != 0:
            some, before = db.search("stone", 7, before, kind="main", look=50)
            found += [t.id for t in some]
            looks += 1
    assert found == wanted
    assert looks >= FEW // 50


def test_rated_turns_are_those_that_were_rated(grown: dict[int, Home]) -> None:
    with store.connect(grown[FEW].database) as db:
        plain = [
            t.id for t in db.turns(limit=-1) if any(f.kind != "judge" for f in db.feedback(turn_id=t.id))
        ]
        assert [t.id for t in db.turns(limit=-1, rated=True)] == plain
        assert [t.id for t in db.turns(limit=3, rated=True, ids=range(plain[4]))] == plain[5:8]
        session = db.turn(plain[0]).session
        same = [t for t in plain if db.turn(t).session == session]
        assert [t.id for t in db.turns(limit=-1, rated=True, session=session)] == same
        unrated = db.turns(limit=-1, rated=False)
        assert {t.id for t in unrated} == {t.id for t in db.turns(limit=-1)} - set(plain)


def test_sessions_say_what_they_said(grown: dict[int, Home]) -> None:
    with store.connect(grown[FEW].database) as db:
        for session in db.sessions(limit=3):
            turns = db.turns(limit=-1, session=session.name)
            assert (session.main, session.side) == (
                sum(t.kind == "main" for t in turns),
                sum(t.kind == "side" for t in turns),
            )
            assert session == db.session(session.name)
        values = [
            f.value
            for t in db.turns(limit=-1, session="grown-0000000000000001")
            for f in db.feedback(t.id)
            if f.kind != "judge"
        ]
        assert db.session("grown-0000000000000001").reward == pytest.approx(sum(values) / len(values))
        assert SESSION > 1


def test_a_run_learns_from_the_newest_and_votes_do_not_crowd_ratings_out(grown: dict[int, Home]) -> None:
    with store.connect(grown[FEW].database) as db:
        said = inputs.settled(db, config.Config(training=config.TrainingSection(newest=32)))
        assert [f.id for f in said] == sorted(f.id for f in said)
        for outright in (True, False):
            every = [f.id for f in db.feedback() if (f.kind != "judge") == outright]
            some = [f.id for f in said if (f.kind != "judge") == outright]
            assert some == every[-32:]


OPERATIONS = st.lists(
    st.one_of(
        st.tuples(st.just("rate"), st.integers(1, 4), st.sampled_from(["cli", "web", "rater:anna"]), st.sampled_from([-1.0, 0.0, 0.5, 1.0])),
        st.tuples(st.just("undo"), st.integers(1, 12)),
        st.tuples(st.just("forget"), st.integers(1, 12)),
        st.tuples(st.just("forget turn"), st.integers(1, 4)),
        st.tuples(st.just("capture"), st.none()),
    ),
    max_size=14,
)  # fmt: skip


@settings(max_examples=40, deadline=None)
@given(OPERATIONS)
def test_the_counts_that_are_kept_are_those_of_a_count(operations: list[tuple[Any, ...]]) -> None:
    with store.Store(Path("memory"), in_memory()) as db:
        for number in range(4):
            db.add_turn(Turn("s", (), "answer", version=number if number < 3 else None))
        for name, number, *rest in operations:
            known = {f.id for f in db.feedback(active=False)}
            turns = {t.id for t in db.turns(limit=-1)}
            if name == "rate" and number in turns:
                feedback.rate(db, number, rest[1], source=rest[0])
            elif name == "undo" and number in known:
                db.undo_feedback(number)
            elif name == "forget" and number in known:
                db.forget(feedback=[number])
            elif name == "forget turn" and number in turns:
                db.forget([number])
            elif name == "capture":
                db.add_turn(Turn("s", (), "more", version=1))
        turns_now = db.turns(limit=-1)
        newest = {(f.turn_id, f.author): f.value for f in sorted(db.feedback(), key=lambda f: f.moment)}
        standing = [(db.turn(turn).version, value) for (turn, _), value in newest.items()]
        assert db.count_turns() == len(turns_now)
        assert db.count_ratings() == (sum(v > 0 for _, v in standing), sum(v < 0 for _, v in standing))
        assert db.ratings_by_version() == {
            version: (sum(v > 0 for w, v in standing if w == version), sum(w == version for w, _ in standing))
            for version in {w for w, _ in standing if w is not None}
        }


def in_memory() -> sqlite3.Connection:
    db = sqlite3.connect(":memory:", isolation_level=None)
    db.row_factory = sqlite3.Row
    db.execute("PRAGMA foreign_keys = ON")
    connection._migrate(db, Path("memory"))
    return db


def test_the_counts_of_an_older_home_are_those_of_its_rows(tmp_path: Path) -> None:
    db = sqlite3.connect(tmp_path / "old.db", isolation_level=None)
    for file in sorted(connection.MIGRATIONS.glob("[0-9]*.sql")):
        if int(file.name[:4]) < 13:
            for statement in connection._statements(file.read_text("utf-8")):
                db.execute(statement)
    db.execute("PRAGMA user_version = 12")
    db.execute("INSERT INTO sessions (id, name, agent, created_at) VALUES (1, 's', 'a', 0)")
    for turn, version in ((1, 3), (2, None), (3, 3)):
        db.execute(
            "INSERT INTO turns (id, session_id, agent, kind, version, created_at) VALUES (?, 1, 'a', 'main', ?, 0)",
            (turn, version),
        )
    for turn, value, undone in ((1, -1, None), (1, 1, None), (2, 1, None), (3, -1, 5.0)):
        db.execute(
            "INSERT INTO feedback (turn_id, kind, value, source, created_at, undone_at) VALUES (?, 'rating', ?, 'cli', 0, ?)",
            (turn, value, undone),
        )
    db.close()
    with store.connect(tmp_path / "old.db") as now:
        assert (now.count_turns(), now.count_ratings(), now.ratings_by_version()) == (3, (2, 0), {3: (1, 1)})
