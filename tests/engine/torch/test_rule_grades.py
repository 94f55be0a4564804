"""Grades by rules: what answers are worth to somebody whose ratings say nothing that can be read."""

import dataclasses

import numpy as np
import pytest

pytest.importorskip("peft")

from clawback import engine
from clawback.errors import TrainingError
from clawback.sources import plan
from clawback.sources import rule_grades as module
from clawback.sources.first_reading import Inputs
from clawback.sources.graded import Grading, GradingSettings
from clawback.sources.instructed import PromptMessages, answer_after
from clawback.sources.rule_grades import MOST, UNIT, RuleGrades, rule_grades
from clawback.sources.targets import DirectEvidence
from clawback.templates.chat_tokens import Encoded
from clawback.trainer import RunConditions, RunRules
from clawback.trainer.run import TrainingRun
from tests.engine.torch.test_rollouts import recipe_for
from tests.engine.torch.test_targets import tapped, unreadable, user

TWELVE = "Answer in twelve words or more."
NUMBERS = "Give a number."


def is_kept(text):
    return len(text.split()) >= 12


def judge(_, answers):
    """[S, 1]: whether an answer has twelve words; nan for an empty one."""
    return np.array([[np.nan if not text else float(is_kept(text))] for text in answers])


@pytest.fixture
def policy():
    fresh = engine.load("embedded")
    fresh.attach(rank=8, alpha=8, seed=0)
    return fresh


def with_rules(policy, sentences=(TWELVE,), features=((TWELVE, ""),)):
    rules = RunRules(tuple(sentences), tuple(features))
    return dataclasses.replace(recipe_for(policy), conditions=RunConditions(rules=rules))


def spoken(*remarks):
    """Feedback of remarks alone."""
    return Inputs((), (), (), np.zeros(0), (), remarks, RunRules(), DirectEvidence())


def grading_of(policy, run, count=3):
    """What grades, and conversations with answers of the base."""
    asked = {
        tuple(policy.chat.prompt(user(f"Tell me about otter {i}."), policy.max_prompt)): user(
            f"Tell me about otter {i}."
        )
        for i in range(count)
    }
    grading = Grading(
        run, GradingSettings(), 24, {prompt: said[0]["content"] for prompt, said in asked.items()}
    )
    grading.base = [Encoded(prompt, tuple(policy.tokenizer("They swim.")["input_ids"])) for prompt in asked]
    return grading, PromptMessages(asked)


@pytest.mark.slow
def test_ratings_without_a_pattern_are_learned_from_by_the_rules_that_the_person_said(policy):
    samples, recipe = unreadable(), with_rules(policy)
    without = plan.plan(TrainingRun(policy, samples, recipe_for(policy), seed=1))
    assert without.name == "reinforce"
    by_rules = plan.plan(TrainingRun(policy, samples, recipe, seed=1, judge=judge))
    assert f"by what was said in words ({TWELVE!r})" in by_rules.note
    grades = by_rules.source.grading.base_graded
    texts = by_rules.source.grading.texts([one.encoded for one in grades])
    assert all((one.reward > 0) == is_kept(text) for one, text in zip(grades, texts, strict=True) if text)
    assert {one.reward > 0 for one in grades} == {True, False}, sorted(len(text.split()) for text in texts)
    assert not by_rules.source.grading.unread_words, "a judge tells the worst"


def test_what_nobody_can_check_is_learned_against_the_base(policy, monkeypatch):
    """Nothing is drawn beyond the base's answers: what distils is looked at as it begins."""
    seen = []
    monkeypatch.setattr(plan, "distil", lambda grading, *_: seen.append(grading.unread_words))
    for hints in ((), ("Say less of rivers.",)):
        samples = [dataclasses.replace(one, hints=hints) for one in unreadable()]
        recipe = engine.recipe(policy.info, algorithm="distil")
        with pytest.raises(TrainingError, match="Nothing can be distilled"):
            plan.plan(TrainingRun(policy, samples, recipe, seed=1))
    assert seen == [False, True]


def test_a_rule_without_a_verdict_counts_by_the_words_that_it_makes_likelier(policy, monkeypatch):
    monkeypatch.setattr(module, "TELLING", 3)
    run = TrainingRun(policy, [], recipe_for(policy))
    grading, conversations = grading_of(policy, run)
    grades = RuleGrades(grading, conversations, [NUMBERS], None, [], [NUMBERS], base=(0.01, 0.5))
    texts = ["There are 7 of them.", "- a bird\n- eats fish", "They swim."]
    prompts = list(conversations.messages)
    answers = [
        Encoded(prompt, tuple(policy.tokenizer(text)["input_ids"]))
        for prompt, text in zip(prompts, texts, strict=True)
    ]
    expected = []
    for prompt, one in zip(prompts, answers, strict=True):
        values = []
        for ids in (prompt, conversations.under(grading, prompt, NUMBERS)):
            with policy.base():
                values.append(policy.scorer([Encoded(ids, one.response)]).logprobs.double().numpy())
        most = np.sort(values[1] - values[0])[-3:].mean()
        expected.append(np.clip(UNIT * (most - 0.01) / 0.5, -1, 1))
    assert grades(answers, [("", text) for text in texts]) == pytest.approx(expected, abs=1e-5)


def test_verdicts_and_likelihoods_count_a_rule_each_and_what_is_not_judged_counts_nothing(policy):
    run = TrainingRun(policy, [], recipe_for(policy), judge=judge)
    grading, conversations = grading_of(policy, run)
    grades = RuleGrades(grading, conversations, [TWELVE], judge, [0], [])
    answers = grading.base
    assert grades(answers, [("", " ".join("abcdefghijkl")), ("", "b"), ("", "")]).tolist() == [1.0, -1.0, 0.0]


def test_a_model_too_small_to_be_told_has_rules_with_verdicts_alone(policy):
    run = TrainingRun(policy, [tapped(1, "x", 1.0)], with_rules(policy, (TWELVE, NUMBERS)), judge=judge)
    grading, conversations = grading_of(policy, run)
    made = rule_grades(grading, conversations, run, spoken("Say less."))
    assert made is not None
    assert (made.columns, made.unchecked, list(made.sentences)) == ([0], [], [TWELVE])
    assert (
        rule_grades(grading, conversations, dataclasses.replace(run, judge=None), spoken("Say less.")) is None
    )
    read = rule_grades(grading, conversations, run, spoken("Say less."), verdicts=False)
    assert read is None, "where the reader looks at verdicts, they count once"


def test_a_larger_model_is_told_the_newest_remarks_beside_the_rules(policy, monkeypatch):
    run = TrainingRun(policy, [], with_rules(policy), judge=judge)
    grading, conversations = grading_of(policy, run)
    monkeypatch.setattr(policy, "info", dataclasses.replace(policy.info, total_parameters=200_000_000))
    made = rule_grades(grading, conversations, run, spoken(*(f"Remark {i}." for i in range(9))))
    assert made is not None
    assert list(made.sentences) == [TWELVE, "Remark 8.", "Remark 7.", "Remark 6."]
    assert len(made.sentences) == MOST


def test_what_was_said_in_words_counts_however_the_base_s_answers_were_rated(policy, monkeypatch):
    """Ratings of answers that hardly ever do what was asked for say nothing of those that do."""
    run = TrainingRun(policy, [], with_rules(policy))
    grading, conversations = grading_of(policy, run)
    monkeypatch.setattr(policy, "info", dataclasses.replace(policy.info, total_parameters=200_000_000))
    grades = []
    for rewards in ([1.0, -1.0, -1.0], [-1.0, -1.0, 1.0], [-1.0] * 3):
        inputs = dataclasses.replace(spoken("Say less."), rated=grading.base[:3], rewards=np.array(rewards))
        made = rule_grades(grading, conversations, run, inputs)
        grades.append(made(grading.base, [("", "")] * len(grading.base)).tolist())
    assert grades[0] == grades[1] == grades[2]
    assert len(set(grades[0])) > 1


def test_another_form_of_the_prompt_leaves_the_thought_before_the_answer():
    answer = Encoded((1, 2, 8, 9), (5, 6), thought=2, starts=(0,))
    other = answer_after(answer, (1, 2, 3))
    assert other == dataclasses.replace(answer, prompt=(1, 2, 3, 8, 9))
    assert other.question == (1, 2, 3)
