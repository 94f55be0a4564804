"""Makes ``demo.svg``, the picture in the README, from a real run of the demo; prints the run's figures as JSON.

python docs/pictures/make_demo.py [FILE.svg]
"""

from __future__ import annotations

import json
import re
import sys
import tempfile
from pathlib import Path

from rich.console import Console

from clawback.extensions.demo import Demo
from clawback.extensions.demo.commands import play
from clawback.extensions.demo.worlds import Embedded
from clawback.paths import Home

WIDTH = 110
ROUNDS = 2


def main() -> None:
    file = Path(sys.argv[1]) if len(sys.argv) > 1 else Path(__file__).with_name("demo.svg")
    console = Console(record=True, width=WIDTH, force_terminal=True, file=sys.stderr)
    console.print("$ clawback demo\n", highlight=False)
    with tempfile.TemporaryDirectory() as folder:
        data = play(Demo(Home(Path(folder)), Embedded.taste), ROUNDS, console)
    svg = console.export_svg(title="clawback demo")
    # The picture asks no other server for a font: whatever monospace is there will do.
    file.write_text(re.sub(r"@font-face \{.*?\}\s*", "", svg, flags=re.DOTALL), "utf-8")
    print(json.dumps(data, indent=2))


if __name__ == "__main__":
    main()
