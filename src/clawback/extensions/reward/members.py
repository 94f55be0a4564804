"""The two kinds of network that a reward model is made of, as the training loop sees them: score some rows, predict, save.

``CrossMember``: an encoder that reads prompt and response together, [CLS] → dropout → linear → sigmoid (sentence-transformers'
``CrossEncoder``). ``StatesMember``: the same head on what a causal model makes of the response, its hidden states averaged over the
tokens, beside the counts of everyday tokens and the answer's shape; the model itself is frozen. ``StackedMember``: one of each, since from some
dozens of ratings an encoder often learns nothing that the other does not read at once.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
from numpy.typing import NDArray

from clawback import installed
from clawback.errors import MissingExtra, ModelError
from clawback.features.state_features import Looks, Pair, shape
from clawback.rewards.rating_likelihood import Floats

if TYPE_CHECKING:
    from sentence_transformers import CrossEncoder
    from torch import Tensor

HEAD = "head.safetensors"
ENCODER = "encoder"
"""The folder of a stacked member's encoder, beside its head."""
OURS = "sentence_transformers."
"""Where the parts of an encoder may come from."""

EVERYDAY = 0.02
"""A token is counted where at least this share of the rated answers hold it and as many do not."""
TOKENS, SHAPE = 0.1, 0.45
"""Shares of the counts and of the shape in the squared length of an average answer; the rest are the hidden states'."""
FURTHEST = 4.0
"""Standard deviations from the mean of the rated answers at which a feature is cut off."""
START = 0.5
"""Of the steepness with which targets vary, that a member starts with: a prediction varies less than what it predicts."""
LENGTH = 12.0
"""Length of an average answer's features, by which a learning rate means the same for every model."""


class Member(Protocol):
    """One network of the ensemble, as it is used."""

    def rows(self, pairs: Sequence[Pair], looks: Looks) -> Sequence[Any]:
        """What it is given of (prompt, response) pairs and of what a causal model made of them."""
        ...

    def predict(self, rows: Sequence[object]) -> Floats:
        """``[n]`` scores in (0, 1), without dropout."""
        ...

    def save(self, folder: Path) -> None:
        """Into an existing folder."""
        ...


class Trainable(Member, Protocol):
    """A network that can be trained."""

    def parameters(self) -> list[Any]: ...

    def state(self) -> dict[str, Tensor]:
        """Copies of the weights."""
        ...

    def restore(self, state: dict[str, Tensor]) -> None: ...

    def forward(self, rows: Sequence[object]) -> Tensor:
        """``[batch]`` scores in (0, 1), differentiable, with dropout."""
        ...


class CrossMember:
    """Rows are (prompt, response)."""

    def __init__(self, model: CrossEncoder) -> None:
        self.model = model

    def rows(self, pairs: Sequence[Pair], looks: Looks) -> Sequence[Any]:
        del looks
        return pairs

    def parameters(self) -> list[Any]:
        return list(self.model.parameters())

    def state(self) -> dict[str, Tensor]:
        return {name: value.detach().clone() for name, value in self.model.state_dict().items()}

    def restore(self, state: dict[str, Tensor]) -> None:
        self.model.load_state_dict(state)

    def forward(self, rows: Sequence[Any]) -> Tensor:
        import torch

        self.model.train()
        inputs = self.model.preprocess([list(row) for row in rows])
        inputs = {n: v.to(self.model.device) if hasattr(v, "to") else v for n, v in inputs.items()}
        return torch.sigmoid(self.model(inputs)["scores"].float().squeeze(-1))

    def predict(self, rows: Sequence[Any]) -> Floats:
        pairs: Any = [list(row) for row in rows]
        return np.asarray(self.model.predict(pairs, batch_size=64, show_progress_bar=False), dtype=np.float64)

    def save(self, folder: Path) -> None:
        self.model.save_pretrained(str(folder), create_model_card=False)


def cross(source: str, *, max_length: int, dropout: float, revision: str | None, local: bool) -> CrossMember:
    """An encoder with a head of one output: safetensors only, no code from the model's repository.

    Raises ``ModelError`` where it cannot be loaded, ``MissingExtra`` without sentence-transformers.
    """
    try:
        from sentence_transformers import CrossEncoder
    except ImportError as error:
        raise MissingExtra(
            f"This encoder needs a part that is not installed ({error.name}). Run: {installed.add('reward')}"
        ) from error
    from torch import nn

    check_source(source)
    try:
        model = CrossEncoder(
            source,
            num_labels=1,
            max_length=max_length,
            activation_fn=nn.Sigmoid(),
            revision=revision,
            trust_remote_code=False,
            local_files_only=local,
            model_kwargs={"use_safetensors": True},
            config_kwargs={} if local else {"classifier_dropout": dropout},
        )
    except Exception as error:  # transformers raises many kinds; each means the same to the user
        reason = str(error).strip().split("\n")[0]
        raise ModelError(f"The encoder {source} cannot be loaded: {reason}") from error
    return CrossMember(model)


def check_source(source: str) -> None:
    """Refuse a folder whose weights are pickled or which brings code. A hub id is left to the loader, which takes safetensors only.

    Raises ``ModelError`` with what to do.
    """
    folder = Path(source).expanduser()
    if not folder.is_dir():
        if folder.is_absolute() or source.startswith((".", "~")):
            raise ModelError(
                f"There is no folder {source}. Check the path, or name a model of the Hugging Face hub."
            )
        return
    if not (folder / "config.json").is_file():
        raise ModelError(f"{source} is no model folder: it has no config.json.")
    if not any(folder.glob("*.safetensors")):
        raise ModelError(
            f"{source} holds no safetensors weights; pickled ones may run code when loaded. Convert them first."
        )
    if code := next(folder.rglob("*.py"), None):
        raise ModelError(
            f"{source} brings code of its own ({code.name}), which is never run. Take another model."
        )
    modules = folder / "modules.json"
    if modules.is_file():
        try:
            kinds = [str(m["type"]) for m in json.loads(modules.read_text("utf-8"))]
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise ModelError(f"{modules} cannot be read: {error}.") from error
        if strange := next((k for k in kinds if not k.startswith(OURS)), None):
            raise ModelError(f"{source} asks for code of its own ({strange}), which is never run.")


@dataclass(frozen=True, slots=True)
class Lens:
    """How looks become the rows of a ``StatesMember``: everything standardised over the rated answers."""

    centre: Floats  # [h]
    spread: Floats  # [h]
    shape: Floats  # [s] mean of each number of the shape
    shapes: Floats  # [s] its spread
    tokens: NDArray[np.int64]  # [k] everyday tokens
    usual: Floats  # [k] mean of log(1 + count)
    varied: Floats  # [k]

    @classmethod
    def ground(cls, looks: Looks) -> Lens:
        held: dict[int, int] = {}
        for ids in looks.tokens:
            for token in set(ids):
                held[token] = held.get(token, 0) + 1
        count = len(looks.tokens)
        least = max(EVERYDAY * count, 2)
        tokens = np.array(sorted(t for t, n in held.items() if least <= n <= count - least), dtype=np.int64)
        counts = _counts(tokens, looks.tokens)
        states, shapes = looks.states, looks.shapes
        return cls(
            states.mean(0),
            _spread(states),
            shapes.mean(0),
            _spread(shapes),
            tokens,
            counts.mean(0),
            _spread(counts),
        )

    def __call__(self, looks: Looks) -> Floats:
        """``[n, h + s + k]``, float64."""
        # Beyond FURTHEST an answer is unlike all that were rated: it must not get there what nobody ever said.
        words = np.clip((_counts(self.tokens, looks.tokens) - self.usual) / self.varied, -FURTHEST, FURTHEST)
        states = np.clip((looks.states - self.centre) / self.spread, -FURTHEST, FURTHEST)
        shapes = np.clip((looks.shapes - self.shape) / self.shapes, -FURTHEST, FURTHEST)
        share = TOKENS if len(self.tokens) else 0.0
        scaled = (
            states * (LENGTH * np.sqrt((1 - SHAPE - share) / states.shape[1])),
            shapes * (LENGTH * np.sqrt(SHAPE / shapes.shape[1])),
            words * (LENGTH * np.sqrt(share / max(len(self.tokens), 1))),
        )
        return np.hstack(scaled)


def _spread(x: Floats) -> Floats:
    """Standard deviations; infinite where nothing varied, for of such a feature nothing is known."""
    spread = x.std(0)
    return np.asarray(np.where(spread > 1e-6, spread, np.inf), dtype=np.float64)


def _counts(tokens: NDArray[np.int64], answers: Sequence[Sequence[int]]) -> Floats:
    """``[n, k]`` log(1 + how often each of the tokens occurs)."""
    place = {int(t): i for i, t in enumerate(tokens)}
    found = np.zeros((len(answers), len(tokens)))
    for row, ids in enumerate(answers):
        for token in ids:
            if (column := place.get(int(token))) is not None:
                found[row, column] += 1
    return np.asarray(np.log1p(found), dtype=np.float64)


class StatesMember:
    """Rows are features ``[h + s + k]`` of a ``Lens``; a dropout and a linear layer are all there is to train."""

    def __init__(self, lens: Lens, dropout: float) -> None:
        import torch

        self.lens, self.dropout = lens, dropout
        size = len(lens.centre) + len(lens.shape) + len(lens.tokens)
        self.weight = torch.zeros(size, requires_grad=True)
        self.bias = torch.zeros(1, requires_grad=True)

    def rows(self, pairs: Sequence[Pair], looks: Looks) -> Sequence[Any]:
        del pairs
        return list(self.lens(looks))

    def begin(self, rows: Floats, targets: Floats) -> None:
        """Start where the liked answers lie as seen from the disliked ones: the direction that ``similarity`` looks along, as steep as
        fits the spread of the targets. Training then turns it no further than held-back prompts bear out."""
        import torch

        mean = float(np.clip(targets.mean(), 0.01, 0.99))
        toward = (targets - targets.mean()) @ (rows - rows.mean(0))
        spread = float((rows @ toward).std())
        steep = float(targets.std()) * START / (mean * (1 - mean)) / spread if spread > 0 else 0.0
        self.weight.data = torch.tensor(steep * toward, dtype=torch.float32)
        self.bias.data = torch.tensor([float(np.log(mean / (1 - mean)) - steep * (rows.mean(0) @ toward))])

    def parameters(self) -> list[Any]:
        return [self.weight, self.bias]

    def state(self) -> dict[str, Tensor]:
        return {"weight": self.weight.detach().clone(), "bias": self.bias.detach().clone()}

    def restore(self, state: dict[str, Tensor]) -> None:
        self.weight.data, self.bias.data = state["weight"].clone(), state["bias"].clone()

    def forward(self, rows: Sequence[object]) -> Tensor:
        import torch

        seen = torch.tensor(np.asarray(rows), dtype=torch.float32)
        seen = torch.nn.functional.dropout(seen, self.dropout)
        return torch.sigmoid(seen @ self.weight + self.bias)

    def predict(self, rows: Sequence[object]) -> Floats:
        x = np.asarray(rows, dtype=np.float64)
        said = x @ self.weight.detach().double().numpy() + float(self.bias.detach())
        return np.asarray(1 / (1 + np.exp(-said)), dtype=np.float64)

    def save(self, folder: Path) -> None:
        from safetensors.numpy import save_file

        lens = {name: getattr(self.lens, name) for name in Lens.__slots__}
        save_file(lens | {n: v.numpy() for n, v in self.state().items()}, folder / HEAD)


def states(folder: Path) -> StatesMember:
    """What ``StatesMember.save`` wrote. Raises ``ModelError`` where it cannot be read."""
    import torch
    from safetensors import SafetensorError
    from safetensors.numpy import load_file

    try:
        arrays = load_file(folder / HEAD)
        if len(arrays["shape"]) != len(shape("", "")):
            raise ValueError("it was trained to look at other things than are looked at now")
        member = StatesMember(Lens(**{name: arrays[name] for name in Lens.__slots__}), 0.0)
        member.restore({name: torch.from_numpy(arrays[name]) for name in ("weight", "bias")})
    except (OSError, KeyError, ValueError, SafetensorError) as error:
        raise ModelError(
            f"{folder / HEAD} cannot be read: {error}. Train again: `clawback lab reward train`."
        ) from error
    return member


class StackedMember:
    """``share`` of an encoder's score and the rest of that of a head on hidden states, both trained. Rows are (pair, features)."""

    def __init__(self, encoder: CrossMember, head: StatesMember, share: float) -> None:
        self.encoder, self.head, self.share = encoder, head, share

    def rows(self, pairs: Sequence[Pair], looks: Looks) -> Sequence[Any]:
        return list(zip(self.encoder.rows(pairs, looks), self.head.rows(pairs, looks), strict=True))

    def predict(self, rows: Sequence[Any]) -> Floats:
        one = self.encoder.predict([pair for pair, _ in rows])
        other = self.head.predict([features for _, features in rows])
        return np.asarray(self.share * one + (1 - self.share) * other, dtype=np.float64)

    def save(self, folder: Path) -> None:
        (folder / ENCODER).mkdir()
        self.encoder.save(folder / ENCODER)
        self.head.save(folder)


def stacking(first: Floats, other: Floats, targets: Floats) -> float:
    """The share of ``first`` in [0, 1] whose mixture with ``other`` is nearest to the targets ``[n]``, of predictions that neither was
    fitted on: stacked regression (Wolpert 1992; with weights that are not negative, Breiman 1996)."""
    apart = first - other
    spread = float(apart @ apart)
    return float(np.clip((targets - other) @ apart / spread, 0.0, 1.0)) if spread > 0 else 0.5
