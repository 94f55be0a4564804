"""What is to be drawn, what there is of it so far, and how the next token is chosen: one draw a row from a tempered and truncated distribution.

With a real vocabulary the table [rows, vocabulary] is passed over so often by log-softmax, cumulative sum and sort that choosing
costs more than a small model's layers. Here it is written once, as exp(z - max z), and summed in blocks: inverse-transform sampling
first finds the block, then the token within it.

Nucleus sampling (Holtzman et al. 2020, arXiv:1904.09751) without sorting every row: a token is drawn from the whole distribution
and kept if it is within the nucleus, that is, if the tokens that are likelier have less than ``top_p`` together. A token with
more than 1 - ``top_p`` always is. The few rows whose token is not in it are sorted and drawn from once more, with a second random
number. The result has exactly the truncated distribution: p(x) + (1 - m) · p(x) / m = p(x) / m for a token of a nucleus of mass m.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

import torch
from torch import Tensor, nn

from clawback.models import ModelInfo, Sampling

if TYPE_CHECKING:
    from clawback.scoring import Choices
    from clawback.templates import Chat, NextSpeaker, Pixels


PLAIN = Sampling()


class Constraint(Protocol):
    """What an answer keeps to (``inference/schema_grammar.py``)."""

    def allowed(self, logits: Tensor) -> Tensor:
        """``logits [vocabulary]`` with minus infinity where a token would lead nowhere."""
        ...

    def take(self, token: int) -> None:
        """The next token of the answer."""
        ...

    @property
    def trouble(self) -> str:
        """Why it cannot go on; "" where it can."""
        ...


class ChatModel(Protocol):
    """A model that answers conversations: what a sampler needs of a policy."""

    model: nn.Module
    info: ModelInfo
    chat: Chat
    choices: Choices | None


def _ignore(*_: object) -> None:
    pass


def chances(seed: int, truncates: bool) -> Iterator[tuple[float, float]]:
    """Two random numbers for each token, without end: the second is for a first one that is cut off."""
    generator = torch.Generator().manual_seed(seed)
    while True:
        numbers = torch.rand(2 if truncates else 1, generator=generator).tolist()
        yield numbers[0], numbers[-1]


@dataclass(eq=False, slots=True)
class SamplingRequest:
    """A prompt, and the answer to it as it grows. The callbacks are called by whoever draws, and must not block."""

    prompt: Sequence[int]
    max_tokens: int
    on_token: Callable[[int, float], None] = _ignore
    """Token id and its log-prob under the policy at its temperature, the end token among them."""
    on_end: Callable[[str], None] = _ignore
    """``"stop"``, ``"length"``, ``"cancelled"``, or ``"error: …"``."""
    folder: Path | None = None
    """The adapter's folder, of a server with many; None is the base model."""
    sampling: Sampling = PLAIN
    seed: int = 0
    chance: Iterator[tuple[float, float]] = field(default_factory=lambda: iter(()))
    """The random numbers that decide each token; from ``seed`` where there are none."""
    speaker: NextSpeaker | None = None
    """Whose label ends it, as a stop token does."""
    pixels: Pixels | None = None
    """What is seen beside the prompt."""
    conversation: Hashable = None
    """What it is a turn of: what was read for one turn is there for the next."""
    constraint: Constraint | None = None
    """What the answer keeps to. The log-probs are the policy's own all the same."""
    choices: Choices | None = None
    """The texts that the answer may be. The log-probs are those among them: of the policy that is learned."""
    top: int = 0
    """So many of the likeliest tokens are noted at each place, in ``likeliest``."""
    ids: list[int] = field(default_factory=list)
    logprobs: list[float] = field(default_factory=list)
    likeliest: list[list[tuple[int, float]]] = field(default_factory=list)
    """(token, log-prob), likeliest first; complete up to a token when ``on_token`` is called."""
    end: str = ""
    """Why it ended, as for ``on_end``."""
    cancelled: bool = False
    cached: int = 0
    """Tokens of the prompt that did not have to be read, once it begins."""
    slot: int = 0
    """Where its adapter is on the shelf, if there is one."""
    passed: int = 0
    """Steps in which it had to wait for a slot."""

    def __post_init__(self) -> None:
        self.chance = chain(self.chance, chances(self.seed, self.sampling.truncates))

    def take(self, token: int, logprob: float) -> None:
        """The next token of the answer."""
        self.ids.append(token)
        self.logprobs.append(logprob)
        self.on_token(token, logprob)
        if self.constraint is not None:
            self.constraint.take(token)

    def finish(self, end: str) -> None:
        self.end = end
        self.on_end(end)


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
