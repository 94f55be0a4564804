"""Formats progress: what ``on_progress`` is told, in words, with the remaining time.

A mapping ``{"phase", "step", "steps", …}`` is reported before and after each step. A phase without steps has
only its name. Some mappings announce something instead (the estimate, the algorithm, an alert): they are no
phases.
"""

from __future__ import annotations

import shutil
import sys
import textwrap
import time
from collections.abc import Callable, Mapping
from itertools import pairwise
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from clawback.records import JsonObject


Progress = Mapping[str, Any]
OnProgress = Callable[[Progress], None]

ANNOUNCEMENTS = frozenset({"run", "estimate", "plan", "reward", "alert"})
"""What is said once and is no phase of its own."""
NOT_FIGURES = frozenset({"step", "steps", "round", "rounds", "seconds_left"})
BLOCKS = "▁▂▃▄▅▆▇█"


def phase_name(progress: Progress) -> str:
    """What is done now, as a person reads it: ``loading smollm2`` for the phase ``load`` of that model."""
    phase = str(progress.get("phase", "starting"))
    model = f" {progress['model']}" if progress.get("model") else " the model"
    return {
        "preparation": "preparing",
        "load": f"loading{model}",
        "read": "reading the ratings",
        "measure": "measuring the speed",
        "form": "learning the form of actions",
    }.get(phase, phase)


class Pace:
    """Adds ``seconds_left`` of the phase to what is told, by its pace so far, where whoever tells it has not."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self.clock = clock
        self.phase = ""
        self.began = 0.0
        self.first = 0.0

    def __call__(self, progress: Progress) -> JsonObject:
        told = dict(progress)
        phase, step, steps = str(told.get("phase", "")), told.get("step"), told.get("steps")
        if phase in ANNOUNCEMENTS or not (isinstance(step, (int, float)) and isinstance(steps, (int, float))):
            return told
        if phase != self.phase or step < self.first:
            self.phase, self.began, self.first = phase, self.clock(), step
        if "seconds_left" not in told and step > self.first:
            each = (self.clock() - self.began) / (step - self.first)
            told["seconds_left"] = max(0.0, each * (steps - step))
        return told


CLEAR_LINE = "\r\x1b[K"
"""Goes to the beginning of a terminal's line and clears it: a spinner that is drawn there goes on below."""


def note(text: str) -> None:
    """Print a line about long work on stderr, folded to the terminal, over the frame of a spinner that is drawn there."""
    stream = sys.__stderr__
    if stream is None:
        return
    if stream.isatty():
        columns = shutil.get_terminal_size().columns
        lines = (
            textwrap.fill(line, columns, break_long_words=False, break_on_hyphens=False)
            for line in text.splitlines()
        )
        text = CLEAR_LINE + "\n".join(lines)
    stream.write(f"{text}\n")  # at once: the spinner's thread draws between two writes
    stream.flush()


def describe(progress: Progress) -> str:
    """``{"phase": "train", "step": 12, "steps": 40}`` → ``train 12 of 40``, with the round and the time left where they are known."""
    text = phase_name(progress)
    if {"step", "steps"} <= progress.keys() and progress.get("phase") not in ANNOUNCEMENTS:
        text += f" {progress['step']} of {progress['steps']}"
    if {"round", "rounds"} <= progress.keys():
        text += f", round {progress['round']} of {progress['rounds']}"
    left = progress.get("seconds_left")
    return f"{text}, {duration(left)} left" if isinstance(left, (int, float)) else text


def duration(seconds: float) -> str:
    """``about 40 s``, ``about 3 min``, ``about 1 h 20 min``."""
    if seconds < 90:
        return f"about {max(1, round(seconds))} s"
    minutes = round(seconds / 60)
    if minutes < 90:
        return f"about {minutes} min"
    return f"about {minutes // 60} h" + (f" {minutes % 60} min" if minutes % 60 else "")


def curve(progress: Progress) -> dict[str, float]:
    """The figures of a step that belong into a run's curves; empty for anything that is no step of learning."""
    if progress.get("phase") in ANNOUNCEMENTS or not isinstance(progress.get("step"), int):
        return {}
    made = {
        name: float(value)
        for name, value in progress.items()
        if name not in NOT_FIGURES and isinstance(value, (int, float)) and not isinstance(value, bool)
    }
    return made if {"loss", "reward"} & made.keys() else {}


def kl_of(figures: Mapping[str, Any]) -> float | None:
    """Nats a token from the base model, whichever of its names the algorithm uses."""
    return next((float(figures[n]) for n in ("kl", "drift", "kl_loss") if figures.get(n) is not None), None)


def sparkline(values: list[float], width: int = 40) -> str:
    """One character a value, from the lowest to the highest; more values than ``width`` are averaged in groups."""
    if not values:
        return ""
    groups = min(width, len(values))
    edges = [len(values) * i // groups for i in range(groups + 1)]
    means = [sum(values[a:b]) / (b - a) for a, b in pairwise(edges)]
    low, high = min(means), max(means)
    span = (high - low) or 1.0
    return "".join(BLOCKS[round((value - low) / span * (len(BLOCKS) - 1))] for value in means)
