"""Watch a run: a progress bar for people, scalars for TensorBoard. Both take what ``on_progress`` is told."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from clawback.errors import MissingExtra

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
"""Names in TensorBoard. Figures of an algorithm that are not listed appear under ``train/``."""
_NOT_SCALARS = {"phase", "step", "steps", "seconds", "tokens"}


def both(*listeners: OnProgress) -> OnProgress:
    """One listener that tells several."""

    def tell(progress: Progress) -> None:
        for listener in listeners:
            listener(progress)

    return tell


@contextmanager
def tensorboard(folder: Path) -> Iterator[OnProgress]:
    """Write the figures of every step into ``folder``; ``tensorboard --logdir`` shows them.

    Raises ``MissingExtra`` where tensorboard is not installed.
    """
    try:
        from torch.utils.tensorboard import SummaryWriter
    except ImportError as error:
        raise MissingExtra("TensorBoard is not installed. Run: pip install 'clawback[train]'") from error
    writer = SummaryWriter(log_dir=str(folder))

    def tell(progress: Progress) -> None:
        if progress.get("phase") != "train":
            return
        for name, value in progress.items():
            if name not in _NOT_SCALARS and isinstance(value, (int, float)):
                writer.add_scalar(SCALARS.get(name, f"train/{name}"), value, int(progress["step"]))

    try:
        yield tell
    finally:
        writer.close()


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
