"""How well a person's taste is read from 28 ratings of a real model's answers, without and with a remark on each bad one. Nothing is trained.

The people, prompts and tastes of ``python -m benchmarks real``; the AUC is that of the grades of the base's other answers.

    python -m benchmarks remarks --tastes development --persons 8 --prompts FILE.jsonl
"""

from __future__ import annotations

import argparse
import statistics
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from benchmarks.real import DATA, OWN, World, chosen


def main(argv: list[str]) -> int:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks remarks", description=__doc__.partition("\n")[0]
    )
    parser.add_argument("--model", default="smollm2")
    parser.add_argument("--prompts", type=Path, default=DATA, help="JSONL with `prompt` and `response`")
    parser.add_argument("--tastes", default="test", help="development, test, or names, comma-separated")
    parser.add_argument("--ratings", type=int, default=32)
    parser.add_argument("--persons", type=int, default=6)
    parser.add_argument("--dtype", default="auto")
    options = parser.parse_args(argv)
    if not options.prompts.is_file():
        print(f"There is no {options.prompts}: name a file with --prompts.", file=sys.stderr)
        return 2
    world = World(options)
    print("| taste | base | ratings alone | a remark on each bad answer |\n" + "| --- " * 4 + "|")
    for name, taste in chosen(options.tastes).items():
        liked = statistics.fmean(taste.likes(one["text"]) for one in world.captured)
        cells = [told([read(world, taste, seed, options.ratings, words) for seed in range(options.persons)]) for words in (False, True)]  # fmt: skip
        print(f"| {name} | {liked:.2f} | {cells[0]} | {cells[1]} |", flush=True)
    return 0


def read(world: World, taste: Any, seed: int, ratings: int, words: bool) -> float | None:
    """The AUC of one person; None where all of their ratings, or of the other answers, are alike."""
    import numpy as np

    from benchmarks.reading import auc
    from clawback.rewards.reward_ensemble import RULES, Answers, Ratings, ReadingSettings, learn

    samples = world.rated(taste, seed, ratings, words)
    held = samples[::8]
    train = [one for one in samples if one not in held]
    if len({one.reward for one in train}) < 2:
        return None

    def answers(places: Sequence[int]) -> Answers:
        some = [world.captured[i] for i in places]
        texts = [one["text"] for one in some]
        return Answers([one["ids"] for one in some], texts, np.zeros((len(some), 0)), [world.own[i] for i in places])  # fmt: skip

    known = [one.turn_id - 1 for one in train]
    remarks = [(one.response_ids or (), one.response, said) for one in train for said in one.hints]
    rewards = np.array([one.reward for one in train])
    ensemble = learn(answers(range(OWN)), answers(known), Ratings(rewards), remarks, settings=ReadingSettings(seed=seed))  # fmt: skip
    others = [i for i in range(OWN) if i not in known]
    liked = np.array([taste.likes(world.captured[i]["text"]) for i in others])
    if liked.all() or not liked.any():
        return None
    return float(auc(ensemble.reward(answers(others), RULES, 0.5), liked))


def told(found: Sequence[float | None]) -> str:
    aucs = [one for one in found if one is not None]
    if not aucs:
        return "–"
    spread = statistics.stdev(aucs) if len(aucs) > 1 else 0.0
    return f"{statistics.fmean(aucs):.2f} ± {spread:.2f} ({len(aucs)})"
