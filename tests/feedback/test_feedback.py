"""What a person says becomes one number, and nothing that they said is lost or counted twice."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from clawback import feedback, store
from clawback.errors import NotFound, UsageError
from clawback.paths import Home
from clawback.records import Feedback, Part, Sample, Turn
from clawback.store import Store


@pytest.fixture
def db(home: Home) -> Iterator[Store]:
    with store.connect(home.database) as opened:
        for number in range(1, 21):
            messages = ({"role": "user", "content": f"question {number}"},)
            opened.add_turn(Turn(session="s", messages=messages, response=f"answer {number}"))
        yield opened


def test_the_same_event_twice_counts_once(db: Store) -> None:
    first = feedback.rate(db, 1, 1, event_id="tap-1")
    again = feedback.rate(db, 1, 1, event_id="tap-1")
    assert first == again
    assert len(db.feedback()) == 1


def test_a_changed_mind_counts_as_it_is_now(db: Store) -> None:
    feedback.rate(db, 1, 1)
    feedback.rate(db, 1, -1)
    [sample] = feedback.samples(db)
    assert sample.reward == -1
    assert len(sample.parts) == 1


def test_persons_are_averaged_and_the_make_up_is_kept(db: Store) -> None:
    feedback.rate(db, 1, 1, source="cli")
    feedback.rate(db, 1, -1, source="telegram:7")
    feedback.rate(db, 1, 1, source="rater:anna")
    [sample] = feedback.samples(db)
    assert sample.reward == pytest.approx(1 / 3)
    assert (
        sum(p.value * p.weight for p in sample.parts) / sum(p.weight for p in sample.parts) == sample.reward
    )


@pytest.mark.parametrize(("score", "value"), [(1, -1.0), (10, 1.0), (5, -1 / 9), (6, 1 / 9)])
def test_scores_are_spread_evenly(db: Store, score: int, value: float) -> None:
    assert feedback.score(db, 1, score).value == pytest.approx(value)


def test_a_preference_lifts_one_turn_and_lowers_the_other(db: Store) -> None:
    feedback.prefer(db, 3, 5)
    assert [(s.turn_id, s.reward) for s in feedback.samples(db)] == [(3, 0.5), (5, -0.5)]


def test_an_edit_gives_the_text_that_was_wanted(db: Store) -> None:
    feedback.edit(db, 2, "first try")
    feedback.edit(db, 2, "what I want")
    old, new = feedback.samples(db)
    assert (old.response, old.reward) == ("answer 2", -0.5)
    assert (new.response, new.reward) == ("what I want", 1.0)


def test_a_critique_alone_is_no_sample(db: Store) -> None:
    feedback.critique(db, 2, "too long")
    assert feedback.samples(db) == []


def test_undo_takes_the_newest_back_and_says_when_there_is_none(db: Store) -> None:
    feedback.rate(db, 1, 1)
    feedback.rate(db, 2, -1)
    assert feedback.undo(db).turn_id == 2
    assert feedback.undo(db, 1).turn_id == 1
    with pytest.raises(NotFound, match="no feedback"):
        feedback.undo(db)
    assert feedback.samples(db) == []


def test_what_cannot_be_meant_is_refused_and_nothing_is_stored(db: Store) -> None:
    for wrong in (
        lambda: feedback.rate(db, 99, 1),
        lambda: feedback.rate(db, 1, 2),
        lambda: feedback.score(db, 1, 0),
        lambda: feedback.prefer(db, 1, 1),
        lambda: feedback.prefer(db, 1, 99),
        lambda: feedback.edit(db, 1, "  "),
        lambda: feedback.edit(db, 1, "answer 1"),
        lambda: feedback.critique(db, 1, ""),
    ):
        with pytest.raises(UsageError):
            wrong()
    assert db.feedback(active=False) == []


def test_side_turns_are_never_trained_on(db: Store) -> None:
    title = db.add_turn(Turn(session="s", messages=(), response="A title", kind="side"))
    feedback.rate(db, title.id, 1)
    assert feedback.samples(db) == []


def test_nearly_all_of_one_sign_is_warned_about(db: Store) -> None:
    for turn in range(1, 11):
        assert feedback.balance(db).warning == ""
        feedback.rate(db, turn, -1)
    assert "10 of your 10 ratings are bad" in feedback.balance(db).warning
    for turn in range(11, 14):
        feedback.rate(db, turn, 1)
    assert feedback.balance(db).warning == ""


rewards = st.dictionaries(st.integers(1, 500), st.sampled_from([-1.0, 1.0]), min_size=1, max_size=80)


def made(of: dict[int, float]) -> list[Sample]:
    return [Sample(turn, (), "x", value) for turn, value in sorted(of.items())]


@given(st.integers(1, 10_000), st.sampled_from([0.125, 0.25, 0.5]))
def test_a_split_holds_back_its_share_of_what_is_rated_in_a_row(first: int, share: float) -> None:
    of = {turn: 1.0 if turn % 3 else -1.0 for turn in range(first, first + 32)}
    train, held = feedback.split(made(of), share)
    assert sorted(s.turn_id for s in train + held) == sorted(of)
    assert abs(len(held) - 32 * share) <= 2.5


@given(rewards, rewards, st.floats(0.1, 0.5))
def test_a_turn_is_on_its_side_before_anybody_rates_it(
    of: dict[int, float], more: dict[int, float], share: float
) -> None:
    """So nothing that learns earlier (a reward model, the inbox) can have learned what a later run holds back, whatever is rated meanwhile."""
    now, later = feedback.kept_out(made(of), share), feedback.kept_out(made(more | of), share)
    changed = {turn: -value for turn, value in of.items()}
    assert now == later & of.keys() == feedback.kept_out(made(changed), share)


@given(st.lists(st.tuples(st.integers(1, 40), st.integers(1, 40)), min_size=1, max_size=30))
def test_turns_that_are_compared_stay_on_one_side(pairs: list[tuple[int, int]]) -> None:
    samples = [
        Sample(turn, (), "x", value, (Part(number, "preference", value, 0.5),))
        for number, (better, worse) in enumerate(pairs)
        if better != worse
        for turn, value in ((better, 0.5), (worse, -0.5))
    ]
    train, held = feedback.split(samples, 0.3)
    assert {p.feedback_id for s in train for p in s.parts}.isdisjoint(
        p.feedback_id for s in held for p in s.parts
    )


@given(rewards, rewards)
def test_what_was_held_back_once_is_never_trained_on(first: dict[int, float], more: dict[int, float]) -> None:
    train, held = feedback.split(made(first), 0.2)
    before = {s.turn_id: "train" for s in train} | {s.turn_id: "held_out" for s in held}
    later, kept = feedback.split(made(more | first), 0.2, splits=before)
    assert {s.turn_id for s in held} <= {s.turn_id for s in kept}
    assert {s.turn_id for s in train} <= {s.turn_id for s in later}


@given(
    st.lists(
        st.tuples(st.sampled_from(["rating", "edit", "preference", "judge", "implicit"]), st.floats(-1, 1))
    )
)
def test_a_reward_stays_within_its_range(said: list[tuple[str, float]]) -> None:
    given_ = [Feedback(1, kind, value, id=i + 1, other_turn_id=2) for i, (kind, value) in enumerate(said)]  # type: ignore[arg-type]
    value, parts = feedback.reward(1, given_)
    assert -1 <= value <= 1
    compared = [value for kind, value in said if kind == "preference"]
    others = len(compared) < len(said)
    assert bool(parts) == (others or bool(compared and compared[-1])), (
        "the newest comparison stands; a tie says nothing"
    )


def test_words_alone_are_a_sample_for_those_who_read(db: Store) -> None:
    feedback.critique(db, 3, "Too long.")
    feedback.critique(db, 3, "And no list.")
    feedback.critique(db, 3, "Too long.")
    feedback.rate(db, 4, -1)
    feedback.critique(db, 4, "Wrong town.")
    rated, told = sorted(
        feedback.samples(db, query=feedback.SampleQuery(words=True)), key=lambda s: not s.rated
    )
    assert (told.turn_id, told.reward, told.parts, told.rated) == (3, 0.0, (), False)
    assert told.hints == ("Too long.", "And no list.")
    assert (rated.turn_id, rated.reward, rated.hints) == (4, -1.0, ("Wrong town.",))
    assert [s.turn_id for s in feedback.samples(db)] == [4]


def test_the_newest_edit_is_a_hint_for_what_it_replaced(db: Store) -> None:
    feedback.edit(db, 2, "first try")
    feedback.edit(db, 2, "second try")
    old, new = feedback.samples(db)
    assert old.hints == ("A better answer would have been:\nsecond try",)
    assert new.hints == ()


def test_a_late_rating_reaches_the_turns_that_led_to_it(db: Store) -> None:
    # Turns 1 … 20 are one session.
    feedback.rate(db, 4, 1)
    feedback.rate(db, 8, -1)
    found = {s.turn_id: s.reward for s in feedback.samples(db, query=feedback.SampleQuery(credit=0.5))}
    assert found == {1: 0.125, 2: 0.25, 3: 0.5, 4: 1.0, 5: -0.125, 6: -0.25, 7: -0.5, 8: -1.0}
    assert [s.turn_id for s in feedback.samples(db)] == [4, 8]
    only = feedback.samples(db, [f.id for f in db.feedback(4)], query=feedback.SampleQuery(credit=0.5))
    assert [s.turn_id for s in only] == [1, 2, 3, 4]


def test_credit_stays_in_its_session_and_with_turns_that_are_trained_on(db: Store) -> None:
    messages = ({"role": "user", "content": "q"},)
    for kind in ("main", "side", "main"):
        db.add_turn(Turn(session="other", messages=messages, response="a", kind=kind))
    feedback.rate(db, 23, 1)
    assert {s.turn_id: s.reward for s in feedback.samples(db, query=feedback.SampleQuery(credit=0.5))} == {
        21: 0.5,
        23: 1.0,
    }
