"""Receipts: what was checked, how often it was kept, by whom and when, and where an answer breaks a rule."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import replace
from datetime import datetime, timedelta

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from clawback import feedback, store
from clawback.paths import Home
from clawback.records import Rule, Turn
from clawback.rules import receipts
from clawback.rules.checks import check_of
from clawback.rules.receipts import KeptShare
from clawback.store import Store
from clawback.store.rule_tables import Checked

SORRY = Rule("Never apologise.", "apology = no", status="believed")
SHORT = Rule("Answer in at most 5 words.", "words <= 5", status="believed")


@pytest.fixture
def db(home: Home) -> Iterator[Store]:
    with store.connect(home.database) as connection:
        yield connection


def answer(db: Store, text: str, **fields: object) -> int:
    made = Turn(
        "s",
        ({"role": "user", "content": "What is it?"},),
        text,
        **{"agent": "claude-code", "model": "opus"} | fields,
    )  # type: ignore[arg-type]
    return db.add_turn(made).id


def shares(db: Store) -> dict[str, KeptShare]:
    receipts.update(db)
    return {one.rule.text: one.overall for one in receipts.receipts(db)}


def test_answers_are_counted_by_model_and_week(db: Store) -> None:
    rule = db.add_rule(SORRY)
    monday = datetime(2026, 11, 16, 9).timestamp()
    for days, model, text in (
        (0, "opus", "Sorry."),
        (6, "opus", "It is four."),
        (7, "opus", "It is four."),
        (7, "haiku", "I apologise for that."),
        (-1, "haiku", "It is four."),
    ):
        answer(db, text, model=model, created_at=monday + days * 86_400)
    receipts.update(db)
    assert receipts.table(db, rule) == {
        "opus": {"2026-11-16": KeptShare(1, 2), "2026-11-23": KeptShare(1, 1)},
        "haiku": {"2026-11-23": KeptShare(0, 1), "2026-11-09": KeptShare(1, 1)},
    }
    [found] = receipts.receipts(db)
    assert list(found.weeks) == ["2026-11-09", "2026-11-16", "2026-11-23"]
    assert found.overall == KeptShare(3, 5)
    assert found.last_week == KeptShare(1, 2)
    assert list(found.models) == ["opus", "haiku"]


def test_answers_of_our_own_server_count_for_their_version_whatever_model_was_asked_for(db: Store) -> None:
    db.add_rule(SORRY)
    answer(db, "a", model="clawback", version=0)
    answer(db, "b", model="opus", version=0, response_ids=(1, 2))
    answer(db, "c", model="opus", version=0)
    answer(db, "d", model="", version=None)
    receipts.update(db)
    [found] = receipts.receipts(db)
    assert found.models == {
        "version 0": KeptShare(2, 2),
        "opus with version 0": KeptShare(1, 1),
        "unknown": KeptShare(1, 1),
    }


def test_each_answer_is_checked_once_and_new_rules_reach_back(db: Store) -> None:
    db.add_rule(SORRY)
    numbers = [answer(db, "Sorry." if n % 2 else "It is four.") for n in range(6)]
    assert receipts.update(db) == 6
    assert receipts.update(db) == 0
    db.add_rule(SHORT)
    answer(db, "This is a long answer with many words.")
    assert receipts.update(db) == 1 + 7, "the new answer by the old rule, then all by the new rule"
    assert shares(db) == {SORRY.text: KeptShare(4, 7), SHORT.text: KeptShare(6, 7)}
    assert {one.turn_id for one in db.rule_checks(2)} == {*numbers, numbers[-1] + 1}


def test_a_bounded_call_checks_the_newest_answers_first(db: Store) -> None:
    db.add_rule(SORRY)
    numbers = [answer(db, "It is four.") for _ in range(10)]
    assert receipts.update(db, most=4) == 4
    assert [one.turn_id for one in db.rule_checks()] == numbers[-4:]
    newer = answer(db, "Sorry.")
    assert receipts.update(db, most=4) == 5
    assert [one.turn_id for one in db.rule_checks()] == [*numbers[-8:], newer]
    assert receipts.update(db, most=4) == 2
    assert receipts.update(db, most=4) == 0


@settings(max_examples=12)
@given(
    steps=st.lists(
        st.sampled_from(["answer", "sorry", "rule", "update", "few", "forget", "complete", "side", "model"]),
        max_size=16,
    )
)
def test_counts_equal_a_count_of_everything(
    tmp_path_factory: pytest.TempPathFactory, steps: list[str]
) -> None:
    """Whatever comes, changes and goes in whatever order, the counts are those of a count from the beginning."""
    with store.connect(tmp_path_factory.mktemp("home") / "clawback.db") as db:
        db.add_rule(SORRY)
        numbers: list[int] = []
        for step in steps:
            if step in ("answer", "sorry"):
                numbers.append(answer(db, "Sorry, it is." if step == "sorry" else "It is.", model=""))
            elif step == "rule":
                db.add_rule(SHORT)
            elif step in ("update", "few"):
                receipts.update(db, None if step == "update" else 2)
            elif step == "forget" and numbers:
                db.forget([numbers.pop(0)])
            elif step == "complete" and numbers:
                db.complete(numbers[-1], "I apologise: this is what it was all the time.")
            elif step == "side":
                numbers.append(answer(db, "Sorry.", kind="side"))
                db.seen(numbers[-1])
            elif step == "model" and numbers:
                db.name_model(numbers[-1], "opus")
        receipts.update(db)
        for rule in db.rules():
            check = check_of(rule)
            assert check is not None
            expected: dict[str, KeptShare] = {}
            for turn in db.turns(limit=100, kind="main"):
                kept = int((check(turn.prompt, turn.response) or 0) >= 0.5)
                name = turn.model or "unknown"
                expected[name] = expected.get(name, KeptShare()) + KeptShare(kept, 1)
            [found] = receipts.receipts(db, [rule])
            assert found.models == expected


def test_an_answer_that_was_completed_is_checked_again(db: Store) -> None:
    db.add_rule(SORRY)
    number = answer(db, "It is four.")
    assert shares(db) == {SORRY.text: KeptShare(1, 1)}
    db.complete(number, "Sorry. It is four.")
    assert shares(db) == {SORRY.text: KeptShare(0, 1)}


def test_a_model_that_is_learned_of_later_gets_its_answers(db: Store) -> None:
    db.add_rule(SORRY)
    number = answer(db, "Sorry.", model="")
    receipts.update(db)
    db.name_model(number, "opus")
    receipts.update(db)
    [found] = receipts.receipts(db)
    assert found.models == {"opus": KeptShare(0, 1)}


def test_a_rule_that_code_cannot_check_counts_by_the_mean_of_its_judges(db: Store) -> None:
    rule = db.add_rule(Rule("Say why it works."))
    first, second = answer(db, "Because."), answer(db, "So.")
    db.add_rule_checks(
        [
            Checked(rule.id, first, 0.9, "a"),
            Checked(rule.id, first, 0.3, "b"),
            Checked(rule.id, second, 0.1, "a"),
        ]
    )
    assert shares(db) == {rule.text: KeptShare(1, 2)}
    assert [(one.turn, one.excerpt, one.line) for one in receipts.breaches(db, rule)] == [(second, "", 0)]


def test_what_a_check_by_code_says_is_not_changed_by_a_judge(db: Store) -> None:
    rule = db.add_rule(SORRY)
    number = answer(db, "Sorry.")
    receipts.update(db)
    db.add_rule_checks([Checked(rule.id, number, 1.0, "a judge")])
    assert shares(db) == {SORRY.text: KeptShare(0, 1)}


def test_a_withdrawn_rule_is_not_checked_and_comes_back_with_its_receipts(db: Store) -> None:
    rule = db.add_rule(SORRY)
    answer(db, "Sorry.")
    receipts.update(db)
    db.update_rule(rule.id, "withdrawn")
    answer(db, "Sorry.")
    assert receipts.update(db) == 0
    assert receipts.receipts(db) == []
    db.update_rule(rule.id, "believed")
    assert shares(db) == {SORRY.text: KeptShare(0, 2)}


def test_ratings_speak_for_and_against(db: Store) -> None:
    rule = db.add_rule(SORRY)
    rows = [("Sorry.", -1), ("It is four.", 1), ("Sorry!", 1), ("It is five.", -1)]
    numbers = [answer(db, text) for text, _ in rows]
    for number, (_, sign) in zip(numbers, rows, strict=True):
        feedback.rate(db, number, sign)
    edited = answer(db, "Sorry, six.")
    feedback.edit(db, edited, "Six.")
    found = receipts.ratings(db, rule, feedback.samples(db))
    assert found == receipts.RuleRatings(
        liked_kept=(numbers[1], edited),
        liked_broken=(numbers[2],),
        disliked_kept=(numbers[3],),
        disliked_broken=(numbers[0], edited),
    )


def test_ratings_of_a_judged_rule_come_from_what_its_judge_said(db: Store) -> None:
    rule = db.add_rule(Rule("Say why it works."))
    liked, disliked = answer(db, "Because."), answer(db, "So.")
    feedback.rate(db, liked, 1)
    feedback.rate(db, disliked, -1)
    db.add_rule_checks([Checked(rule.id, liked, 0.8, "m")])
    assert receipts.ratings(db, rule, feedback.samples(db)) == receipts.RuleRatings(liked_kept=(liked,))


def test_breaches_are_listed_newest_first_with_the_place(db: Store) -> None:
    rule = db.add_rule(SORRY)
    numbers = [answer(db, f"It is {n}.\n\nSorry about that. More.") for n in range(4)]
    answer(db, "It is.")
    receipts.update(db)
    found = receipts.breaches(db, rule, limit=2)
    assert [(one.turn, one.line, one.excerpt, one.model) for one in found] == [
        (numbers[3], 3, "Sorry about that.", "opus"),
        (numbers[2], 3, "Sorry about that.", "opus"),
    ]
    assert [one.turn for one in receipts.breaches(db, rule, end_id=numbers[1])] == [numbers[0]]


@pytest.mark.parametrize(
    ("rule", "response", "place"),
    [
        (SORRY, "Sorry.", ("Sorry.", 1)),
        (SORRY, "One.\nTwo.\nI apologise for it! Three.", ("I apologise for it!", 3)),
        (SHORT, "One two three. Four five six. Seven.", ("", 0)),
        (
            replace(SORRY, check='says "however" = no'),
            "It is so.\nHowever, it is not.",
            ("However, it is not.", 2),
        ),
        (replace(SORRY, check="questions >= 1"), "It is so. Or not.", ("", 0)),
    ],
)
def test_the_place_is_named_where_a_piece_of_the_answer_breaks_the_rule(
    rule: Rule, response: str, place: tuple[str, int]
) -> None:
    check = check_of(rule)
    assert check is not None
    assert receipts.locate(check, "q", response) == place


def test_recent_answers_are_those_of_the_present_model_of_one_agent(db: Store) -> None:
    rule = db.add_rule(SORRY)
    for model, text in (("old", "Sorry."), ("new", "Sorry."), ("new", "It is.")):
        answer(db, text, model=model, agent="codex")
    answer(db, "Sorry.", agent="claude-code")
    receipts.update(db)
    assert db.recent_verdicts(rule.id, "codex", 20) == [1.0, 0.0]
    assert db.recent_verdicts(rule.id, "nobody", 20) == []


def test_a_week_begins_on_monday_in_local_time(db: Store) -> None:
    rule = db.add_rule(SORRY)
    now = datetime.fromtimestamp(time.time())
    answer(db, "It is.")
    receipts.update(db)
    monday = (now - timedelta(days=now.weekday())).strftime("%Y-%m-%d")
    assert list(receipts.table(db, rule)["opus"]) == [monday]


def test_an_answer_dated_ahead_is_not_the_last_week(db: Store) -> None:
    db.add_rule(SORRY)
    answer(db, "It is.")
    answer(db, "Sorry.", created_at=time.time() + 400 * 86_400)
    receipts.update(db)
    [receipt] = receipts.receipts(db)
    assert (receipt.last_week, receipt.overall) == (KeptShare(1, 1), KeptShare(1, 2))


def test_all_answers_that_changed_are_checked_again(db: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(receipts, "BATCH", 2)
    db.add_rule(SORRY)
    numbers = [answer(db, "It is.", model="") for _ in range(5)]
    receipts.update(db)
    with db._write() as connection:
        connection.executemany(
            "UPDATE turns SET model = 'haiku' WHERE id = ?", [(number,) for number in numbers]
        )
    assert receipts.update(db, most=3) == 3
    assert receipts.update(db) == 2
    assert receipts.receipts(db)[0].models == {"haiku": KeptShare(5, 5)}
