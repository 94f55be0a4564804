"""What goes in and out of the engine. Plain records, no torch."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal, Protocol

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import ArrayLike

Bucket = Literal["micro", "tiny", "small", "mid", "large", "xl"]
Kind = Literal["dense", "moe"]

_BUCKETS: tuple[tuple[float, Bucket], ...] = ((2e9, "tiny"), (8e9, "small"), (20e9, "mid"), (45e9, "large"))


class Grader(Protocol):
    """What can stand in for the head when imagined answers are graded. ``name`` says which one, and changes when it does."""

    @property
    def name(self) -> str: ...

    def __call__(self, pairs: Sequence[tuple[str, str]]) -> ArrayLike:
        """(prompt, response) → ``[n]`` rewards in [-1, 1]; the same pairs give the same rewards."""
        ...


@dataclass(frozen=True, slots=True)
class Completion:
    """One sampled answer, token by token."""

    text: str
    ids: tuple[int, ...]
    """Response tokens, with the end token where there is one."""
    logprobs: tuple[float, ...]
    """Log-probability of each under the policy that sampled it (at temperature 1)."""
    finished: bool
    """True when it ended with an end token and not at the limit."""


@dataclass(frozen=True, slots=True)
class ModelInfo:
    """What a model is made of, as far as presets and estimates need to know."""

    base: str
    revision: str
    """Identity of the weights: a commit hash, or ``sha256:…`` of a local folder."""
    architecture: str
    total_parameters: int
    active_parameters: int
    """Parameters that one token passes through; fewer than the total in a mixture of experts."""
    hidden: int
    layers: int
    vocabulary: int
    intermediate: int
    context: int
    """Positions the model was made for."""
    experts: int = 0

    @property
    def kind(self) -> Kind:
        return "moe" if self.experts > 1 else "dense"

    @property
    def sparsity(self) -> float:
        """Total over active parameters; 1 for a dense model."""
        return self.total_parameters / max(1, self.active_parameters)

    @property
    def bucket(self) -> Bucket:
        """Size class by active parameters; ``micro`` is less than 50 million in all."""
        if self.total_parameters < 50e6:
            return "micro"
        for limit, name in _BUCKETS:
            if self.active_parameters <= limit:
                return name
        return "xl"


@dataclass(frozen=True, slots=True)
class TrainResult:
    """What a run made, and all that is needed to say how."""

    path: str
    """The adapter: a plain PEFT folder."""
    algorithm: str
    """The one that was used (``auto`` chooses)."""
    note: str
    """Why it was chosen, in a sentence; empty where it was asked for."""
    base: str
    base_revision: str
    seed: int
    steps: int
    """Optimizer steps whose result was kept."""
    stopped: str
    """Why the run ended early, in a sentence; empty when it ran to its end."""
    turn_ids: tuple[int, ...]
    """Turns whose ratings were trained on."""
    baseline: float
    """The moving average of ratings after this run: pass it to the next."""
    metrics: dict[str, float] = field(default_factory=dict)
    """Figures of the last steps, with ``seconds``, ``tokens`` and ``tokens_per_second``."""
    history: tuple[dict[str, float], ...] = ()
    """Figures of every step."""
    rewards: tuple[dict[str, Any], ...] = ()
    """Where rewards add up from more than feedback: ``{"turn", "reward", "terms": {name: (value, share)}}`` of each sample."""
