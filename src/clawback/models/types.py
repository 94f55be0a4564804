"""The records that go in and out of the engine. No torch."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal

from clawback.errors import UsageError
from clawback.records import Ending

if TYPE_CHECKING:
    from pathlib import Path


Bucket = Literal["micro", "tiny", "small", "mid", "large", "xl"]
Kind = Literal["dense", "moe"]
Bits = Literal[32, 16, 8, 4]
"""Of a stored weight. 16 is bfloat16; 8 and 4 are bitsandbytes' LLM.int8 and NF4, CUDA only."""
Holder = Literal["hub", "ollama", "lmstudio", "wheel", "file"]

_BUCKETS: tuple[tuple[float, Bucket], ...] = ((2e9, "tiny"), (8e9, "small"), (20e9, "mid"), (45e9, "large"))


@dataclass(frozen=True, slots=True)
class Sampling:
    """How the next token is drawn from a model's logits.

    The policy, whose log-probs, ratios, entropy and KL everything else speaks of, is softmax(logits / temperature) over the
    whole vocabulary. ``top_p`` and ``top_k`` cut its tail off when a token is drawn and are not part of the log-prob: the
    truncated distribution gives some tokens no probability at all, so a ratio or a KL to it need not exist, and what is cut
    depends on the weights, so its gradient jumps. TRL (GRPO) and verl divide the logits by the temperature likewise and leave
    truncation out.
    """

    temperature: float = 1.0
    """0 takes the likeliest token; log-probs are then those at temperature 1."""
    top_p: float = 1.0
    """Tokens are drawn from the fewest likeliest that have this probability together. 1: from all."""
    top_k: int = 0
    """Tokens are drawn from this many likeliest. 0: from all."""

    def __post_init__(self) -> None:
        if not (math.isfinite(self.temperature) and self.temperature >= 0):
            raise UsageError(f"A temperature must be 0 or more, not {self.temperature}.")
        if not 0 < self.top_p <= 1:
            raise UsageError(f"top_p must be above 0 and at most 1, not {self.top_p}.")
        if self.top_k < 0:
            raise UsageError(f"top_k must be 0 (off) or more, not {self.top_k}.")

    @property
    def scale(self) -> float:
        """What logits are divided by before they become log-probs."""
        return self.temperature or 1.0

    @property
    def truncates(self) -> bool:
        return self.temperature > 0 and (self.top_p < 1 or self.top_k > 0)

    def but(
        self, *, temperature: float | None = None, top_p: float | None = None, top_k: int | None = None
    ) -> Sampling:
        """The same with what is given in place of its own; None keeps it."""
        return Sampling(
            self.temperature if temperature is None else temperature,
            self.top_p if top_p is None else top_p,
            self.top_k if top_k is None else top_k,
        )


GREEDY = Sampling(temperature=0.0)


@dataclass(frozen=True, slots=True)
class Completion:
    """One sampled answer, token by token."""

    text: str
    ids: tuple[int, ...]
    """Response tokens, with the end token where there is one."""
    logprobs: tuple[float, ...]
    """Log-probability of each under the policy that sampled it: the tempered one, over the whole vocabulary (``Sampling``)."""
    finished: bool
    """True when it ended with an end token and not at the limit."""
    thinking: str = ""
    """What was thought before the answer; no part of ``text``."""
    thought: int = 0
    """How many of ``ids`` that are."""
    stopped: bool = False
    """True when the next speaker's label ended it: complete, and without an end token."""

    @property
    def ending(self) -> Ending:
        """Why it ended."""
        return "length" if not self.finished else "stop" if self.stopped else "done"

    @property
    def answer_ids(self) -> tuple[int, ...]:
        """The tokens of ``text`` alone: what is rated and graded."""
        return self.ids[self.thought :]


@dataclass(frozen=True, slots=True)
class ModelInfo:
    """What a model is made of, as far as presets and estimates need to know."""

    base: str
    revision: str
    """Where they were found: a commit hash, or ``sha256:…`` of a local folder."""
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
    weights: str = ""
    """``weights:…`` over their content; like the next three, "" where it has not been read (``models/identity.py``)."""
    settings: str = field(default="", repr=False)
    """The fields of ``config.json`` that shape the computation, as JSON."""
    tokenizer: str = ""
    template: str = field(default="", repr=False)
    """The chat template's text."""

    @property
    def names(self) -> set[str]:
        """What the weights may be called in a file that says which base it belongs to."""
        return {self.revision, self.weights} - {""}

    @property
    def kind(self) -> Kind:
        return "moe" if self.experts > 1 else "dense"

    @property
    def sparsity(self) -> float:
        """Total over active parameters; 1 for a dense model."""
        return self.total_parameters / max(1, self.active_parameters)

    @property
    def reads_states(self) -> bool:
        """Whether what its hidden states show of an answer counts when ratings are read: for the smallest models alone."""
        return self.bucket == "micro"

    @property
    def bucket(self) -> Bucket:
        """Size class by active parameters; ``micro`` is less than 50 million in all."""
        if self.total_parameters < 50e6:
            return "micro"
        for limit, name in _BUCKETS:
            if self.active_parameters <= limit:
                return name
        return "xl"


_NAMED_BASE = re.compile(r"[-_. ](base|pt|pretrain(ed)?)(?=$|[-_. :/])")


@dataclass(frozen=True, slots=True)
class LocalModel:
    """A model on this machine."""

    name: str
    """What ``--model`` takes."""
    holder: Holder
    path: Path
    bytes: int
    """On the disk."""
    info: ModelInfo
    licence: str
    chat: bool
    """Has it a chat template?"""
    problem: str = ""
    """Why it cannot be trained, in a sentence."""
    storage: str = ""
    """How its weights are stored: ``Q4_K_M``, ``bfloat16``; "" where its files do not say."""

    @property
    def kind(self) -> str:
        """``instruct`` for a model that was made to answer; ``base`` for one without a chat template, or that is named so."""
        return "instruct" if self.chat and not _NAMED_BASE.search(self.name.lower()) else "base"


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
    instruction: str = ""
    """The taste in words, where a sentence made the base answer as the ratings want."""
    episodes: dict[str, Any] = field(default_factory=dict)
    """Where it was trained on episodes: the environment, its tasks, and how they were played."""
    metrics: dict[str, float] = field(default_factory=dict)
    """Figures of the last steps, with ``seconds``, ``tokens`` and ``tokens_per_second``."""
    history: tuple[dict[str, float], ...] = ()
    """Figures of every step."""
    rewards: tuple[dict[str, Any], ...] = ()
    """Where rewards add up from more than feedback: ``{"turn", "reward", "terms": {name: (value, share)}}`` of each sample."""
