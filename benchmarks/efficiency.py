"""How a training step's time falls with processes: a model fitted on one and two, held against three and four, then carried on to sixteen.

On a machine with fewer cores than processes wall time says nothing about more cores. So what is measured is the CPU time of the first
process in each step: it computes one share of the step, like every other, and besides sends weights, adds up gradients and takes
the optimizer's step. With a core for each process that is the time of the step, but for waiting on the wire.

    t(n) = serial + compute · F/n + (message + byte · A) · ceil(log2 n)

F: FLOPs of the step (4 a frozen weight and token, 6 a weight of the adapter), A: bytes of the adapter (sent as weights, and back as
gradients), ceil(log2 n): rounds of gloo's trees. Four constants, fitted with n = 1 and 2 on three settings (non-negative least squares of
relative errors). Three and four processes are not in the fit: there the model is a prediction. Of a run's steps the lower quartile counts: what
else a machine does only adds. Carried on to other models, F and A are theirs, and ``serial`` grows with the adapter, which optimizer and
copies touch.
"""

from __future__ import annotations

import argparse
import dataclasses
import itertools
import json
import math
import os
import platform
import random
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import median, quantiles
from typing import Any

RESULTS = Path("bench-results/efficiency.json")
WORLDS = (1, 2, 3, 4)
FITTED = (1, 2)
AHEAD = (2, 4, 8, 16)


@dataclass(frozen=True)
class Setting:
    """What a step is made of."""

    batch: int
    rank: int


SETTINGS = (Setting(32, 4), Setting(32, 32), Setting(16, 4))


@dataclass(frozen=True)
class Seen:
    """Of a run's steps: the lower quartile of times."""

    setting: Setting
    processes: int
    tokens: float
    flops: float
    adapter: int
    """Bytes."""
    cpu: float
    """Seconds of the first process, a step."""
    wall: float


@dataclass(frozen=True)
class Model:
    """Seconds."""

    serial: float
    compute: float
    """A FLOP."""
    message: float
    byte: float

    def step(self, flops: float, adapter: float, processes: int) -> float:
        rounds = math.ceil(math.log2(processes))
        return self.serial + self.compute * flops / processes + (self.message + self.byte * adapter) * rounds

    def efficiency(self, flops: float, adapter: float, processes: int) -> float:
        """Speed-up of a step over processes."""
        return self.step(flops, adapter, 1) / (processes * self.step(flops, adapter, processes))


def measure(setting: Setting, processes: int, steps: int, folder: Path) -> Seen:
    """A run of ratings on the embedded model."""
    from clawback import embedded, engine
    from clawback.extensions.demo import corpus
    from clawback.policy import load
    from clawback.records import Sample

    rng = random.Random(0)
    samples = []
    for place, prompt in enumerate(corpus.prompts("rated", setting.batch, 0)):
        text = corpus.answer(corpus.BY_NAME[prompt.topic], corpus.random_style(rng), rng)
        samples.append(Sample(place, tuple(prompt.messages), text, (-1.0) ** place))
    policy = load(str(embedded.path()), device="cpu", dtype="float32")
    changes = {"steps": steps, "batch": setting.batch, "rank": setting.rank}
    recipe = engine.recipe(policy.info, algorithm="reinforce", overrides=changes)
    if processes > 1:
        from clawback.trainer import RunConditions

        recipe = dataclasses.replace(recipe, conditions=RunConditions(processes=processes))
    clocks: list[tuple[float, float]] = []
    tokens: list[float] = []

    def tell(progress: Any) -> None:
        if progress["phase"] == "train":
            clocks.append((time.process_time(), time.monotonic()))
            tokens.append(float(progress["tokens"]))

    out = folder / f"{setting.batch}-{setting.rank}-{processes}"
    done = engine.train(policy, samples, recipe, seed=2, out=out, on_progress=tell)
    size = (Path(done.path) / "adapter_model.safetensors").stat().st_size
    # The first step is compiled and warmed up in.
    each = [(b[0] - a[0], b[1] - a[1]) for a, b in itertools.pairwise(clocks[1:])]
    cpu, wall = (quantiles(values, n=4)[0] for values in zip(*each, strict=True))
    base: Any = policy.model
    flops = flops_a_token(float(sum(p.numel() for n, p in base.named_parameters() if _met(n))), size / 4)
    return Seen(setting, processes, median(tokens), median(tokens) * flops, size, cpu, wall)


def _met(name: str) -> bool:
    """Whether a token is multiplied by this frozen weight."""
    return "lora_" not in name and (".layers." in name or "lm_head" in name)


def flops_a_token(frozen: float, adapter: float) -> float:
    """Forward, backward through the frozen weights, and gradients of the adapter's."""
    return 4 * frozen + 6 * adapter


def fit(seen: Sequence[Seen]) -> Model:
    """Non-negative least squares of relative errors."""
    import numpy as np
    from scipy.optimize import nnls

    rows, ones = [], []
    for one in seen:
        rounds = math.ceil(math.log2(one.processes))
        row = [1.0, one.flops / one.processes, rounds, rounds * one.adapter]
        rows.append([value / one.cpu for value in row])
        ones.append(1.0)
    scale = np.array(rows).max(axis=0)
    scale[scale == 0] = 1.0
    found, _ = nnls(np.array(rows) / scale, np.array(ones))
    return Model(*(found / scale))


@dataclass(frozen=True)
class Shape:
    """A model to carry the fit on to."""

    name: str
    weights: float
    """Of its layers, which a token goes through."""
    ins_and_outs: float
    """Of all linear layers, summed: an adapter has this many weights for each rank."""
    rank: int
    tokens: float
    """Of a step."""


SHAPES = (
    Shape("embedded", 0.0, 0.0, 16, 0.0),
    Shape("SmolLM2-135M", 106.2e6, 30 * (2 * 2 * 576 + 2 * (576 + 192) + 3 * (576 + 1536)), 16, 16_384),
    Shape("Qwen3-4B", 3.63e9, 36 * 57_344, 16, 32_768),
)


def carried(model: Model, base: Seen) -> list[dict[str, Any]]:
    """Efficiencies with a core for each process, and for the largest with a GPU for each, at stated rates."""
    made = []
    for shape in SHAPES:
        if not shape.weights:
            made.append(
                _row(shape.name, "a core each, loopback", model, base.tokens, base.flops, base.adapter)
            )
            continue
        adapter = 4 * shape.ins_and_outs * shape.rank
        larger = dataclasses.replace(
            model,
            serial=model.serial * adapter / base.adapter,
        )
        flops = shape.tokens * flops_a_token(shape.weights, adapter / 4)
        made.append(_row(shape.name, "a core each, loopback", larger, shape.tokens, flops, adapter))
    large = SHAPES[-1]
    adapter = 4 * large.ins_and_outs * large.rank
    flops = large.tokens * flops_a_token(large.weights, adapter / 4)
    # Weights out and gradients back in each round.
    for rate, wire in ((200e12, 1.25e9), (200e12, 0.125e9)):
        gpu = Model(0.02, 1 / rate, 1e-3, 2 / wire)
        how = f"assumed: a GPU each at {rate / 1e12:.0f} TFLOP/s, {8 * wire / 1e9:g} Gbit/s"
        made.append(_row(large.name, how, gpu, large.tokens, flops, adapter))
    return made


def _row(name: str, how: str, model: Model, tokens: float, flops: float, adapter: float) -> dict[str, Any]:
    ahead = {str(n): model.efficiency(flops, adapter, n) for n in AHEAD}
    return {"model": name, "how": how, "tokens": tokens, "adapter": adapter, "efficiency": ahead}


def main(argv: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks efficiency", description=__doc__)
    parser.add_argument("--steps", type=int, default=16)
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args(argv)
    import torch

    torch.set_num_threads(1)
    os.environ["OMP_NUM_THREADS"] = "1"
    seen: list[Seen] = []
    with tempfile.TemporaryDirectory() as folder:
        for setting in SETTINGS:
            for processes in WORLDS:
                seen.append(measure(setting, processes, options.steps, Path(folder)))
                print(f"   {seen[-1]}", file=sys.stderr)
    model = fit([one for one in seen if one.processes in FITTED])
    rows = []
    for one in seen:
        alone = next(o for o in seen if o.setting == one.setting and o.processes == 1)
        said = model.step(one.flops, one.adapter, one.processes)
        measured = alone.cpu / (one.processes * one.cpu)
        rows.append({**asdict(one), "predicted": said, "error": said / one.cpu - 1, "efficiency": measured})
    made = {
        "machine": f"{platform.machine()}, {os.cpu_count()} cores, load {os.getloadavg()[0]:.1f}",
        "steps": options.steps,
        "model": asdict(model),
        "runs": rows,
        "carried": carried(model, seen[0]),
    }
    RESULTS.parent.mkdir(exist_ok=True)
    RESULTS.write_text(json.dumps(made, indent=2) + "\n", "utf-8")
    print(json.dumps(made, indent=2) if options.json else table(made))
    return 0


def table(made: dict[str, Any]) -> str:
    lines = [
        "| tokens a step | rank | adapter | processes | CPU s a step | model | error | efficiency | wall s |",
        "| ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: |",
    ]
    for r in made["runs"]:
        lines.append(
            f"| {r['tokens']:.0f} | {r['setting']['rank']} | {r['adapter'] / 1e6:.2f} MB | {r['processes']} | {r['cpu']:.3f} | {r['predicted']:.3f} | "
            f"{r['error']:+.0%} | {r['efficiency']:.0%} | {r['wall']:.2f} |"
        )
    m = made["model"]
    lines += [
        "",
        f"serial {m['serial'] * 1e3:.1f} ms, compute {1e-9 / m['compute']:.1f} GFLOP/s, message {m['message'] * 1e3:.1f} ms, "
        f"{m['byte'] * 1e9:.2f} ns a byte; fitted on {' and '.join(map(str, FITTED))} processes. {made['machine']}.",
        "",
        "| model | how | tokens a step | adapter | " + " | ".join(f"{n} processes" for n in AHEAD) + " |",
        "| --- | --- | ---: | ---: |" + " ---: |" * len(AHEAD),
    ]
    for c in made["carried"]:
        ahead = " | ".join(f"{c['efficiency'][str(n)]:.0%}" for n in AHEAD)
        lines.append(
            f"| {c['model']} | {c['how']} | {c['tokens']:,.0f} | {c['adapter'] / 1e6:.1f} MB | {ahead} |"
        )
    return "\n".join(lines)
