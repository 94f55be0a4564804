"""The demo's output: bars, answers side by side, and the gate's decision. Plain text where it is piped."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.console import Console, RenderableType
    from rich.text import Text

    from clawback.extensions.demo.loop import Look, Round
    from clawback.gate.report import Report

BAR = 16
SHOWN = 3
"""Prompts whose answers are shown side by side."""
MOST_HABITS = 5
LEAST_CHANGE = 0.1
MOST_REASONS = 3


def bars(looks: Sequence[Look]) -> RenderableType:
    """Held-out satisfaction before the first round and after each; where nobody knows the taste, no bar."""
    from rich.table import Table
    from rich.text import Text

    table = Table.grid(padding=(0, 2))
    for number, look in enumerate(looks):
        cells = [
            Text("base" if not number else f"round {number}"),
            Text(name(look.version) if number else ""),
        ]
        if look.satisfaction is not None:
            cells += [bar(look.satisfaction), Text(f"{look.satisfaction:.0%} liked")]
        table.add_row(*cells, Text(measure(look)), Text(f"KL {look.kl:.1f}"))
    return table


def measure(look: Look) -> str:
    """What else the answers are like: their facts, and where nobody can check those, their length."""
    if look.facts is not None:
        return f"{look.facts:.1%} facts right"
    words = sum(len(text.split()) for _, text in look.answers) / max(1, len(look.answers))
    return f"{words:.0f} words each"


def bar(share: float) -> Text:
    from rich.text import Text

    filled = round(share * BAR)
    return Text("█" * filled, style="green") + Text("░" * (BAR - filled), style="dim")


def name(version: int) -> str:
    return "the base model" if version == 0 else f"version {version}"


def side_by_side(earlier: Look, later: Look) -> RenderableType:
    """The same prompts, answered by two versions."""
    from rich.table import Table
    from rich.text import Text

    table = Table(show_lines=True, expand=True, title="The same prompts, before and after")
    table.add_column("asked", ratio=2)
    table.add_column(name(earlier.version), ratio=4)
    table.add_column(name(later.version), ratio=4)
    shown = list(zip(earlier.answers, later.answers, strict=True))[:SHOWN]
    for (prompt, old), (_, new) in shown:
        table.add_row(Text(prompt), Text(old), Text(new))
    return table


def changes(earlier: Look, later: Look) -> RenderableType:
    """The habits that changed most, as shares of the answers: what a person's own taps did, whatever they were for."""
    from rich.table import Table
    from rich.text import Text

    moved = {axis: later.habits[axis] - share for axis, share in earlier.habits.items()}
    most = sorted((a for a in moved if abs(moved[a]) >= LEAST_CHANGE), key=lambda a: -abs(moved[a]))
    table = Table.grid(padding=(0, 2))
    for axis in most[:MOST_HABITS]:
        table.add_row(
            axis, f"{earlier.habits[axis]:.0%}", "→", bar(later.habits[axis]), f"{later.habits[axis]:.0%}"
        )
    return table if most else Text("No habit changed by more than a tenth of the answers.")


def verdict(report: Report) -> str:
    """What the gate decided and why, in two or three sentences."""
    words = {
        "accepted": "accepted",
        "rejected": "rejected",
        "waits": "asks which of two answers is better before it decides about",
    }
    head = f"The gate {words[report.verdict]} version {report.version}."
    return " ".join([head, *(sentence(reason) for reason in report.reasons[: MOST_REASONS - 1])])


def sentence(text: str) -> str:
    return f"{text[:1].upper()}{text[1:].rstrip('.')}."


def show_round(console: Console, done: Round, looks: Sequence[Look]) -> None:
    outcome, bad = done.outcome, done.ratings - done.good
    learned = f"learned with {outcome.run.algorithm}" if outcome else "no run"
    if done.questions:
        learned += f", asked {done.questions} times which of two answers is better"
    console.print(
        f"[bold]Round {done.number}[/]: {done.ratings} answers rated ({done.good} good, {bad} bad), {learned}, {done.seconds:.0f} s in all",
        highlight=False,
    )
    console.print(verdict(outcome.report) if outcome else done.why, highlight=False, markup=False)
    if outcome is None or not outcome.live:
        console.print(f"So {name(looks[-1].version)} goes on answering.", highlight=False)
    console.print(bars(looks))
