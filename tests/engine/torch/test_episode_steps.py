"""What of a round of episodes is in which optimizer step, and how much the KL weighs there."""

from __future__ import annotations

import contextlib
import dataclasses
from pathlib import Path

import pytest
import torch

from clawback import engine
from clawback.learning import episode_examples as sources
from clawback.learning.episode_examples import Episodes, EpisodeSettings
from clawback.templates.chat_tokens import Encoded
from clawback.trainer import TrainingRun
from clawback.trainer.examples import TrainingExample


def example(start, number):
    return TrainingExample(Encoded((start,), (number, 7)), 1.0, torch.zeros(2), torch.zeros(2))


def source(starts, groups, **settings):
    """In the middle of its first round: hands that begin with these tokens, of these groups."""
    made = Episodes(None, lambda _: (), EpisodeSettings(rounds=2, round_steps=4, **settings), 3)
    made.round = [example(start, number) for number, start in enumerate(starts)]
    made.groups = list(groups)
    return made


def test_a_step_has_episodes_of_many_beginnings():
    made = source([n % 4 for n in range(64)], range(64))
    for step in (1, 2, 3):
        begun = [one.encoded.prompt[0] for one in made.examples(step)]
        assert len(begun) == 16
        assert set(begun) == {0, 1, 2, 3}


def test_tries_at_one_task_are_in_one_step():
    made = source([5] * 32, [n // 8 for n in range(32)])
    seen = [{one.encoded.response[0] // 8 for one in made.examples(step)} for step in (1, 2, 3)]
    assert [len(groups) for groups in seen] == [1, 1, 1]
    assert len(set.union(*seen)) == 3


def test_the_kl_falls_to_its_own_weight_over_the_run():
    made = source(range(8), range(8), kl_start=9.0)
    weights = [float(one.kl_weight[0]) for step in (1, 2, 3) for one in made.examples(step)[:1]]
    assert weights == pytest.approx([8.0, 7.0, 6.0])
    assert [len(one.kl_weight) for one in made.examples(1)] == [2, 2]
    assert made.examples(1)[0].kl_weight.unique().numel() == 1


def test_a_kl_of_one_weight_is_left_to_the_algorithm():
    assert all(one.kl_weight is None for one in source(range(8), range(8), kl_start=1.0).examples(1))


def test_what_an_adapter_has_learned_before_is_not_undone(monkeypatch, tmp_path):
    """The strong KL of the first rounds is to the base: where the run goes on from a version, there is none."""
    seen = []

    class Stop(Exception):
        pass

    def watched(policy, collect, settings, seed):
        seen.append(settings.kl_start)
        raise Stop

    monkeypatch.setattr(sources, "Episodes", watched)
    policy = engine.load("embedded")
    made = engine.episode_recipe(policy.info, rounds=1)
    for move in (False, True):
        if move:
            weight = next(p for name, p in policy.model.named_parameters() if "lora_B" in name)
            with torch.no_grad():
                weight.add_(0.1)
        run = TrainingRun(policy, (), made, out=Path(tmp_path) / str(move))
        with pytest.raises(Stop):
            engine.train_episodes(run, lambda _: (), about={})
    assert seen == [dataclasses.asdict(EpisodeSettings())["kl_start"], 1.0]


def test_the_groups_of_a_round_are_kept():
    before = source([1, 2, 3, 4], [0, 0, 1, 1])
    state = before.state()
    after = source([], [])

    class Nothing:
        choices = None

        def base(self):
            return contextlib.nullcontext()

        def scorer(self, encoded):
            class Scored:
                def split(self):
                    return [torch.zeros(len(e.response)) for e in encoded]

            return Scored()

    after.policy = Nothing()
    after.restore(state)
    assert after.groups == [0, 0, 1, 1]
    assert [e.encoded.prompt for e in after.round] == [e.encoded.prompt for e in before.round]
    assert [e.encoded.response for e in after.examples(1)] == [e.encoded.response for e in before.examples(1)]
