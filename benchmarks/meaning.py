"""What is learned of people whose wishes the product has no words for, who slip, who rate quality, or who change their mind.

The wishes are those of benchmarks/_wishes.py, which a test keeps apart from the product's words; the prompts and the graded answers are AlpacaEval's. A row is
a kind of person. Each is read (what the reader makes of the feedback: cheap) and, with ``--train``, learned from by ``clawback train`` in a home of their own,
gate included (ten CPU minutes each). A line is printed for each person as it is done and kept in bench-results/meaning.jsonl with the commit of the product: what
is there already is not done again.

    python -m benchmarks meaning form-10 --people 12
    python -m benchmarks meaning form-10 --people 5 --train
    python -m benchmarks meaning all --people 12           # what is read, of every row
    python -m benchmarks meaning table --page docs/benchmarks/meaning.md   # from the kept lines

Intervals are 95 % ones of Student's t over people (one person is one wish and one draw of answers, taps and slips).
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from benchmarks._meaning_rows import ROWS, Row
from benchmarks._meaning_table import headline, table, write
from benchmarks.half_year import code
from benchmarks.real import DATA

RESULTS = Path(__file__).parent.parent / "bench-results" / "meaning.jsonl"
Line = dict[str, Any]


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks meaning", description=__doc__.partition("\n")[0]
    )
    parser.add_argument("row", nargs="?", default="all", choices=[*ROWS, "all", "table"], metavar="ROW", help=", ".join([*ROWS, "all", "table"]))  # fmt: skip
    parser.add_argument("--model", default="smollm2", help="a name or a folder, as `clawback init --model` takes it")  # fmt: skip
    parser.add_argument("--people", type=int, default=5)
    parser.add_argument("--first", type=int, default=0, help="number of the first person")
    parser.add_argument("--train", action="store_true", help="a run for each person, too")
    parser.add_argument("--prompts", type=Path, default=DATA, help="JSONL with prompt, response, model, score")  # fmt: skip
    parser.add_argument("--results", type=Path, default=RESULTS)
    parser.add_argument("--code", default="", help="another name for what is measured than the commit of src")
    parser.add_argument("--page", type=Path, help="a page to put the tables onto, between its marks")
    options = parser.parse_args(argv)
    if options.row != "table":
        if not options.prompts.is_file():
            print(f"Skipped: there is no {options.prompts}. Name the answers with --prompts.", file=sys.stderr)  # fmt: skip
            return 0
        work(options, options.code or code())
    found = lines(options.results)
    if options.page:
        write(options.page, found)
    print(f"{headline(found)}\n\n{table(found)}")
    return 0


def work(options: argparse.Namespace, name: str) -> None:
    """All lines that are asked for and not there yet."""
    from benchmarks._meaning_world import Room

    chosen = ROWS if options.row == "all" else {options.row: ROWS[options.row]}
    room: Room | None = None
    for row, of in chosen.items():
        for person, kind, measure in cases(of, options):
            head = {"row": row, "model": Path(options.model).stem, "code": name, "kind": kind, "person": person.number}  # fmt: skip
            if key(head) in {key(line) for line in lines(options.results)}:
                continue
            room = room or Room(options.model, options.prompts)
            began = time.process_time()
            line = head | measure(room, person)
            line.setdefault("cpu_seconds", round(time.process_time() - began, 1))
            keep(options.results, line)


def cases(row: Row, options: argparse.Namespace) -> Iterator[tuple[Any, str, Callable[..., Line]]]:
    """(person, kind, what is measured)."""
    for person in row.people(options.first + options.people)[options.first :]:
        if row.reading is not None:
            yield person, "read", row.reading
        if options.train and row.run is not None:
            yield person, "run", row.run


def key(line: Line) -> tuple[Any, ...]:
    return tuple(line[name] for name in ("row", "model", "code", "kind", "person"))


def lines(path: Path) -> list[Line]:
    """The kept lines, oldest first."""
    return [json.loads(line) for line in path.read_text("utf-8").splitlines()] if path.is_file() else []


def keep(path: Path, line: Line) -> None:
    print(json.dumps(line), flush=True)
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("a", encoding="utf-8") as file:
        file.write(json.dumps(line) + "\n")


if __name__ == "__main__":
    sys.exit(main())
