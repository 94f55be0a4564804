"""Generalised advantages against a loop over steps, written from the definition."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from clawback.rl import turn_advantages


def slow_gae(rewards, values, gammas, lams):
    """One trajectory: A_t = Σ_l (Π γλ) δ_{t+l}, each sum written out."""
    count = len(rewards)
    deltas = [
        rewards[t] + gammas[t] * (values[t + 1] if t + 1 < count else 0.0) - values[t] for t in range(count)
    ]
    advantages = []
    for t in range(count):
        total, weight = 0.0, 1.0
        for later in range(t, count):
            total += weight * deltas[later]
            weight *= gammas[later] * lams[later]
        advantages.append(total)
    return advantages


@st.composite
def trajectories(draw):
    lengths = draw(st.lists(st.integers(1, 7), min_size=1, max_size=5))
    count = sum(lengths)
    numbers = st.lists(st.floats(-2, 2, width=32), min_size=count, max_size=count)
    shares = st.lists(st.floats(0, 1, width=32), min_size=count, max_size=count)
    mask = draw(st.lists(st.booleans(), min_size=count, max_size=count))
    segment = torch.repeat_interleave(torch.arange(len(lengths)), torch.tensor(lengths))
    columns = [torch.tensor(draw(x), dtype=torch.float64) for x in (numbers, numbers, shares, shares)]
    return segment, *columns, torch.tensor(mask)


@settings(deadline=None, max_examples=60)
@given(trajectories())
def test_gae_against_a_loop(case):
    segment, rewards, values, gammas, lams, _ = case
    advantages, returns = turn_advantages.gae(rewards, values, segment, gamma=gammas, lam=lams)
    for number in segment.unique():
        mine = segment == number
        expected = slow_gae(*(x[mine].tolist() for x in (rewards, values, gammas, lams)))
        assert advantages[mine].tolist() == pytest.approx(expected, abs=1e-9)
    torch.testing.assert_close(returns, advantages + values)


@settings(deadline=None, max_examples=60)
@given(trajectories())
def test_what_is_masked_is_stepped_over(case):
    segment, rewards, values, gammas, lams, mask = case
    advantages, returns = turn_advantages.gae(rewards, values, segment, gamma=gammas, lam=lams, mask=mask)
    assert (advantages[~mask] == 0).all()
    assert (returns[~mask] == 0).all()
    for number in segment.unique():
        places = (segment == number).nonzero()[:, 0].tolist()
        kept = [p for p in places if mask[p]]
        if not kept:
            continue
        paid = dict.fromkeys(kept, 0.0)
        for place in places:
            before = [k for k in kept if k <= place]
            paid[before[-1] if before else kept[0]] += rewards[place].item()
        rest = [[x[k].item() for k in kept] for x in (values, gammas, lams)]
        expected = slow_gae([paid[k] for k in kept], *rest)
        assert advantages[kept].tolist() == pytest.approx(expected, abs=1e-9)


@settings(deadline=None, max_examples=40)
@given(trajectories())
def test_discounted_against_a_loop(case):
    segment, rewards, _, gammas, _, _ = case
    found = turn_advantages.discounted(rewards, segment, gammas)
    ahead, last = 0.0, -1
    for place in reversed(range(len(rewards))):
        if segment[place] != last:
            ahead, last = 0.0, segment[place]
        ahead = rewards[place].item() + gammas[place].item() * ahead
        assert found[place].item() == pytest.approx(ahead, abs=1e-9)
