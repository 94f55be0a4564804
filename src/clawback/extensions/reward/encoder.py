"""An encoder and a regression head on (prompt, response): what people would say of an answer, in [0, 1].

Dropout 0.1, a linear layer and a sigmoid on what the encoder makes of the pair; the loss is the mean squared error to the rating, the
optimiser AdamW with weight decay 1e-5, and training ends when a share of the prompts that it does not see gets no better. The encoder
is one that the user names, fine-tuned by its [CLS] state, or, without any download, the frozen hidden states of a causal model (``members``).
An encoder that is fine-tuned stands beside the latter, and what both say of prompts held back decides how much each counts.

Several members from different seeds, each with other prompts held back, make an ensemble: their mean is the score, their
standard deviation how unsure it is. What the members say of prompts held back from them calibrates the score.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from clawback.config import EMBEDDED
from clawback.errors import TrainingError, UsageError
from clawback.extensions.reward.measures import Isotonic, isotonic, mse, shares, spearman
from clawback.extensions.reward.members import (
    CrossMember,
    Lens,
    Member,
    StackedMember,
    StatesMember,
    Trainable,
    cross,
    stacking,
)
from clawback.extensions.reward.rated import RatedAnswer, Rows, hold_out
from clawback.features.state_features import Look, Pair
from clawback.progress import OnProgress
from clawback.rewards import overoptimization
from clawback.rewards.rating_likelihood import Floats

STATES = "states:"
LEAST = 8
"""Ratings of different prompts under which nothing is trained."""


@dataclass(frozen=True, slots=True)
class EncoderSettings:
    """How a reward model is trained. 0 stands for what suits the kind of encoder."""

    encoder: str = EMBEDDED
    """``embedded`` or ``states:MODEL``: hidden states of a causal model; else an encoder's folder or hub id, to be fine-tuned."""
    revision: str | None = None
    members: int = 3
    epochs: int = 0
    """At most: 60 on hidden states, 8 for an encoder."""
    batch: int = 32
    learning_rate: float = 0.0
    """5e-4 on hidden states, 2e-5 for an encoder."""
    weight_decay: float = 1e-5
    dropout: float = 0.1
    max_length: int = 512
    """Tokens of prompt and response together; the longer of the two is cut. On hidden states: of the response."""
    validation: float = 0.15
    """Share of the prompts that each member does not learn from, and is stopped by."""
    patience: int = 4
    """Epochs without an improvement after which it ends."""
    targets: Literal["values", "ranks"] = "values"
    """``ranks``: learn (rank − ½)/n of the values. For skewed scores, where most errors would be one and the same."""

    def __post_init__(self) -> None:
        if min(self.members, self.batch, self.patience) < 1 or self.max_length < 16 or self.epochs < 0:
            raise UsageError(
                "Members, epochs, batch and patience are at least 1, and the length at least 16."
            )
        if not 0 < self.validation < 1 or not 0 <= self.dropout < 1:
            raise UsageError("The validation share is between 0 and 1, and so is the dropout.")

    @property
    def base(self) -> str:
        """The causal model whose hidden states are read."""
        return self.encoder.removeprefix(STATES) if self.encoder.startswith(STATES) else EMBEDDED

    @property
    def fine_tuned(self) -> bool:
        """Whether there is an encoder of its own as well."""
        return self.encoder != EMBEDDED and not self.encoder.startswith(STATES)


@dataclass(frozen=True, slots=True)
class EncoderSchedule:
    """How a kind of network is trained where the settings say nothing."""

    rate: float
    epochs: int
    by_length: bool
    """Texts of like length together: less padding."""


HEAD = EncoderSchedule(5e-4, 60, by_length=False)
FINE_TUNED = EncoderSchedule(2e-5, 8, by_length=True)


@dataclass(frozen=True)
class Encoder:
    """A trained ensemble. ``name`` says which one it is, wherever its word is taken; ``look`` reads for those on hidden states."""

    members: tuple[Member, ...]
    calibration: Isotonic
    look: Look
    name: str = "reward model"

    def each(self, pairs: Sequence[Pair]) -> Floats:
        """``[members, n]`` scores in (0, 1)."""
        if not pairs:
            return np.zeros((len(self.members), 0))
        looks = self.look(pairs)
        return np.array([m.predict(m.rows(pairs, looks)) for m in self.members])

    def score(self, pairs: Sequence[Pair], pessimism: float = 0.0) -> Floats:
        """``[n]``: the members' mean, less ``pessimism`` standard deviations between them. Its order is what counts."""
        return overoptimization.pessimistic(self.each(pairs), pessimism)

    def expected(self, scores: Floats) -> Floats:
        """Scores → the ratings in [0, 1] that answers with such a score got."""
        return self.calibration(scores)


@dataclass(frozen=True)
class Trained:
    """A reward model and how its training went, member by member: epochs, validation error and ρ."""

    encoder: Encoder
    history: tuple[dict[str, float], ...]


def fit(
    rated: Sequence[RatedAnswer],
    settings: EncoderSettings,
    *,
    look: Look,
    seed: int = 0,
    on_progress: OnProgress | None = None,
) -> Trained:
    """Train on all of these.

    Args:
        look: reads pairs with the causal model ``settings.base``.
        on_progress: told ``{"phase", "step", "steps", …}`` after each batch.

    Raises:
        TrainingError: too few ratings, or all the same.
        ModelError: the encoder cannot be loaded.
        MissingExtra: sentence-transformers is not installed.
    """
    values = _values(rated)
    targets = shares(values) if settings.targets == "ranks" else values
    prompts, pairs = [r.prompt for r in rated], [r.pair for r in rated]
    tell = on_progress or (lambda _: None)
    tell({"phase": "read"})
    lens = Lens.ground(looks := look(pairs))
    courses, heads, encoders = [], [], []
    for number in range(settings.members):
        learned, apart = hold_out(prompts, settings.validation, seed + number)
        course = _Course(targets, learned, apart, settings, seed + number)

        def follow(p: Mapping[str, object], phase: str = f"member {number + 1}") -> None:
            tell({**p, "phase": phase})

        head = StatesMember(lens, settings.dropout)
        rows = head.rows(pairs, looks)
        head.begin(np.array([rows[i] for i in learned]), targets[learned])
        heads.append((head, course.run(head, rows, follow, HEAD)))
        if settings.fine_tuned:
            member = _new(settings, seed + number)
            encoders.append((member, course.run(member, pairs, follow, FINE_TUNED)))
        courses.append(course)
    apart = np.concatenate([course.apart for course in courses])
    said = np.concatenate([best.predictions for _, best in heads])
    members: list[Member] = [head for head, _ in heads]
    history = [best.history(course) for (_, best), course in zip(heads, courses, strict=True)]
    if encoders:
        theirs = np.concatenate([best.predictions for _, best in encoders])
        share = stacking(theirs, said, targets[apart])
        said = share * theirs + (1 - share) * said
        members = [StackedMember(e, h, share) for (e, _), (h, _) in zip(encoders, heads, strict=True)]
        history = [
            {
                **ours,
                "share": share,
                **{f"encoder_{name}": value for name, value in best.history(course).items()},
            }
            for ours, (_, best), course in zip(history, encoders, courses, strict=True)
        ]
    calibration = isotonic(said, values[apart])
    return Trained(Encoder(tuple(members), calibration, look), tuple(history))


def _values(rated: Sequence[RatedAnswer]) -> Floats:
    """``[n]`` what was said of the answers. Raises ``TrainingError`` where that is too little, or all the same."""
    values = np.array([r.value for r in rated])
    if len({r.prompt for r in rated}) < LEAST:
        raise TrainingError(f"A reward model needs ratings of at least {LEAST} different prompts.")
    if np.ptp(values) == 0:
        raise TrainingError(
            "All ratings are the same, so there is nothing to tell apart. Rate some of the other kind."
        )
    return values


def _new(settings: EncoderSettings, seed: int) -> CrossMember:
    """An encoder before its training; what is random in it follows from the seed."""
    import torch

    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)  # its head is new
        return cross(
            settings.encoder,
            max_length=settings.max_length,
            dropout=settings.dropout,
            revision=settings.revision,
            local=False,
        )


@dataclass(frozen=True, slots=True)
class _Best:
    """A member's best epoch, and what it said then of the prompts held back from it."""

    epoch: int
    mse: float
    predictions: Floats

    def history(self, course: _Course) -> dict[str, float]:
        rho = spearman(self.predictions, course.targets[course.apart])
        rows = float(len(course.learned))
        return {"epochs": float(self.epoch + 1), "mse": self.mse, "spearman": rho, "rows": rows}


class _Course:
    """The training of one member, on the same prompts for each part of it."""

    def __init__(
        self, targets: Floats, learned: Rows, apart: Rows, settings: EncoderSettings, seed: int
    ) -> None:
        self.targets, self.settings, self.seed = targets, settings, seed
        self.learned, self.apart = learned, apart

    def run(
        self, member: Trainable, rows: Sequence[object], tell: OnProgress, pace: EncoderSchedule
    ) -> _Best:
        """Train it in place; it ends as it was after its best epoch."""
        import torch

        s = self.settings
        rate, epochs = s.learning_rate or pace.rate, s.epochs or pace.epochs
        rng = np.random.default_rng(self.seed)
        optimizer = torch.optim.AdamW(member.parameters(), lr=rate, weight_decay=s.weight_decay)
        steps = epochs * -(-len(self.learned) // s.batch)
        schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, rate, total_steps=steps + 1, pct_start=0.1)
        best, weights = _Best(-1, float("inf"), np.zeros(0)), dict[str, Any]()
        held = [rows[i] for i in self.apart]
        done = 0
        with torch.random.fork_rng():
            torch.manual_seed(self.seed)
            for epoch in range(epochs):
                for some in self._batches(rows, rng, by_length=pace.by_length):
                    loss = self._step(member, rows, some, optimizer)
                    schedule.step()
                    done += 1
                    tell({"step": done, "steps": steps, "loss": loss})
                said = member.predict(held)
                error = mse(said, self.targets[self.apart])
                if error < best.mse:
                    best, weights = _Best(epoch, error, said), member.state()
                elif epoch - best.epoch >= s.patience:
                    break
        if not weights:
            raise TrainingError("The reward model's loss is no number: lower its learning rate.")
        member.restore(weights)
        tell({"step": steps, "steps": steps})
        return best

    def _batches(self, rows: Sequence[Any], rng: np.random.Generator, *, by_length: bool) -> list[Rows]:
        """Every row once; texts of like length together (less padding), the batches in random order."""
        s, order = self.settings, rng.permutation(self.learned)
        batches = []
        for start in range(0, len(order), 8 * s.batch):
            some = order[start : start + 8 * s.batch]
            if by_length:
                some = np.array(sorted(some, key=lambda i: len(rows[i][1])))
            batches += [some[i : i + s.batch] for i in range(0, len(some), s.batch)]
        return [batches[int(i)] for i in rng.permutation(len(batches))]

    def _step(self, member: Trainable, rows: Sequence[Any], some: Rows, optimizer: Any) -> float:
        import torch

        said = member.forward([rows[i] for i in some])  # [batch]
        wanted = torch.tensor(self.targets[some], dtype=torch.float32, device=said.device)
        loss = torch.nn.functional.mse_loss(said, wanted)
        optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(member.parameters(), 1.0)
        optimizer.step()
        return float(loss.detach())
