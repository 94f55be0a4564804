"""What each stage of a run makes of a taste, before anything is trained: the reader, the sentences, the answers that would be learned.

The simulated people, prompts and tastes of ``python -m benchmarks real``; each stage is held against what the person truly likes.

    python -m benchmarks stages --tastes development --prompts FILE.jsonl
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any
from unittest import mock

from benchmarks.real import DATA, World, chosen, mean, user


class Seen(Exception):
    """The plan is made: what follows would train."""


def main(argv: list[str]) -> int:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks stages", description=__doc__.partition("\n")[0]
    )
    parser.add_argument("--model", default="smollm2")
    parser.add_argument("--prompts", type=Path, default=DATA, help="JSONL with `prompt` and `response`")
    parser.add_argument(
        "--tastes", default="development", help="development, test, or names, comma-separated"
    )
    parser.add_argument("--ratings", type=int, default=32)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--words", action="store_true")
    parser.add_argument("--dtype", default="auto")
    options = parser.parse_args(argv)
    if not options.prompts.is_file():
        print(f"There is no {options.prompts}: name a file with --prompts.", file=sys.stderr)
        return 2
    world = World(options)
    for name, taste in chosen(options.tastes).items():
        show(world, name, taste, options)
    return 0


def show(world: World, name: str, taste: Any, options: argparse.Namespace) -> None:
    from clawback import engine
    from clawback.errors import NothingRead
    from clawback.sources import distillation_plan, distilled, graded, plan

    samples = world.rated(taste, options.seed, options.ratings, options.words)
    print(
        f"== {name}: {sum(one.reward > 0 for one in samples)} of {len(samples)} ratings are good", flush=True
    )
    held = samples[::8]
    train = [one for one in samples if one not in held]
    kept_out = {one.turn_id for one in held}
    prompts = [user(p) for i, p in enumerate(world.own, 1) if i not in kept_out]
    learn, search, choose, distil = (
        graded.Grading.learn,
        distillation_plan.search,
        distilled.chosen,
        plan.distil,
    )

    def learned(self: Any, *given: Any, **more: Any) -> Any:
        made = learn(self, *given, **more)
        print(f"reader: p = {made.trust.p:.3f}; base {told(self, taste, self.base_graded)}", flush=True)
        return made

    def searched(grading: Any, *given: Any, **more: Any) -> Any:
        arms = search(grading, *given, **more)
        for arm in arms:
            print(f"sentence {arm.instruction.text!r}: gain {arm.gain:+.2f} ± {arm.error:.2f}, {told(grading, taste, arm.answers)}", flush=True)  # fmt: skip
        return arms

    def chose(grading: Any, answers: Sequence[Any], settings: Any) -> Any:
        made = choose(grading, answers, settings)
        print(
            f"drawn {told(grading, taste, answers)}\nlearned {told(grading, taste, made.answers)}", flush=True
        )
        return made

    def planned(*given: Any) -> Any:
        made = distil(*given)
        print(made.note if made else "too few", flush=True)
        raise Seen

    recipe = engine.recipe(world.policy.info, "balanced", "auto", {})
    world.policy.put(None)
    with (
        tempfile.TemporaryDirectory() as out,
        mock.patch.object(graded.Grading, "learn", learned),
        mock.patch.object(distillation_plan, "search", searched),
        mock.patch.object(distilled, "chosen", chose),
        mock.patch.object(plan, "distil", planned),
    ):
        try:
            result = engine.train(
                world.policy, train, recipe, seed=options.seed, out=Path(out), prompts=prompts
            )
            print(f"not distilled: {result.note}", flush=True)
        except NothingRead as error:
            print(f"no run: {error}", flush=True)
        except Seen:
            pass


def told(grading: Any, taste: Any, answers: Sequence[Any]) -> str:
    """How many there are, which share is liked, and how well their grades tell these from the others."""
    import numpy as np

    from benchmarks.reading import auc

    if not answers:
        return "0 answers"
    texts = grading.texts([one.encoded for one in answers])
    liked = np.array([taste.likes(text) for text in texts])
    apart = (
        f"{auc(np.array([one.reward for one in answers]), liked):.2f}"
        if 0 < liked.sum() < len(liked)
        else "-"
    )
    whole, words = mean(one.complete for one in answers), mean(len(text.split()) for text in texts)
    return (
        f"{len(answers)} answers, liked {liked.mean():.2f}, AUC {apart}, whole {whole:.2f}, {words:.0f} words"
    )
