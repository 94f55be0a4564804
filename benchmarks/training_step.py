"""One step of LoRA training, and one pass without gradients, by the size of the pieces; as a share of the rate of bare matrix products.

All sizes take turns within one process with a measurement of that rate, in processor time, so that what else the machine does falls on
all of them. The model and turns are those of ``python -m benchmarks training``; the share counts the FLOPs that have to be done (``peers/floor.py``).

    python -m benchmarks training_step --dtype bfloat16
"""

from __future__ import annotations

import argparse
import json
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import torch

from benchmarks.peers.floor import flops
from benchmarks.peers.venvs import cache_folder
from benchmarks.peers.workload import WORKLOADS, make
from clawback import engine
from clawback.models.linear import product
from clawback.policy.policy import Policy
from clawback.records import Sample
from clawback.templates.chat_tokens import Encoded

PRODUCTS = 40


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks training_step", description=__doc__)
    parser.add_argument("--dtype", default="float32", choices=["float32", "bfloat16"])
    parser.add_argument("--pieces", type=int, nargs="+", default=[512, 2048], help="tokens at once")
    parser.add_argument("--turns", type=int, default=3, help="times that each is measured")
    parser.add_argument("--cache", type=Path, default=None)
    options = parser.parse_args(argv)
    torch.set_num_threads(1)
    work = WORKLOADS["real-vocabulary"]
    folder = (options.cache or cache_folder()) / "models" / work.name
    folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as scratch:
        file = Path(scratch) / "samples.jsonl"
        make(work, folder, file)
        rows = [json.loads(line) for line in file.read_text("utf-8").splitlines()]
    policy = engine.load(str(folder), dtype=options.dtype)
    encoded = [
        policy.encode(
            Sample(
                turn_id=number,
                messages=({"role": "user", "content": row["prompt"]},),
                response=row["response"],
                reward=1.0,
            )
        )
        for number, row in enumerate(rows)
    ]
    policy.attach(rank=work.rank, alpha=work.rank, seed=0)
    parts = flops(work)
    forward = parts["head"] / (1 + work.passes) + parts["attention"] / (1 + 3 * work.passes)
    forward += 2 * work.tokens * work.layers * _weights(policy)
    passes = {"forward": (lambda: _forward(policy, encoded), forward)}
    # All turns once: the run is the reference and ``passes`` of these.
    passes["step"] = (lambda: _step(policy, encoded), (sum(parts.values()) - forward) / work.passes)
    found: dict[str, list[float]] = {}
    for _ in range(options.turns):
        for size in options.pieces:
            policy.scorer.micro_tokens = size
            for name, (call, amount) in passes.items():
                rate, seconds = _rate(policy), _seconds(call)
                found.setdefault(f"{name}, pieces of {size}: CPU s", []).append(seconds)
                found.setdefault(f"{name}, pieces of {size}: share", []).append(amount / seconds / rate)
                found.setdefault("GFLOP/s of products", []).append(rate / 1e9)
    print(json.dumps({name: round(statistics.median(values), 3) for name, values in found.items()}, indent=2))
    return 0


def _weights(policy: Policy) -> int:
    """Of a layer's linear maps."""
    layer = policy.model.get_base_model().model.layers[0]  # type: ignore[operator, union-attr]
    return sum(p.numel() for n, p in layer.named_parameters() if "lora" not in n and p.ndim == 2)


def _step(policy: Policy, encoded: list[Encoded]) -> None:
    """Forward and backward of everything, piece by piece."""
    for piece in policy.scorer.pieces(encoded):
        some = [encoded[index] for index in piece]
        with policy.scorer.engaged(some):
            policy.scorer(some).logprobs.mean().backward()
    policy.model.zero_grad(set_to_none=True)


@torch.no_grad()
def _forward(policy: Policy, encoded: list[Encoded]) -> None:
    """As the reference is computed: without the adapter."""
    with policy.base():
        policy.scorer(encoded)


def _rate(policy: Policy) -> float:
    """FLOP a second of the products of a layer, the mean: it has the same neighbours as what it is compared with."""
    dtype = next(policy.model.parameters()).dtype
    left, weight = torch.randn(1024, 512).to(dtype), torch.randn(1408, 512).to(dtype)
    product(left, weight)
    return (
        2 * 1024 * 512 * 1408 * PRODUCTS / _seconds(lambda: [product(left, weight) for _ in range(PRODUCTS)])
    )


def _seconds(call: Callable[[], object]) -> float:
    start = time.process_time()
    call()
    return time.process_time() - start
