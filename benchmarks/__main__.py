"""``python -m benchmarks [NAME [ARGUMENTS]]``: run the named benchmark, or those beside other systems, or with ``--all`` every one in turn.

A benchmark is a module in this folder with a ``main(argv) -> int`` and a docstring whose first line says what it
shows. It writes progress to stderr, its table (or, with ``--json``, one JSON object) to stdout, and its raw figures
under ``bench-results/``, which git does not keep. What it printed is a section of ``bench-results/report.md``. Where several are run,
each has a process of its own, and one that fails does not keep the others from running.
"""

from __future__ import annotations

import argparse
import ast
import importlib
import subprocess
import sys
from pathlib import Path

from benchmarks import _page

HERE = Path(__file__).parent
BESIDE = {
    "cold_start": ["--turns", "20000"],
    "training": [],
    "drawing": ["--model", "smollm2", "--count", "16", "--max-tokens", "64", "--turns", "3", "--llama-cpp"],
    "answering": [],
    "serving": [],
    "gym_llamagym": [],
    "prompts": ["--part", "search", "--world", "rules", "--variant", "words"],
}
"""Those that have peers, with what ``python -m benchmarks`` passes on to them: an hour or so on two cores."""


def available() -> dict[str, str]:
    """Name → first line of the docstring of every benchmark, read without importing any."""
    found = {}
    for path in sorted(HERE.glob("*.py")):
        if path.name.startswith("_"):
            continue
        tree = ast.parse(path.read_text("utf-8"))
        if any(isinstance(node, ast.FunctionDef) and node.name == "main" for node in tree.body):
            found[path.stem] = (ast.get_docstring(tree) or "").partition("\n")[0]
    return found


def main() -> int:
    found = available()
    listing = "\n".join(f"  {name:<12} {line}" for name, line in found.items())
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks",
        description="Run one benchmark, or all of them.",
        epilog=f"benchmarks:\n{listing}",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument(
        "name", nargs="?", choices=found, metavar="NAME", help="which one (default: those that have peers)"
    )
    parser.add_argument("--all", action="store_true", help="every one of them in turn (many hours)")
    parser.add_argument("arguments", nargs=argparse.REMAINDER, help="passed on to it; try NAME --help")
    options = parser.parse_args()
    if options.name:
        print(f"== {options.name}", file=sys.stderr)
        run = importlib.import_module(f"benchmarks.{options.name}").main
        return _page.record(options.name, found[options.name], options.arguments, run)
    chosen = {name: BESIDE.get(name, []) for name in (found if options.all else BESIDE)}
    failed = [name for name, more in chosen.items() if subprocess.run([sys.executable, "-m", "benchmarks", name, *more]).returncode]  # fmt: skip
    print(f"The page: {_page.FOLDER / 'report.md'}" + (f"; failed: {', '.join(failed)}" if failed else ""))
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
