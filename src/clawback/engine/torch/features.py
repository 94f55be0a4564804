"""What an answer looks like to the reward head: which everyday tokens it uses, and what the base model makes of it.

Two kinds of features, standardised over answers that the base itself gives to the person's prompts:

* **Tokens.** Whether a token occurs at all, for tokens that occur in at least a tenth of those answers and are missing in
  at least a tenth. How things are said is in there (a bullet, an apology, a unit); what is said is not, for the words
  of one topic are rare over all. So the head cannot come to like or dislike a fact.
* **Hidden states.** The mean of the base's last hidden states over the response, and the log of its length: what a list
  of words misses, such as tone or detail. The *base*'s, with the adapter off, so that features mean the same in
  every version and ratings of old and new answers can be learned from together.

The token features weigh more (``TOKENS``): a few dozen ratings cannot find a direction among hundreds of hidden units,
most of which speak of the topic. Other layers, poolings and spaces: docs/studies/0001-keeping-facts.md.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

if TYPE_CHECKING:
    from clawback.engine.torch.chat import Encoded
    from clawback.engine.torch.logprobs import Scorer

Floats = NDArray[np.float64]

EVERYDAY = 0.1
"""A token counts when it occurs in at least this share of the base's answers, and is missing in as many."""
TOKENS = 0.7
"""Share of the token features in the squared length of an average answer; the rest are the hidden states'."""


@torch.no_grad()
def features(scorer: Scorer, encoded: Sequence[Encoded]) -> Floats:
    """``[S, hidden + 1]`` of the model as it stands (switch the adapter off first). Zeros for an answer without tokens."""
    lengths = [len(one.response) for one in encoded]
    states = scorer.hidden(encoded, of_response=True) if any(lengths) else torch.zeros(0, 1)
    return pooled(states, lengths)


def pooled(states: Tensor, lengths: Sequence[int]) -> Floats:
    """Hidden states ``[N, hidden]`` of answers laid end to end → ``[S, hidden + 1]``: means, and log(1 + length)."""
    count = torch.tensor(lengths, dtype=torch.float64)
    segment = torch.repeat_interleave(torch.arange(len(lengths)), torch.tensor(lengths))
    sums = torch.zeros(len(lengths), states.shape[1], dtype=torch.float64)
    sums.index_add_(0, segment, states.detach().to("cpu", torch.float64))
    means = sums / count.clamp(min=1)[:, None]
    result: Floats = torch.cat([means, torch.log1p(count)[:, None]], 1).numpy()
    return result


@dataclass(frozen=True, slots=True)
class Lens:
    """What the head sees answers through: everyday tokens and hidden states, standardised."""

    tokens: NDArray[np.int64]  # [k] ids of the everyday tokens
    share: Floats  # [k] of the base's answers that hold them
    mean: Floats  # [h] of the hidden features
    spread: Floats  # [h]

    @classmethod
    def ground(cls, answers: Sequence[Sequence[int]], hidden: Floats) -> Lens:
        """From answers of the base to many prompts: their token ids, and their ``features [S, h]``."""
        held = [set(ids) for ids in answers]
        counts: dict[int, int] = {}
        for ids in held:
            for token in ids:
                counts[token] = counts.get(token, 0) + 1
        least, most = EVERYDAY * len(held), (1 - EVERYDAY) * len(held)
        tokens = np.array(sorted(t for t, n in counts.items() if least <= n <= most), dtype=np.int64)
        share = np.array([counts[int(t)] / len(held) for t in tokens])
        return cls(tokens, share, hidden.mean(0), np.maximum(hidden.std(0), 1e-8))

    def __call__(self, answers: Sequence[Sequence[int]], hidden: Floats) -> Floats:
        """``[S, k + h]``: an average answer of the base has squared length 1."""
        held = [set(ids) for ids in answers]
        there = np.array([[int(t) in ids for t in self.tokens] for ids in held], dtype=np.float64)
        there = there.reshape(len(held), len(self.tokens))
        words = (there - self.share) / np.sqrt(self.share * (1 - self.share))
        states = (hidden - self.mean) / self.spread
        weight = TOKENS if len(self.tokens) else 0.0
        return np.hstack(
            [
                words * np.sqrt(weight / max(1, len(self.tokens))),
                states * np.sqrt((1 - weight) / max(1, states.shape[1])),
            ]
        )

    def to_dict(self) -> dict[str, Any]:
        """Plain lists, for JSON; ``from_dict`` gives back the same bits."""
        return {name: getattr(self, name).tolist() for name in ("tokens", "share", "mean", "spread")}

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Lens:
        floats = {name: np.asarray(data[name], dtype=np.float64) for name in ("share", "mean", "spread")}
        return cls(tokens=np.asarray(data["tokens"], dtype=np.int64), **floats)
