"""The words that ratings speak for teach the base: which they are, what is taught, and when nothing is."""

import dataclasses

import numpy as np
import pytest
import torch

from clawback import engine
from clawback.features.word_meanings import WordMeanings
from clawback.rewards.views import MEANINGS
from clawback.sources import distillation_plan
from clawback.sources.distilled import DistilSettings
from clawback.sources.graded import Grading, GradingSettings
from clawback.sources.guided import GuidedRounds
from clawback.sources.instructed import PromptMessages
from clawback.sources.targets import DirectEvidence
from clawback.sources.word_guide import THRESHOLD, word_guide
from tests.engine.torch.test_distilled import run_for
from tests.engine.torch.test_rollouts import rated

TOPICS = (
    "otters",
    "Sydney",
    "bread",
    "chess",
    "rivers",
    "Rome",
    "bees",
    "tea",
    "trains",
    "the moon",
    "cats",
    "rain",
)


@pytest.fixture(scope="module")
def policy():
    return engine.load("embedded")


@pytest.fixture(scope="module")
def conversations(policy):
    asked = [({"role": "user", "content": f"Tell me about {one}."},) for one in TOPICS]
    return PromptMessages({tuple(policy.chat.prompt(one, policy.max_prompt)): one for one in asked})


def grading_of(policy, conversations, likes):
    """A reader of somebody who likes answers by their token ids, and the answers that they rated. ``likes(answers)`` → ``[n]`` of bool."""
    grading = Grading(run_for(policy, rated(policy)), GradingSettings(grounding=48), 64)
    prompts = list(conversations.messages)
    with policy.base():
        drawn = grading.draw(prompts, 4, grading.generator(5, 1)).answers
    grading.learn(prompts, drawn, np.where(likes(drawn), 1.0, -1.0))
    return grading, drawn


@pytest.fixture(scope="module")
def word(policy, conversations):
    """The rarest of the words that two answers have."""
    _, drawn = grading_of(policy, conversations, by_chance)
    every, counts = np.unique(np.concatenate([np.unique(one.response) for one in drawn]), return_counts=True)
    words = every[policy.word_vectors(every).any(axis=1) & (counts >= 2)]
    return int(words[-1])


def by_field(policy, word):
    """Likes the two fifths of the answers whose words are nearest in meaning to a word."""

    def likes(answers):
        ids = [one.response for one in answers]
        meanings = WordMeanings.of(ids, policy.word_vectors)
        near = meanings(ids) @ meanings.table(np.array([word]))[0]
        return near > np.quantile(near, 0.6)

    return likes


def by_chance(answers):
    return np.random.default_rng(3).random(len(answers)) < 0.5


def test_the_words_that_are_liked_become_likelier_and_are_named(policy, conversations, word):
    grading, drawn = grading_of(policy, conversations, by_field(policy, word))
    guide = word_guide(grading, drawn)
    assert guide is not None
    assert policy.tokenizer.decode([word]).strip().lower() in guide.words
    head = policy.scorer.head
    [states] = guide.states(grading, grading.base[:1], grading.base_seen.of([0]).states)
    plain = grading.base_seen.states[0]
    taught, before = ((one @ head.weight.T * head.scale).log_softmax(-1) for one in (states, plain))
    gain = (taught - before).mean(0)
    assert gain[word] > 0.3
    common = [
        token for token in set(grading.base[0].response) if not policy.word_vectors(np.array([token])).any()
    ]
    assert gain[common].abs().max() < gain[word] / 2, "what is no word stays as likely as it was"


def test_the_shift_is_a_weighted_least_squares_of_what_is_liked(policy, conversations, word):
    grading, drawn = grading_of(policy, conversations, by_field(policy, word))
    guide = word_guide(grading, drawn)
    reader, head = grading.ensemble, policy.scorer.head
    x, y = reader.kernels.rated[MEANINGS], reader.kernels.ratings
    x, y = x - x.mean(0), y - y.mean()
    ridge = np.trace(x @ x.T) / len(x)
    weights = np.linalg.solve(x.T @ x + ridge * np.eye(x.shape[1]), x.T @ y)  # the primal form
    vocabulary = np.arange(len(head.weight))
    counts = np.bincount(
        [t for one in [*grading.base, *drawn] for t in one.response], minlength=len(vocabulary)
    )
    worth = reader.views.meanings.table(vocabulary) @ (weights / reader.views.standards[MEANINGS].spread)
    worth = np.clip(worth / worth[(counts > 0) & (worth != 0)].std(), -4, 4)
    wanted = np.sign(worth) * np.maximum(np.abs(worth) - THRESHOLD, 0)
    rows = np.hstack([head.weight.detach().double().numpy() * head.scale, np.ones((len(vocabulary), 1))])
    often = np.sqrt(np.sqrt(counts) + 0.05)[:, None]
    left = np.vstack([rows * often, np.zeros((rows.shape[1], rows.shape[1]))])
    size = 1e-3 * np.square(rows * often).sum() / rows.shape[1]
    left[len(rows) :] = np.sqrt(size) * np.eye(rows.shape[1])
    right = np.concatenate([wanted * often[:, 0], np.zeros(rows.shape[1])])
    expected = np.linalg.lstsq(left, right, rcond=None)[0][:-1]
    np.testing.assert_allclose(guide.shift.numpy(), expected, rtol=2e-2, atol=2e-3 * np.abs(expected).max())


def test_ratings_by_chance_speak_for_no_words(policy, conversations):
    assert word_guide(*grading_of(policy, conversations, by_chance)) is None


def test_length_is_not_taught_by_words(policy, conversations):
    def longer(answers):
        lengths = [len(one.response) for one in answers]
        return np.array(lengths) > np.median(lengths)

    assert word_guide(*grading_of(policy, conversations, longer)) is None


def test_a_model_whose_head_is_unknown_is_not_taught(policy, conversations, word, monkeypatch):
    grading, drawn = grading_of(policy, conversations, by_field(policy, word))
    monkeypatch.setattr(policy.scorer, "fused_head", False)
    assert word_guide(grading, drawn) is None


def planned(policy, conversations, word, monkeypatch, **settings):
    """What is planned where no sentence helps."""
    monkeypatch.setattr(distillation_plan, "search", lambda *_, **__: [])
    grading, _ = grading_of(policy, conversations, by_field(policy, word))
    run = run_for(policy, rated(policy))
    run = dataclasses.replace(
        run, recipe=dataclasses.replace(run.recipe, extra={**run.recipe.extra, **settings})
    )
    grading.recipe = run.recipe
    return distillation_plan.distil(grading, conversations, [], run, DirectEvidence())


def test_a_run_teaches_words_where_no_sentence_helps(policy, conversations, word, monkeypatch):
    policy.put(None)
    policy.attach(rank=8, alpha=8, seed=0)
    made = planned(policy, conversations, word, monkeypatch, refine_prompts=8)
    assert isinstance(made.source, GuidedRounds)
    assert made.instruction == ""
    assert repr(policy.tokenizer.decode([word]).strip().lower()) in made.note
    assert made.source.rounds == DistilSettings().word_rounds
    examples = made.source.examples(0)
    assert examples
    assert all(one.base is not None and one.advantage == 0 for one in examples)


def test_it_can_be_switched_off(policy, conversations, word, monkeypatch):
    made = planned(policy, conversations, word, monkeypatch, word_rounds=-1)
    assert made is None or not isinstance(made.source, GuidedRounds)


def test_an_adapter_learns_the_words(policy, conversations, word):
    from clawback.trainer.examples import Shared, measure

    grading, drawn = grading_of(policy, conversations, by_field(policy, word))
    guide = dataclasses.replace(word_guide(grading, drawn), strength=2.0)
    policy.put(None)
    policy.attach(rank=8, alpha=8, seed=0)
    settings = dataclasses.replace(DistilSettings.of(grading.recipe), distil_batch=8)
    source = GuidedRounds(grading, guide, grading.base[:16], settings, [])
    examples = [one for step in range(source.dealt.steps) for one in source.examples(step)][:8]
    optimizer = torch.optim.AdamW([p for p in policy.model.parameters() if p.requires_grad], lr=3e-3)
    seen = []
    for _ in range(12):
        loss = measure(policy.scorer, examples, Shared.of(examples, cover=1.0)).exact_kl.mean()
        seen.append(loss.item())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    assert seen[-1] < 0.7 * seen[0]
