"""Imagined answers are graded by head or grader and the terms beside them; what was said alone is what the head learns."""

import dataclasses

import numpy as np
import pytest

pytest.importorskip("peft")

from clawback import engine
from clawback.extensions.reward.answer_checks import Regex
from clawback.rewards.composite import Weights
from clawback.rewards.terms import RewardTerms
from clawback.sources import plan
from clawback.trainer.run import TrainingRun
from tests.engine.torch.test_rollouts import SMALL, LikesBullets, rated, recipe_for

LISTS = RewardTerms(Weights(0.5, 0.5, 0.0, 0.0, 0.0), (Regex(r"(?m)^- "),))


@pytest.fixture(scope="module")
def samples():
    return rated(engine.load("embedded"), taste="metric units")


@pytest.fixture
def policy():
    fresh = engine.load("embedded")
    fresh.attach(rank=8, alpha=8, seed=0)
    return fresh


def made_up(policy, samples, terms):
    return [terms.of(s, len(policy.encode(s).response)) for s in samples]


@pytest.mark.slow
def test_head_and_verifier_together(policy, samples):
    plain = plan.plan(TrainingRun(policy, samples, recipe_for(policy, "rollouts"), seed=3)).source
    source = plan.plan(
        TrainingRun(
            policy, made_up(policy, samples, LISTS), recipe_for(policy, "rollouts"), seed=3, terms=LISTS
        )
    ).source
    np.testing.assert_allclose(
        source.grading.ensemble.kernels.alphas, plain.grading.ensemble.kernels.alphas, atol=1e-9
    )
    answers, ended = source.grading.base, source.grading.base_ended
    hidden = source.grading.look(answers).hidden
    texts = [policy.tokenizer.decode(a.response, skip_special_tokens=True) for a in answers]
    lists = np.array([any(line.startswith("- ") for line in text.splitlines()) for text in texts])
    assert 0 < lists.sum() < len(lists)
    ends = [True] * len(answers)
    np.testing.assert_allclose(
        source.grading.grade(answers, hidden, ends),
        0.5 * plain.grading.grade(answers, hidden, ends) + 0.5 * np.where(lists, 1, -1),
        atol=1e-6,
    )
    cut = source.grading.grade(answers, hidden, ends) - source.grading.grade(answers, hidden, ended)
    np.testing.assert_allclose(cut, plan.GradingSettings.cut_off * ~np.array(ended))


def test_beside_a_grader_too_and_it_reads_the_persons_words(policy, samples):
    asked = []

    @dataclasses.dataclass(frozen=True)
    class Asks:
        name = "asks"

        def __call__(self, prompt, response):
            asked.append((prompt, response))
            return 1.0

    grader = LikesBullets()
    terms = RewardTerms(Weights(0.5, 0.5, 0.0, 0.0, 0.0), (Asks(),))
    made = plan.plan(TrainingRun(policy, samples, recipe_for(policy), seed=3, grader=grader, terms=terms))
    assert asked == grader.shown
    assert {prompt for prompt, _ in asked} <= {s.messages[-1]["content"] for s in samples}
    assert made.source.grading.usual <= 1.0


def test_where_nothing_can_be_imagined_the_rewards_that_add_up_are_learned_from(policy, samples):
    liked = [dataclasses.replace(s, reward=1.0) for s in samples]
    made = made_up(policy, liked, LISTS)
    made = plan.plan(TrainingRun(policy, made, recipe_for(policy), terms=LISTS))
    assert made.name == "reinforce"
    examples = [e for step in range(made.source.steps) for e in made.source.examples(step)]
    assert {e.reward for e in examples} == {0.0, 1.0}


@pytest.mark.slow
def test_what_a_run_was_made_with_is_kept_and_is_part_of_which_run_it_is(policy, samples, tmp_path):
    recipe = dataclasses.replace(recipe_for(policy, "rollouts"), extra={**SMALL, "rounds": 1})
    made = made_up(policy, samples, LISTS)
    marks = {
        TrainingRun(policy, made, recipe, terms=terms).fingerprint()
        for terms in (None, LISTS, RewardTerms(Weights()))
    }
    assert len(marks) == 3
    result = engine.train(policy, made, recipe, seed=1, out=tmp_path, terms=LISTS)
    kept = {row["turn"]: row for row in result.rewards}
    for sample in made:
        assert kept[sample.turn_id]["reward"] == sample.reward
        assert kept[sample.turn_id]["terms"]["feedback"] == ((sample.feedback_value + 1) / 2, 0.5)
    again = engine.train(policy, made, recipe, seed=1, out=tmp_path, terms=LISTS)
    assert [row["turn"] for row in again.rewards] == list(kept)


@pytest.mark.slow
def test_a_policy_learns_what_a_verifier_wants(policy, samples):
    """The ratings are about units alone; lists are what the verifier asks for."""
    terms = RewardTerms(Weights(0.2, 0.8, 0.0, 0.0, 0.0), LISTS.verifiers)
    asked = [s.messages for s in samples[:12]]

    def lists():
        answers = policy.generate(asked, samples=4, seed=5)
        return np.mean([LISTS.verifiers[0]("", one.text) for group in answers for one in group])

    from clawback.trainer.torch_learner import TorchLearner
    from clawback.trainer.training_loop import LoopSettings, fit

    before = lists()
    recipe = recipe_for(policy, "rollouts", rounds=6, prompts=6, samples=6)
    made = plan.plan(TrainingRun(policy, made_up(policy, samples, terms), recipe, seed=3, terms=terms))
    settings = LoopSettings(learning_rate=made.rate, cover=made.cover, decay=True)
    fit(TorchLearner(policy, settings), made.source, made.algorithm, settings)
    assert lists() > before + 0.2
