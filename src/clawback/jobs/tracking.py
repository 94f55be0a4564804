"""Sends a run's figures to trackers (TensorBoard, Weights & Biases, Trackio), from what ``on_progress`` reports."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from clawback import installed
from clawback.errors import MissingExtra, UsageError
from clawback.progress import OnProgress, Progress

if TYPE_CHECKING:
    from clawback.records import JsonObject

SCALARS = {
    "loss": "train/loss",
    "policy_loss": "train/policy_loss",
    "kl_loss": "train/kl",
    "reward": "train/reward",
    "clip_fraction": "train/clip_fraction",
    "trajectory_clipped": "train/trajectory_clipped",
    "trajectory_scale": "train/trajectory_scale",
    "ratio": "train/ratio",
    "entropy": "train/entropy",
    "drift": "train/drift",
    "reward_std": "train/reward_std",
    "learning_rate": "train/learning_rate",
    "grad_norm": "train/grad_norm",
    "tokens_per_second": "speed/tokens_per_second",
}
"""Names in trackers. Figures of an algorithm that are not listed appear under ``train/``."""
OPENCLAW_RL = {
    "loss": "loss/total",
    "binary_loss": "loss/binary",
    "opd_loss": "loss/opd",
    "reward": "reward/mean",
    "reward_std": "reward/std",
    "grad_norm": "gradient/norm",
    "learning_rate": "learning_rate",
}
"""OpenClaw-RL's names for what it shows, too."""
NAMES: Mapping[str, Mapping[str, str]] = {"clawback": SCALARS, "openclaw-rl": {**SCALARS, **OPENCLAW_RL}}
_NOT_SCALARS = {"phase", "step", "steps", "seconds", "tokens"}


def both(*listeners: OnProgress) -> OnProgress:
    """One listener that tells several."""

    def tell(progress: Progress) -> None:
        for listener in listeners:
            listener(progress)

    return tell


class Tracker(Protocol):
    def log(self, step: int, figures: Mapping[str, float]) -> None:
        """The figures of a step, by name."""

    def alert(self, text: str) -> None:
        """A run was stopped: why."""

    def close(self) -> None: ...


def scalars(progress: Progress, names: str = "clawback") -> dict[str, float]:
    """The figures of a step under the names that trackers show; empty for anything that is no step."""
    if progress.get("phase") != "train":
        return {}
    return {
        NAMES[names].get(name, f"train/{name}"): float(value)
        for name, value in progress.items()
        if name not in _NOT_SCALARS and isinstance(value, (int, float))
    }


@contextmanager
def track(
    names: Sequence[str], folder: Path, run: str, settings: Mapping[str, object], called: str = "clawback"
) -> Iterator[OnProgress]:
    """Tell every named tracker what a run does.

    Args:
        names: ``tensorboard``, ``wandb``, ``trackio``.
        folder: where they keep what they write; nothing leaves the machine unless the person has set a tracker up for it.
        run: what the run is called there.
        settings: what it is made of.
        called: whose names figures have there (``NAMES``).

    Raises:
        UsageError: a tracker that there is not.
        MissingExtra: one that is not installed.
    """
    known: dict[str, Callable[[Path, str, Mapping[str, Any]], Tracker]] = {
        "tensorboard": TensorBoard,
        "wandb": WeightsAndBiases,
        "trackio": Trackio,
    }
    if unknown := sorted(set(names) - set(known)):
        raise UsageError(f"There is no tracker {unknown[0]!r}; there are: {', '.join(known)}.")
    with ExitStack() as stack:
        trackers: list[Tracker] = [
            stack.enter_context(closing(known[name](folder, run, settings))) for name in names
        ]

        def tell(progress: Progress) -> None:
            if progress.get("phase") == "alert":
                for tracker in trackers:
                    tracker.alert(str(progress["text"]))
            elif figures := scalars(progress, called):
                for tracker in trackers:
                    tracker.log(int(progress["step"]), figures)

        yield tell


class TensorBoard:
    """``tensorboard --logdir`` shows them."""

    def __init__(self, folder: Path, run: str, settings: Mapping[str, object]) -> None:
        try:
            from torch.utils.tensorboard import SummaryWriter
        except ImportError as error:
            raise MissingExtra(f"TensorBoard is not installed. Run: {installed.add('train')}") from error
        self.writer = SummaryWriter(log_dir=str(folder / "tensorboard" / run))
        self.writer.add_text("settings", json.dumps(dict(settings), default=str))

    def log(self, step: int, figures: Mapping[str, float]) -> None:
        for name, value in figures.items():
            self.writer.add_scalar(name, value, step)

    def alert(self, text: str) -> None:
        self.writer.add_text("alert", text)

    def close(self) -> None:
        self.writer.close()


class WeightsAndBiases:
    """Offline unless the person says otherwise (``WANDB_MODE``): ``wandb sync`` sends it later."""

    def __init__(self, folder: Path, run: str, settings: Mapping[str, object]) -> None:
        try:
            from wandb import init  # by name: the folder that it makes where it runs can be imported as well
        except ImportError as error:
            raise MissingExtra(
                f"Weights & Biases is not installed. Run: {installed.add_package('wandb')}"
            ) from error
        folder.mkdir(parents=True, exist_ok=True)
        mode = os.environ.get("WANDB_MODE", "offline")
        about: JsonObject = {"name": run, "dir": str(folder), "config": dict(settings), "mode": mode}
        self.run = init(project="clawback", reinit="finish_previous", **about)

    def log(self, step: int, figures: Mapping[str, float]) -> None:
        self.run.log(dict(figures), step=step)

    def alert(self, text: str) -> None:
        self.run.alert(title="Clawback stopped a run", text=text)

    def close(self) -> None:
        self.run.finish()


class Trackio:
    """A local database; ``trackio show`` draws it."""

    def __init__(self, folder: Path, run: str, settings: Mapping[str, object]) -> None:
        os.environ.setdefault("TRACKIO_DIR", str(folder / "trackio"))
        try:
            import trackio
        except ImportError as error:
            raise MissingExtra(
                f"Trackio is not installed. Run: {installed.add_package('trackio')}"
            ) from error
        self.library = trackio
        trackio.init(project="clawback", name=run, config=dict(settings), embed=False)

    def log(self, step: int, figures: Mapping[str, float]) -> None:
        self.library.log(dict(figures), step=step)

    def alert(self, text: str) -> None:
        self.library.alert(title="Clawback stopped a run", text=text)

    def close(self) -> None:
        self.library.finish()
