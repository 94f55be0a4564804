"""What the demo looks like: bars, answers side by side, and what the gate said."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.console import Console, RenderableType

    from clawback.demo.loop import Look, Round

BAR = 24


def bars(looks: list[Look], known: bool = True) -> RenderableType:
    """Held-out satisfaction a round; ``known`` is False where only the person could say what is liked."""
    from rich.table import Table
    from rich.text import Text

    table = Table.grid(padding=(0, 2))
    for look in looks:
        filled = round(look.satisfaction * BAR)
        bar = Text("█" * filled, style="green") + Text("░" * (BAR - filled), style="dim")
        name = "base" if look.version == 0 else f"version {look.version}"
        liked = (bar, f"{look.satisfaction:.0%} liked") if known else ()
        table.add_row(name, *liked, f"{look.facts:.0%} of facts right", f"KL {look.kl:.1f}")
    return table


def side_by_side(before: Look, after: Look) -> RenderableType:
    """The same prompts, answered by the base and by the live version."""
    from rich.table import Table
    from rich.text import Text

    table = Table(
        show_lines=True, expand=True, title="the same prompts, before and after", title_justify="left"
    )
    table.add_column("asked", ratio=2)
    table.add_column("base model", ratio=4)
    table.add_column(f"version {after.version}", ratio=4)
    for (prompt, old), (_, new) in zip(before.answers, after.answers, strict=True):
        table.add_row(Text(prompt), Text(old), Text(new))
    return table


def show_round(console: Console, done: Round, looks: list[Look], known: bool = True) -> None:
    outcome = done.outcome
    console.print(
        f"\n[bold]Round {done.number}[/]: {done.ratings} answers rated ({done.good} good, {done.ratings - done.good} bad), "
        f"trained with {outcome.run.algorithm} in {done.seconds:.0f} s",
        highlight=False,
    )
    console.print(f"The gate: {outcome.report.summary()}", highlight=False)
    console.print(bars(looks, known))
