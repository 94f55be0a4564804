"""The base that is told a sentence teaches the base that is not: what its states mean, how strong it may be, and that it is learned from."""

import dataclasses
from functools import partial

import pytest
import torch

from clawback import engine
from clawback.sources import distilled, guided
from clawback.sources.guided import GuidedRounds, SentenceGuide, strongest
from clawback.trainer.examples import Shared, measure
from tests.engine.torch.test_distilled import grading_for
from tests.engine.torch.test_rollouts import rated

SENTENCE = "Answer with a bulleted list."


@pytest.fixture(scope="module")
def setting():
    policy = engine.load("embedded")
    grading, conversations = grading_for(policy, rated(policy))
    return grading, partial(conversations.under, grading)


@pytest.fixture(autouse=True)
def _fresh_adapter(setting):
    policy = setting[0].policy
    policy.put(None)
    policy.attach(rank=8, alpha=8, seed=0)


@torch.no_grad()
def next_tokens(policy, prompt, response):
    """``[T, V]`` log-probs of the base itself, by its own forward pass."""
    with policy.base():
        logits = policy.model(input_ids=torch.tensor([[*prompt, *response]])).logits[0, len(prompt) - 1 : -1]
    return (logits.double() / policy.scorer.temperature).log_softmax(-1)


def teacher(grading, under, strength, one):
    """``[T, V]`` log-probs of the teacher at each position of an answer, by the equation."""
    plain, told, neutral = (
        next_tokens(grading.policy, prompt, one.response)
        for prompt in (one.question, under(one.question, SENTENCE), under(one.question, guided.NEUTRAL))
    )
    return (plain + strength * (told - neutral)).log_softmax(-1)


@pytest.mark.parametrize("strength", [1.0, 2.5])
def test_the_teacher_takes_what_the_sentence_changes_further(setting, strength):
    grading, under = setting
    one = grading.base[0]
    guide = SentenceGuide(strength, under, SENTENCE)
    [states] = guide.states(grading, [one], grading.base_seen.of([0]).states)
    head = grading.policy.scorer.head
    shown = (states @ head.weight.T * head.scale).double().log_softmax(-1)
    torch.testing.assert_close(shown, teacher(grading, under, strength, one), atol=2e-3, rtol=1e-3)


def test_a_neutral_sentence_changes_nothing(setting):
    grading, under = setting
    guide = SentenceGuide(3.0, under, guided.NEUTRAL)
    plain = grading.base_seen.of([0]).states
    [states] = guide.states(grading, grading.base[:1], plain)
    torch.testing.assert_close(states, plain[0])


def lost(grading, under, strength, places):
    """Nats a token that the base's own answers lose under the teacher."""
    before = torch.cat([grading.base_seen.ref[i] for i in places]).double()
    after = [
        teacher(grading, under, strength, one).gather(1, torch.tensor(one.response)[:, None])[:, 0]
        for one in (grading.base[i] for i in places)
    ]
    return float((before - torch.cat(after)).mean())


def test_it_is_as_strong_as_a_run_may_forget_and_no_stronger(setting):
    grading, under = setting
    places, guide = list(range(8)), SentenceGuide(1.0, under, SENTENCE)
    most = lost(grading, under, 1.5, places) + 1e-3
    within = strongest(guide, grading, places, most)
    assert within is not None
    assert within.strength >= 1.5
    assert lost(grading, under, within.strength, places) <= most + 1e-3
    stronger = [one for one in guided.STRENGTHS if one > within.strength]
    assert not stronger or lost(grading, under, stronger[0], places) > most - 1e-3
    assert strongest(guide, grading, places, -1.0) is None


def source_for(grading, under, **settings):
    settings = dataclasses.replace(distilled.DistilSettings.of(grading.recipe), **settings)
    prompts = list(dict.fromkeys(one.question for one in grading.base))
    return GuidedRounds(grading, SentenceGuide(1.5, under, SENTENCE), grading.base[:12], settings, prompts)


def first_round_of(source):
    return [one for step in range(source.dealt.steps) for one in source.examples(step)]


def test_steps_towards_the_teacher_bring_the_policy_nearer(setting):
    grading, under = setting
    policy = grading.policy
    source, head = source_for(grading, under), policy.scorer
    examples = first_round_of(source)
    assert {one.encoded for one in examples} == set(grading.base[:12])
    parameters = [p for p in policy.model.parameters() if p.requires_grad]
    optimizer, seen = torch.optim.AdamW(parameters, lr=3e-3), []
    for _ in range(12):
        batch = measure(head, examples[:8], Shared.of(examples[:8], cover=1.0))
        loss = batch.exact_kl.mean()
        seen.append(loss.item())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    assert seen[-1] < 0.7 * seen[0]


def test_a_round_teaches_along_the_policys_own_answers_to_other_prompts(setting):
    grading, under = setting
    source = source_for(grading, under, guided_rounds=2, refine_prompts=4)
    first = first_round_of(source)
    seconds = first_of(source, len(first) // source.settings.distil_batch)
    assert len(seconds) == 4
    assert not {one.encoded for one in seconds} & {one.encoded for one in first}
    assert all(one.base is not None for one in seconds)


def first_of(source, step):
    """The examples of the round that begins at this step."""
    examples = list(source.examples(step))
    return examples + [one for i in range(1, source.dealt.steps) for one in source.examples(step + i)]


def test_no_round_follows_where_too_much_is_forgotten(setting):
    grading, under = setting
    source = source_for(grading, under, guided_rounds=2, refine_prompts=4, most_forgotten=-1.0)
    assert source.examples(source.dealt.steps - 1)
    assert source.examples(source.dealt.steps) == []


def test_a_source_that_is_taken_up_again_in_a_round_teaches_the_same(setting):
    grading, under = setting
    source = source_for(grading, under, guided_rounds=1, refine_prompts=12)
    step = source.dealt.steps
    source.examples(step)
    again = source_for(grading, under, guided_rounds=1, refine_prompts=12)
    again.restore(source.state())
    for one, other in zip(source.examples(step + 1), again.examples(step + 1), strict=True):
        assert one.encoded == other.encoded
        torch.testing.assert_close(one.base, other.base)


def test_a_model_whose_head_is_unknown_has_no_such_teacher(setting, monkeypatch):
    grading, under = setting
    monkeypatch.setattr(grading.policy.scorer, "fused_head", False)
    assert strongest(SentenceGuide(1.0, under, SENTENCE), grading, [0, 1], 9.0) is None
