"""What is kept for the gate is never drawn on or learned from, whatever is in the store and whichever algorithm runs."""

from __future__ import annotations

import itertools
from pathlib import Path

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from clawback import config, feedback, store
from clawback.feedback import turn_reward
from clawback.gate import fresh
from clawback.jobs import inputs
from clawback.paths import Home
from clawback.records import Message, Run, Sample, Turn
from clawback.store import Store

SHARE = 0.4
QUESTIONS = [f"Question {i}?" for i in range(14)]
ways = st.sampled_from([str, str.upper, lambda text: f"  {text.replace(' ', '   ')}\n"])
turns = st.lists(st.tuples(st.sampled_from(QUESTIONS), ways, st.integers(0, 3)), min_size=4, max_size=24)
said = st.lists(
    st.tuples(st.sampled_from(["rating", "bad", "preference", "edit", "critique", "judge"]), st.integers(0, 23), st.integers(0, 23)),
    max_size=24,
)  # fmt: skip


def user(text: str) -> tuple[Message, ...]:
    return ({"role": "user", "content": text},)


def filled(db: Store, captured: list, given_: list) -> None:  # type: ignore[type-arg]
    ids = []
    for number, (question, way, session) in enumerate(captured):
        turn = Turn(f"s{session}", user(way(question)), f"Answer {number}.", created_at=float(number + 1))
        ids.append(db.add_turn(turn).id)
    for kind, one, other in given_:
        first, second = ids[one % len(ids)], ids[other % len(ids)]
        if kind == "preference" and first != second:
            feedback.prefer(db, first, second)
        elif kind == "edit":
            feedback.edit(db, first, f"Better, {other}.")
        elif kind == "critique":
            feedback.critique(db, first, "Shorter.")
        elif kind == "judge":
            from clawback.records import Feedback

            db.add_feedback(Feedback(first, "judge", 0.5, source="judge:m"))
        elif kind in ("rating", "bad"):
            feedback.rate(db, first, 1 if kind == "rating" else -1)


def a_run(db: Store, credit: float) -> tuple[set[str], set[str]]:
    """What a run begun now draws on and learns from, as keys of prompts; the run is entered."""
    found = db.feedback()
    ids = [f.id for f in found]
    samples = feedback.samples(db, ids)
    train, held = feedback.split(samples, SHARE, splits=db.splits(s.turn_id for s in samples))
    run = db.start_run(
        Run("m", "r", "auto", {}, 0, 0, train_ids=inputs.feedback_of(train, found), held_out_ids=inputs.feedback_of(held, found))
    )  # fmt: skip
    made = feedback.samples(db, run.train_ids, query=feedback.SampleQuery(words=True, credit=credit))
    learned = inputs.without_kept(db, run, made, SHARE) if run.train_ids else []
    drawn = inputs.prompts(db, inputs.kept_out(db, run), 1e12, SHARE)
    db.update_run(run.id, status="done")
    return {turn_reward.prompt_key(m) for m in drawn}, {turn_reward.prompt_key(s.messages) for s in learned}


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(turns, said, said, st.sampled_from([0.0, 0.5]))
def test_no_prompt_that_the_gate_asks_is_in_what_any_run_draws_on_or_learns_from(
    tmp_path_factory, captured, first, more, credit: float
) -> None:  # type: ignore[no-untyped-def]
    with store.connect(tmp_path_factory.mktemp("home") / "clawback.db") as db:
        filled(db, captured[: len(captured) // 2 + 1], first)
        used = a_run(db, credit)
        filled(db, captured, more)
        later = a_run(db, credit)
        asked, kept = fresh.prompts(db, SHARE)
        keys = [turn_reward.prompt_key(messages) for messages in asked]
        assert len(set(keys)) == len(keys)
        assert not set(keys[:kept]) & set.union(*used, *later)
        if len(asked) > kept:
            assert len(asked) <= fresh.LEAST_PROMPTS, "the others only fill up"


@given(st.text(max_size=40), st.floats(0, 1), st.floats(0, 1))
def test_a_larger_share_keeps_what_a_smaller_one_keeps(prompt: str, one: float, other: float) -> None:
    key = turn_reward.text_key(prompt)
    assert turn_reward.keeps(key, min(one, other)) <= turn_reward.keeps(key, max(one, other))
    assert turn_reward.keeps(key, 1.0) == bool(key)
    assert not turn_reward.keeps(key, 0.0)


def test_an_eighth_of_the_prompts_is_kept_and_how_they_are_written_does_not_matter() -> None:
    keys = [turn_reward.text_key(f"What is {a} + {b}?") for a, b in itertools.product(range(60), range(60))]
    share = sum(turn_reward.keeps(key, 0.125) for key in keys) / len(keys)
    assert abs(share - 0.125) < 3 * (0.125 * 0.875 / len(keys)) ** 0.5
    assert (
        turn_reward.text_key("What  is\nit? ")
        == turn_reward.text_key("what is it?")
        == turn_reward.text_key("ＷＨＡＴ is it?")
    )
    assert turn_reward.text_key("What is it") != turn_reward.text_key("What is it?")


def kept_question(share: float = SHARE, kept: bool = True) -> str:
    return next(q for q in QUESTIONS if turn_reward.keeps(turn_reward.text_key(q), share) == kept)


def test_the_same_question_is_on_the_same_side_and_old_splits_stay() -> None:
    held, free = kept_question(), kept_question(kept=False)
    samples = [
        Sample(1, user(held), "a", 1.0),
        Sample(2, user(f" {held.upper()} "), "b", -1.0),
        Sample(3, user(free), "c", 1.0),
    ]
    assert feedback.kept_out(samples, SHARE) == {1, 2}
    # Trained on by an older version of the program: then the same question asked again is not new to anybody.
    assert feedback.kept_out(samples, SHARE, splits={1: "train"}) == set()
    assert feedback.kept_out(samples, SHARE, splits={3: "held_out"}) == {1, 2, 3}


def test_what_was_outside_the_share_of_an_earlier_run_is_not_asked(tmp_path: Path) -> None:
    with store.connect(tmp_path / "clawback.db") as db:
        for question in QUESTIONS:
            db.add_turn(Turn("s", user(question), "An answer."))
        small = {q for q in QUESTIONS if turn_reward.keeps(turn_reward.text_key(q), 0.3)}
        inputs.prompts(db, set(), 1e12, 0.3)
        asked, kept = fresh.prompts(db, 0.9)
        assert {str(m[0]["content"]) for m in asked[:kept]} == small


def test_a_search_for_a_prompt_leaves_out_what_is_kept(home: Home) -> None:
    from clawback.prompt_jobs.prompt_search import Search

    with store.connect(home.database) as db:
        for question in QUESTIONS:
            db.add_turn(Turn("s", user(question), "An answer."))
        chosen = config.Config(gate=config.GateSection(held_out=SHARE))
        search = Search(home, db, chosen)
        found = {t.prompt for t in search._turns()}
        assert found == {q for q in QUESTIONS if not turn_reward.keeps(turn_reward.text_key(q), SHARE)}


def test_of_many_kept_prompts_the_newest_are_asked_each_often(tmp_path: Path) -> None:
    with store.connect(tmp_path / "clawback.db") as db:
        for number in range(60):
            db.add_turn(Turn("s", user(f"Question {number}?"), "An answer."))
        asked, kept = fresh.prompts(db, 1.0)
    assert kept == len(asked) == fresh.MOST_PROMPTS
    assert [m[0]["content"] for m in asked] == [f"Question {number}?" for number in range(59, 43, -1)]
