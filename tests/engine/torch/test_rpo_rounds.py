"""After the first best answers come the best of the policy's own, round by round, until nothing is left to choose."""

import dataclasses
import math

import pytest
import torch

from clawback import engine
from clawback.sources import distilled
from clawback.sources.distilled import drift, forgotten
from clawback.sources.graded import Grading, GradingSettings
from clawback.sources.rpo_rounds import RpoRounds
from clawback.trainer.run import TrainingRun
from tests.engine.torch.test_rollouts import LikesBullets, rated

SETTINGS = distilled.DistilSettings(
    refine_rounds=2, refine_prompts=8, refine_samples=3, distil_batch=2, least_steps=2, least_relevance=0.0
)


class Likes(LikesBullets):
    """Bulleted lists, until everything is as good."""

    everything = False

    def __call__(self, pairs):
        found = super().__call__(pairs)
        return [1.0 for _ in found] if self.everything else found


@pytest.fixture(scope="module")
def policy():
    return engine.load("embedded")


@pytest.fixture(scope="module")
def samples(policy):
    return rated(policy)


def rounds(policy, samples, settings=SETTINGS, known=None, under=None):
    grader = Likes()
    run = TrainingRun(policy, samples, engine.recipe(policy.info, algorithm="distil"), seed=3, grader=grader)
    grading = Grading(run, GradingSettings(grounding=48), 64)
    asked = list(dict.fromkeys(policy.encode(s).prompt for s in samples))
    grading.ground(asked)
    good = distilled.chosen(grading, grading.base_graded, settings)
    good = good.of(range(len(good.answers))[:known])
    return RpoRounds(grading, good, settings, asked, under=under), grader


def shown(examples):
    return [(one.encoded, one.advantage) for one in examples]


@pytest.mark.slow
def test_a_round_learns_answers_no_worse_than_those_known_before(policy, samples):
    source, _ = rounds(policy, samples)
    known = {prompt: one.reward for prompt, one in source.known.items()}
    first = source.dealt.steps
    learned = [e for step in range(first + 1) for e in source.examples(step)]
    assert source.number == 1
    assert any(e.advantage == 1.0 for e in learned)
    assert all(one.reward >= known.get(one.encoded.question, -math.inf) for one in source.round.answers)
    assert source.steps > first


@pytest.mark.slow
def test_a_run_taken_up_again_goes_on_with_the_same_examples(policy, samples):
    source, _ = rounds(policy, samples)
    steps = range(source.dealt.steps + 2)
    seen = [shown(source.examples(step)) for step in steps]
    again, _ = rounds(policy, samples)
    again.restore(source.state())
    assert shown(again.examples(steps[-1])) == seen[-1]


@pytest.mark.slow
def test_rounds_ask_what_no_good_answer_is_known_to_and_then_the_rest(policy, samples, monkeypatch):
    source, _ = rounds(policy, samples, known=3)
    learned, asked = set(source.known), []
    draw = source.grading.draw
    monkeypatch.setattr(
        source.grading, "draw", lambda prompts, *a: (asked.append(set(prompts)), draw(prompts, *a))[1]
    )
    first, second = source._best_answers(1), source._best_answers(2)
    assert len(asked[0]) == SETTINGS.refine_prompts
    assert not learned & asked[0]
    assert not asked[0] & asked[1] or len(source.prompts) < 2 * SETTINGS.refine_prompts
    assert {one.encoded.question for some in (first, second) for one in some.answers} <= asked[0] | asked[1]
    assert set(source.prompts[-3:]) == learned


@pytest.mark.slow
def test_it_ends_where_its_own_answers_are_as_good(policy, samples):
    source, grader = rounds(policy, samples)
    last = source.dealt.steps
    assert source.examples(last - 1)
    grader.everything = True
    assert source.examples(last) == []


def test_it_ends_after_its_rounds(policy, samples):
    source, _ = rounds(policy, samples, distilled.DistilSettings(refine_rounds=0, least_relevance=0.0))
    assert source.examples(source.steps - 1)
    assert source.examples(source.steps) == []


@pytest.mark.slow
def test_few_prompts_are_not_gone_over_again_and_again(policy, samples):
    settings = dataclasses.replace(SETTINGS, refine_rounds=3)
    assert [settings.rounds(n) for n in (0, 1, 8, 9, 16, 17, 100)] == [0, 1, 1, 2, 2, 3, 3]
    source, _ = rounds(policy, samples, dataclasses.replace(settings, refine_prompts=len(samples)))
    steps = 0
    while source.examples(steps):
        steps += 1
    assert source.number <= source.rounds == 1


def test_with_a_sentence_most_answers_of_a_round_are_drawn_under_it_and_learned_without_it(
    policy, samples, monkeypatch
):
    mark = tuple(policy.tokenizer.encode("Please."))
    source, _ = rounds(policy, samples, under=lambda prompt: (*prompt, *mark))
    drawn, draw = [], source.grading.draw
    monkeypatch.setattr(
        source.grading,
        "draw",
        lambda prompts, each, *a: (drawn.append((prompts, each)), draw(prompts, each, *a))[1],
    )
    best = source._best_answers(1)
    (own, once), (told, twice) = drawn
    assert (once, twice) == (1, SETTINGS.refine_samples - 1)
    assert told == [(*prompt, *mark) for prompt in own]
    assert {one.encoded.question for one in best.answers} <= set(own)


@pytest.mark.slow
def test_a_run_with_a_sentence_goes_on_with_the_same_examples(policy, samples):
    mark = tuple(policy.tokenizer.encode("Please."))
    source, _ = rounds(policy, samples, under=lambda prompt: (*prompt, *mark))
    steps = range(source.dealt.steps + 2)
    seen = [shown(source.examples(step)) for step in steps]
    again, _ = rounds(policy, samples, under=lambda prompt: (*prompt, *mark))
    again.restore(source.state())
    assert shown(again.examples(steps[-1])) == seen[-1]


def test_it_ends_where_the_base_s_own_answers_have_become_unlikely(policy, samples):
    source, _ = rounds(policy, samples)
    assert forgotten(source.grading) == pytest.approx(0.0, abs=1e-4)
    policy.attach(rank=4, alpha=4, seed=1)
    try:
        draw = torch.Generator().manual_seed(3)
        with torch.no_grad():
            for weight in policy.model.parameters():
                if weight.requires_grad:
                    weight.add_(0.5 * torch.randn(weight.shape, generator=draw))
        assert forgotten(source.grading) > SETTINGS.most_forgotten
        assert source.examples(source.dealt.steps) == []
    finally:
        policy.put(None)


def test_in_the_end_the_policy_is_taken_back_to_where_the_base_s_own_answers_are_likely_enough(
    policy, samples
):
    source, _ = rounds(policy, samples)
    allow(source.grading, math.inf)
    policy.attach(rank=4, alpha=4, seed=1)
    try:
        added = {name: weight for name, weight in policy.model.named_parameters() if "lora_B" in name}
        draw = torch.Generator().manual_seed(3)

        def move(by):
            with torch.no_grad():
                for weight in added.values():
                    weight.copy_(by * torch.randn(weight.shape, generator=draw))

        move(1e-4)
        before = {name: weight.clone() for name, weight in added.items()}
        assert source.settle() == ""
        assert all(torch.equal(weight, before[name]) for name, weight in added.items())

        move(2.0)
        before = {name: weight.clone() for name, weight in added.items()}
        assert forgotten(source.grading) > SETTINGS.most_forgotten
        assert "of the change was kept" in source.settle()
        # In bounds, and one part in thirty-two more would not be.
        assert forgotten(source.grading) <= SETTINGS.most_forgotten
        share = {float((w.norm() / before[name].norm()).detach()) for name, w in added.items()}
        assert max(share) - min(share) < 1e-5
        assert 0 < max(share) < 1
        with torch.no_grad():
            for name, weight in added.items():
                weight.copy_(before[name] * (max(share) + 1 / 32))
        assert forgotten(source.grading) > SETTINGS.most_forgotten
    finally:
        policy.put(None)


def test_answers_that_drifted_further_than_the_gate_allows_are_taken_back(policy, samples):
    source, _ = rounds(policy, samples)
    source.settings = dataclasses.replace(source.settings, most_forgotten=math.inf)
    policy.attach(rank=4, alpha=4, seed=1)
    try:
        draw = torch.Generator().manual_seed(3)
        with torch.no_grad():
            for name, weight in policy.model.named_parameters():
                if "lora_B" in name:
                    weight.copy_(0.6 * torch.randn(weight.shape, generator=draw))
        nats, tokens = drift(source.grading)
        assert nats > 0.1
        assert tokens >= 1
        allow(source.grading, 2 * nats)
        assert source.settle() == ""
        allow(source.grading, nats / 2)
        assert "drifted" in source.settle()
        assert drift(source.grading)[0] < 0.75 * nats
    finally:
        policy.put(None)


def allow(grading, nats):
    """Let the gate accept so many nats an answer, however long."""
    recipe = grading.recipe
    grading.recipe = dataclasses.replace(
        recipe, conditions=dataclasses.replace(recipe.conditions, drift=(nats, 0.0))
    )
