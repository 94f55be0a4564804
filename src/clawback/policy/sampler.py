"""What draws answers in place of the policy's own sampler, and the gap between its log-probs and the policy's."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Protocol

import torch

from clawback.errors import TrainingError
from clawback.templates import Encoded

if TYPE_CHECKING:
    from clawback.policy.policy import Policy
    from clawback.sampling import Chance, Sampled

MAX_GAP = 0.3
"""Nats a token, as for episodes (``sources/episode_examples.py``)."""


class Sampler(Protocol):
    """Draws answers in place of the policy's own engine. The adapter is on or off as it is at the call."""

    def __call__(
        self, policy: Policy, prompts: Sequence[Sequence[int]], chance: Chance, merge: bool
    ) -> list[list[Sampled]]: ...


@torch.no_grad()
def gap(
    policy: Policy, prompt: Sequence[int], ids: Sequence[int], logprobs: Sequence[float], who: str
) -> float:
    """Nats a token between the log-probs told with an answer and the policy's own, with its adapter on or off as it is now.

    Raises:
        TrainingError: they are further apart than ``MAX_GAP``.
    """
    [own] = policy.scorer([Encoded(tuple(prompt), tuple(ids))]).split()
    found = float((own.cpu() - torch.tensor(logprobs)).abs().mean())
    if not found <= MAX_GAP:
        raise TrainingError(
            f"What {who} draws is not what learns: log-probs differ by {found:.2f} nats a token (limit {MAX_GAP}). Another model, "
            "precision or version of Clawback is at work there; nothing was learned from it."
        )
    return found
