"""Several answers to one prompt, log-probs and their gradient: the prompt through the model once, beside once for each answer.

    python -m benchmarks shared_prompts                              # the embedded model: 128 answers, 16 of them, 16 to eight prompts
    python -m benchmarks shared_prompts --model HuggingFaceTB/SmolLM2-135M-Instruct --shapes 1x8x300x40

A shape is prompts x answers to each x tokens of a prompt x tokens of an answer. Both ways in turn, one thread, one adapter of rank 16; CPU seconds of the median
of the rounds. *Tokens* says what the saving could be at most: those that go through the layers, apart and shared.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from statistics import median
from typing import Any

SHAPES = "1x128x120x32,1x16x120x32,8x16x120x32"


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks shared_prompts", description=__doc__.partition("\n")[0]
    )
    parser.add_argument("--model", default="embedded")
    parser.add_argument("--shapes", default=SHAPES, help="as 1x128x120x32, comma-separated")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args(argv)
    rows = measured(options.model, options.shapes.split(","), options.rounds)
    print(json.dumps(rows) if options.json else table(rows))
    return 0


def measured(model: str, shapes: list[str], rounds: int) -> list[dict[str, Any]]:
    import torch

    from clawback import engine

    torch.set_num_threads(1)
    policy = engine.load(model)
    policy.attach(rank=16, alpha=16, seed=1)
    if not policy.scorer.shares:
        raise SystemExit(f"{model} reads each sequence from its beginning: nothing to compare.")
    found = []
    for shape in shapes:
        encoded = sequences(*map(int, shape.split("x")))
        taken: dict[bool, list[float]] = {True: [], False: []}
        for turn in range(rounds + 1):
            for shares in (True, False):
                policy.scorer.shares = shares
                seconds = step(policy.scorer, encoded)
                if turn:  # the first one compiles
                    taken[shares].append(seconds)
        apart = sum(len(one.prompt) + len(one.response) for one in encoded)
        once = {one.prompt for one in encoded}
        shared = sum(map(len, once)) + sum(len(one.response) for one in encoded)
        row = {"shape": shape, "apart": median(taken[False]), "shared": median(taken[True])}
        row |= {"ratio": row["apart"] / row["shared"], "tokens_apart": apart, "tokens_shared": shared}
        print(json.dumps(row), file=sys.stderr, flush=True)
        found.append(row)
    return found


def sequences(prompts: int, answers: int, asked: int, answered: int) -> list[Any]:
    import numpy as np

    from clawback.templates.chat_tokens import Encoded

    rng = np.random.default_rng(0)

    def some(n: int) -> tuple[int, ...]:
        return tuple(int(t) for t in rng.integers(3, 1000, n))

    return [Encoded(prompt, some(answered)) for prompt in (some(asked) for _ in range(prompts)) for _ in range(answers)]  # fmt: skip


def step(scorer: Any, encoded: list[Any]) -> float:
    """CPU seconds of log-probs and gradient, in pieces as training makes them."""
    start = time.process_time()
    for piece in scorer.pieces(encoded):
        scorer([encoded[i] for i in piece]).logprobs.sum().backward()
    return time.process_time() - start


def table(rows: list[dict[str, Any]]) -> str:
    lines = ["| prompts × answers × tokens | apart, CPU s | shared, CPU s | ratio | ratio of tokens |", "| --- | --- | --- | --- | --- |"]  # fmt: skip
    for row in rows:
        tokens = row["tokens_apart"] / row["tokens_shared"]
        name = row["shape"].replace("x", " × ")
        lines.append(f"| {name} | {row['apart']:.2f} | {row['shared']:.2f} | {row['ratio']:.1f}× | {tokens:.1f}× |")  # fmt: skip
    return "\n".join(lines)


if __name__ == "__main__":
    sys.exit(main())
