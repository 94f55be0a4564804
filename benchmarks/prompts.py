"""How many tries a better prompt takes: our search beside GEPA 0.1.4 and MIPROv2 (dspy 3.4.1), same model, same person, same budget, five seeds.

Two worlds. The *rules* are scripted (``_rule_world.py``): eight hidden features of the prompt decide how it is answered, and a model reflects with errors; four
variants: with the person's words or with scores alone, each without and with mistakes in the scores. In the *real* one SmolLM2-135M-Instruct answers people's
prompts under the system prompt that is tried, and a simulated person reads it (``_real_prompt_world.py``); it is left out where model or prompts are missing.

A try is one answer of the task model, judged. The score is that of the prompt which would be used after so many tries, on items that no optimiser has, without mistakes.
GEPA and MIPROv2 run in venvs of their own, by their own API, once for all budgets (what they had found by then); ours runs once for each budget, its last check paid from it.

    python -m benchmarks prompts                         # all of it
    python -m benchmarks prompts --world rules --variant words --seeds 5
    python -m benchmarks prompts --world real --person direct
    python -m benchmarks prompts --part actor            # regret of the actor, calibration of the critic
"""

from __future__ import annotations

import argparse
import itertools
import json
import statistics
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

from benchmarks import _page, _rule_world
from benchmarks.peers import prompt_pipe, venvs
from benchmarks.real import DATA

VARIANTS = {
    "words": (True, False),
    "words, mistakes": (True, True),
    "scores alone": (False, False),
    "scores alone, mistakes": (False, True),
}
REAL_PERSONS = ("direct", "impersonal")
RESULTS = Path("bench-results/prompts.json")
Curve = dict[int, tuple[float, int] | tuple[float, int, str]]
"""Budget → (held-out score, proposals, the prompt)."""
MakeWorld = Callable[..., Any]
"""(heeds) → a world with nothing counted yet."""


def ours(
    make: MakeWorld, seed: int, budgets: tuple[int, ...], engine: str, *, heeds: bool = True, templates: bool = False
) -> Curve:  # fmt: skip
    """One search for each budget."""
    from clawback.prompts import Budget, Example, Outcome, Prompt, from_remarks, reflector
    from clawback.prompts.search.optimize import engine as named

    curve: Curve = {}
    for budget in budgets:
        world = make(heeds)
        cases = world.cases
        examples = [Example.ask(one.question, one.id) for one in cases.train]
        examples += [Example.ask(one.question, one.id, split="validation") for one in cases.validation]

        def evaluate(prompt: Any, example: Any, world: Any = world) -> Outcome:
            score, words, said = world.try_(prompt.system, example.id)
            return Outcome(score, words, said)

        propose = from_remarks if templates else reflector(lambda messages, world=world: world.reflect(messages[0]["content"]))  # fmt: skip
        found = named(engine)(Prompt(world.start), examples, evaluate, propose, Budget(calls=budget), seed=seed)  # fmt: skip
        assert world.tried <= budget
        curve[budget] = (world.measure(found.best.system), found.spent.proposals, found.best.system)
    return curve


def peer(
    make: MakeWorld, seed: int, budgets: tuple[int, ...], name: str, script: str, **options: Any
) -> Curve:
    """One run of another's own; what it would have returned after so many tries."""
    world = make(True)
    proposed: list[int] = []
    rows = {
        kind: [{"id": one.id, "question": one.question} for one in getattr(world.cases, kind)]
        for kind in ("train", "validation")
    }
    job = {"start": world.start, "calls": max(budgets), "seed": seed, "options": options, **rows}

    def counted(asked: Callable[..., str]) -> Callable[..., str]:
        def ask(*given: str) -> str:
            proposed.append(world.tried)
            return asked(*given)

        return ask

    world.reflect, world.suggest = counted(world.reflect), counted(world.suggest)
    found = prompt_pipe.serve(venvs.python_of(name, venvs.cache_folder()), script, world, job)
    curve: Curve = {}
    for budget in budgets:
        there = [one for one in found if one["calls"] <= budget]
        best = max(there, key=lambda one: one["score"], default={"text": world.start})
        curve[budget] = (
            world.measure(best["text"]),
            sum(calls <= budget for calls in proposed),
            best["text"],
        )
    return curve


gepa = partial(peer, name="gepa", script="gepa_prompts.py")
mipro = partial(peer, name="dspy", script="mipro_prompts.py")
Engine = Callable[[MakeWorld, int, tuple[int, ...]], Curve]
ENGINES: dict[str, Engine] = {
    "clawback, reflect": partial(ours, engine="reflect"),
    "the same, losers not heeded": partial(ours, engine="reflect", heeds=False),
    "clawback, evolve": partial(ours, engine="evolve"),
    "GEPA 0.1.4": gepa,
    "GEPA 0.1.4, cached": partial(gepa, cache_evaluation=True),
    "MIPROv2, dspy 3.4.1": mipro,
}
BUDGET = 100
"""Tries, of which the page speaks."""
BUDGETS = (25, 50, 75, 100, 150, 200, 300, 400)
REAL_ENGINES: dict[str, Engine] = {
    "clawback, reflect": partial(ours, engine="reflect"),
    "clawback, templates": partial(ours, engine="reflect", templates=True),
    "GEPA 0.1.4": gepa,
    "MIPROv2, dspy 3.4.1": mipro,
}
REAL_BUDGETS = (25, 50, 100, 150)


def rules(variants: list[str], seeds: range, engines: list[str]) -> dict[str, Any]:
    """Variant → engine → a curve for each seed."""
    made: dict[str, Any] = {}
    for variant in variants:
        words, noise = VARIANTS[variant]
        for name in engines or ENGINES:
            curves = [
                ENGINES[name](lambda heeds, seed=seed: _rule_world.World(seed, words, noise, heeds), seed, BUDGETS)  # noqa: B023
                for seed in seeds
            ]  # fmt: skip
            made.setdefault(variant, {})[name] = curves
            print(f"{variant}: {name} done", file=sys.stderr)
    return made


def real(data: Path, persons: list[str], seeds: range, engines: list[str]) -> dict[str, Any]:
    """Person → engine → a curve for each seed, and what the prompt as it was gets; empty where the model or the prompts are missing."""
    from benchmarks import _real_prompt_world

    model = _real_prompt_world.load(data)
    if isinstance(model, str):
        print(f"The real world is left out: {model}", file=sys.stderr)
        return {}
    for name in ("gepa", "dspy"):
        venvs.python_of(name, venvs.cache_folder())
    jobs: list[tuple[str, str, int, Callable[[], Curve]]] = []
    for person, name, seed in itertools.product(persons, engines or REAL_ENGINES, seeds):
        engine = REAL_ENGINES[name]
        # Ours is a search for each budget, all side by side.
        parts = [(budget,) for budget in REAL_BUDGETS] if name.startswith("clawback") else [REAL_BUDGETS]
        for budgets in parts:
            make = partial(model.world, person, seed)
            jobs.append((person, name, seed, partial(engine, make, seed, budgets)))
    curves = model.together([job for *_, job in jobs], lambda said: print(said, file=sys.stderr, flush=True))
    print(model.account(), file=sys.stderr)
    made: dict[str, Any] = {}
    for person in persons:
        before = dict.fromkeys(REAL_BUDGETS, (model.world(person, 0).measure(_real_prompt_world.START), 0))
        made[person] = {"the prompt as it was": [before]}
    found: dict[tuple[str, str, int], Curve] = {}
    for (person, name, seed, _), curve in zip(jobs, curves, strict=True):
        found.setdefault((person, name, seed), {}).update(curve)
    for (person, name, _), curve in found.items():
        made[person].setdefault(name, []).append(curve)
    return made


def table(found: dict[str, Any], budgets: tuple[int, ...]) -> str:
    lines = []
    for variant, engines in found.items():
        lines += [f"\n### {variant}\n", "| engine | " + " | ".join(str(b) for b in budgets) + f" | proposals at {max(budgets)} |"]  # fmt: skip
        lines.append("| --- |" + " --- |" * (len(budgets) + 1))
        for name, curves in engines.items():
            cells = []
            for budget in budgets:
                scores = [curve[budget][0] for curve in curves]
                spread = statistics.stdev(scores) if len(scores) > 1 else 0.0
                cells.append(f"{statistics.fmean(scores):.2f} ± {spread:.2f}")
            asked = statistics.fmean(curve[max(budgets)][1] for curve in curves)
            lines.append(f"| {name} | {' | '.join(cells)} | {asked:.0f} |")
    return "\n".join(lines)


def beside(found: dict[str, Any]) -> None:
    """What the page says: the score after so many tries, seed by seed."""
    for variant, engines in found.items():
        for name in ("GEPA 0.1.4", "MIPROv2, dspy 3.4.1"):
            sides = [[curve[BUDGET][0] for curve in engines.get(one, ())] for one in ("clawback, reflect", name)]  # fmt: skip
            if all(sides):
                mine, other = sides
                _page.compare(f"a prompt after {BUDGET} tries, {variant}", peer=name, unit="score", ours=mine, theirs=other)  # fmt: skip


def main(argv: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks prompts", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)  # fmt: skip
    parser.add_argument("--part", choices=("search", "actor", "all"), default="all")
    parser.add_argument("--world", choices=("rules", "real", "both"), default="both")
    parser.add_argument("--variant", action="append", choices=VARIANTS)
    parser.add_argument("--person", action="append", choices=REAL_PERSONS, help="of the real world")
    parser.add_argument("--engine", action="append", choices={**ENGINES, **REAL_ENGINES})
    parser.add_argument(
        "--prompts", type=Path, default=DATA, help="JSON lines with `prompt`, for the real world"
    )
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--first-seed", type=int, default=0)
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args(argv)
    made: dict[str, Any] = {}
    seeds = range(options.first_seed, options.first_seed + options.seeds)
    if options.part != "actor":
        if options.world != "real":
            made["search"] = rules(options.variant or list(VARIANTS), seeds, options.engine)
        if options.world != "rules":
            made["real"] = real(options.prompts, options.person or list(REAL_PERSONS), seeds, options.engine)
    if options.part != "search":
        from benchmarks import _prompt_policies

        made |= _prompt_policies.measure()
    RESULTS.parent.mkdir(exist_ok=True)
    RESULTS.write_text(json.dumps(made, indent=1), "utf-8")
    if options.json:
        print(json.dumps(made))
        return 0
    if "search" in made:
        print(table(made["search"], BUDGETS))
        beside(made["search"])
    if made.get("real"):
        print(table({f"SmolLM2 under real prompts: {one}": made["real"][one] for one in made["real"]}, REAL_BUDGETS))  # fmt: skip
    if "actor" in made:
        from benchmarks import _prompt_policies

        print(_prompt_policies.table(made))
    return 0
