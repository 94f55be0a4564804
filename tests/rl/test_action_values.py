"""Values of actions are recovered from random play, and the maximum is carried back through an episode."""

from __future__ import annotations

import torch

from clawback.rl.action_values import fit_action_values


def test_the_better_action_of_each_state_is_found_though_one_pays_more_on_average():
    generator = torch.Generator().manual_seed(0)
    states = torch.randn(2000, 6, generator=generator)
    actions = torch.randint(2, (2000,), generator=generator)
    gains = torch.where(actions == 0, 1.0 + 0.3 * states[:, 0], 0.9 - 0.3 * states[:, 1])
    rewards = gains + torch.randn(2000, generator=generator)
    fitted = fit_action_values(
        states, actions, rewards, torch.ones(2000, dtype=torch.bool), count=2, gamma=1.0
    )
    best = (1.0 + 0.3 * states[:, 0] < 0.9 - 0.3 * states[:, 1]).long()
    assert (fitted.values.argmax(1) == best).double().mean() > 0.85
    assert 0.02 < fitted.explained < 0.2


def test_what_follows_counts_by_the_best_that_can_be_done_there():
    """Two turns: the first action leads to a state where the best reply pays 1 and the other -1; the second ends with 0.3."""
    generator = torch.Generator().manual_seed(1)
    states, actions, rewards, last = [], [], [], []
    for first in torch.randint(2, (400,), generator=generator).tolist():
        states.append([1.0, 0.0])
        actions.append(first)
        rewards.append(0.3 * first)
        last.append(bool(first))
        if not first:
            second = int(torch.randint(2, (1,), generator=generator))
            states.append([0.0, 1.0])
            actions.append(second)
            rewards.append(1.0 if second else -1.0)
            last.append(True)
    fitted = fit_action_values(
        torch.tensor(states), torch.tensor(actions), torch.tensor(rewards), torch.tensor(last), count=2, gamma=0.9
    )  # fmt: skip
    assert torch.allclose(fitted.values[0], torch.tensor([0.9, 0.3], dtype=torch.float64), atol=0.02)


def test_rewards_of_chance_are_not_explained_and_actions_never_taken_are_refused():
    generator = torch.Generator().manual_seed(2)
    states, actions = torch.randn(300, 8, generator=generator), torch.randint(3, (300,), generator=generator)
    last = torch.ones(300, dtype=torch.bool)
    chance = fit_action_values(
        states, actions, torch.randn(300, generator=generator), last, count=3, gamma=1.0
    )
    assert chance.explained <= 0
    assert fit_action_values(states, actions, torch.zeros(300), last, count=4, gamma=1.0) is None
