"""Episodes and ratings in the same steps."""

from __future__ import annotations

import dataclasses
import random

import pytest
import torch

pytest.importorskip("peft")

from clawback import engine
from clawback.errors import TrainingError, UsageError
from clawback.extensions.demo import corpus, tastes
from clawback.models.types import Sampling
from clawback.records import Sample
from clawback.rollouts.concurrent import Play, Rollouts
from clawback.rollouts.rounds import Collector, Dealing
from clawback.trainer import TrainingRun
from tests.environments.worlds import Worlds

SMALL = {"rounds": 2, "round_steps": 2, "prompts": 2, "samples": 3, "grounding": 32}


def said(count=12, reward=None):
    taste, rng = tastes.TASTES["bullets"], random.Random(0)
    made = []
    for number, prompt in enumerate(corpus.prompts("rated", count, 0), 1):
        text = corpus.answer(corpus.BY_NAME[prompt.topic], corpus.random_style(rng), rng)
        rating = float(taste.rate(prompt, text, rng, 0.0)) if reward is None else reward
        made.append(Sample(turn_id=number, messages=tuple(prompt.messages), response=text, reward=rating))
    return made


def train(tmp_path, ratings, **changes):
    policy = engine.load("embedded")
    policy.sampling = Sampling(1.0)
    recipe = dataclasses.replace(engine.episode_recipe(policy.info, **SMALL), **changes)
    worlds = Worlds(turns=2)
    with Rollouts(policy, worlds, Play(together=8, max_turns=2, max_tokens=3)) as rollouts:
        collector = Collector(rollouts, Dealing(worlds.tasks("train"), 1, 4))
        run = TrainingRun(policy, ratings, recipe, seed=1, out=tmp_path)
        return engine.train_episodes(run, collector, about={})


@pytest.mark.slow
def test_each_step_has_its_share_of_both(tmp_path, monkeypatch):
    from clawback.learning.episode_run import EpisodesBeside

    seen, real = [], EpisodesBeside.examples

    def looked_at(self, step):
        found = real(self, step)
        # What was drawn cannot be drawn again with other weights, so it is the state.
        before = [*self.episodes.round, *self.rated.round]
        self.restore(self.state())
        after = [*self.episodes.round, *self.rated.round]
        assert [one.encoded for one in after] == [one.encoded for one in before]
        assert all(torch.equal(a.old, b.old) for a, b in zip(after, before, strict=True))
        seen.append(found)
        return found

    monkeypatch.setattr(EpisodesBeside, "examples", looked_at)
    made = train(tmp_path, said())
    assert made.turn_ids == tuple(range(1, 13))
    assert len(seen) == 4
    held = []
    for step in seen:
        played = [one for one in step if one.mask is not None]
        graded = [one for one in step if one.mask is None]
        assert played
        assert graded
        assert all(float(one.kl_weight.min()) > 1 for one in graded)  # held as in a run on ratings
        held.append({float(weight) for one in played for weight in one.kl_weight})
        assert all(len(one.token_advantages) == len(one.encoded.response) for one in step)
    # That of the episodes is the same for all in a step, and falls.
    assert [len(weights) for weights in held] == [1, 1, 1, 1]
    assert [max(weights) for weights in held] == pytest.approx([100.0, 75.25, 50.5, 25.75])
    assert all({"return", "rated"} <= row.keys() for row in made.history)


def test_ratings_that_are_all_alike_are_refused(tmp_path):
    with pytest.raises(TrainingError, match="can be graded, and has none"):
        train(tmp_path, said(reward=1.0))


def test_other_algorithms_are_refused(tmp_path):
    with pytest.raises(UsageError, match="for grpo"):
        train(tmp_path, said(), algorithm="reinforce")
