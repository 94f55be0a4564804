"""Credit in an episode: advantages of its turns, and late rewards for the tokens and turns that led to them.

**Steps** (a step is a token, or a turn): Schulman et al. 2016 (GAE, arXiv:1506.02438), eq. 11–16, with a discount of its own at each step:

    δ_t = r_t + γ_t·V_{t+1} − V_t
    A_t = δ_t + γ_t·λ_t·A_{t+1}              V and A are 0 after the last step of a trajectory

Tokens that the policy did not choose (a tool's output between two calls) are no steps: with ``mask`` they are skipped, cost no discount and
get no advantage.

**Turns**: four estimators, each on turns laid end to end. All take ``rewards`` [T] of the turns of E episodes and ``episode`` [T] int64, non-decreasing, and give [T] advantages. A turn's advantage is then
that of each token that the policy wrote in it.

    returns     G_t = r_t + γ·G_{t+1}, against the mean of all turns                                     (Williams 1992, with a baseline)
    gae         generalised advantages over turns, with values of the states before them                 (Schulman et al. 2016, arXiv:1506.02438)
    group       the episode's undiscounted return against the others of its group                        (Shao et al. 2024, arXiv:2402.03300)
    step_wise   r_t, or G_t, z-scored among the turns at the same place of episodes of the same group    (OpenClaw-RL's ``step_wise``)
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, get_args

import torch
from torch import Tensor

from clawback.rl.advantages import group_normalised


def gae(
    rewards: Tensor,
    values: Tensor,
    segment: Tensor,
    *,
    gamma: float | Tensor = 0.99,
    lam: float | Tensor = 0.95,
    mask: Tensor | None = None,
) -> tuple[Tensor, Tensor]:
    """Generalised advantages of S trajectories of N steps in all, laid end to end.

    Args:
        rewards: [N] what each step brought.
        values: [N] what was expected before each step.
        segment: [N] int64, which trajectory a step belongs to; non-decreasing.
        gamma: discount from a step to the next, or [N] of them.
        lam: 0 trusts the values, 1 the rewards; or [N].
        mask: [N] bool, False for what is no step. The rewards there are not lost: they count for the step before.

    Returns:
        [N] advantages and [N] returns (advantage + value), both 0 where masked.
    """
    if mask is not None and not bool(mask.all()):
        return _stepping_over(rewards, values, segment, gamma, lam, mask.bool())
    count = values.numel()
    if count == 0:
        return values.clone(), values.clone()
    here = values.device
    gamma, lam = (torch.as_tensor(x, dtype=values.dtype, device=here).expand(count) for x in (gamma, lam))
    _, lengths = torch.unique_consecutive(segment, return_counts=True)
    rows = torch.repeat_interleave(torch.arange(len(lengths), device=here), lengths)
    starts = lengths.cumsum(0) - lengths
    places = torch.arange(count, device=here) - starts[rows]
    shape = (len(lengths), int(lengths.max()) + 1)  # one more: after the end everything is 0

    def table(flat: Tensor) -> Tensor:
        return flat.new_zeros(shape).index_put((rows, places), flat)

    r, v, g, la = table(rewards.to(values.dtype)), table(values), table(gamma), table(lam)
    advantages = torch.zeros_like(v)
    for t in range(shape[1] - 2, -1, -1):
        delta = r[:, t] + g[:, t] * v[:, t + 1] - v[:, t]
        advantages[:, t] = delta + g[:, t] * la[:, t] * advantages[:, t + 1]
    flat = advantages[rows, places]
    return flat, flat + values


def _stepping_over(
    rewards: Tensor,
    values: Tensor,
    segment: Tensor,
    gamma: float | Tensor,
    lam: float | Tensor,
    mask: Tensor,
) -> tuple[Tensor, Tensor]:
    kept = mask.nonzero()[:, 0]
    if kept.numel() == 0:
        return torch.zeros_like(values), torch.zeros_like(values)
    # A reward on something masked goes to the last step before it in the trajectory, or the first one after.
    place = (mask.long().cumsum(0) - 1).clamp(min=0)
    place = torch.where(segment[kept[place]] < segment, (place + 1).clamp(max=len(kept) - 1), place)
    same = segment[kept[place]] == segment
    moved = rewards.new_zeros(len(kept)).index_add(0, place[same], rewards[same])
    steps = [x[kept] if isinstance(x, Tensor) and x.ndim else x for x in (gamma, lam)]
    found = gae(moved, values[kept], segment[kept], gamma=steps[0], lam=steps[1])
    advantages, returns = (torch.zeros_like(values).index_put((kept,), x.to(values.dtype)) for x in found)
    return advantages, returns


def discounted(rewards: Tensor, segment: Tensor, gamma: float | Tensor) -> Tensor:
    """[N] → [N]: what each step brought and, discounted, all after it in its trajectory: G_t = r_t + γ_t·G_{t+1}."""
    return gae(rewards, torch.zeros_like(rewards), segment, gamma=gamma, lam=1.0)[0]


Estimator = Literal["returns", "gae", "group", "step_wise"]
ESTIMATORS: tuple[Estimator, ...] = get_args(Estimator)


def places(episode: Tensor) -> Tensor:
    """[T] → [T]: 0 for the first turn of each episode, 1 for the second, …"""
    if not episode.numel():
        return episode
    _, lengths = torch.unique_consecutive(episode, return_counts=True)
    starts = lengths.cumsum(0) - lengths
    found: Tensor = torch.arange(episode.numel(), device=episode.device) - starts.repeat_interleave(lengths)
    return found


def totals(rewards: Tensor, episode: Tensor) -> Tensor:
    """[T] → [T]: the sum of the rewards of each turn's whole episode."""
    if not episode.numel():
        return rewards
    _, index = torch.unique_consecutive(episode, return_inverse=True)
    return rewards.new_zeros(int(index.max()) + 1).index_add(0, index, rewards)[index]


def step_wise(
    rewards: Tensor, group: Tensor, position: Tensor, *, eps: float = 1e-6
) -> tuple[Tensor, Tensor]:
    """Each turn against those at the same place of episodes of the same group: (r − mean) / (std + ε), population std.

    Args:
        rewards: [T] of each step: what a judge said of it, and the outcome of its episode on top.
        group: [T] int64, any labels: the task that the turn's episode tried.
        position: [T] int64, which turn of its episode it is.

    Returns:
        [T] advantages, and [T] bool: False for turns that say nothing, since all at their place were paid alike. One that has its place
        to itself keeps its raw reward, as in OpenClaw-RL.
    """
    rewards = rewards.float()
    if not rewards.numel():
        return rewards, torch.zeros(0, dtype=torch.bool, device=rewards.device)
    _, index, count = torch.unique(
        torch.stack([group, position]), dim=1, return_inverse=True, return_counts=True
    )
    size = count.to(rewards.dtype)
    mean = rewards.new_zeros(size.numel()).index_add(0, index, rewards) / size
    centred = rewards - mean[index]
    spread = (rewards.new_zeros(size.numel()).index_add(0, index, centred.square()) / size).sqrt()
    alone, alike = count[index] == 1, spread[index] <= eps
    scored = torch.where(alone, rewards, centred / (spread[index] + eps))
    says = alone | ~alike
    return torch.where(says, scored, torch.zeros_like(scored)), says


@dataclass(frozen=True, slots=True)
class AdvantageSettings:
    """How rewards of turns become their advantages."""

    estimator: Estimator = "gae"
    gamma: float = 1.0
    """Discount from a turn to the next. ``group`` is undiscounted."""
    lam: float = 0.95
    """Of ``gae``: 0 trusts the values, 1 the rewards."""
    scale: bool = True
    """Divide ``returns`` and ``gae`` by the standard deviation of all turns."""


DEFAULTS = AdvantageSettings()


def advantages(
    rewards: Tensor,
    episode: Tensor,
    group: Tensor,
    settings: AdvantageSettings = DEFAULTS,
    values: Tensor | None = None,
) -> Tensor:
    """[T] advantages of turns.

    Args:
        rewards: [T] what each turn brought.
        episode: [T] int64, non-decreasing.
        group: [T] int64: episodes of the same task and seed share one.
        values: [T] what was expected before each turn; None: nothing.
    """
    rewards, estimator, gamma, scale = rewards.float(), settings.estimator, settings.gamma, settings.scale
    if estimator == "step_wise":
        return step_wise(discounted(rewards, episode, gamma), group, places(episode))[0]
    if estimator == "group":
        # Each episode counts once in its group, however many turns it has.
        first = places(episode) == 0
        _, index = torch.unique_consecutive(episode, return_inverse=True)
        return group_normalised(totals(rewards, episode)[first], group[first], scale=scale)[index]
    expected = torch.zeros_like(rewards) if values is None or estimator == "returns" else values.float()
    found = gae(rewards, expected, episode, gamma=gamma, lam=1.0 if estimator == "returns" else settings.lam)[
        0
    ]
    if estimator == "returns" or values is None:
        found = found - found.mean() if found.numel() else found
    spread = found.std(unbiased=False) if found.numel() else found.sum()
    return found / (spread + 1e-6) if scale and float(spread) > 1e-6 else found
