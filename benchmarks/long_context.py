"""One training step on one long conversation: memory and time by its length, up to 32 k tokens.

    python -m benchmarks long_context                        # 1,024 to 32,768 tokens, a model of 10 M parameters
    python -m benchmarks long_context --lengths 2048,16384

Each length in a process of its own. *Peak* is the process's largest resident memory less what it held once the model was loaded; a straight line through
the points says how many bytes a token costs, and how far the points lie off it says whether that is all. The floor of the time: the FLOPs of
the layers and of causal attention, forward and backward without the frozen weights' gradients, over the measured rate of bare products.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

LENGTHS = (1024, 2048, 4096, 8192, 16384, 32768)
ANSWER = 512


def workload(tokens: int) -> Any:
    from benchmarks.peers.workload import Workload

    return Workload(
        name="long-context",
        about="hidden 256, 8 layers, vocabulary 2,048 tied",
        hidden=256,
        layers=8,
        heads=4,
        kv_heads=2,
        intermediate=1024,
        vocabulary=2048,
        turns=1,
        tokens=tokens,
        response_tokens=ANSWER,
        passes=1,
        batch=1,
        context=65_536,
    )


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks long_context", description=__doc__.partition("\n")[0]
    )
    parser.add_argument("--lengths", default=",".join(map(str, LENGTHS)), help="tokens, comma-separated")
    parser.add_argument("--device", default=None, help="default: the best that torch has")
    parser.add_argument("--one", type=Path, help=argparse.SUPPRESS)
    options = parser.parse_args(argv)
    lengths = [int(one) for one in options.lengths.split(",")]
    if options.one:
        print(json.dumps(step(options.one, lengths[0], options.device)))
        return 0
    with tempfile.TemporaryDirectory() as folder:
        rows = [_apart(Path(folder), tokens, options.device) for tokens in lengths]
    print(table(rows))
    return 0


def _apart(folder: Path, tokens: int, device: str | None) -> dict[str, Any]:
    command = [sys.executable, "-m", "benchmarks", "long_context", "--one", str(folder), "--lengths", str(tokens)]  # fmt: skip
    command += ["--device", device] if device else []
    done = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True)
    row: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    print(json.dumps(row), file=sys.stderr, flush=True)
    return row


def step(folder: Path, tokens: int, device: str | None) -> dict[str, Any]:
    import torch

    from benchmarks.peers.workload import make
    from clawback import engine
    from clawback.config import GenerationSection
    from clawback.records import Sample

    work, samples = workload(tokens), folder / f"{tokens}.jsonl"
    make(work, folder / "model", samples)
    [row] = [json.loads(line) for line in samples.read_text("utf-8").splitlines()]
    policy = engine.load(str(folder / "model"), device=device)
    policy.configure(GenerationSection(max_prompt=tokens))
    messages = ({"role": "user", "content": row["prompt"]},)
    sample = Sample(1, messages, row["response"], 1.0)
    recipe = engine.recipe(policy.info, "balanced", "reinforce", {"steps": 1, "batch": 1, "accumulation": 1})
    held, cuda = _resident(), policy.device.type == "cuda"
    if cuda:
        held = torch.cuda.memory_allocated()
        torch.cuda.reset_peak_memory_stats()
    began, cpu = time.perf_counter(), time.process_time()
    result = engine.train(policy, [sample], recipe, seed=0, out=folder / f"run-{tokens}")
    peak = torch.cuda.max_memory_allocated() if cuda else _peak()
    return {
        "tokens": len(policy.encode(sample).prompt) + len(policy.encode(sample).response),
        "steps": result.steps,
        "peak_bytes": peak - held,
        "seconds": round(time.perf_counter() - began, 2),
        "cpu_seconds": round(time.process_time() - cpu, 2),
        "device": policy.device.type,
        "dtype": policy.info.dtype if hasattr(policy.info, "dtype") else "",
    }


def _resident() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def _peak() -> int:
    import resource

    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def table(rows: list[dict[str, Any]]) -> str:
    import numpy as np

    tokens = np.array([row["tokens"] for row in rows], dtype=float)
    peak = np.array([row["peak_bytes"] for row in rows], dtype=float)
    lines = ["| tokens | peak MB | CPU s | kB a token |", "| --- " * 4 + "|"]
    lines += [
        f"| {row['tokens']:,} | {row['peak_bytes'] / 1e6:,.0f} | {row['cpu_seconds']:.1f} | {row['peak_bytes'] / row['tokens'] / 1e3:.1f} |"
        for row in rows
    ]
    if len(rows) > 2:
        slope, start = np.polyfit(tokens, peak, 1)
        off = np.abs(peak - (slope * tokens + start)) / peak
        lines.append(
            f"\nA line: {start / 1e6:.0f} MB + {slope / 1e3:.1f} kB a token; the points are at most {off.max():.0%} off."
        )
    return "\n".join(lines)


if __name__ == "__main__":
    sys.exit(main())
