"""The bar that follows long work, a phase at a time."""

from __future__ import annotations

import itertools
import os
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from clawback.progress import ANNOUNCEMENTS, OnProgress, Pace, describe, duration, kl_of, phase_name

if TYPE_CHECKING:
    from rich.progress import ProgressColumn

LINE_SECONDS = 15.0
"""How often a phase says how far it is where no bar is drawn."""
FRAMES = "⠋⠙⠹⠸⠼⠴⠦⠧⠇⠏"
FRAME_SECONDS = 0.1
CLEAR_REST = "\x1b[K"
"""Clears the line from the cursor on."""
NAME_WIDTH = 19
"""Signs of a phase's name that stay whole beside its figures: ``reading the ratings``."""
LONGEST_NAME = 30
"""Signs of a phase's name beside its bar."""


@contextmanager
def waiting(text: str, quiet: bool = False) -> Iterator[Callable[[str], None]]:
    """A spinner on stderr with ``text`` and the seconds so far, for as long as the work takes; nothing where nobody is watching.

    Yields what changes the text. It is drawn by hand: importing rich takes as long as the first word of a running server.
    """
    if quiet or not sys.stderr.isatty() or os.environ.get("TERM") == "dumb":
        yield lambda _: None
        return
    texts, done, start = [text], threading.Event(), time.monotonic()

    def draw(frame: str) -> None:
        sys.stderr.write(f"\r{frame} {texts[-1]} … {time.monotonic() - start:.0f} s{CLEAR_REST}")
        sys.stderr.flush()

    def spin() -> None:
        for frame in itertools.cycle(FRAMES):
            if done.wait(FRAME_SECONDS):
                return
            draw(frame)

    draw(FRAMES[0])
    thread = threading.Thread(target=spin, daemon=True)
    thread.start()
    try:
        yield texts.append
    finally:
        done.set()
        thread.join()
        sys.stderr.write(f"\r{CLEAR_REST}")
        sys.stderr.flush()


@contextmanager
def progress_bar(quiet: bool = False, lines: bool = False) -> Iterator[OnProgress]:
    """A bar a phase on stderr, with counts and the time that is left; plain ``lines`` if asked, or where nobody is watching.

    It follows ``{"phase", "step", "steps", …}``. A phase's clock stops when the next begins.
    """
    if quiet:
        yield lambda _: None
        return
    from rich.console import Console

    console = Console(stderr=True)
    if lines or not sys.stderr.isatty():
        yield _lines(console)
        return
    from rich.progress import Progress

    with Progress(*bar_columns(console.width), console=console) as bar:
        tasks: dict[str, Any] = {}
        pace = Pace()

        def over() -> None:
            for task in bar.tasks:
                # Not every phase tells of its last step: then a full bar beside "0 of 256" would say two things.
                said = task.fields["count"] if task.total and task.completed >= task.total else ""
                total = task.total or 1
                bar.update(task.id, total=total, completed=total, count=said, detail="")
                bar.stop_task(task.id)

        def follow(progress: Mapping[str, object]) -> None:
            if said := announcement(progress):
                console.print(said, highlight=False, markup=False)
            if str(progress.get("phase", "")) in ANNOUNCEMENTS:
                return
            told = pace(progress)
            phase = str(told.get("phase", ""))
            if phase not in tasks:
                over()
                tasks[phase] = bar.add_task(shown_phase(told), total=None, count="", detail="")
            bar.update(
                tasks[phase],
                completed=told.get("step"),
                total=told.get("steps"),
                count=count(told),
                detail=details(told),
            )

        yield follow
        over()


def bar_columns(width: int) -> tuple[ProgressColumn, ...]:
    """Name, bar, count, clock and figures of a phase, for a terminal of ``width`` columns: where the line is too long, the figures go on below."""
    from rich.progress import BarColumn, TextColumn, TimeElapsedColumn
    from rich.table import Column

    def column(least: int) -> Column:
        return Column(no_wrap=True, min_width=least)

    return (
        TextColumn("{task.description:>10}", markup=False, table_column=column(NAME_WIDTH)),
        BarColumn(24 if width >= 100 else 10, table_column=column(10)),
        TextColumn("{task.fields[count]}", table_column=column(10)),
        TimeElapsedColumn(table_column=column(7)),
        TextColumn("{task.fields[detail]}", table_column=Column()),
    )


def _lines(console: Any) -> OnProgress:
    """A line when a phase begins, and one now and then while it lasts."""
    said_at, phase_now, pace = 0.0, "", Pace()

    def follow(progress: Mapping[str, Any]) -> None:
        nonlocal said_at, phase_now
        if said := announcement(progress):
            console.print(said, highlight=False, markup=False)
        phase, now = str(progress.get("phase", "")), time.monotonic()
        if phase in ANNOUNCEMENTS:
            return
        told = pace(progress)
        if phase != phase_now:
            console.print(f"{phase_name(told)} …", highlight=False, markup=False)
        elif now - said_at >= LINE_SECONDS:
            console.print(f"{describe(told)}  {figures(told)}".rstrip(), highlight=False)
        else:
            return
        said_at, phase_now = now, phase

    return follow


def shown_phase(progress: Mapping[str, object]) -> str:
    """The phase's name, no longer than a narrow terminal has room for."""
    name = phase_name(progress)
    return name if len(name) <= LONGEST_NAME else name[: LONGEST_NAME - 1] + "…"


def announcement(progress: Mapping[str, object]) -> str:
    """What is said once: the estimate before a run, and which algorithm was chosen and why."""
    if progress.get("phase") in ("run", "estimate"):
        return str(progress["text"])
    if progress.get("phase") == "reward":
        return str(progress["note"])
    if progress.get("phase") == "alert":
        return str(progress.get("text", ""))
    if progress.get("phase") == "plan":
        return f"Learning with {progress['algorithm']}" + (
            f": {progress['note']}" if progress.get("note") else ""
        )
    return ""


def count(progress: Mapping[str, object]) -> str:
    """``12 of 40``; ``round 3 of 6`` where that is all that is known."""
    parts = [f"{progress['step']} of {progress['steps']}"] if {"step", "steps"} <= progress.keys() else []
    if {"round", "rounds"} <= progress.keys():
        parts.append(f"round {progress['round']} of {progress['rounds']}")
    return ", ".join(parts)


def details(progress: Mapping[str, object]) -> str:
    """The time that is left, then the figures of the step."""
    left = progress.get("seconds_left")
    parts = [f"{duration(left)} left"] if isinstance(left, (int, float)) else []
    return "  ".join([*parts, figures(progress)]).strip()


def figures(progress: Mapping[str, object]) -> str:
    """The few numbers of a step that say how it goes."""
    if "return" in progress and "turns" in progress:
        return episode_figures(progress)
    shown = {
        "loss": progress.get("loss"),
        "reward": progress.get("reward"),
        "KL": kl_of(progress),
        "tokens/s read": progress.get("read_speed"),
        "tokens/s drawn": progress.get("draw_speed"),
    }
    return "  ".join(
        f"{name} {value:,.0f}" if abs(value) >= 1000 else f"{name} {value:.3g}"
        for name, value in shown.items()
        if isinstance(value, (int, float))
    )


def episode_figures(progress: Mapping[str, Any]) -> str:
    """What a round of episodes came to: ``return +0.31  success 28 %  7.4 replies  2 % unread``. Success is a return above 0."""
    parts = [
        f"return {progress['return']:+.3f}",
        f"success {100 * progress['success']:.0f} %" if "success" in progress else "",
        f"{progress['turns']:.1f} replies",
        f"{100 * progress.get('unparsable', 0.0):.0f} % unread",
    ]
    return "  ".join(filter(None, parts))
