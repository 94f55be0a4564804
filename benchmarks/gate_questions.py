"""How many of the gate's questions are wasted: versions that are better by 25 points, by how many prompts are asked and how ties are counted.

Ten chat models answered 96 prompts (AlpacaEval's). The live version draws any of the ten answers to a prompt; the candidate draws, as often as makes it
better by 25 points in the share that a person likes, one that they like if there is one. The person has rated 32 answers to other prompts, one tap in ten wrong; the
reader is fitted on these from the text alone. The gate's own code matches the answers and chooses the pairs; the person says which is better, one time in ten the
wrong one, and "the same" where they like both or neither. *Same*: both versions draw any answer.

    python -m benchmarks gate_questions                    # wishes that settings may be chosen on
    python -m benchmarks gate_questions --wishes test --people 3
    python -m benchmarks gate_questions --reader right     # a reader that is always right: what the questions could do
"""

from __future__ import annotations

import argparse
import json
import random
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np
from numpy.typing import NDArray

from benchmarks.gate_rule import wilson
from benchmarks.history import DATA

PROMPTS, EACH, RATED, TAPS = 96, 10, 200, 32
BEST, GAIN, WRONG, REPEATS = 8, 0.25, 0.1, 4
SHAPES = ((96, 1), (24, 4), (16, 6))
"""Prompts that are asked, and answers of each version to one."""
Ints = NDArray[np.int64]


@dataclass(frozen=True)
class Answers:
    """Rated ones first, then ``EACH`` to each of the ``PROMPTS``, and what the reader sees in them."""

    rows: list[tuple[str, str]]
    views: Any
    space: Any
    seen: Any

    def text(self, place: int) -> str:
        return self.rows[RATED + place][1]

    def prompt(self, place: int) -> str:
        return self.rows[RATED + place][0]


def load(path: Path) -> Answers:
    from benchmarks.reading import _ids
    from clawback.rewards import views
    from clawback.rewards.rule_posterior import Space

    by: dict[str, list[str]] = {}
    for line in path.read_text("utf-8").splitlines():
        one = json.loads(line)
        by.setdefault(one["prompt"], []).append(one["response"])
    prompts = sorted(prompt for prompt, some in by.items() if len(some) >= EACH)
    chance = random.Random(0)
    chance.shuffle(prompts)
    rows = [(prompt, chance.choice(by[prompt])) for prompt in prompts[PROMPTS : PROMPTS + RATED]]
    rows += [(prompt, answer) for prompt in prompts[:PROMPTS] for answer in by[prompt][:EACH]]
    texts = [text for _, text in rows]
    ids = _ids(texts)

    def part(count: int) -> views.Answers:
        return views.Answers(
            ids[:count], texts[:count], np.zeros((count, 0)), [prompt for prompt, _ in rows[:count]]
        )

    made = views.Views.ground(part(RATED))
    return Answers(rows, made, Space.of(made.signs(part(RATED)), made.layout), made.view(part(len(rows))))


def grades(here: Answers, liked: Any, reader: str, rng: np.random.Generator) -> Any:
    """The reader's grades of the answers to the prompts."""
    from clawback.rewards.reward_ensemble import RULES, Ratings, fit

    if reader == "right":
        return liked[RATED:] + 1e-3 * rng.random(PROMPTS * EACH)
    chosen = rng.permutation(RATED)[:TAPS]
    taps = np.where(liked[chosen] ^ (rng.random(TAPS) < WRONG), 1.0, -1.0)
    if min((taps > 0).sum(), (taps < 0).sum()) < 2:
        return None
    with patch(
        "clawback.rewards.reward_ensemble.permutation_test"
    ):  # it is not asked, and takes most of the time
        made = fit(here.views, here.space, here.seen[chosen], Ratings(taps))
    return np.asarray(made.score(here.seen[RATED:], RULES, 0.0))


def draw(promise: Any, share: float, prompts: Ints, count: int, rng: np.random.Generator) -> list[int]:
    """Places of the answers of a version that takes the most promising of ``BEST`` with chance ``share``, else any."""
    places = []
    for prompt in np.repeat(prompts, count):
        some = rng.permutation(EACH)[:BEST]
        best = some[promise[prompt, some].argmax()]
        places.append(int(prompt) * EACH + int(best if rng.random() < share else some[0]))
    return places


def replies(
    here: Answers, liked: Any, grade: Any, shape: tuple[int, int], share: float, rng: np.random.Generator
) -> list[bool | None]:
    """The person's answers to all questions that could be asked about one candidate."""
    from clawback.gate import questions

    promise = liked[RATED:].reshape(PROMPTS, EACH) + 0.01 * rng.random((PROMPTS, EACH))
    prompts = rng.permutation(PROMPTS)[: shape[0]]
    ours, theirs = (draw(promise, chance, prompts, shape[1], rng) for chance in (share, 0.0))
    asked = [here.prompt(place) for place in ours]
    texts = [[here.text(place) for place in places] for places in (ours, theirs)]
    pairs = questions.matched(asked, list(grade[ours]), list(grade[theirs]))
    found: list[bool | None] = []
    for pair in questions.informative(pairs, asked, *texts)[: questions.MOST]:
        mine, other = liked[RATED + ours[pair.candidate]], liked[RATED + theirs[pair.live]]
        found.append(None if mine == other else bool(mine) != (rng.random() < WRONG))
    return found


def verdicts(answers: Sequence[bool | None]) -> tuple[bool, bool, int, float, float]:
    """Whether the candidate is accepted, and whether it was where ties were no answers; the questions; the shares of ties and of decided ones that it won."""
    from clawback.gate import questions

    decided = [one for one in answers if one is not None]
    before = questions.verdict(0.05, questions.MOST, decided) == "accepted"
    asked = next((n for n in range(len(answers) + 1) if questions.verdict(0.05, questions.MOST, answers[:n])), len(answers))  # fmt: skip
    after = questions.verdict(0.05, questions.MOST, answers) == "accepted"
    won = sum(decided) / len(decided) if decided else 0.5
    return after, before, asked, 1 - len(decided) / max(len(answers), 1), won


def main(argv: list[str] | None = None) -> int:
    from benchmarks._wishes import DEVELOPMENT, TEST, Wish
    from benchmarks.evidence import likes

    parser = argparse.ArgumentParser(
        prog="python -m benchmarks gate_questions", description=__doc__.partition("\n")[0]
    )
    parser.add_argument("--data", type=Path, default=DATA, help="JSONL with `prompt`, `response`, `model`")
    parser.add_argument("--wishes", choices=("development", "test"), default="development")
    parser.add_argument("--people", type=int, default=5, help="of each wish")
    parser.add_argument("--reader", choices=("fitted", "right"), default="fitted")
    options = parser.parse_args(argv)
    if not options.data.is_file():
        print(f"Skipped: there is no {options.data}. Name the answers with --data.", file=sys.stderr)
        return 0
    here = load(options.data)
    plain = Wish("plain", True, lambda _, answer: likes(answer), "Plain running text, please.")
    wishes = [
        *(one for one in (TEST if options.wishes == "test" else DEVELOPMENT) if one.form),
        *([plain] if options.wishes == "development" else []),
    ]
    rows: dict[tuple[str, tuple[int, int]], list[Any]] = {}
    for wish in wishes:
        liked = np.array([wish.holds(*row) for row in here.rows])
        pool = liked[RATED:].reshape(PROMPTS, EACH)
        best = np.mean([pool[:, np.random.default_rng(n).permutation(EACH)[:BEST]].any(1) for n in range(20)])
        if best - pool.mean() < GAIN:
            print(f"{wish.name}: no version of these answers is better by {GAIN:.0%}", flush=True)
            continue
        for person in range(options.people):
            grade = grades(here, liked, options.reader, np.random.default_rng(person))
            for shape in SHAPES if grade is not None else ():
                for kind, share in (("better", GAIN / (best - pool.mean())), ("same", 0.0)):
                    for repeat in range(REPEATS):
                        rng = np.random.default_rng((person, *shape, repeat, kind == "same"))
                        found = verdicts(replies(here, liked, grade, shape, float(share), rng))
                        rows.setdefault((kind, shape), []).append(found)
        print(f"{wish.name}: liked {pool.mean():.0%}", flush=True)
    print(
        "| versions | prompts × answers | cases | accepted | … if ties are no answers | questions | ties | decided ones won |"
    )
    print("| --- " * 8 + "|")
    for (kind, (prompts, each)), some in sorted(rows.items()):
        after, before, asked, ties, won = np.mean(some, axis=0)
        low, high = wilson(float(after), len(some))
        print(f"| {kind} | {prompts} × {each} | {len(some)} | **{after:.0%}** ({low:.0%} to {high:.0%}) | {before:.0%} | {asked:.1f} | {ties:.0%} | {won:.0%} |")  # fmt: skip
    return 0


if __name__ == "__main__":
    sys.exit(main())
