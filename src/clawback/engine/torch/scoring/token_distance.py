"""How far apart a model holds texts, by the embeddings of the tokens in which they differ.

Tokens that a model hardly ever read in its training stay close to each other: it writes them with nearly the same
probability whatever it sees, and reads them nearly alike. A small adapter cannot change that, so a policy over such
replies, or on such observations, is hardly learned, however good the rewards are. Distances are in units of the upper
quartile of those between any two tokens.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import combinations
from typing import TYPE_CHECKING, Any

import torch

if TYPE_CHECKING:
    from torch import Tensor

    from clawback.engine.torch.models.policy import Policy

CLEAR = 0.25
"""Distance from which on two texts count as told apart."""
SAMPLE = 256
"""Tokens whose distances give the unit."""


class TokenDistance:
    """Distances under the output embedding (``written``) or the input embedding of a model. A model without such a table holds all texts apart."""

    def __init__(self, policy: Policy, *, written: bool) -> None:
        model: Any = policy.model
        table = model.get_output_embeddings() if written else model.get_input_embeddings()
        weight = getattr(table, "weight", None)
        plain = weight is not None and weight.dim() == 2 and weight.is_floating_point()
        self.rows: Tensor | None = weight.detach() if plain else None
        self.policy = policy
        self.unit = self._unit()

    def _unit(self) -> float:
        if self.rows is None:
            return 1.0
        generator = torch.Generator().manual_seed(0)
        some = torch.randperm(len(self.rows), generator=generator)[:SAMPLE]
        return float(torch.pdist(self._rows(some)).quantile(0.75)) or 1.0

    def _rows(self, ids: Tensor) -> Tensor:
        assert self.rows is not None
        return self.rows[ids.to(self.rows.device)].float().cpu()

    def encode(self, text: str) -> list[int]:
        return [int(token) for token in self.policy.tokenizer.encode(text, add_special_tokens=False)]

    def between(self, first: int, second: int) -> float:
        """Of two tokens."""
        if self.rows is None:
            return float(first != second)
        a, b = self._rows(torch.tensor([first, second]))
        return float((a - b).norm()) / self.unit

    def of_replies(self, replies: Sequence[str]) -> float:
        """The smallest distance of two replies: of the tokens at the first place where they differ."""
        end = self.policy.chat.end_id
        encoded = [[*self.encode(text), end] for text in replies]
        pairs = combinations(encoded, 2)
        return min((self._at_first_difference(a, b) for a, b in pairs), default=1.0)

    def _at_first_difference(self, first: Sequence[int], second: Sequence[int]) -> float:
        differing = ((a, b) for a, b in zip(first, second, strict=False) if a != b)
        pair = next(differing, None)
        return 0.0 if pair is None else self.between(*pair)

    def look_alike(self, texts: Sequence[str]) -> tuple[float, tuple[str, str] | None]:
        """The share of pairs of these texts whose tokens are as many, and close to each other at each place; and one such pair."""
        distinct = {tuple(self.encode(text)): text for text in texts}
        pairs = list(combinations(distinct, 2))
        alike = [(a, b) for a, b in pairs if len(a) == len(b) and self._close(a, b)]
        example = (distinct[alike[0][0]], distinct[alike[0][1]]) if alike else None
        return len(alike) / max(1, len(pairs)), example

    def _close(self, first: Sequence[int], second: Sequence[int]) -> bool:
        return all(self.between(a, b) < CLEAR for a, b in zip(first, second, strict=True) if a != b)
