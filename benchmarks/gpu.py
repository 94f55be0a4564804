"""The whole loop on this machine's GPU, phase by phase: seconds, tokens a second, peak memory, and the share of the device's arithmetic.

    python -m benchmarks gpu --model Qwen/Qwen3-4B
    python -m benchmarks gpu --model embedded --device cpu --quick      # does it run?

Phases: load; draw answers; score them; training steps on rated answers; a whole run with the default algorithm, from the ratings to the
adapter; the gate's measure of what came out. Ratings are those of a person who likes short answers.

MFU is the arithmetic that the weights ask for (2 operations a weight and token forward, 2 more backward to the inputs: the weights
themselves are frozen) over what a bare bfloat16 product of 4096 x 4096 reaches here, or over ``--peak`` TFLOP/s where that is given.
Drawing is bound by memory and not by arithmetic: its MFU is low everywhere. The whole run has none, because its phases do unlike things.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import platform
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

OUT = Path("bench-results") / "gpu.json"
QUICK = {"rounds": 1, "prompts": 2, "samples": 2, "round_steps": 2, "grounding": 8}


@dataclass(frozen=True)
class Row:
    """One phase."""

    phase: str
    seconds: float
    tokens: int = 0
    operations: float = 0.0
    peak_bytes: int = 0
    note: str = ""

    def figures(self, peak: float) -> dict[str, Any]:
        """``peak``: operations a second."""
        rate = self.tokens / self.seconds if self.tokens else None
        mfu = self.operations / self.seconds / peak if self.operations else None
        return {**dataclasses.asdict(self), "tokens_per_second": rate, "mfu": mfu}


class Bench:
    """A policy, and what its phases cost."""

    def __init__(self, options: argparse.Namespace) -> None:
        from clawback import devices, engine
        from clawback.policy import memory

        self.options = options
        self.rows: list[Row] = []
        started = time.perf_counter()
        self.policy = engine.load(options.model, dtype=options.dtype, device=options.device)
        self.device = self.policy.device
        devices.wait(self.device)
        self.weights = self.policy.info.active_parameters
        note = f"{memory.stored(self.policy)} bits a weight"
        self.rows.append(Row("load", time.perf_counter() - started, note=note, peak_bytes=self.peak()))

    def peak(self) -> int:
        from clawback import devices

        return devices.peak_bytes(self.device)

    def time(self, phase: str, action: Callable[[], tuple[int, float, str]]) -> None:
        """Run a phase, which says how many tokens it took, how many operations, and what there is to remark."""
        import torch

        from clawback import devices

        print(f"{phase} …", file=sys.stderr)
        if self.device.type == "cuda":
            torch.cuda.reset_peak_memory_stats(self.device)
        started = time.perf_counter()
        tokens, operations, note = action()
        devices.wait(self.device)
        self.rows.append(Row(phase, time.perf_counter() - started, tokens, operations, self.peak(), note))

    def go(self, out: Path) -> None:
        from clawback import engine
        from clawback.extensions.demo import corpus
        from clawback.gate import evidence
        from clawback.gate.fresh import VersionPair

        options, policy = self.options, self.policy
        asked = [p.messages for p in corpus.prompts("rated", options.ratings, 0)]
        limit = options.max_tokens
        policy.max_response = min(policy.max_response, limit)
        drawn: list[Any] = []

        def draw() -> tuple[int, float, str]:
            drawn.extend(policy.generate(asked, samples=options.samples, max_tokens=limit, seed=1))
            answers = [one for group in drawn for one in group]
            new = sum(len(one.ids) for one in answers)
            read = sum(len(policy.chat.prompt(messages)) for messages in asked)
            ended = sum(one.finished for one in answers) / len(answers)
            return new, 2.0 * self.weights * (new + read), f"{len(answers)} answers, {ended:.0%} ended"

        self.time("draw", draw)
        samples = _rated(asked, [group[0] for group in drawn])
        pairs = [(messages, one) for messages, group in zip(asked, drawn, strict=True) for one in group]

        def score() -> tuple[int, float, str]:
            policy.logprobs([m for m, _ in pairs], [list(one.ids) for _, one in pairs])
            tokens = sum(len(policy.chat.prompt(m)) + len(one.ids) for m, one in pairs)
            return tokens, 2.0 * self.weights * tokens, f"{len(pairs)} answers"

        self.time("score", score)

        def train(algorithm: str, **overrides: Any) -> engine.TrainResult:
            recipe = engine.recipe(policy.info, algorithm=algorithm, overrides=overrides)
            if options.quick:
                recipe = dataclasses.replace(recipe, extra=QUICK)
            return engine.train(policy, samples, recipe, seed=1, out=out / algorithm)

        def steps() -> tuple[int, float, str]:
            result = train("mis-po", steps=2 if options.quick else 16)
            # The reference once besides, forward alone.
            rated = sum(sum(map(len, (e.prompt, e.response))) for e in map(policy.encode, samples))
            tokens = int(result.metrics["tokens"])
            work = self.weights * (4.0 * tokens + 2.0 * rated)
            return (
                tokens,
                work,
                f"{result.steps} steps, {result.metrics['tokens_per_second']:,.0f} tokens/s in them",
            )

        self.time("training steps", steps)
        policy.put(None)
        whole: list[engine.TrainResult] = []

        def run() -> tuple[int, float, str]:
            whole.append(train("rollouts"))
            return (
                int(whole[0].metrics["tokens"]),
                0.0,
                f"{whole[0].steps} steps; {whole[0].stopped or 'to its end'}",
            )

        self.time("a whole run", run)

        def gate() -> tuple[int, float, str]:
            count = 2 if options.quick else len(samples) // 8
            pair = VersionPair(Path(whole[0].path), None)
            ratings = evidence.GateRatings(samples, samples[:count])
            found, _ = evidence.measure(policy, pair, ratings, asked, evidence.Drawing(limit, 1))
            return 0, 0.0, f"KL {found.kl:.2f} nats an answer, perplexity x {found.perplexity_ratio:.3f}"

        self.time("gate", gate)


def _rated(asked: Sequence[Any], answers: Sequence[Any]) -> list[Any]:
    """What somebody who likes short answers says: the shorter half is good."""
    from clawback.records import Sample

    middle = sorted(len(one.ids) for one in answers)[len(answers) // 2]
    return [
        Sample(
            turn_id=number,
            messages=tuple(messages),
            response=one.text,
            reward=1.0 if len(one.ids) < middle else -1.0,
            response_ids=one.ids,
            response_logprobs=one.logprobs,
        )
        for number, (messages, one) in enumerate(zip(asked, answers, strict=True), 1)
    ]


def peak_operations(device: Any) -> float:
    """Operations a second of a large bfloat16 product on a GPU, of the model's own kind of product on a CPU."""
    import torch

    from clawback import devices
    from clawback.learning.run_budget import speed

    if device.type == "cpu":
        return speed(device, torch.bfloat16 if devices.multiplies_bfloat16() else torch.float32)
    left = torch.ones(4096, 4096, device=device, dtype=torch.bfloat16)
    best = 0.0
    for _ in range(10):
        devices.wait(device)
        started = time.perf_counter()
        for _ in range(10):
            left @ left
        devices.wait(device)
        best = max(best, 10 * 2 * 4096**3 / (time.perf_counter() - started))
    return best


def table(rows: Sequence[dict[str, Any]]) -> str:
    lines = ["| phase | seconds | tokens/s | peak memory | MFU | |", "| --- | --- | --- | --- | --- | --- |"]
    for row in rows:
        rate = f"{row['tokens_per_second']:,.0f}" if row["tokens_per_second"] else ""
        mfu = f"{row['mfu']:.1%}" if row["mfu"] is not None else ""
        lines.append(
            f"| {row['phase']} | {row['seconds']:.1f} | {rate} | {row['peak_bytes'] / 1e9:.2f} GB | {mfu} | {row['note']} |"
        )
    return "\n".join(lines)


def main(argv: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks gpu", description=(__doc__ or "").partition("\n")[0]
    )
    parser.add_argument("--model", default="embedded", help="a folder, a hub id, or embedded")
    parser.add_argument("--device", help="cuda, mps or cpu; default: the best there is")
    parser.add_argument("--dtype", default="auto", choices=("auto", "float32", "bfloat16"))
    parser.add_argument("--ratings", type=int, default=32)
    parser.add_argument("--samples", type=int, default=8, help="answers to each prompt when drawing")
    parser.add_argument("--max-tokens", type=int, default=160, help="of an answer")
    parser.add_argument("--peak", type=float, help="TFLOP/s of the device; default: measured")
    parser.add_argument("--quick", action="store_true", help="a fraction of everything: does it run?")
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--output", type=Path, default=OUT)
    options = parser.parse_args(list(argv))
    if options.quick:
        options.ratings, options.samples, options.max_tokens = 12, 2, 24

    import torch

    bench = Bench(options)
    with tempfile.TemporaryDirectory() as folder:
        bench.go(Path(folder))
    peak = options.peak * 1e12 if options.peak else peak_operations(bench.device)
    name = torch.cuda.get_device_name(bench.device) if bench.device.type == "cuda" else platform.processor()
    result = {
        "model": options.model,
        "parameters": bench.policy.info.total_parameters,
        "device": f"{bench.device.type} {name}".strip(),
        "torch": torch.__version__,
        "peak_tflops": peak / 1e12,
        "phases": [row.figures(peak) for row in bench.rows],
    }
    options.output.parent.mkdir(parents=True, exist_ok=True)
    options.output.write_text(json.dumps(result, indent=2) + "\n", "utf-8")
    if options.json:
        print(json.dumps(result))
    else:
        print(
            f"{options.model} ({result['parameters'] / 1e6:,.0f} M parameters) on {result['device']}, ",
            end="",
        )
        print(f"products at {peak / 1e12:.2f} TFLOP/s, torch {torch.__version__}\n")
        print(table(result["phases"]))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
