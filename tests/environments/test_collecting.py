"""Rounds of episodes: dealt from the seed, none too old, none played twice, none lost."""

from __future__ import annotations

import pytest

from clawback.errors import ClawbackError, UsageError
from clawback.rollouts.concurrent import Play, Rollouts
from clawback.rollouts.rounds import Collector, Dealing
from tests.environments.worlds import Worlds

PLAY = Play(together=4, max_tokens=3, patience=5.0)


def collect(policy, worlds, rounds=3, groups=2, size=2, staleness=0, **options):
    told = []
    with Rollouts(policy, worlds, PLAY, on_episodes=told.extend) as rollouts:
        collector = Collector(rollouts, Dealing(worlds.tasks("train"), 3, groups, size), staleness, **options)
        return [collector(number) for number in range(rounds)], collector, told


def test_groups_are_tries_at_one_task_from_one_seed_and_every_task_comes_by(policy):
    rounds, _, _ = collect(policy, Worlds())
    for episodes in rounds:
        assert len(episodes) == 4
        for a, b in (episodes[:2], episodes[2:]):
            assert (a.task, a.seed, a.group) == (b.task, b.seed, b.group)
            assert a.branches != b.branches
    tasks = [e.task for episodes in rounds for e in episodes[::2]]
    assert sorted(tasks[:4]) == [f"train-{i}" for i in range(4)]


def test_without_staleness_every_reply_is_of_the_rounds_own_weights(policy):
    rounds, _, _ = collect(policy, Worlds(turns=lambda seed: 1 + seed % 5))
    for number, episodes in enumerate(rounds):
        assert {s.update for e in episodes for s in e.steps} == {number}


def test_staleness_is_bounded_and_what_is_too_old_is_left_out_and_counted(policy):
    worlds = Worlds(turns=lambda seed: 1 + 11 * (seed % 3 == 0), tasks=8)
    rounds, collector, told = collect(policy, worlds, rounds=5, size=1, staleness=1)
    ages = [n - min(s.update for s in e.steps) for n, episodes in enumerate(rounds) for e in episodes]
    assert max(ages) == 1
    assert all(len(episodes) == 2 for episodes in rounds)
    learned = [e.number for episodes in rounds for e in episodes]
    assert len(set(learned)) == len(learned)
    assert collector.stale == len([e for e in told if e.number in collector._used]) - len(learned)


def test_failed_worlds_are_left_out_and_the_round_is_filled_up(policy):
    rounds, collector, _ = collect(
        policy, Worlds(breaks=lambda w, row: w.task.id == "train-1"), size=1, rounds=4
    )
    assert all(len(episodes) == 2 for episodes in rounds)
    assert collector.failed > 0
    assert all(e.status == "completed" for episodes in rounds for e in episodes)


def test_what_was_played_before_an_interruption_is_not_played_again(policy):
    rounds, collector, told = collect(policy, Worlds())
    known = {e.number: e for e in told if e.number >= 4}
    worlds = Worlds()
    with Rollouts(policy, worlds, PLAY) as rollouts:
        again = Collector(
            rollouts,
            Dealing(worlds.tasks("train"), 3, 2, 2),
            0,
            lambda n: {i: known[i] for i in n if i in known},
        )
        again.restore({"used": [0, 1], "missed": 0, "stale": 0, "failed": 0})
        assert [again(1), again(2)] == rounds[1:]
    assert worlds.resets == []
    assert again.state() == collector.state()


def test_nothing_to_play_is_said(policy):
    with pytest.raises(UsageError, match="no tasks"):
        collect(policy, Worlds(tasks=0))
    with pytest.raises(ClawbackError, match=r"environment failed|could not be used in one round"):
        collect(policy, Worlds(breaks=lambda w, row: True))
