"""A run reads the rules of its beginning, and asks a judge about each answer once."""

import numpy as np
import pytest

from clawback import config, store
from clawback.errors import JudgeError
from clawback.feedback.endpoint import NoAnswer
from clawback.jobs import rule_proposals, rule_reading
from clawback.records import Rule
from clawback.rules.rule_judge import ANSWERS
from clawback.trainer import Recipe

SHORT = Rule("Use at most three words.", "words <= 3")
KIND = Rule("Be kind.")


class Judge:
    """Says of each answer whether it holds "please"."""

    name = "played"

    def __init__(self, failures=()):
        self.calls, self.failures = [], list(failures)

    def __call__(self, pairs, rules):
        self.calls.append((len(pairs), tuple(rules)))
        if self.failures and (error := self.failures.pop(0)):
            raise error
        return [[float("please" in pair.answer) for _ in rules] for pair in pairs]


def test_code_judges_what_it_can_see_and_the_judge_the_rest(tmp_path):
    judge = Judge()
    made = rule_reading.RunJudge([KIND, SHORT], judge, tmp_path / "verdicts.jsonl")
    verdicts = made(["q", "q", "q"], ["please", "one two three four", ""])
    np.testing.assert_array_equal(verdicts, [[1, 1], [0, 0], [0, np.nan]])
    assert judge.calls == [(3, ("Be kind.",))]


def test_without_a_judge_what_code_cannot_see_is_not_judged(tmp_path):
    verdicts = rule_reading.RunJudge([KIND, SHORT])(["q"], ["please"])
    np.testing.assert_array_equal(verdicts, [[np.nan, 1]])


def test_no_answer_is_judged_twice_nor_in_a_run_that_is_taken_up_again(tmp_path):
    file = tmp_path / "verdicts.jsonl"
    first = rule_reading.RunJudge([KIND], judge := Judge(), file)
    answers = [f"please {i}" for i in range(ANSWERS + 1)]
    before = first(["q"] * len(answers), answers)
    first(["q"], answers[:1])
    assert [count for count, _ in judge.calls] == [ANSWERS, 1]
    with file.open("ab") as log:
        log.write(b'{"half a li')
    later = rule_reading.RunJudge([KIND], again := Judge(), file)
    np.testing.assert_array_equal(later(["q"] * len(answers), answers), before)
    assert again.calls == []


@pytest.mark.parametrize(("error", "calls"), [(NoAnswer("unreadable"), 2), (JudgeError("it is gone"), 1)])
def test_a_judge_that_fails_costs_its_verdicts_and_not_the_run(tmp_path, error, calls):
    notes = []
    made = rule_reading.RunJudge([KIND], judge := Judge([error]), tmp_path / "v.jsonl", notes.append)
    count = ANSWERS + 1
    verdicts = made(["q"] * count, ["please"] * ANSWERS + ["no"])
    assert len(judge.calls) == calls
    assert np.isnan(verdicts[:ANSWERS]).all()
    assert any("verdicts are missing" in told.get("note", "") for told in notes)


def test_a_run_says_which_believed_rule_of_an_agent_needs_the_owners_yes(home):
    notes = []
    with store.connect(home.database) as db:
        rule = db.add_rule(Rule("Speak of fire.", 'says "fire" = yes', "agent:some", status="believed"))
        recipe = Recipe()
        entered = rule_reading.with_rules(home, config.Config(), db, recipe, notes.append)
        assert entered.conditions.rules.sentences == ()
        assert any(f"clawback rules keep {rule.id}" in told.get("note", "") for told in notes)
        rule_proposals.accept(db, rule.id)
        notes.clear()
        entered = rule_reading.with_rules(home, config.Config(), db, recipe, notes.append)
    assert entered.conditions.rules.sentences == ("Speak of fire.",)
    assert not any("rules keep" in told.get("note", "") for told in notes)


def test_a_run_enters_believed_rules_as_sentences_and_all_that_stand_as_features(home):
    with store.connect(home.database) as db:
        db.add_rule(Rule(SHORT.text, SHORT.check, status="believed"))
        db.add_rule(Rule("Use a list.", "list = yes", "agent:some", status="proposed"))
        db.add_rule(Rule("Never use a list.", "list = no", "rater:anna", status="proposed"))
        db.add_rule(Rule("Use no emoji.", "emoji = no", status="withdrawn"))
        db.add_rule(Rule(KIND.text, status="believed"))
        found = rule_reading.entry(db, None)
    assert found.sentences == (SHORT.text, KIND.text)
    assert found.features == ((SHORT.text, SHORT.check), ("Use a list.", "list = yes"))
    assert found.judge == ""


def test_a_judge_that_has_not_passed_its_exam_gives_no_features(home):
    with store.connect(home.database) as db:
        db.add_rule(Rule(KIND.text, status="believed"))
        assert rule_reading.entry(db, Judge()).features == ()


def test_the_local_model_judges_no_run_unasked(home):
    with store.connect(home.database) as db:
        assert rule_reading.judge_of(home, config.JudgeSection(), db) is None
        assert (
            rule_reading.judge_of(home, config.JudgeSection(api="openai", url="http://127.0.0.1:9"), db)
            is None
        )
        named = config.JudgeSection(api="openai", url="http://127.0.0.1:9", model="m")
        assert rule_reading.judge_of(home, named, db).name == "m"
