"""Advantages from rewards: how much better than expected an answer was."""

from __future__ import annotations

import torch
from torch import Tensor


def ema(rewards: Tensor, baseline: float, decay: float = 0.99) -> tuple[Tensor, float]:
    """Each reward against a moving average of those before it; the average moves after each.

        advantage = reward − m;   m ← decay·m + (1 − decay)·reward

    Args:
        rewards: [S], in the order in which they were given.
        baseline: m before the first of them. It lives as long as the user does: keep what is returned.

    Returns:
        [S] advantages, and the new baseline.

    A baseline that starts at the first reward would make a first run of all-good ratings worth nothing; it starts at 0.
    """
    advantages = []
    for reward in rewards.tolist():
        advantages.append(reward - baseline)
        baseline = decay * baseline + (1 - decay) * reward
    return torch.tensor(advantages, dtype=torch.float32), baseline


def batch_mean(rewards: Tensor) -> Tensor:
    """[S] → [S]: each reward against the mean of all. Ratings of one sign only give zeros: nothing to tell apart."""
    rewards = rewards.float()
    return rewards - rewards.mean() if rewards.numel() else rewards


def group_normalised(rewards: Tensor, groups: Tensor, *, scale: bool = True, eps: float = 1e-4) -> Tensor:
    """Each reward against the others of its group: answers to one prompt (Shao et al. 2024, arXiv:2402.03300, §4.1).

        advantage = (reward − mean_group) / (std_group + eps)

    Args:
        rewards: [S].
        groups: [S] int64, any labels.
        scale: False leaves out the division (Dr. GRPO, arXiv:2503.20783): it makes prompts on which all
            answers are nearly alike as loud as those where they differ.

    The standard deviation is the population's. A group of one, or of equal rewards, gives zeros.
    """
    rewards = rewards.float()
    _, index = torch.unique(groups, return_inverse=True)
    count = torch.bincount(index).to(rewards.dtype)
    mean = rewards.new_zeros(count.numel()).index_add(0, index, rewards) / count
    centred = rewards - mean[index]
    if not scale:
        return centred
    variance = rewards.new_zeros(count.numel()).index_add(0, index, centred.square()) / count
    return centred / (variance.sqrt()[index] + eps)


def leave_one_out(rewards: Tensor, groups: Tensor) -> Tensor:
    """Each reward against the mean of the *others* of its group (Kool et al. 2019; Ahmadian et al. 2024, arXiv:2402.14740, eq. 7).

        advantage_i = r_i − Σ_{j≠i} r_j / (k − 1)

    Args:
        rewards: [S].
        groups: [S] int64, any labels.

    A group of one has no others. Those are held against each other, as one group: with one answer a prompt, the
    baseline is what the person thinks of answers to their other prompts. A single one that is left gives 0.
    """
    rewards = rewards.float()
    _, index, count = torch.unique(groups, return_inverse=True, return_counts=True)
    alone = count[index] == 1
    index = torch.where(alone, count.numel(), index)
    size = torch.bincount(index, minlength=count.numel() + 1).to(rewards.dtype)
    total = rewards.new_zeros(size.numel()).index_add(0, index, rewards)
    others = (total[index] - rewards) / (size[index] - 1).clamp(min=1.0)
    return torch.where(size[index] > 1, rewards - others, torch.zeros_like(rewards))
