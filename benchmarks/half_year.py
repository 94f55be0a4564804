"""What half a year of use costs and gives: 300 ratings in ten rounds, with slips, a change of mind and a contented time.

One simulated person, the embedded model, the product's own loop (store, inbox, trigger, run, gate). Four rounds by one taste, three by another, three in
which the person goes on rating and is as content as the live version makes them. One tap in ten is wrong, in every third round three in ten. A run starts
where the product says that one is due; what the gate asks for is answered. A line a round; finished rounds are not kept apart, so a half year is run whole.

    python -m benchmarks half_year
    python -m benchmarks half_year --seeds 3 --before "metric units" --after "casual, asks back"
"""

from __future__ import annotations

import argparse
import json
import random
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ROUNDS, RATINGS = 10, 30
CHANGED, CONTENTED = 4, 7
"""Rounds before the change of mind, and before the contented time."""
WRONG, OFTEN_WRONG = 0.1, 0.3
CAPTURED = 4
"""Turns for each one that is rated; the others' prompts are there to draw answers to."""
HELD_OUT = 128
RESULTS = Path(__file__).parent.parent / "bench-results" / "half_year.jsonl"
COLUMNS = (
    "round",
    "taste",
    "ratings",
    "good",
    "asked",
    "due",
    "runs",
    "verdict",
    "live",
    "liked",
    "cpu_seconds",
)


def wrong_in(number: int) -> float:
    """The share of wrong taps in a round: mixed quality."""
    return OFTEN_WRONG if number % 3 == 2 else WRONG


@dataclass(frozen=True)
class Person:
    before: str
    after: str
    seed: int

    def taste(self, number: int) -> str:
        return self.before if number < CHANGED else self.after


class HalfYear:
    """A home, a person, and the rounds of one half year."""

    def __init__(self, root: Path, person: Person) -> None:
        from clawback import config
        from clawback.extensions.demo import tastes
        from clawback.paths import Home

        self.home, self.person = Home(root), person
        self.home.create()
        config.save(self.home.config, {"model": {"base": "embedded"}, "training": {"seed": person.seed, "threshold": RATINGS}})  # fmt: skip
        self.tastes, self.chance = tastes.TASTES, random.Random(f"half a year {person.seed}")
        self.prompts: dict[str, Any] = {}

    def round(self, number: int) -> dict[str, Any]:
        from clawback import store

        began = time.process_time()
        taste = self.tastes[self.person.taste(number)]
        self.capture(number)
        values = self.rate(number, taste)
        row: dict[str, Any] = {"seed": self.person.seed, "round": number + 1, "taste": taste.name}
        row |= {"contented": number >= CONTENTED, "wrong": wrong_in(number)}
        row |= {"ratings": len(values), "good": sum(value > 0 for value in values)}
        row |= self.train(number, taste)
        row["cpu_seconds"] = round(time.process_time() - began, 1)
        with store.connect(self.home.database) as db:
            row["live"] = db.live().number
        return row | {"liked": self.liked(taste)}

    def capture(self, number: int) -> None:
        """The live version answers new prompts, each of which is a turn."""
        from clawback import release, store
        from clawback.extensions.demo import corpus
        from clawback.records import Turn

        count = CAPTURED * RATINGS
        asked = corpus.prompts("rated", count * (number + 1), self.person.seed)[-count:]
        with store.connect(self.home.database) as db, db.together():
            version = db.live()
            policy = release.load(self.home, version)
            made = policy.generate([p.messages for p in asked], seed=1000 * self.person.seed + number)
            for prompt, [one] in zip(asked, made, strict=True):
                turn = Turn(f"round {number}", tuple(prompt.messages), one.text, agent="demo", version=version.number, response_ids=one.ids, response_logprobs=one.logprobs)  # fmt: skip
                self.prompts[db.add_turn(turn).prompt] = prompt

    def rate(self, number: int, taste: Any) -> list[int]:
        """``RATINGS`` taps on what the inbox shows."""
        from clawback import feedback, store
        from clawback.admin.rating_inbox import Inbox

        values: list[int] = []
        shown: set[int] = set()
        box = Inbox(self.home)
        with store.connect(self.home.database) as db:
            while len(values) < RATINGS and (found := box.next(1, shown)):
                turn = found[0].turn
                shown.add(turn.id)
                value = taste.rate(self.prompts[turn.prompt], turn.response, self.chance, wrong_in(number))
                feedback.rate(db, turn.id, value, source="demo")
                values.append(value)
        return values

    def train(self, number: int, taste: Any) -> dict[str, Any]:
        """What happens where a run is due, the gate's questions answered; the product's word where there is none."""
        from clawback import jobs, store
        from clawback.errors import ClawbackError
        from clawback.feedback.due import training_due

        with store.connect(self.home.database) as db:
            due, before = training_due(db, self.home), len(db.runs(limit=1000, ids=False))
        verdict, note, asked = "", "", 0
        if due:
            try:
                report = jobs.train_once(self.home).report
                report, asked = answer(
                    self.home,
                    report,
                    lambda prompt, text: taste.fits(self.prompts[prompt], text),
                    self.chance,
                    wrong_in(number),
                )
                verdict, note = report.verdict, report.reasons[0]
            except ClawbackError as error:
                note = str(error)
        with store.connect(self.home.database) as db:
            runs = len(db.runs(limit=1000, ids=False)) - before
        return {"due": due, "runs": runs, "asked": asked, "verdict": verdict, "note": note}

    def liked(self, taste: Any) -> float:
        """The share of the live version's answers to prompts about other topics that the person likes now."""
        from clawback import release, store
        from clawback.extensions.demo import corpus

        asked = corpus.prompts("held_out", HELD_OUT, self.person.seed)
        with store.connect(self.home.database) as db:
            policy = release.load(self.home, db.live())
        made = policy.generate([p.messages for p in asked], seed=10_000 + self.person.seed)
        return statistics.mean(taste.fits(p, one.text) for p, [one] in zip(asked, made, strict=True))


def answer(
    home: Any, report: Any, likes: Callable[[str, str], bool], chance: random.Random, wrong: float
) -> tuple[Any, int]:
    """Say which of two answers is better as long as the gate asks: the one that is liked, "the same" of two or of none. The last report, and how many were asked."""
    from clawback import feedback, jobs, store
    from clawback.admin.rating_inbox import Inbox

    asked = 0
    while report is not None and report.again_at and (found := Inbox(home).questions()):
        asked += 1
        first, second = found[0].first, found[0].second
        liked = [likes(turn.prompt, turn.response) for turn in (first, second)]
        if liked[0] == (chance.random() < wrong):
            first, second = second, first
        with store.connect(home.database) as db:
            if liked[0] == liked[1]:
                feedback.tie(db, first.id, second.id, source="demo")
            else:
                feedback.prefer(db, first.id, second.id, source="demo")
        report = jobs.judge_waiting(home) or report
    return report, asked


def code() -> str:
    """The commit that last changed the product: what a figure is of."""
    found = subprocess.run(["git", "log", "-1", "--format=%h", "--", "src"], capture_output=True, text=True, cwd=RESULTS.parent.parent, check=False)  # fmt: skip
    return found.stdout.strip() or "unknown"


def table(rows: list[dict[str, Any]]) -> str:
    lines = ["| " + " | ".join(COLUMNS) + " |", "|" + " --- |" * len(COLUMNS)]
    for row in rows:
        lines.append("| " + " | ".join(f"{row[name]:.2f}" if name == "liked" else str(row[name]) for name in COLUMNS) + " |")  # fmt: skip
    calm = [row for row in rows if row["contented"]]
    lines += ["", f"In all {sum(r['runs'] for r in rows)} runs, {sum(r['asked'] for r in rows)} questions of the gate, {sum(r['cpu_seconds'] for r in rows):.0f} CPU s; of these in the contented time {sum(r['runs'] for r in calm)} runs and {sum(r['asked'] for r in calm)} questions (wanted: 0)."]  # fmt: skip
    return "\n".join(lines)


def main(argv: list[str] | None = None) -> int:
    import torch

    parser = argparse.ArgumentParser(
        prog="python -m benchmarks half_year", description=__doc__.partition("\n")[0]
    )
    parser.add_argument("--before", default="detailed, no caveat", help="taste of the first four rounds")
    parser.add_argument("--after", default="casual bullets", help="taste of the others")
    parser.add_argument("--seeds", type=int, default=1, help="persons")
    parser.add_argument("--rounds", type=int, default=ROUNDS)
    options = parser.parse_args(argv)
    torch.set_num_threads(1)
    RESULTS.parent.mkdir(parents=True, exist_ok=True)
    rows = []
    for seed in range(options.seeds):
        with tempfile.TemporaryDirectory() as folder:
            year = HalfYear(Path(folder), Person(options.before, options.after, seed))
            for number in range(options.rounds):
                rows.append({"code": code()} | year.round(number))
                print(json.dumps(rows[-1]), file=sys.stderr, flush=True)
                with RESULTS.open("a", encoding="utf-8") as file:
                    file.write(json.dumps(rows[-1]) + "\n")
    print(table(rows))
    return 0


if __name__ == "__main__":
    sys.exit(main())
