"""How many tries a better prompt takes: our search beside GEPA 0.1.4, same model, same person, same budget, five seeds.

The world is scripted (``_rule_world.py``): eight hidden features of the prompt decide how it is answered, and a model reflects with errors. Four variants: with the
person's words or with scores alone, each without and with mistakes in the scores. 20 training and 20 validation items; the score is that of the prompt which would be
used after so many tries, on 60 other items, without mistakes. A try is one answer of the task model, judged. Every engine gets the
same items; GEPA runs with its defaults, by its own API, once for all budgets (what it had found by then); ours runs once for each budget, its last check paid from it.

    python -m benchmarks prompts                         # all of it, about two minutes
    python -m benchmarks prompts --variant words --seeds 5
    python -m benchmarks prompts --part actor            # regret of the actor, calibration of the critic
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from benchmarks._rule_world import START, Item, World, answer, items, truth

BUDGETS = (25, 50, 75, 100, 150, 200, 300, 400)
VARIANTS = {
    "words": (True, False),
    "words, mistakes": (True, True),
    "scores alone": (False, False),
    "scores alone, mistakes": (False, True),
}
RESULTS = Path("bench-results/prompts.json")
Curve = dict[int, tuple[float, int]]
"""Budget → (held-out score, proposals)."""


def ours(
    engine: str, seed: int, words: bool, noise: bool, cases: tuple[list[Item], ...], heeds: bool = True
) -> Curve:
    """One search for each budget."""
    from clawback.prompts import Budget, Example, Outcome, Prompt, evaluator, reflector
    from clawback.prompts.engines import engine as named

    train, validation, test = cases
    by_question = {one.question: one for one in (*train, *validation)}
    examples = [Example.ask(one.question, one.id) for one in train]
    examples += [Example.ask(one.question, one.id, split="validation") for one in validation]
    curve: Curve = {}
    for budget in BUDGETS:
        world = World(seed, words, noise, heeds)

        def judge(example: Any, said: str, world: World = world) -> Outcome:
            return Outcome(*world.judge(by_question[example.question], said))

        evaluate = evaluator(lambda messages: answer(messages[0]["content"]), judge)
        propose = reflector(lambda messages, world=world: world.reflect(messages[0]["content"]))
        found = named(engine)(Prompt(START), examples, evaluate, propose, Budget(calls=budget), seed=seed)
        assert world.tried <= budget
        curve[budget] = (truth(found.best.text, test), world.asked)
    return curve


def gepa(seed: int, words: bool, noise: bool, cases: tuple[list[Item], ...], **options: Any) -> Curve:
    """One run of GEPA's own; what it would have returned after so many tries."""
    from gepa.api import optimize
    from gepa.core.adapter import EvaluationBatch

    train, validation, test = cases
    world = World(seed, words, noise)

    class Adapter:
        propose_new_texts = None

        def evaluate(self, batch: list[Item], candidate: dict[str, str], capture_traces: bool = False) -> Any:
            said = [answer(candidate["system"]) for _ in batch]
            judged = [world.judge(item, text) for item, text in zip(batch, said, strict=True)]
            scores = [score for score, _ in judged]
            traces = list(zip(batch, said, judged, strict=True)) if capture_traces else None
            return EvaluationBatch(said, scores, traces)

        def make_reflective_dataset(
            self,
            candidate: Any,  # noqa: ARG002
            batch: Any,
            components: list[str],
        ) -> dict[str, Any]:
            rows = [
                {"Inputs": item.question, "Generated Outputs": said, "Feedback": words or f"score {score}"}
                for item, said, (score, words) in batch.trajectories
            ]
            return dict.fromkeys(components, rows)

    class Quiet:
        def log(self, message: str) -> None:
            pass

    asked: list[int] = []

    def reflect(prompt: Any) -> str:
        asked.append(world.tried)
        return world.reflect(prompt if isinstance(prompt, str) else prompt[-1]["content"])

    found = optimize(
        {"system": START}, train, validation, Adapter(), reflection_lm=reflect, max_metric_calls=max(BUDGETS), seed=seed, logger=Quiet(), **options
    )  # fmt: skip
    curve: Curve = {}
    for budget in BUDGETS:
        there = [i for i, calls in enumerate(found.discovery_eval_counts) if calls <= budget]
        best = max(there, key=lambda i: found.val_aggregate_scores[i], default=0)
        score = truth(found.candidates[best]["system"], test)
        curve[budget] = (score, sum(calls <= budget for calls in asked))
    return curve


ENGINES: dict[str, Callable[..., Curve]] = {
    "clawback, reflect": lambda *a: ours("reflect", *a),
    "the same, losers not heeded": lambda *a: ours("reflect", *a, heeds=False),
    "clawback, evolve": lambda *a: ours("evolve", *a),
    "GEPA 0.1.4": gepa,
    "GEPA 0.1.4, cached": lambda *a: gepa(*a, cache_evaluation=True),
}


def race(variants: list[str], seeds: int, first: int, engines: list[str]) -> dict[str, Any]:
    """Variant → engine → a curve for each seed."""
    made: dict[str, Any] = {}
    for variant in variants:
        words, noise = VARIANTS[variant]
        for name in engines:
            curves = []
            for seed in range(first, first + seeds):
                cases = tuple(
                    items(seed, count, kind) for kind, count in (("train", 20), ("val", 20), ("test", 60))
                )
                curves.append(ENGINES[name](seed, words, noise, cases))
            made.setdefault(variant, {})[name] = curves
            print(f"{variant}: {name} done", file=sys.stderr)
    return made


def table(found: dict[str, Any]) -> str:
    lines = []
    for variant, engines in found.items():
        lines += [
            f"\n### {variant}\n",
            "| engine | " + " | ".join(str(b) for b in BUDGETS) + " | proposals at 400 |",
        ]
        lines.append("| --- |" + " --- |" * (len(BUDGETS) + 1))
        for name, curves in engines.items():
            cells = []
            for budget in BUDGETS:
                scores = [curve[budget][0] for curve in curves]
                spread = statistics.stdev(scores) if len(scores) > 1 else 0.0
                cells.append(f"{statistics.fmean(scores):.2f} ± {spread:.2f}")
            asked = statistics.fmean(curve[max(BUDGETS)][1] for curve in curves)
            lines.append(f"| {name} | {' | '.join(cells)} | {asked:.0f} |")
    return "\n".join(lines)


def main(argv: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks prompts", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)  # fmt: skip
    parser.add_argument("--part", choices=("search", "actor", "all"), default="all")
    parser.add_argument("--variant", action="append", choices=VARIANTS)
    parser.add_argument("--engine", action="append", choices=ENGINES)
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--first-seed", type=int, default=0)
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args(argv)
    made: dict[str, Any] = {}
    if options.part != "actor":
        made["search"] = race(options.variant or list(VARIANTS), options.seeds, options.first_seed, options.engine or list(ENGINES))  # fmt: skip
    if options.part != "search":
        from benchmarks import _prompt_policies

        made |= _prompt_policies.measure(options.seeds)
    RESULTS.parent.mkdir(exist_ok=True)
    RESULTS.write_text(json.dumps(made, indent=1), "utf-8")
    if options.json:
        print(json.dumps(made))
        return 0
    if "search" in made:
        print(table(made["search"]))
    if "actor" in made:
        from benchmarks import _prompt_policies

        print(_prompt_policies.table(made))
    return 0
