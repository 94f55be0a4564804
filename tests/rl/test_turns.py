"""Advantages of turns, against loops that say the same slowly."""

from __future__ import annotations

import math

import pytest
import torch
from hypothesis import example, given
from hypothesis import strategies as st

from clawback.rl import turn_advantages
from clawback.rl.turn_advantages import AdvantageSettings

EPISODES = st.lists(
    st.tuples(
        st.integers(0, 2),
        st.lists(st.floats(-2, 2, width=32).map(lambda x: round(x, 3)), min_size=1, max_size=5),
    ),
    min_size=1,
    max_size=6,
)


def laid(episodes):
    rewards = torch.tensor([r for _, rs in episodes for r in rs])
    episode = torch.tensor([n for n, (_, rs) in enumerate(episodes) for _ in rs])
    group = torch.tensor([g for g, rs in episodes for _ in rs])
    return rewards, episode, group


def rows(flat, episodes):
    return [part.tolist() for part in flat.split([len(rs) for _, rs in episodes])]


@given(EPISODES, st.floats(0, 1))
def test_returns_are_what_each_turn_and_all_after_it_brought(episodes, gamma):
    rewards, episode, group = laid(episodes)
    slow = []
    for _, rs in episodes:
        slow += [sum(gamma**k * r for k, r in enumerate(rs[i:])) for i in range(len(rs))]
    expected = torch.tensor(slow)
    expected = expected - expected.mean()
    found = turn_advantages.advantages(
        rewards, episode, group, AdvantageSettings("returns", gamma, scale=False)
    )
    torch.testing.assert_close(found, expected, atol=1e-4, rtol=1e-4)


@given(EPISODES, st.floats(0, 1), st.floats(0, 1))
def test_gae_over_turns_is_the_sum_of_discounted_errors(episodes, gamma, lam):
    rewards, episode, group = laid(episodes)
    values = torch.sin(torch.arange(len(rewards)).float())
    slow, at = [], 0
    for _, rs in episodes:
        v = [*values[at : at + len(rs)].tolist(), 0.0]
        at += len(rs)
        deltas = [r + gamma * v[i + 1] - v[i] for i, r in enumerate(rs)]
        slow += [sum((gamma * lam) ** k * d for k, d in enumerate(deltas[i:])) for i in range(len(rs))]
    found = turn_advantages.advantages(
        rewards, episode, group, AdvantageSettings("gae", gamma, lam, scale=False), values
    )
    torch.testing.assert_close(found, torch.tensor(slow), atol=1e-4, rtol=1e-4)


@given(EPISODES)
@example([(0, [2.0, 1.027])] * 3)
def test_group_counts_each_episode_once(episodes):
    rewards, episode, group = laid(episodes)
    sums = [sum(rs) for _, rs in episodes]
    for found, (g, rs), own in zip(
        rows(turn_advantages.advantages(rewards, episode, group, AdvantageSettings("group")), episodes),
        episodes,
        sums,
        strict=True,
    ):
        others = [s for s, (h, _) in zip(sums, episodes, strict=True) if h == g]
        mean = sum(others) / len(others)
        spread = math.sqrt(sum((o - mean) ** 2 for o in others) / len(others))
        # Sums are of float32: what is lost in the last bits is divided by the spread, too.
        lost = 4 * 2**-23 * max(1.0, *(sum(map(abs, rs)) for _, rs in episodes)) / (spread + 1e-4)
        assert found == pytest.approx([(own - mean) / (spread + 1e-4)] * len(rs), abs=2e-3 + lost, rel=2e-3)


@given(EPISODES)
def test_step_wise_is_a_z_score_among_the_same_place_of_the_same_task(episodes):
    rewards, episode, group = laid(episodes)
    place = turn_advantages.places(episode)
    assert place.tolist() == [i for _, rs in episodes for i in range(len(rs))]
    found, says = turn_advantages.step_wise(rewards, group, place)
    for i in range(len(rewards)):
        bucket = [
            float(rewards[j]) for j in range(len(rewards)) if group[j] == group[i] and place[j] == place[i]
        ]
        mean = sum(bucket) / len(bucket)
        spread = math.sqrt(sum((r - mean) ** 2 for r in bucket) / len(bucket))
        if len(bucket) == 1:
            assert float(found[i]) == pytest.approx(float(rewards[i]))
            assert bool(says[i])
        elif spread < 1e-7:
            assert float(found[i]) == 0
            assert not bool(says[i])
        elif spread > 1e-3:
            assert float(found[i]) == pytest.approx((float(rewards[i]) - mean) / (spread + 1e-6), abs=1e-2)


def test_the_undiscounted_returns_of_first_turns_add_up_to_the_episodes():
    rewards, episode, _ = laid([(0, [0.0, 0.0, 1.0]), (0, [0.5, -1.0])])
    returns = turn_advantages.discounted(rewards, episode, 1.0)
    assert returns[0] == 1.0
    assert returns[3] == -0.5
    assert turn_advantages.totals(rewards, episode).tolist() == [1.0, 1.0, 1.0, -0.5, -0.5]


def test_nothing_to_tell_apart_moves_nothing():
    rewards, episode, group = laid([(0, [1.0, 1.0]), (0, [1.0, 1.0])])
    for estimator in turn_advantages.ESTIMATORS:
        found = turn_advantages.advantages(rewards, episode, group, AdvantageSettings(estimator, 0.0))
        assert found.abs().max() < 1e-3, estimator
