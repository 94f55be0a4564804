"""What is learned from a student who answers in words: the score after 8 and 16 interactions, three ways of reading the same words.

A simulated student with a hidden style gets an answer, and says something: thanks where it fits, what should have been
otherwise where not (as OpenClaw-RL evaluates). The same words are read three ways: as good or bad alone (``binary``: GRPO in groups of one,
the score is the advantage; one reading in ten is wrong), as hints alone (``opd``), and as both (``combined``). After every eight
interactions a version is trained on all of them, from the base, and answers the next eight.

    python -m benchmarks student                # five students
    python -m benchmarks student --seeds 2

Results are kept, one a line, in bench-results/student.jsonl; what is there already is not run again.
"""

from __future__ import annotations

import argparse
import json
import random
import statistics
import sys
import tempfile
from dataclasses import replace
from pathlib import Path
from typing import Any

from benchmarks.algorithms import NOISE, TASTE, critique, satisfaction

WAYS = {"binary": "grpo", "opd": "opd", "combined": "combined"}
EACH, ROUNDS = 8, 2
RESULTS = Path("bench-results/student.jsonl")


def run(way: str, seed: int) -> dict[str, Any]:
    """One student, one way: the score at the start and after each round."""
    import torch

    torch.set_num_threads(1)
    from clawback import engine
    from clawback.extensions.demo import tastes

    taste, student = tastes.TASTES[TASTE], random.Random(f"student {seed}")
    policy = engine.load("embedded")
    recipe = engine.recipe(policy.info, algorithm=WAYS[way])
    recipe = replace(recipe, extra={**recipe.extra, "grouped": False}) if way == "binary" else recipe
    scores, kl = [satisfaction(policy, taste, seed)["satisfaction"]], 0.0
    said: list[Any] = []
    for round_ in range(ROUNDS):
        said += interactions(policy, taste, student, way, seed, round_)
        policy = engine.load("embedded")
        with tempfile.TemporaryDirectory() as folder:
            engine.train(policy, said, recipe, seed=seed, out=Path(folder))
        after = satisfaction(policy, taste, seed)
        scores.append(after["satisfaction"])
        kl = after["kl"]
    return {"way": way, "seed": seed, "scores": scores, "kl": kl, "facts": after["facts"]}


def interactions(
    policy: Any, taste: Any, student: random.Random, way: str, seed: int, round_: int
) -> list[Any]:
    """Eight questions, the answers, and what was read out of the student's words."""
    from clawback.extensions.demo import corpus
    from clawback.records import Part, Sample

    asked = corpus.prompts("rated", EACH, 100 * seed + round_)
    made = policy.generate([p.messages for p in asked], seed=1000 * seed + round_)
    samples = []
    for place, (prompt, [one]) in enumerate(zip(asked, made, strict=True)):
        turn = EACH * round_ + place + 1
        fits = taste.fits(prompt, one.text)
        words = () if fits else critique(one.text, student)
        read = fits if student.random() >= NOISE else not fits
        value = 0.0 if way == "opd" else 1.0 if read else -1.0
        parts = () if way == "opd" else (Part(turn, "judge", value, 1.0),)
        if way == "binary":
            words = ()
        if parts or words:
            samples.append(
                Sample(turn, tuple(prompt.messages), one.text, value, parts, one.ids, one.logprobs, words)
            )
    return samples


def table(rows: list[dict[str, Any]]) -> str:
    """Mean ± standard deviation over students, and how sure it is that ``combined`` ends above the way."""
    from scipy import stats

    lines = [
        "| read as | students | start | after 8 | after 16 | combined above it, p | KL | facts right |",
        "|" + " --- |" * 8,
    ]
    last = {way: [r["scores"][-1] for r in rows if r["way"] == way] for way in WAYS}
    for way in WAYS:
        some = [row for row in rows if row["way"] == way]
        cells = [_spread([row["scores"][i] for row in some]) for i in range(ROUNDS + 1)]
        p = "–"
        if way != "combined" and len(some) > 1:
            p = f"{stats.ttest_rel(last['combined'], last[way], alternative='greater').pvalue:.1g}"
        rest = [f"{statistics.mean(row[key] for row in some):.{d}f}" for key, d in (("kl", 1), ("facts", 2))]
        lines.append(f"| {way} | {len(some)} | " + " | ".join([*cells, p, *rest]) + " |")
    return "\n".join(lines)


def _spread(values: list[float]) -> str:
    deviation = f" ± {statistics.stdev(values):.2f}" if len(values) > 1 else ""
    return f"{statistics.mean(values):.2f}{deviation}"


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks student", description=__doc__.partition("\n")[0]
    )
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--results", type=Path, default=RESULTS)
    options = parser.parse_args(argv)
    options.results.parent.mkdir(parents=True, exist_ok=True)
    text = options.results.read_text("utf-8") if options.results.exists() else ""
    known = {(row["way"], row["seed"]): row for row in map(json.loads, text.splitlines())}
    for seed in range(options.seeds):
        for way in WAYS:
            if (way, seed) not in known:
                known[way, seed] = run(way, seed)
                with options.results.open("a", encoding="utf-8") as file:
                    file.write(json.dumps(known[way, seed]) + "\n")
                print(json.dumps(known[way, seed]), file=sys.stderr, flush=True)
    print(table([known[way, seed] for way in WAYS for seed in range(options.seeds)]))
    return 0


if __name__ == "__main__":
    sys.exit(main())
