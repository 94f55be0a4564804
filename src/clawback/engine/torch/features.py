"""What the base model makes of an answer: the mean of its last hidden states over the response, and the log of its length.

With manners and tokens beside them, that is what the reward head looks at (``rewards.lens``).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from clawback.rewards.lens import Floats

if TYPE_CHECKING:
    from clawback.engine.torch.chat import Encoded
    from clawback.engine.torch.logprobs import Scorer


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
