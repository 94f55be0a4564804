"""Credit assignment: from late rewards to the tokens, and the turns, that led to them.

Source: Schulman et al. 2016 (GAE, arXiv:1506.02438), eq. 11–16, with a discount of its own at each step:

    δ_t = r_t + γ_t·V_{t+1} − V_t
    A_t = δ_t + γ_t·λ_t·A_{t+1}              V and A are 0 after the last step of a trajectory

A step is a token, or a turn.

Tokens that the policy did not choose (a tool's output between two calls) are no steps: with ``mask`` they are skipped, cost no discount and
get no advantage.
"""

from __future__ import annotations

import torch
from torch import Tensor


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
