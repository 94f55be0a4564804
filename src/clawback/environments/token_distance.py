"""How far apart a model holds texts, by the embeddings of the tokens in which they differ.

Tokens that a model hardly ever read in its training stay close to each other: it writes them with nearly the same
probability whatever it sees, and reads them nearly alike. A small adapter cannot change that, however good the rewards are.
Distances are in units of the upper quartile of those between any two tokens.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import combinations
from typing import TYPE_CHECKING

import torch

if TYPE_CHECKING:
    from torch import Tensor

    from clawback.policy import Policy

CLEAR = 0.25
"""Distance from which on two texts count as told apart."""


class TokenDistance:
    """Distances under the output embedding (``written``) or the input embedding. A model without such a table holds all texts apart."""

    def __init__(self, policy: Policy, *, written: bool) -> None:
        table = getattr(policy.model, "get_output_embeddings" if written else "get_input_embeddings")()
        weight = getattr(table, "weight", None)
        self.rows: Tensor | None = None
        self.policy, self.unit = policy, 1.0
        if weight is not None and weight.is_floating_point():
            self.rows = weight.detach()
            some = torch.randperm(len(weight), generator=torch.Generator().manual_seed(0))[:256]
            pairs = torch.pdist(weight.detach()[some.to(weight.device)].float().cpu())
            self.unit = float(pairs.quantile(0.75)) or 1.0

    def encode(self, text: str) -> tuple[int, ...]:
        return tuple(self.policy.tokenizer.encode(text, add_special_tokens=False))

    def between(self, first: int, second: int) -> float:
        """Of two tokens."""
        if self.rows is None:
            return float(first != second)
        return float((self.rows[first].float() - self.rows[second].float()).norm()) / self.unit

    def of_replies(self, replies: Sequence[str]) -> float:
        """The smallest distance of two replies: of the tokens at the first place where they differ."""
        encoded = [(*self.encode(text), self.policy.chat.end_id) for text in replies]
        different = [
            next((pair for pair in zip(a, b, strict=False) if pair[0] != pair[1]), None)
            for a, b in combinations(encoded, 2)
        ]
        return min((self.between(*pair) if pair else 0.0 for pair in different), default=1.0)
