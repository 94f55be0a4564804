"""What an answer looks like to the base model: the features that the reward head is fitted on.

The mean of the last hidden states over the response tokens, and the log of its length. The model is read as it stands at
the call: switch the adapter off first. Features of the *base* mean the same thing in every version, so that ratings
of old answers and of new ones can be learned from together.

Other layers, the maximum, the last token and mixtures were tried: docs/studies/0001-keeping-facts.md.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

if TYPE_CHECKING:
    from clawback.engine.torch.chat import Encoded
    from clawback.engine.torch.logprobs import Scorer


@torch.no_grad()
def features(scorer: Scorer, encoded: Sequence[Encoded]) -> NDArray[np.float64]:
    """``[S, hidden + 1]`` features of S answers. An answer without tokens has the features of nothing: zeros."""
    lengths = [len(one.response) for one in encoded]
    states = scorer.hidden(encoded, of_response=True) if any(lengths) else torch.zeros(0, 1)
    return pooled(states, lengths)


def pooled(states: Tensor, lengths: Sequence[int]) -> NDArray[np.float64]:
    """Hidden states ``[N, hidden]`` of answers laid end to end → ``[S, hidden + 1]``: means, and log(1 + length)."""
    count = torch.tensor(lengths, dtype=torch.float64)
    segment = torch.repeat_interleave(torch.arange(len(lengths)), torch.tensor(lengths))
    sums = torch.zeros(len(lengths), states.shape[1], dtype=torch.float64)
    sums.index_add_(0, segment, states.detach().to("cpu", torch.float64))
    means = sums / count.clamp(min=1)[:, None]
    result: NDArray[np.float64] = torch.cat([means, torch.log1p(count)[:, None]], 1).numpy()
    return result
