"""Generalised advantages against a loop over steps, written from the definition."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from clawback.rl import credit


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
    advantages, returns = credit.gae(rewards, values, segment, gamma=gammas, lam=lams)
    for number in segment.unique():
        mine = segment == number
        expected = slow_gae(*(x[mine].tolist() for x in (rewards, values, gammas, lams)))
        assert advantages[mine].tolist() == pytest.approx(expected, abs=1e-9)
    torch.testing.assert_close(returns, advantages + values)


@settings(deadline=None, max_examples=60)
@given(trajectories())
def test_what_is_masked_is_stepped_over(case):
    segment, rewards, values, gammas, lams, mask = case
    advantages, returns = credit.gae(rewards, values, segment, gamma=gammas, lam=lams, mask=mask)
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
    found = credit.discounted(rewards, segment, gammas)
    ahead, last = 0.0, -1
    for place in reversed(range(len(rewards))):
        if segment[place] != last:
            ahead, last = 0.0, segment[place]
        ahead = rewards[place].item() + gammas[place].item() * ahead
        assert found[place].item() == pytest.approx(ahead, abs=1e-9)


def test_a_late_rating_reaches_the_turns_that_led_to_it():
    # Two sessions: three turns of 2, 3 and 1 tokens with a rating of the last one alone, and one turn that nobody rated.
    turn = torch.tensor([0, 0, 1, 1, 1, 2, 3, 3])
    session, rewards = torch.tensor([0, 0, 0, 1]), torch.tensor([0.0, 0.0, 1.0, 0.0])
    advantages, _ = credit.of_turns(
        rewards, torch.zeros(8), turn, session, gamma=1.0, lam=1.0, turn_gamma=0.5, turn_lam=1.0
    )
    assert advantages.tolist() == pytest.approx([0.25, 0.25, 0.5, 0.5, 0.5, 1.0, 0.0, 0.0])


def test_turns_against_steps_with_their_own_discounts():
    torch.manual_seed(0)
    turn = torch.repeat_interleave(torch.arange(5), torch.tensor([2, 1, 4, 3, 2]))
    session, rewards, values = torch.tensor([0, 0, 0, 1, 1]), torch.randn(5), torch.randn(12)
    mask = torch.ones(12, dtype=torch.bool)
    mask[[4, 6, 9]] = False  # tokens of a tool; the fifth turn's and the third's last ones among them
    found, _ = credit.of_turns(
        rewards, values, turn, session, gamma=0.9, lam=0.8, turn_gamma=0.5, turn_lam=0.3, mask=mask
    )
    for number in (0, 1):
        kept = [t for t in range(12) if mask[t] and session[turn[t]] == number]
        ends = [t == max(k for k in kept if turn[k] == turn[t]) for t in kept]
        expected = slow_gae(
            [rewards[turn[t]].item() if end else 0.0 for t, end in zip(kept, ends, strict=True)],
            values[kept].tolist(),
            [0.5 if end else 0.9 for end in ends],
            [0.3 if end else 0.8 for end in ends],
        )
        assert found[kept].tolist() == pytest.approx(expected, abs=1e-5)
    assert (found[~mask] == 0).all()
