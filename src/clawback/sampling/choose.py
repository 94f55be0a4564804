"""Which token comes next: one draw a row from a tempered and truncated distribution, in few passes over the vocabulary.

With a real vocabulary the table [rows, vocabulary] is passed over so often by log-softmax, cumulative sum and sort that choosing
costs more than a small model's layers. Here it is written once, as exp(z - max z), and summed in blocks: inverse-transform sampling
first finds the block, then the token within it.

Nucleus sampling (Holtzman et al. 2020, arXiv:1904.09751) without sorting every row: a token is drawn from the whole distribution
and kept if it is within the nucleus, that is, if the tokens that are likelier have less than ``top_p`` together. A token with
more than 1 - ``top_p`` always is. The few rows whose token is not in it are sorted and drawn from once more, with a second random
number. The result has exactly the truncated distribution: p(x) + (1 - m) · p(x) / m = p(x) / m for a token of a nucleus of mass m.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import Tensor

from clawback.models import Sampling

_BLOCK = 256
_BRIEF = 2**18
"""Logits below which one thread chooses."""
_LIKELIEST = 512
"""Tokens of a row that are looked at first when it has to be sorted: they nearly always hold the nucleus."""


def draw(logits: Tensor, chance: Tensor, again: Tensor | None, sampling: Sampling) -> tuple[Tensor, Tensor]:
    """One token a row.

    Args:
        logits: [rows, vocabulary] as the model gives them.
        chance: [rows] numbers in [0, 1) that decide.
        again: [rows] more of them, for rows whose first token is cut off; needed where ``sampling`` truncates.

    Returns:
        [rows] token ids, and [rows] float32 log-probs of them under the policy: tempered, not truncated.
    """
    with alone(logits.device.type == "cpu" and logits.numel() < _BRIEF):
        return _draw(logits, chance, again, sampling)


def _draw(logits: Tensor, chance: Tensor, again: Tensor | None, sampling: Sampling) -> tuple[Tensor, Tensor]:
    p, blocks = _exponentials(logits, sampling.scale)
    total = (p if blocks is None else blocks).sum(-1)
    if sampling.temperature == 0:
        token = logits.argmax(-1)
    elif sampling.top_k and sampling.top_k < p.shape[1]:
        token = _among_top(p, chance, sampling)
    else:
        token = _inverse(p, blocks, chance)
        if sampling.top_p < 1:
            _redraw(p, total, token, again, sampling.top_p)
    return token, (p.gather(1, token[:, None])[:, 0] / total).log()


def _exponentials(logits: Tensor, scale: float) -> tuple[Tensor, Tensor | None]:
    """exp((z − max z) / ``scale``) [rows, vocabulary], and its sums over blocks [rows, blocks]; None where the vocabulary does not divide into any."""
    size = min(_BLOCK, logits.shape[1] & -logits.shape[1])
    z = logits.float()
    p = (z - z.amax(-1, keepdim=True)).div_(scale).exp_()
    return p, p.unflatten(1, (-1, size)).sum(-1) if size >= 16 else None


def _inverse(p: Tensor, blocks: Tensor | None, chance: Tensor) -> Tensor:
    """Inverse-transform sampling: [rows] places in ``p`` [rows, n], which need not sum to 1."""
    if blocks is None:
        return _find(p.cumsum(-1), chance[:, None], None)[0]
    cumulative = blocks.cumsum(-1)
    block, rest = _find(cumulative, chance[:, None], blocks)
    size = p.shape[1] // blocks.shape[1]
    inside = p.unflatten(1, (-1, size))[torch.arange(len(p), device=p.device), block]  # [rows, size]
    place = torch.searchsorted(inside.cumsum(-1), _under(rest, inside.cumsum(-1)), right=True)[:, 0]
    return block * size + place


def _find(cumulative: Tensor, chance: Tensor, sizes: Tensor | None) -> tuple[Tensor, Tensor]:
    """[rows] where ``chance`` of the whole falls, and [rows, 1] how far into that place."""
    target = _under(chance * cumulative[:, -1:], cumulative)
    place = torch.searchsorted(cumulative, target, right=True)
    if sizes is None:
        return place[:, 0], target
    return place[:, 0], target - (cumulative.gather(1, place) - sizes.gather(1, place))


def _under(target: Tensor, cumulative: Tensor) -> Tensor:
    """Below the whole, so that rounding never leads to a place of no probability at its end."""
    last = cumulative[:, -1:]
    return torch.minimum(target, torch.nextafter(last, torch.zeros_like(last))).clamp(min=0.0)


def _redraw(p: Tensor, total: Tensor, token: Tensor, again: Tensor | None, top_p: float) -> None:
    """Draw once more, in place, for rows whose token is outside the nucleus."""
    own = p.gather(1, token[:, None])
    unsure = (own[:, 0] < (1 - top_p) * total * 1.001).nonzero()[:, 0]
    if not len(unsure):
        return
    some = p[unsure]
    likelier = torch.where(some > own[unsure], some, 0.0).sum(1)
    out = unsure[likelier >= top_p * total[unsure]]
    if not len(out):
        return
    assert again is not None
    ordered, ids = p[out].topk(min(_LIKELIEST, p.shape[1]), dim=-1)
    if bool((ordered.sum(-1) < top_p * total[out]).any()):
        ordered, ids = p[out].sort(dim=-1, descending=True, stable=True)
    token[out] = _nucleus(ordered / total[out, None], ids, again[out], top_p)


def _nucleus(ordered: Tensor, ids: Tensor, chance: Tensor, top_p: float) -> Tensor:
    """[rows] token ids from the nucleus, of probabilities in falling order [rows, n] and whose they are."""
    before = ordered.cumsum(-1) - ordered
    place = _inverse(ordered.masked_fill(before >= top_p, 0.0), None, chance)
    return ids.gather(1, place[:, None])[:, 0]


def _among_top(p: Tensor, chance: Tensor, sampling: Sampling) -> Tensor:
    ordered, ids = p.topk(sampling.top_k, dim=-1)
    return _nucleus(ordered / ordered.sum(-1, keepdim=True), ids, chance, sampling.top_p)


@contextmanager
def alone(brief: bool = True) -> Iterator[None]:
    """The calling thread's products and loops are its own, where ``brief``."""
    before = torch.get_num_threads()
    if not brief or before == 1:
        yield
        return
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)
