"""An encoder and a regression head on (prompt, response): what people would say of an answer, in [0, 1].

Dropout 0.1, a linear layer and a sigmoid on what the encoder makes of the pair; the loss is the mean squared error to the rating, the
optimiser AdamW with weight decay 1e-5, and training ends when a share of the prompts that it does not see gets no better. The encoder
is one that the user names, fine-tuned by its [CLS] state, or, without any download, the frozen hidden states of a causal model (``members``).

Several members from different seeds, each with other prompts held back, make an ensemble: their mean is the score, their
standard deviation how unsure it is. What the members say of prompts held back from them calibrates the score.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from clawback.config import EMBEDDED
from clawback.errors import TrainingError, UsageError
from clawback.rewards import guards
from clawback.rewards.measures import Floats, Isotonic, isotonic, mse, shares, spearman
from clawback.rewards.members import Lens, Member, StatesMember, cross
from clawback.rewards.rated import Rated, Rows, hold_out
from clawback.rewards.state_features import Look, Pair

OnProgress = Callable[[Mapping[str, Any]], None]

STATES = "states:"
LEAST = 8
"""Ratings of different prompts under which nothing is trained."""


@dataclass(frozen=True, slots=True)
class Settings:
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
        """The causal model whose hidden states are read; "" for an encoder that is fine-tuned."""
        if self.encoder == EMBEDDED:
            return EMBEDDED
        return self.encoder.removeprefix(STATES) if self.encoder.startswith(STATES) else ""

    @property
    def most_epochs(self) -> int:
        return self.epochs or (60 if self.base else 8)

    @property
    def rate(self) -> float:
        return self.learning_rate or (5e-4 if self.base else 2e-5)


@dataclass(frozen=True)
class Encoder:
    """A trained ensemble. ``name`` says which one it is, wherever its word is taken; ``look`` reads for those on hidden states."""

    members: tuple[Member, ...]
    calibration: Isotonic
    look: Look | None = None
    name: str = "reward model"

    def each(self, pairs: Sequence[Pair]) -> Floats:
        """``[members, n]`` scores in (0, 1)."""
        if not pairs:
            return np.zeros((len(self.members), 0))
        looks = self.look(pairs) if self.look else None
        rows: list[Sequence[Any]] = [
            list(m.lens(looks)) if looks and isinstance(m, StatesMember) else pairs for m in self.members
        ]
        return np.array([m.predict(seen) for m, seen in zip(self.members, rows, strict=True)])

    def score(self, pairs: Sequence[Pair], pessimism: float = 0.0) -> Floats:
        """``[n]``: the members' mean, less ``pessimism`` standard deviations between them. Its order is what counts."""
        return guards.pessimistic(self.each(pairs), pessimism)

    def expected(self, scores: Floats) -> Floats:
        """Scores → the ratings in [0, 1] that answers with such a score got."""
        return self.calibration(scores)


@dataclass(frozen=True)
class Trained:
    """A reward model and how its training went, member by member: epochs, validation error and ρ."""

    encoder: Encoder
    history: tuple[dict[str, float], ...]


def fit(
    rated: Sequence[Rated],
    settings: Settings,
    *,
    look: Look | None = None,
    seed: int = 0,
    on_progress: OnProgress | None = None,
) -> Trained:
    """Train on all of these.

    Args:
        look: reads pairs with the causal model ``settings.base``; needed where that is not "".
        on_progress: told ``{"phase", "step", "steps", …}`` after each batch.

    Raises:
        TrainingError: too few ratings, or all the same.
        ModelError: the encoder cannot be loaded.
        MissingExtra: sentence-transformers is not installed.
    """
    values = np.array([r.value for r in rated])
    if len({r.prompt for r in rated}) < LEAST:
        raise TrainingError(f"A reward model needs ratings of at least {LEAST} different prompts.")
    if np.ptp(values) == 0:
        raise TrainingError(
            "All ratings are the same, so there is nothing to tell apart. Rate some of the other kind."
        )
    if settings.base and look is None:
        raise UsageError(
            f"A reward model on the hidden states of {settings.base} needs something to read them with."
        )
    targets = shares(values) if settings.targets == "ranks" else values
    prompts, pairs = [r.prompt for r in rated], [r.pair for r in rated]
    tell = on_progress or (lambda _: None)
    tell({"phase": "read"})
    looks = look(pairs) if look and settings.base else None
    lens = Lens.ground(looks) if looks else None
    rows: list[Any] = list(lens(looks)) if lens and looks else list(pairs)
    members, history, said, true = [], [], [], []
    for number in range(settings.members):
        learned, apart = hold_out(prompts, settings.validation, seed + number)
        member = _new(settings, lens, seed + number)

        def follow(p: Mapping[str, Any], phase: str = f"member {number + 1}") -> None:
            tell({**p, "phase": phase})

        if isinstance(member, StatesMember):
            member.begin(np.array([rows[i] for i in learned]), targets[learned])
        course = _Course(rows, targets, learned, apart, settings, seed + number)
        history.append(course.run(member, follow))
        members.append(member)
        said.append(course.best_predictions)
        true.append(values[apart])
    calibration = isotonic(np.concatenate(said), np.concatenate(true))
    return Trained(Encoder(tuple(members), calibration, look if looks else None), tuple(history))


def _new(settings: Settings, lens: Lens | None, seed: int) -> Member:
    """A member before its training; what is random in it follows from the seed."""
    import torch

    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)  # an encoder's head is new
        if lens is not None:
            return StatesMember(lens, settings.dropout)
        return cross(
            settings.encoder,
            max_length=settings.max_length,
            dropout=settings.dropout,
            revision=settings.revision,
            local=False,
        )


class _Course:
    """The training of one member."""

    def __init__(
        self, rows: Sequence[Any], targets: Floats, learned: Rows, apart: Rows, settings: Settings, seed: int
    ) -> None:
        self.rows, self.targets, self.settings, self.seed = rows, targets, settings, seed
        self.learned, self.apart = learned, apart
        self.best_predictions: Floats = np.zeros(0)

    def run(self, member: Member, tell: OnProgress) -> dict[str, float]:
        """Train it in place; it ends as it was after its best epoch."""
        import torch

        s = self.settings
        rng = np.random.default_rng(self.seed)
        optimizer = torch.optim.AdamW(member.parameters(), lr=s.rate, weight_decay=s.weight_decay)
        steps = s.most_epochs * -(-len(self.learned) // s.batch)
        schedule = torch.optim.lr_scheduler.OneCycleLR(
            optimizer, s.rate, total_steps=steps + 1, pct_start=0.1
        )
        best: tuple[float, int, dict[str, Any]] = (float("inf"), -1, {})
        held = [self.rows[i] for i in self.apart]
        done = 0
        with torch.random.fork_rng():
            torch.manual_seed(self.seed)
            for epoch in range(s.most_epochs):
                for rows in self._batches(rng):
                    loss = self._step(member, rows, optimizer)
                    schedule.step()
                    done += 1
                    tell({"step": done, "steps": steps, "loss": loss})
                said = member.predict(held)
                error = mse(said, self.targets[self.apart])
                if error < best[0]:
                    best, self.best_predictions = (error, epoch, member.state()), said
                elif epoch - best[1] >= s.patience:
                    break
        if not best[2]:
            raise TrainingError("The reward model's loss is no number: lower its learning rate.")
        member.restore(best[2])
        rho = spearman(self.best_predictions, self.targets[self.apart])
        tell({"step": steps, "steps": steps})
        return {
            "epochs": float(best[1] + 1),
            "mse": best[0],
            "spearman": rho,
            "rows": float(len(self.learned)),
        }

    def _batches(self, rng: np.random.Generator) -> list[Rows]:
        """Every row once; texts of like length together (less padding), the batches in random order."""
        s, order = self.settings, rng.permutation(self.learned)
        batches = []
        for start in range(0, len(order), 8 * s.batch):
            some = order[start : start + 8 * s.batch]
            if not s.base:
                some = np.array(sorted(some, key=lambda i: len(self.rows[i][1])))
            batches += [some[i : i + s.batch] for i in range(0, len(some), s.batch)]
        return [batches[int(i)] for i in rng.permutation(len(batches))]

    def _step(self, member: Member, rows: Rows, optimizer: Any) -> float:
        import torch

        said = member.forward([self.rows[i] for i in rows])  # [batch]
        wanted = torch.tensor(self.targets[rows], dtype=torch.float32, device=said.device)
        loss = torch.nn.functional.mse_loss(said, wanted)
        optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(member.parameters(), 1.0)
        optimizer.step()
        return float(loss.detach())
