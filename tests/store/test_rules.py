import pytest

from clawback import store
from clawback.errors import NotFound
from clawback.records import Rule, Turn
from clawback.store.rule_tables import Checked


@pytest.fixture
def db(tmp_path):
    with store.connect(tmp_path / "clawback.db") as connection:
        yield connection


def test_a_rule_keeps_its_words_author_and_evidence(db):
    rule = db.add_rule(Rule("Answer in at most eighty words.", check="words <= 80", author="rater:anna"))
    db.update_rule(rule.id, "believed", {"kept": 9, "broken": 4, "p": 0.01})
    assert db.rule(rule.id) == Rule(
        "Answer in at most eighty words.",
        "words <= 80",
        "rater:anna",
        rule.id,
        "believed",
        rule.created_at,
        {"kept": 9, "broken": 4, "p": 0.01},
    )


def test_the_same_sentence_is_one_rule_whoever_says_it_again(db):
    first = db.add_rule(Rule("Never apologise."))
    again = db.add_rule(Rule("Never apologise.", author="model:m"))
    assert again == first
    assert [rule.author for rule in db.rules()] == ["owner"]


def test_rules_are_listed_by_status(db):
    db.add_rule(Rule("a"))
    kept = db.add_rule(Rule("b", status="believed"))
    assert db.rules("believed") == [kept]
    assert [rule.text for rule in db.rules("proposed", "believed")] == ["a", "b"]


def test_a_judgement_is_replaced_by_a_newer_of_the_same_judge_alone(db):
    turn = db.add_turn(Turn("s", ({"role": "user", "content": "q"},), "a"))
    rule = db.add_rule(Rule("Never apologise."))
    db.add_rule_checks([Checked(rule.id, turn.id, 0.0), Checked(rule.id, turn.id, 0.4, "m")])
    db.add_rule_checks([Checked(rule.id, turn.id, 1.0)])
    assert db.rule_checks(turn_id=turn.id) == [
        Checked(rule.id, turn.id, 1.0),
        Checked(rule.id, turn.id, 0.4, "m"),
    ]


def test_a_forgotten_turn_takes_its_judgements_along(db):
    turn = db.add_turn(Turn("s", ({"role": "user", "content": "q"},), "a"))
    rule = db.add_rule(Rule("Never apologise."))
    db.add_rule_checks([Checked(rule.id, turn.id, 0.0)])
    db.forget([turn.id])
    assert db.rule_checks() == []


def test_an_unknown_rule_is_named(db):
    with pytest.raises(NotFound, match="no rule 7"):
        db.rule(7)


def test_a_forgotten_person_takes_their_rules_along(db):
    db.add_rule(Rule("Never apologise.", author="rater:anna"))
    kept = db.add_rule(Rule("Be brief."))
    db.forget(person="rater:anna")
    assert db.rules() == [kept]
