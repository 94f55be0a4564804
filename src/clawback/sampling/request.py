"""One answer that somebody wants: what it follows, how it is drawn, and what there is of it so far."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

import torch
from torch import Tensor, nn

from clawback.models import ModelInfo, Sampling

if TYPE_CHECKING:
    from clawback.models import Chat, NextSpeaker, Pixels
    from clawback.scoring import Choices

PLAIN = Sampling()


class Constraint(Protocol):
    """What an answer keeps to (``serve/schema_grammar.py``)."""

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
