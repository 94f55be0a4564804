"""Replies that are one of a few texts: at each place only tokens that lead to one of them, in drawing and in learning alike.

The policy that is drawn from and learned is the model's distribution renormalised over these tokens:
π(v) = exp z_v / Σ_{u allowed} exp z_u. So what is recorded, what is learned and the reference are the same distribution,
and a token without an alternative has log-prob 0 and no gradient.

The reference of the KL is the uniform distribution over the replies: a model that never wrote any of them has a strong
preference among their first tokens, which says nothing about the actions.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

import torch
from torch import Tensor

if TYPE_CHECKING:
    from clawback.scoring.lm_head import Head
    from clawback.templates import Encoded


class Choices:
    """The token sequences that a reply may be, as a tree."""

    def __init__(self, replies: Iterable[Sequence[int]]) -> None:
        self._next: dict[tuple[int, ...], list[int]] = {}
        self.longest = 0
        """Tokens of the longest reply."""
        self._count: dict[tuple[int, ...], int] = {}
        """Of each beginning, how many replies have it."""
        self.replies = tuple(dict.fromkeys(map(tuple, replies)))
        """As token ids, each once."""
        for ids in self.replies:
            self.longest = max(self.longest, len(ids))
            self._count[ids] = self._count.get(ids, 0) + 1
            for place, token in enumerate(ids):
                beginning = ids[:place]
                self._count[beginning] = self._count.get(beginning, 0) + 1
                following = self._next.setdefault(beginning, [])
                if token not in following:
                    following.append(token)

    def allowed(self, written: Sequence[int]) -> list[int]:
        """What may follow a reply so far; nothing where it is no beginning of any."""
        return self._next.get(tuple(written), [])

    def masked(self, logits: Tensor, written: Sequence[Sequence[int]]) -> Tensor:
        """Logits [rows, vocabulary] with minus infinity for tokens that may not follow what each row has written."""
        kept = torch.full_like(logits, float("-inf"))
        for row, ids in enumerate(written):
            places = torch.tensor(self.allowed(ids), device=logits.device)
            kept[row, places] = logits[row, places]
        return kept

    def uniform(self, encoded: Sequence[Encoded]) -> list[Tensor]:
        """[response tokens] of each: log-probs of a policy that takes every reply alike; 0 for a token that is no part of a reply."""
        rows = []
        for one in encoded:
            places = self._places(one)
            chosen = zip(one.response, places, strict=True)
            rows.append(torch.tensor([self._log_uniform(beginning, token) for token, beginning in chosen]))
        return rows

    def table(self, encoded: Sequence[Encoded]) -> tuple[Tensor, Tensor]:
        """[N, K] int64: for each response token the tokens allowed in its place, filled up with -1; a token that is no part of a
        reply is its own only choice. [N, K] float32: their log-probs where every reply is taken alike."""
        tokens, values = [], []
        for one in encoded:
            for token, beginning in zip(one.response, self._places(one), strict=True):
                allowed = [token] if beginning is None else self.allowed(beginning)
                tokens.append(allowed)
                values.append([self._log_uniform(beginning, other) for other in allowed])
        width = max(map(len, tokens), default=1)
        return (
            torch.tensor([[*row, *[-1] * (width - len(row))] for row in tokens], dtype=torch.int64),
            torch.tensor([[*row, *[0.0] * (width - len(row))] for row in values]),
        )

    def _places(self, encoded: Encoded) -> list[tuple[int, ...] | None]:
        """For each response token what its reply had before it; None for one that is no part of a reply."""
        places: list[tuple[int, ...] | None] = [None] * len(encoded.response)
        for start in encoded.starts:
            for place in range(start, len(encoded.response)):
                beginning = tuple(encoded.response[start:place])
                if encoded.response[place] not in self.allowed(beginning):
                    break
                places[place] = beginning
        return places

    def _log_uniform(self, beginning: tuple[int, ...] | None, token: int) -> float:
        if beginning is None:
            return 0.0
        return math.log(self._count[(*beginning, token)] / self._count[beginning])


def choice_logprobs(
    head: Head, hidden: Tensor, targets: Tensor, table: Tensor, uniform: Tensor
) -> tuple[Tensor, Tensor, Tensor]:
    """Log-probs of the targets among the allowed tokens, the entropy over these, and the KL to ``uniform``; log-probs and KL with
    their gradients.

    Args:
        hidden: [N, H].
        targets: [N] int64, each of them in its row of ``table``.
        table: [N, K] int64, -1 where a row has fewer.
        uniform: [N, K] log-probs of the reference.

    Returns:
        [N], [N] and [N] float32.
    """
    rows = head.weight[table.clamp(min=0)].float()  # [N, K, H]
    logits = torch.einsum("nh,nkh->nk", hidden.float(), rows)
    if head.bias is not None:
        logits = logits + head.bias[table.clamp(min=0)].float()
    logits = head.capped(logits * head.scale).masked_fill(table < 0, float("-inf"))
    logprobs = logits.log_softmax(-1)
    chosen = (table == targets[:, None]).float().argmax(1)
    finite = logprobs.masked_fill(table < 0, 0.0)
    weights = logprobs.exp()
    entropy, divergence = -(weights * finite).sum(-1), (weights * (finite - uniform)).sum(-1)
    return logprobs.gather(1, chosen[:, None])[:, 0], entropy.detach(), divergence
