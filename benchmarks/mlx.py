"""The engine on MLX beside torch's: the distance of log-probs, the learning curve of the same run, and processor time.

The embedded model, an adapter that changes something, answers that torch drew. Then one small run of `auto`'s own rounds on each engine (`rollouts`: answers
are drawn, read by the base, graded by a reward ensemble, and learned with the exact divergence) from the same ratings and seed. On Linux MLX
computes on the CPU with a plain BLAS, which is slow; what is compared is what comes out.

    make .mlx/.installed && PYTHONPATH=.mlx python -m benchmarks mlx
    PYTHONPATH=.mlx python -m benchmarks mlx --rounds 12 --prompts 8 --samples 8     # minutes
"""

from __future__ import annotations

import argparse
import json
import random
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

ANSWERS, RATINGS = 24, 32
RESULTS = Path("bench-results/mlx.json")


def distance(policies: dict[str, Any]) -> dict[str, Any]:
    """Largest difference of a log-prob, how many answers are drawn alike, and seconds of drawing and of reading."""
    import torch

    from clawback.extensions.demo import corpus

    asked = [p.messages for p in corpus.prompts("rated", ANSWERS // 4, 0)]
    drawn, values, seconds = {}, {}, {}
    for name, policy in policies.items():
        policy.attach(rank=8, alpha=16, seed=0)
        generator = torch.Generator().manual_seed(1)
        for key, parameter in sorted(policy.model.named_parameters()):
            if "lora_B" in key:
                parameter.data = 0.05 * torch.randn(parameter.shape, generator=generator)
        began = time.process_time()
        drawn[name] = [one for group in policy.generate(asked, samples=4, seed=3) for one in group]
        middle = time.process_time()
        many = [talk for talk in asked for _ in range(4)]
        values[name] = policy.logprobs(many, [one.ids for one in drawn["torch"]])
        seconds[name] = {"draw": middle - began, "read": time.process_time() - middle}
        policy.put(None)
    apart = [float((a - b).abs().max()) for a, b in zip(values["torch"], values["mlx"], strict=True)]
    alike = sum(a.ids == b.ids for a, b in zip(drawn["torch"], drawn["mlx"], strict=True))
    tokens = sum(len(one.ids) for one in drawn["torch"])
    return {"tokens": tokens, "largest": max(apart), "alike": f"{alike} of {ANSWERS}", "seconds": seconds}


def ratings(policy: Any) -> list[Any]:
    """Of somebody who likes bullets, and taps wrong one time in ten."""
    from clawback.extensions.demo import corpus, tastes
    from clawback.records import Part, Sample

    asked, rng = corpus.prompts("rated", RATINGS, 0), random.Random(0)
    made = []
    for i, (prompt, [one]) in enumerate(zip(asked, policy.generate([p.messages for p in asked], seed=0), strict=True)):  # fmt: skip
        rating = float(tastes.TASTES["bullets"].rate(prompt, one.text, rng, 0.1))
        part = Part(i + 1, "rating", rating, 1.0)
        made.append(Sample(i + 1, tuple(prompt.messages), one.text, rating, (part,), response_ids=one.ids))
    return made


def learn(policy: Any, samples: list[Any], options: argparse.Namespace) -> dict[str, Any]:
    import dataclasses

    from clawback import engine

    sizes = {"rounds": options.rounds, "prompts": options.prompts, "samples": options.samples}
    recipe = engine.recipe(policy.info, algorithm="rollouts")
    recipe = dataclasses.replace(recipe, extra={**sizes, "round_steps": 2, "grounding": options.grounding})
    began = time.process_time()
    with tempfile.TemporaryDirectory() as folder:
        result = engine.train(policy, samples, recipe, out=Path(folder) / "run", seed=0)
    names = ("reward", "loss", "kl_loss", "drift", "grad_norm")
    curve = [{name: row[name] for name in names} for row in result.history]
    return {"curve": curve, "cpu_seconds": time.process_time() - began}


def table(found: dict[str, Any]) -> str:
    lines = [
        f"{found['tokens']} tokens: log-probs differ by {found['largest']:.1e} at most; {found['alike']} answers drawn alike.",
        "",
        "| step | reward, torch | MLX | loss, torch | MLX | KL, torch | MLX | gradient's norm, torch | MLX |",
        "|" + " --- |" * 9,
    ]
    runs = found["runs"]
    for step, (ours, theirs) in enumerate(zip(runs["torch"]["curve"], runs["mlx"]["curve"], strict=True)):
        pairs = [f"{row[name]:.5f}" for name in ("reward", "loss", "kl_loss", "grad_norm") for row in (ours, theirs)]  # fmt: skip
        lines.append(f"| {step} | " + " | ".join(pairs) + " |")
    spent = {name: {**found["seconds"][name], "train": runs[name]["cpu_seconds"]} for name in runs}
    lines += ["", "| CPU seconds | draw | read | train |", "| --- | --- | --- | --- |"]
    lines += [f"| {n} | {s['draw']:.1f} | {s['read']:.1f} | {s['train']:.1f} |" for n, s in spent.items()]
    return "\n".join(lines)


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks mlx", description=__doc__.partition("\n")[0])
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--prompts", type=int, default=4, help="a round")
    parser.add_argument("--samples", type=int, default=4, help="answers to each")
    parser.add_argument("--grounding", type=int, default=32, help="answers of the base")
    parser.add_argument("--results", type=Path, default=RESULTS)
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args(argv)
    import torch

    from clawback import engine
    from clawback.errors import MissingExtra

    torch.set_num_threads(1)
    try:
        policies = {"torch": engine.load("embedded", device="cpu"), "mlx": engine.load("embedded", device="mlx")}  # fmt: skip
    except MissingExtra as error:
        print(f"{error} Or `make .mlx/.installed` and PYTHONPATH=.mlx.", file=sys.stderr)
        return 0
    found = distance(policies)
    samples = ratings(policies["torch"])
    found["runs"] = {name: learn(policy, samples, options) for name, policy in policies.items()}
    options.results.parent.mkdir(parents=True, exist_ok=True)
    options.results.write_text(json.dumps(found, indent=2), "utf-8")
    print(json.dumps(found) if options.json else table(found))
    return 0


if __name__ == "__main__":
    sys.exit(main())
