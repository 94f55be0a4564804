"""Watch a run: a progress bar for people, figures for trackers. Both take what ``on_progress`` is told."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

from clawback.errors import MissingExtra, UsageError

Progress = Mapping[str, Any]
OnProgress = Callable[[Progress], None]

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
    "grad_norm": "train/grad_norm",
    "tokens_per_second": "speed/tokens_per_second",
}
"""Names in trackers. Figures of an algorithm that are not listed appear under ``train/``."""
_NOT_SCALARS = {"phase", "step", "steps", "seconds", "tokens"}


def both(*listeners: OnProgress) -> OnProgress:
    """One listener that tells several."""

    def tell(progress: Progress) -> None:
        for listener in listeners:
            listener(progress)

    return tell


Figures = Callable[[int, Mapping[str, float]], None]
"""What a tracker is: something that takes a step and its figures by name."""


def scalars(progress: Progress) -> dict[str, float]:
    """The figures of a step under the names that trackers show; empty for anything that is no step."""
    if progress.get("phase") != "train":
        return {}
    return {
        SCALARS.get(name, f"train/{name}"): float(value)
        for name, value in progress.items()
        if name not in _NOT_SCALARS and isinstance(value, (int, float))
    }


@contextmanager
def track(names: Sequence[str], folder: Path, run: str, settings: Mapping[str, Any]) -> Iterator[OnProgress]:
    """Tell every named tracker what a run does.

    Args:
        names: ``tensorboard``, ``wandb``, ``trackio``.
        folder: where they keep what they write; nothing leaves the machine unless the person has set a tracker up for it.
        run: what the run is called there.
        settings: what it is made of.

    Raises:
        UsageError: a tracker that there is not.
        MissingExtra: one that is not installed.
    """
    known = {"tensorboard": tensorboard, "wandb": wandb, "trackio": trackio}
    if unknown := sorted(set(names) - set(known)):
        raise UsageError(f"There is no tracker {unknown[0]!r}; there are: {', '.join(known)}.")
    with ExitStack() as stack:
        trackers = [stack.enter_context(known[name](folder, run, settings)) for name in names]

        def tell(progress: Progress) -> None:
            if figures := scalars(progress):
                for tracker in trackers:
                    tracker(int(progress["step"]), figures)

        yield tell


@contextmanager
def tensorboard(folder: Path, run: str, settings: Mapping[str, Any]) -> Iterator[Figures]:
    """``tensorboard --logdir`` shows them."""
    try:
        from torch.utils.tensorboard import SummaryWriter
    except ImportError as error:
        raise MissingExtra("TensorBoard is not installed. Run: pip install 'clawback[train]'") from error
    writer = SummaryWriter(log_dir=str(folder / "tensorboard" / run))
    writer.add_text("settings", json.dumps(dict(settings), default=str))

    def take(step: int, figures: Mapping[str, float]) -> None:
        for name, value in figures.items():
            writer.add_scalar(name, value, step)

    try:
        yield take
    finally:
        writer.close()


@contextmanager
def wandb(folder: Path, run: str, settings: Mapping[str, Any]) -> Iterator[Figures]:
    """Weights & Biases. Offline unless the person says otherwise (``WANDB_MODE``): ``wandb sync`` sends it later."""
    try:
        import wandb as library
    except ImportError as error:
        raise MissingExtra("Weights & Biases is not installed. Run: pip install wandb") from error
    mode = os.environ.get("WANDB_MODE", "offline")
    folder.mkdir(parents=True, exist_ok=True)
    made = library.init(
        project="clawback",
        name=run,
        dir=str(folder),
        config=dict(settings),
        mode=mode,
        reinit="finish_previous",
    )
    try:
        yield lambda step, figures: made.log(dict(figures), step=step)
    finally:
        made.finish()


@contextmanager
def trackio(folder: Path, run: str, settings: Mapping[str, Any]) -> Iterator[Figures]:
    """Trackio: a local database; ``trackio show`` draws it."""
    os.environ.setdefault("TRACKIO_DIR", str(folder / "trackio"))
    try:
        import trackio as library
    except ImportError as error:
        raise MissingExtra("Trackio is not installed. Run: pip install trackio") from error
    library.init(project="clawback", name=run, config=dict(settings), embed=False)
    try:
        yield lambda step, figures: library.log(dict(figures), step=step)
    finally:
        library.finish()


@contextmanager
def bar(quiet: bool = False) -> Iterator[OnProgress]:
    """A progress bar on stderr: what is being done, the step, loss, drift and speed. ``quiet``: nothing."""
    if quiet:
        yield lambda _: None
        return
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeRemainingColumn
    from rich.progress import Progress as Bar

    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeRemainingColumn(),
        TextColumn("{task.fields[figures]}"),
    )
    with Bar(*columns, console=Console(stderr=True), transient=True) as display:
        task = display.add_task("preparing", total=None, figures="")

        def tell(progress: Progress) -> None:
            phase = str(progress.get("phase", ""))
            if phase == "estimate":
                display.console.print(str(progress.get("text", "")), style="dim")
            display.update(
                task,
                description={"train": "training", "prepare": "preparing", "save": "saving"}.get(phase, phase),
                completed=progress.get("step", 0),
                total=progress.get("steps"),
                figures=figures(progress),
            )

        yield tell


def figures(progress: Progress) -> str:
    """The figures of a step that fit on a line."""
    shown = (
        ("loss", "{:.3f}"),
        ("reward", "{:+.2f}"),
        ("drift", "{:.3f}"),
        ("tokens_per_second", "{:,.0f} tok/s"),
    )
    parts = []
    for name, form in shown:
        if isinstance(progress.get(name), (int, float)):
            value = form.format(progress[name])
            parts.append(value if name == "tokens_per_second" else f"{name} {value}")
    return "  ".join(parts)
