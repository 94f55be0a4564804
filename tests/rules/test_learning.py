"""One pass over the rules, from ratings in a store to rules that are believed, dropped or waiting for a yes."""

from __future__ import annotations

import json
import random
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from clawback import store
from clawback.feedback.endpoint import JudgeAnswer, NoAnswer
from clawback.feedback.rated_examples import rated_samples
from clawback.feedback.rule_consent import LIST, accepted_sentences, distinct_rules_to_say, may_be_said
from clawback.records import OWNER, Feedback, Rule, Turn
from clawback.rules.exam import ExamResult
from clawback.rules.rule_judge import RuledTurn
from clawback.rules.rule_pass import FEWEST, JUDGED, learn
from clawback.store import Store


@pytest.fixture
def db(tmp_path: Path) -> Iterator[Store]:
    with store.connect(tmp_path / "db") as opened:
        yield opened


def rate(db: Store, count: int, *, likes: str = "list", wrong: float = 0.0, seed: int = 0) -> None:
    """Answers with or without a list, a risk, an emoji; liked for one of them."""
    generator = random.Random(seed)
    for number in range(count):
        has = {name: generator.random() < 0.5 for name in ("list", "risk", "emoji")}
        text = f"Thing {number} is made in steps that follow each other."
        text += " There is a risk of fire." if has["risk"] else " It has always worked."
        text += " 🙂" if has["emoji"] else ""
        text += "\n- water\n- earth" if has["list"] else ""
        turn = db.add_turn(Turn("s", ({"role": "user", "content": f"How is thing {number} made?"},), text))
        good = has.get(likes, generator.random() < 0.5) != (generator.random() < wrong)
        db.add_feedback(Feedback(turn.id, "rating", 1.0 if good else -1.0))


class RiskJudge:
    """Knows which answer names a risk; sits no exam here."""

    name = "wise"
    calls = 0

    def __call__(self, pairs: Sequence[RuledTurn], rules: Sequence[str]) -> list[list[float | None]]:
        self.calls += 1
        return [[float("risk" in pair.answer) if "risk" in rule else 0.5 for rule in rules] for pair in pairs]


def passed(db: Store, judge: str, right: int = 32) -> None:
    import time

    db.set(
        f"rule-judge:{judge}",
        ExamResult(judge, time.time(), {"form": (right, 32), "content": (right, 32)}).to_dict(),
    )


def test_what_the_ratings_speak_for_is_believed_and_the_rest_is_dropped_with_the_reason(db: Store) -> None:
    rate(db, 64)
    db.add_rule(Rule("Use no emoji at all.", "emoji = no", "model:big"))
    db.add_rule(Rule("Use lists.", "list = yes", "model:big"))
    outcome = learn(db)
    rules = {rule.text: rule for rule in db.rules()}
    assert rules["Use lists."].status == "believed"
    assert rules["Use lists."].evidence["p"] <= 0.05
    assert rules["Use lists."].evidence["auc"] > 0.9
    assert rules["Use no emoji at all."].status == "dropped"
    assert "do not speak for it" in rules["Use no emoji at all."].evidence["why"]
    assert outcome.ratings == len(rated_samples(db)) < 64  # some are held out for the gate
    assert {rule.text for rule in outcome.dropped} == {"Use no emoji at all."}
    assert "Answer in plain paragraphs, without lists." not in rules


def test_sentences_of_the_list_are_stored_only_where_they_are_believed(db: Store) -> None:
    rate(db, 64, likes="emoji")
    learn(db)
    listed = [rule for rule in db.rules() if rule.author == LIST]
    assert [rule.check for rule in listed] == ["emoji = yes"]
    assert [rule.text for rule in distinct_rules_to_say(db)] == ["Use a fitting emoji."]


def test_ratings_without_a_pattern_bring_no_rule(db: Store) -> None:
    rate(db, 48, likes="nothing")
    learn(db)
    assert db.rules() == []


def test_what_a_model_proposes_waits_for_a_yes(db: Store) -> None:
    rate(db, 64, likes="risk")
    db.add_rule(Rule("Speak of fire.", 'says "fire" = yes', "agent:claude-code"))
    outcome = learn(db)
    assert [rule.text for rule in outcome.waiting] == ["Speak of fire."]
    assert distinct_rules_to_say(db) == []
    [rule] = outcome.waiting
    db.update_rule(rule.id, "believed", {**rule.evidence, "accepted": True})
    learn(db, again=True)
    assert may_be_said(db.rule(rule.id))
    assert [rule.text for rule in distinct_rules_to_say(db)] == ["Speak of fire."]


def test_what_the_owner_accepted_is_not_dropped_by_later_ratings(db: Store) -> None:
    rate(db, 64, likes="nothing")
    rule = db.add_rule(Rule("Speak of fire.", 'says "fire" = yes', "agent:claude-code"))
    db.update_rule(rule.id, "believed", {"accepted": 1.0})
    other = db.add_rule(Rule("Speak of water.", 'says "water" = yes', "agent:claude-code", status="believed"))
    learn(db)
    assert db.rule(rule.id).status == "believed"
    assert db.rule(rule.id).evidence["accepted"] == 1.0
    assert db.rule(other.id).status == "dropped"


def test_a_sentence_that_was_accepted_before_needs_no_second_yes(db: Store) -> None:
    rate(db, 64, likes="risk")
    db.add_rule(Rule("Speak of fire.", 'says "fire" = yes', "model:big"))
    learn(db)
    [rule] = db.rules("believed")
    assert not may_be_said(rule, accepted_sentences(db))
    db.accept_sentences(["Speak of fire"], 0)
    assert may_be_said(rule, accepted_sentences(db))


def test_where_our_own_sentence_says_the_same_nobody_is_asked(db: Store) -> None:
    rate(db, 64)
    db.add_rule(Rule("Use lists, always.", "list = yes", "agent:claude-code"))
    outcome = learn(db)
    assert outcome.waiting == ()
    assert [rule.text for rule in distinct_rules_to_say(db)] == ["Answer with a bulleted list."]


def test_the_owners_word_stands_unless_the_ratings_clearly_speak_against_it(db: Store) -> None:
    rate(db, 64)
    turn = db.turns(limit=1)[0]
    for text in (
        "Never use lists.",
        "Always name a risk.",
        "No emoji here",
        "Avoid exclamation marks in your answers.",
    ):
        db.add_feedback(Feedback(turn.id, "critique", 0.0, text))
    owned = db.add_rule(Rule("No lists for me.", "bullets = no", OWNER, status="believed"))
    outcome = learn(db)
    rules = {rule.text: rule for rule in db.rules()}
    assert rules["Always name a risk."].status == "believed"  # no judge, general, own words
    assert rules["Avoid exclamation marks in your answers."].status == "believed"
    assert rules["No emoji here."].status in ("proposed", "dropped") if "No emoji here." in rules else True
    assert rules["Never use lists."].status == "proposed"
    assert "speak against it" in rules["Never use lists."].evidence["why"]
    assert db.rule(owned.id).status == "believed"  # entered by hand: it stays, and is said
    assert {rule.text for rule in outcome.against} == {"Never use lists.", "No lists for me."}


def test_a_judge_that_passed_tells_what_code_cannot_see_once(db: Store) -> None:
    rate(db, 80, likes="risk")
    db.add_rule(Rule("Name a risk.", "", "model:big"))
    db.add_rule(Rule("Say it in verse.", "", "model:big"))
    judge = RiskJudge()
    passed(db, judge.name)
    outcome = learn(db, judge=judge)
    rules = {rule.text: rule for rule in db.rules()}
    assert rules["Name a risk."].status == "believed"
    assert rules["Name a risk."].evidence["judge"] == "wise"
    assert rules["Say it in verse."].status == "proposed"  # it applies to nothing
    assert len(db.rule_checks(rule_id=rules["Name a risk."].id)) == min(JUDGED, outcome.ratings)
    calls = judge.calls
    assert learn(db, judge=judge, again=True).exam is not None
    assert judge.calls == calls


def test_a_judge_that_failed_is_not_asked(db: Store) -> None:
    rate(db, 64, likes="risk")
    db.add_rule(Rule("Name a risk.", "", "model:big"))
    judge = RiskJudge()
    passed(db, judge.name, right=20)
    outcome = learn(db, judge=judge)
    assert judge.calls == 0
    assert (outcome.unjudged, db.rules("believed")) == (1, [])
    assert "not used" in outcome.notes[0]


def test_a_pass_without_anything_new_does_nothing(db: Store) -> None:
    rate(db, 40)
    asked: list[str] = []

    def ask(system: str, user: str) -> JudgeAnswer:
        asked.append(user)
        return JudgeAnswer(json.dumps({"rules": ["Use lists in all answers."]}), 1)

    first = learn(db, proposer=(ask, "big"))
    assert first.new == 1
    again = learn(db, proposer=(ask, "big"))
    assert again.unchanged
    assert again.believed == first.believed
    assert len(asked) == 1
    rate(db, 1, seed=9)
    assert not learn(db, proposer=(ask, "big")).unchanged


def test_a_model_that_cannot_be_asked_is_a_note(db: Store) -> None:
    rate(db, 40)

    def ask(system: str, user: str) -> JudgeAnswer:
        raise NoAnswer("the line is dead")

    outcome = learn(db, proposer=(ask, "big"))
    assert "the line is dead" in outcome.notes[0]
    json.dumps(outcome.to_dict())


def test_few_ratings_decide_nothing_and_withdrawn_rules_stay_away(db: Store) -> None:
    rate(db, FEWEST - 2)
    rule = db.add_rule(Rule("Use lists.", "list = yes", "model:big"))
    learn(db)
    assert db.rule(rule.id).status == "proposed"
    rate(db, 64, seed=4)
    db.update_rule(rule.id, "withdrawn")
    db.add_rule(Rule("Use lists.", "list = yes", "model:big"))
    learn(db)
    assert db.rule(rule.id).status == "withdrawn"


def test_an_empty_store_is_no_error(db: Store) -> None:
    assert learn(db).ratings == 0
