"""An encoder and a regression head on (prompt, response): what people would say of an answer, in [0, 1].

The encoder's [CLS] state goes through dropout 0.1 and a linear layer to a sigmoid; the loss is the mean squared error to the rating, the
optimiser AdamW with weight decay 1e-5, and training ends when a share of the prompts that it does not see gets no better. Model,
tokenisation and prediction are sentence-transformers' ``CrossEncoder``; the loop is ours, for theirs needs ``datasets`` and its 200 MB.

Several members from different seeds, each with other prompts held back, make an ensemble: their mean is the score, their
standard deviation how unsure it is. What the members say of prompts held back from them calibrates the score.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from clawback.config import EMBEDDED
from clawback.errors import MissingExtra, ModelError, TrainingError, UsageError
from clawback.rewards import guards
from clawback.rewards.files import check_source
from clawback.rewards.measures import Floats, Isotonic, isotonic, mse, shares, spearman
from clawback.rewards.rated import Rated, Rows, hold_out

if TYPE_CHECKING:
    from sentence_transformers import CrossEncoder

Pair = tuple[str, str]
OnProgress = Callable[[Mapping[str, Any]], None]

LEAST = 8
"""Ratings of different prompts under which nothing is trained."""


@dataclass(frozen=True, slots=True)
class Settings:
    """How a reward model is trained."""

    encoder: str = EMBEDDED
    """``embedded``: made here from the rated texts; else a Hugging Face folder or hub id with safetensors."""
    revision: str | None = None
    members: int = 3
    epochs: int = 8
    batch: int = 32
    learning_rate: float = 0.0
    """0: 2e-3 for an encoder from scratch, 2e-5 for one with a past."""
    weight_decay: float = 1e-5
    dropout: float = 0.1
    max_length: int = 256
    """Tokens of prompt and response together; the longer of the two is cut."""
    validation: float = 0.15
    """Share of the prompts that each member does not learn from, and is stopped by."""
    patience: int = 2
    """Epochs without an improvement after which it ends."""
    targets: Literal["values", "ranks"] = "values"
    """``ranks``: learn (rank − ½)/n of the values. For skewed scores, where most errors would be one and the same."""

    def __post_init__(self) -> None:
        if min(self.members, self.epochs, self.batch, self.patience) < 1 or self.max_length < 16:
            raise UsageError(
                "Members, epochs, batch and patience are at least 1, and the length at least 16."
            )
        if not 0 < self.validation < 1 or not 0 <= self.dropout < 1:
            raise UsageError("The validation share is between 0 and 1, and so is the dropout.")

    @property
    def rate(self) -> float:
        return self.learning_rate or (2e-3 if self.encoder == EMBEDDED else 2e-5)


@dataclass(frozen=True)
class Encoder:
    """A trained ensemble. ``name`` says which one it is, wherever its word is taken."""

    members: tuple[CrossEncoder, ...]
    calibration: Isotonic
    name: str = "reward model"

    def each(self, pairs: Sequence[Pair]) -> Floats:
        """``[members, n]`` scores in (0, 1)."""
        rows = [list(p) for p in pairs]
        if not rows:
            return np.zeros((len(self.members), 0))
        made = [m.predict(rows, batch_size=64, show_progress_bar=False) for m in self.members]
        return np.asarray(made, dtype=np.float64)

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
    seed: int = 0,
    validation: Sequence[Rows] | None = None,
    on_progress: OnProgress | None = None,
) -> Trained:
    """Train on all of these.

    Args:
        validation: row numbers that each member is stopped by and does not learn from, where prompts dealt out at random are not
            what is wanted.
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
    targets = shares(values) if settings.targets == "ranks" else values
    prompts = [r.prompt for r in rated]
    held = validation or [
        hold_out(prompts, settings.validation, seed + member)[1] for member in range(settings.members)
    ]
    tell = on_progress or (lambda _: None)
    members, history, said, true = [], [], [], []
    with tempfile.TemporaryDirectory() as folder:
        for member, apart in enumerate(held):
            start = _start(settings, rated, Path(folder), seed + member)
            course = _Course(rated, targets, apart, settings, seed + member)
            history.append(course.run(start, lambda p, m=member: tell({**p, "phase": f"member {m + 1}"})))  # type: ignore[misc]
            members.append(start)
            said.append(course.best_predictions)
            true.append(values[apart])
    calibration = isotonic(np.concatenate(said), np.concatenate(true))
    return Trained(Encoder(tuple(members), calibration), tuple(history))


def cross_encoder(source: str, settings: Settings, *, local: bool) -> CrossEncoder:
    """Load an encoder with a head of one output and a sigmoid: safetensors only, no code from the model's repository."""
    try:
        from sentence_transformers import CrossEncoder
    except ImportError as error:
        raise MissingExtra(
            f"Reward models need a part that is not installed ({error.name}). Run: pip install 'clawback[reward]'"
        ) from error
    from torch import nn

    check_source(source)
    dropout = {} if local else {"classifier_dropout": settings.dropout}
    try:
        return CrossEncoder(
            source,
            num_labels=1,
            max_length=settings.max_length,
            activation_fn=nn.Sigmoid(),
            revision=settings.revision if not local else None,
            trust_remote_code=False,
            local_files_only=local,
            model_kwargs={"use_safetensors": True},
            config_kwargs=dropout,
        )
    except Exception as error:  # transformers raises many kinds; each means the same to the user
        reason = str(error).strip().split("\n")[0]
        raise ModelError(f"The encoder {source} cannot be loaded: {reason}") from error


def _start(settings: Settings, rated: Sequence[Rated], folder: Path, seed: int) -> CrossEncoder:
    """A member before its training; what is random in it follows from the seed."""
    import torch

    from clawback.rewards import scratch

    if settings.encoder == EMBEDDED:
        made = folder / str(seed)
        made.mkdir()
        texts = [text for r in rated for text in r.pair]
        scratch.make(made, texts, max_length=settings.max_length, dropout=settings.dropout, seed=seed)
        return cross_encoder(str(made), settings, local=True)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)  # the head is new
        return cross_encoder(settings.encoder, settings, local=False)


class _Course:
    """The training of one member."""

    def __init__(
        self, rated: Sequence[Rated], targets: Floats, apart: Rows, settings: Settings, seed: int
    ) -> None:
        self.pairs, self.targets, self.settings, self.seed = (
            [list(r.pair) for r in rated],
            targets,
            settings,
            seed,
        )
        self.apart = apart
        self.learned = np.setdiff1d(np.arange(len(rated)), apart)
        if not len(self.apart) or not len(self.learned):
            raise TrainingError("There are too few different prompts to hold some of them back.")
        self.best_predictions: Floats = np.zeros(0)

    def run(self, model: CrossEncoder, tell: OnProgress) -> dict[str, float]:
        """Train ``model`` in place; it ends as it was after its best epoch."""
        import torch

        s = self.settings
        rng = np.random.default_rng(self.seed)
        optimizer = torch.optim.AdamW(model.parameters(), lr=s.rate, weight_decay=s.weight_decay)
        steps = s.epochs * -(-len(self.learned) // s.batch)
        schedule = torch.optim.lr_scheduler.OneCycleLR(
            optimizer, s.rate, total_steps=steps + 1, pct_start=0.1
        )
        best: tuple[float, int, dict[str, Any]] = (float("inf"), -1, {})
        done = 0
        with torch.random.fork_rng():
            torch.manual_seed(self.seed)
            for epoch in range(s.epochs):
                for rows in self._batches(rng):
                    loss = self._step(model, rows, optimizer)
                    schedule.step()
                    done += 1
                    tell({"step": done, "steps": steps, "loss": loss})
                said = self._predict(model)
                error = mse(said, self.targets[self.apart])
                if error < best[0]:
                    state = {name: value.detach().clone() for name, value in model.state_dict().items()}
                    best, self.best_predictions = (error, epoch, state), said
                elif epoch - best[1] >= s.patience:
                    break
        if not best[2]:
            raise TrainingError("The reward model's loss is no number: lower its learning rate.")
        model.load_state_dict(best[2])
        model.eval()
        rho = spearman(self.best_predictions, self.targets[self.apart])
        tell({"step": steps, "steps": steps})
        return {
            "epochs": float(best[1] + 1),
            "mse": best[0],
            "spearman": rho,
            "rows": float(len(self.learned)),
        }

    def _batches(self, rng: np.random.Generator) -> list[Rows]:
        """Every row once, texts of like length together (less padding), the batches in random order."""
        s, order = self.settings, rng.permutation(self.learned)
        batches = []
        for start in range(0, len(order), 8 * s.batch):
            some = sorted(order[start : start + 8 * s.batch], key=lambda i: len(self.pairs[i][1]))
            batches += [np.array(some[i : i + s.batch]) for i in range(0, len(some), s.batch)]
        return [batches[int(i)] for i in rng.permutation(len(batches))]

    def _step(self, model: CrossEncoder, rows: Rows, optimizer: Any) -> float:
        import torch

        model.train()
        inputs = model.preprocess([self.pairs[i] for i in rows])
        inputs = {n: v.to(model.device) if hasattr(v, "to") else v for n, v in inputs.items()}
        said = torch.sigmoid(model(inputs)["scores"].float().squeeze(-1))  # [batch]
        wanted = torch.tensor(self.targets[rows], dtype=torch.float32, device=said.device)
        loss = torch.nn.functional.mse_loss(said, wanted)
        optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        return float(loss.detach())

    def _predict(self, model: CrossEncoder) -> Floats:
        rows = [self.pairs[i] for i in self.apart]
        return np.asarray(model.predict(rows, batch_size=64, show_progress_bar=False), dtype=np.float64)
