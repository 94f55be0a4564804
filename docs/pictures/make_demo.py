"""Makes ``demo.svg``, the picture in the README, from a real run of the demo."""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

from rich.console import Console

from clawback.cli.demo import DEFAULT_TASTE
from clawback.demo import Demo, display
from clawback.paths import Home

WIDTH = 110
ROUNDS = 2


def main() -> None:
    console = Console(record=True, width=WIDTH, force_terminal=True)
    with tempfile.TemporaryDirectory() as folder:
        demo = Demo(Home(Path(folder)), DEFAULT_TASTE)
        console.print("$ make demo\n")
        console.print(
            f"[bold]A person who likes: {demo.taste.name}.[/] One tap in ten is wrong. The model is not told.\n"
        )
        looks = [demo.look()]
        for _ in range(ROUNDS):
            done = demo.round()
            assert done is not None
            looks.append(done.look)
            display.show_round(console, done, looks)
        console.print()
        console.print(display.side_by_side(looks[0], looks[-1]))
    console.save_svg(
        str(Path(sys.argv[1]) if len(sys.argv) > 1 else Path(__file__).with_name("demo.svg")),
        title="clawback demo",
    )


if __name__ == "__main__":
    main()
