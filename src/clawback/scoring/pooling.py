"""Features of an answer from the base model's hidden states.

They are the mean of its last hidden states over the response and the log of its length, and what its middle
layers give for answer and prompt. With style features and tokens they are the inputs of the reward head
(``features.style_features``, ``rewards.views``).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from clawback.features.style_features import Floats
from clawback.templates import Encoded

if TYPE_CHECKING:
    from clawback.scoring.logprobs import Scorer

DEPTHS = (1 / 3, 1 / 2, 2 / 3)
"""Layers that are read, as shares of the depth: what a text is about and how it is written is plainest in the middle (research/studies)."""


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
    sums.index_add_(0, segment, states.detach().cpu().double())
    means = sums / count.clamp(min=1)[:, None]
    result: Floats = torch.cat([means, torch.log1p(count)[:, None]], 1).numpy()
    return result


@torch.no_grad()
def read(scorer: Scorer, encoded: Sequence[Encoded], depths: Sequence[float] = DEPTHS) -> dict[str, Floats]:
    """What middle layers of the model as it stands make of prompts and answers: the ``states`` of ``rewards.views.Answers``.

    Returns:
        ``mean of the answer``, ``end of the answer``, ``end of the prompt``: ``[S, len(depths) · hidden]`` each, layers side by side. Zeros where
        an answer has no tokens. Empty where the model's layers cannot be found, or are not what runs.
    """
    layers = _layers(scorer.model, depths)
    if not layers or not encoded:
        return {}
    rows: dict[int, Tensor] = {}
    with _recorded(layers) as seen:
        # With its first token alone as prompt, a sequence is read through to its end; one token more, so that the last one goes in.
        whole = [
            Encoded((*one.prompt, *one.response, 0)[:1], (*one.prompt, *one.response, 0)[1:])
            for one in encoded
        ]
        for piece in scorer.pieces(whole, share=False):
            scorer.states([whole[i] for i in piece], share=False)
            lengths = [len(whole[i].response) for i in piece]
            parts = [_apart(states, lengths) for states in seen]
            for place, i in enumerate(piece):
                start = len(encoded[i].prompt)
                pooled_here = []
                for part in parts:
                    state = part[place].float()
                    answer = state[start:] if encoded[i].response else torch.zeros_like(state[:1])
                    pooled_here.append(torch.stack([answer.mean(0), answer[-1], state[max(start - 1, 0)]]))
                rows[i] = torch.cat(pooled_here, 1).cpu()  # [3, layers · hidden]
    table = torch.stack([rows[i] for i in range(len(encoded))]).double().numpy()
    return {
        name: table[:, k]
        for k, name in enumerate(("mean of the answer", "end of the answer", "end of the prompt"))
    }


def _layers(model: nn.Module, depths: Sequence[float]) -> list[nn.Module]:
    """The decoder layers at these depths: of the longest list of modules right under the model's body."""
    inner: Any = model
    causal = inner.get_base_model() if hasattr(inner, "get_base_model") else inner
    body: Any = getattr(causal, causal.base_model_prefix, causal)
    stacks = [child for child in body.children() if isinstance(child, nn.ModuleList)]
    if not stacks:
        return []
    stack = max(stacks, key=len)
    return [stack[max(round(depth * len(stack)) - 1, 0)] for depth in depths]


@contextmanager
def _recorded(layers: Sequence[nn.Module]) -> Iterator[list[Tensor]]:
    """A list that holds what each of the layers gave last."""
    seen: list[Tensor] = [torch.empty(0)] * len(layers)

    def keep(layer: int) -> Any:
        def hook(_: nn.Module, __: Any, output: Any) -> None:
            seen[layer] = output[0] if isinstance(output, tuple) else output

        return hook

    hooks = [layer.register_forward_hook(keep(place)) for place, layer in enumerate(layers)]
    try:
        yield seen
    finally:
        for hook in hooks:
            hook.remove()


def _apart(states: Tensor, lengths: Sequence[int]) -> list[Tensor]:
    """Of one pass, packed ``[1, N, hidden]`` or padded ``[S, T, hidden]``: what belongs to each sequence."""
    if len(states) == len(lengths):
        return [row[:n] for row, n in zip(states, lengths, strict=True)]
    return list(states[0, : sum(lengths)].split(list(lengths)))
