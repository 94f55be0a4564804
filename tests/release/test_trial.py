"""A/B in real use: sticky sides, a test that may be looked at all the time, and what follows from it."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from clawback import feedback, store
from clawback.errors import UsageError
from clawback.paths import Home
from clawback.records import Feedback, Turn
from clawback.release import trial
from clawback.store import Store

ALPHA = 0.05


def ever_ends(
    seed: int, candidate: float, live: float, sessions: int = 500, share: float = 0.3
) -> tuple[bool, bool]:
    """Whether either player ever reaches 1/α, for people who like an answer with these chances."""
    rng = random.Random(seed)
    order = []
    for _ in range(sessions):
        ours = rng.random() < share
        order.append((ours, 1.0 if rng.random() < (candidate if ours else live) else -1.0))
    gains = trial.differences(order)
    better, worse = trial.wealth(gains), trial.wealth([-g for g in gains])
    return max(better) >= 1 / ALPHA, max(worse) >= 1 / ALPHA


@pytest.mark.parametrize("chance", [0.1, 0.5, 0.9])
def test_looking_after_every_session_does_not_inflate_errors(chance: float) -> None:
    ends = [ever_ends(seed, chance, chance) for seed in range(300)]
    for which in (0, 1):
        assert sum(end[which] for end in ends) / len(ends) <= ALPHA


def test_a_clear_difference_is_found_in_its_direction() -> None:
    ends = [ever_ends(seed, 0.85, 0.55) for seed in range(50)]
    assert sum(better for better, _ in ends) >= 48
    assert not any(worse for _, worse in ends)
    assert sum(worse for _, worse in (ever_ends(seed, 0.55, 0.85) for seed in range(50))) >= 48


@given(st.lists(st.tuples(st.booleans(), st.floats(-1, 1))))
def test_bets_never_lose_everything_and_use_each_session_once(order: list[tuple[bool, float]]) -> None:
    gains = trial.differences(order)
    assert len(gains) <= sum(ours for ours, _ in order)
    assert all(-1 <= g <= 1 for g in gains)
    assert all(k > 0 for k in trial.wealth(gains))


def test_a_bet_is_made_before_its_outcome_is_seen() -> None:
    assert trial.wealth([0.5, -1.0])[0] == trial.wealth([0.5, 1.0])[0]
    up, down = trial.wealth([0.2, 0.3, 1.0]), trial.wealth([0.2, 0.3, -1.0])
    assert up[2] / up[1] - 1 == pytest.approx(1 - down[2] / down[1]), "the same stake, whatever comes"


Judged = Callable[[int], Home]


@pytest.fixture
def db(trained: Home) -> Store:
    """Version 1 has passed the gate and is retired; the base model is live."""
    with store.connect(trained.database) as made:
        made.promote(0)
        yield made


def session(db: Store, version: int, number: int, value: float, at: float) -> None:
    turn = db.add_turn(
        Turn(session=f"{version}-{number}", messages=(), response="x", version=version, created_at=at)
    )
    feedback.rate(db, turn.id, value)


def test_a_side_is_kept_and_the_share_is_met(db: Store) -> None:
    made = trial.begin(db, 1, 0.2, ALPHA, now=1000.0)
    sides = Counter(trial.side(made, f"session {n}") for n in range(4000))
    assert abs(sides[1] / 4000 - 0.2) < 0.03
    assert [trial.side(made, "a")] * 5 == [trial.side(made, "a") for _ in range(5)]
    assert trial.running(db) == made
    for number in range(50):
        assert trial.version_for(db, f"s{number}").number == trial.side(made, f"s{number}")


def test_the_better_version_goes_live_by_itself(db: Store, trained: Home) -> None:
    made = trial.begin(db, 1, 0.5, ALPHA, now=1000.0)
    for number in range(60):
        session(db, 1, number, 1, 1001.0 + number)
        session(db, 0, number, 1 if number % 3 == 0 else -1, 1001.0 + number)
    assert trial.settle(db, trained, 1100.0) is None, "no session is over yet"
    found = trial.score(db, made, 9000.0)
    assert (found.candidate_sessions, found.live_sessions, found.verdict) == (60, 60, "better")
    ended = trial.settle(db, trained, 9000.0)
    assert ended
    assert db.live().number == ended[1].number == 1
    assert trial.running(db) is None
    assert trial.settle(db, trained, 9000.0) is None


def test_the_worse_version_is_not_heard_of_again(db: Store, trained: Home) -> None:
    trial.begin(db, 1, 0.5, ALPHA, now=1000.0)
    for number in range(60):
        session(db, 1, number, -1, 1001.0 + number)
        session(db, 0, number, 1, 1001.0 + number)
    ended = trial.settle(db, trained, 9000.0)
    assert ended
    assert (ended[0].verdict, db.live().number) == ("worse", 0)


def test_sessions_from_before_or_of_both_or_without_ratings_do_not_count(db: Store) -> None:
    made = trial.begin(db, 1, 0.5, ALPHA, now=1000.0)
    session(db, 1, 1, 1, 999.0)
    db.add_turn(Turn(session="unrated", messages=(), response="x", version=1, created_at=1001.0))
    for version in (0, 1):
        turn = db.add_turn(
            Turn(session="both", messages=(), response="x", version=version, created_at=1001.0)
        )
        feedback.rate(db, turn.id, 1)
    session(db, 1, 2, 1, 1001.0)
    db.finish_session("1-2")
    found = trial.score(db, made, 1002.0)
    assert (found.candidate_sessions, found.live_sessions) == (1, 0)


def test_nobody_is_tried_on_what_the_gate_has_not_passed(db: Store, trained: Home) -> None:
    db.set_report(1, {"accepted": False})
    db._db.execute("UPDATE versions SET status = 'candidate' WHERE number = 1")
    with pytest.raises(UsageError, match="not passed the gate"):
        trial.begin(db, 1, 0.2, ALPHA, now=0.0)
    with pytest.raises(UsageError, match="is live already"):
        trial.begin(db, 0, 0.2, ALPHA, now=0.0)
    with pytest.raises(UsageError, match="share"):
        trial.begin(db, 1, 0.9, ALPHA, now=0.0)


def test_a_damaged_candidate_answers_nobody_and_a_rollback_ends_the_trial(db: Store, trained: Home) -> None:
    made = trial.begin(db, 1, 0.5, ALPHA, now=1000.0)
    (trained.version(1) / "adapter_model.safetensors").write_bytes(b"x")
    assert {trial.version_for(db, f"s{n}").number for n in range(30)} == {0}
    db.promote(1)
    assert trial.running(db) is None
    assert made.live == 0


def test_a_judge_has_no_say_in_a_trial(home: Home) -> None:
    made = trial.Trial(1, 0, 0.2, ALPHA, 1000.0)
    with store.connect(home.database) as opened:
        for number in range(6):
            session(opened, number % 2, number, -1.0, at=2000.0)
        before = list(trial.sessions(opened, made, now=1e9))
        unrated = opened.add_turn(
            Turn(session="quiet", messages=(), response="x", version=1, created_at=2000.0)
        )
        for turn in range(1, unrated.id + 1):
            opened.add_feedback(Feedback(turn, "judge", 1.0, source="judge:flatterer"))
        assert list(trial.sessions(opened, made, now=1e9)) == before
    assert len(before) == 6
