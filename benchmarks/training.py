"""One training run of rated turns: Clawback beside ReinforceClaw and TRL, and all of them against the machine.

Same model folder, same turns, same LoRA (rank 16 on every linear layer), same number of steps and of turns a step. Each system runs
in a process and a venv of its own; they take turns, several times over, so that what else the machine does falls on
all of them; medians count. What is compared is the loop: tokenized turns in, trained adapter out, without imports
and model loading (ours: with saving). CPU seconds are user and system time of the process.

The result says for each: tokens a CPU second, wall time, peak memory, the distance to the floor (FLOPs over the measured rate
of matrix products, see ``peers/floor.py``), and whether all of them compute the same: log-probs of the same tokens, and the
first gradient where the loss is the same.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any

from benchmarks import _page
from benchmarks.peers.floor import floor_seconds, flops
from benchmarks.peers.venvs import cache_folder, installed, python_of
from benchmarks.peers.workload import WORKLOADS, Workload, make

HERE = Path(__file__).parent
ROOT = HERE.parent
TARGETS = ["q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"]
SAME = 1e-3
"""Nats, and share of a gradient's norm, up to which differences are rounding."""
MICRO_BATCHES = (1, 2, 4)
"""Turns of a forward that are tried for TRL; 8 has always been slower still (padding)."""


@dataclass(frozen=True)
class System:
    peer: str
    dtype: str

    @property
    def name(self) -> str:
        return f"{self.peer} {self.dtype}"

    @property
    def script(self) -> Path:
        scripts = {"clawback": "clawback_engine", "reinforceclaw": "reinforceclaw_cpu", "trl": "trl_kto"}
        return HERE / "peers" / f"{scripts[self.peer]}.py"


SYSTEMS = (
    System("clawback", "float32"),
    System("reinforceclaw", "float32"),
    System("trl", "float32"),
    System("clawback", "bfloat16"),
    System("reinforceclaw", "bfloat16"),
)
# What the project has set itself: (workload, ours, theirs) → times the tokens a CPU second.
GOALS = {
    ("real-vocabulary", "clawback float32", "reinforceclaw float32"): 2.5,
    ("real-vocabulary", "clawback bfloat16", "reinforceclaw bfloat16"): 4.0,
    ("real-vocabulary", "clawback float32", "trl float32"): 4.0,
    ("embedded-size", "clawback float32", "reinforceclaw float32"): 1.3,
}


class Bench:
    """Runs jobs; knows where everything is."""

    def __init__(self, cache: Path, threads: int, scratch: Path) -> None:
        self.cache, self.threads, self.scratch = cache, threads, scratch
        self.pythons: dict[str, Path] = {}
        self.jobs = 0

    def python(self, peer: str) -> Path:
        if peer not in self.pythons:
            self.pythons[peer] = python_of(peer, self.cache)
        return self.pythons[peer]

    def run(self, python: Path, script: Path, job: dict[str, Any]) -> dict[str, Any]:
        """Run one job in a process of its own; its result, with ``process``: the whole life of that process."""
        self.jobs += 1
        folder = self.scratch / f"{self.jobs:03d}-{script.stem}"
        folder.mkdir()
        out, log = folder / "result.json", folder / "log.txt"
        path = folder / "job.json"
        path.write_text(json.dumps({**job, "out": str(out), "work": str(folder)}), "utf-8")
        threads = str(self.threads)
        environment = {
            **{k: v for k, v in os.environ.items() if k != "PYTHONPATH"},
            "OMP_NUM_THREADS": threads,
            "MKL_NUM_THREADS": threads,
            "TOKENIZERS_PARALLELISM": "false",
            "HF_HUB_OFFLINE": "1",
            "CUDA_VISIBLE_DEVICES": "",
        }
        if script.stem == "clawback_engine":
            environment["PYTHONPATH"] = str(ROOT / "src")
            environment["CLAWBACK_HOME"] = str(folder / "home")
        began = time.perf_counter()
        with log.open("w") as file:
            process = subprocess.Popen(
                [str(python), str(script), str(path)],
                env=environment,
                stdout=file,
                stderr=subprocess.STDOUT,
                cwd=folder,
            )
            _, status, usage = os.wait4(process.pid, 0)
            process.returncode = os.waitstatus_to_exitcode(status)
        if process.returncode or not out.exists():
            tail = log.read_text("utf-8", "replace")[-3000:]
            raise RuntimeError(f"{script.name} ended with {process.returncode}:\n{tail}")
        result: dict[str, Any] = json.loads(out.read_text("utf-8"))
        result["process"] = {
            "cpu_s": usage.ru_utime + usage.ru_stime,
            "wall_s": time.perf_counter() - began,
        }
        return result

    def train(self, system: System, work: Workload, **more: Any) -> dict[str, Any]:
        """One run of one system, and a check that it did the work."""
        model, samples = self.cache / "models" / work.name, self.scratch / f"{work.name}-{work.turns}.jsonl"
        model.mkdir(parents=True, exist_ok=True)
        if not samples.exists():
            make(work, model, samples)
        job = {
            "model": str(model),
            "samples": str(samples),
            "dtype": system.dtype,
            "steps": work.steps,
            "batch": work.batch,
            "passes": work.passes,
            "rank": work.rank,
            "targets": TARGETS,
            "learning_rate": 1e-4,
            "check": False,
            **more,
        }
        result = self.run(self.python(system.peer), system.script, job)
        done = {name: result[name] for name in ("steps", "samples", "tokens", "response_tokens")}
        meant = {
            "steps": work.steps,
            "samples": work.steps * work.batch,
            "tokens": work.tokens,
            "response_tokens": work.response_tokens,
        }
        if done != meant:
            raise RuntimeError(f"{system.name} did {done}, not {meant}.")
        return result

    def rates(self, work: Workload, seconds: float) -> dict[str, Any]:
        """FLOP a second of matrix products at the shapes of one step of this work."""
        tokens = min(2048, work.tokens * work.batch // work.turns)
        response = work.response_tokens * work.batch // work.turns
        shapes = {
            "layers": (tokens, work.hidden, work.intermediate),
            "head": (response, work.hidden, work.vocabulary),
            "head_backward": (response, work.vocabulary, work.hidden),
        }
        samples = self.scratch / "none.jsonl"
        samples.touch()
        job = {"shapes": shapes, "seconds": seconds, "samples": str(samples)}
        return self.run(self.python("clawback"), HERE / "peers" / "floor.py", job)


def say(text: str) -> None:
    print(f"[{time.strftime('%H:%M:%S')}] {text}", file=sys.stderr, flush=True)


def agreement(bench: Bench, work: Workload) -> dict[str, float]:
    """How far apart the systems are on one step over one batch, in float32 and from the same adapter.

    ``logprob``: largest difference of a response token's log-prob between ours and ReinforceClaw's. ``gradient``: relative
    difference (norm of the difference over the norm) of the first gradient of all LoRA B matrices; its loss is
    the same as ours there, since policy and reference are still equal. ``trl_logprob``: largest difference of a mean log-prob
    of a turn from TRL's.
    """
    import torch

    one = work.scaled(work.batch, 1)
    ours, theirs, trl = (
        bench.train(System(peer, "float32"), one, check=True, micro_batch=1)
        for peer in ("clawback", "reinforceclaw", "trl")
    )
    # Samples have the numbers 1, 2, … in the order of the file.
    keys = sorted(ours["logprobs"], key=int)
    mine = [torch.tensor(ours["logprobs"][key]) for key in keys]
    logprob = max(
        float((a - torch.tensor(theirs["logprobs"][key])).abs().max())
        for a, key in zip(mine, keys, strict=True)
    )
    names = sorted(ours["gradients"])
    if names != sorted(theirs["gradients"]):
        raise RuntimeError("The adapters are not on the same layers.")
    a, b = (torch.cat([torch.tensor(r["gradients"][n]) for n in names]) for r in (ours, theirs))
    gradient = float((a - b).norm() / b.norm())
    means = [total / len(turn) for turn, total in zip(mine, trl["logprob_sums"], strict=True)]
    trl_logprob = max(abs(float(turn.mean()) - mean) for turn, mean in zip(mine, means, strict=True))
    found = {"logprob": logprob, "gradient": gradient, "trl_logprob": trl_logprob}
    if not max(found.values()) < SAME:
        raise RuntimeError(f"They do not compute the same, so that their times cannot be compared: {found}.")
    return found


def best_micro_batch(bench: Bench, work: Workload) -> int:
    """The number of turns in a forward at which TRL needs the least CPU for one step."""
    one = work.scaled(work.batch, 1)
    trl = System("trl", "float32")
    tried = {size: bench.train(trl, one, micro_batch=size)["loop"]["cpu_s"] for size in MICRO_BATCHES}
    shown = ", ".join(f"{size}: {seconds:.2f}" for size, seconds in tried.items())
    say(f"TRL, CPU seconds of a step by turns of a forward: {shown}")
    return min(tried, key=tried.__getitem__)


def measure(bench: Bench, work: Workload, systems: list[System], repeats: int, quick: bool) -> dict[str, Any]:
    """All systems on one workload."""
    say(
        f"{work.name}: {work.about}; {work.turns} turns, {work.tokens} tokens, {work.steps} steps of {work.batch}"
    )
    agrees = agreement(bench, work) if len(systems) == len(SYSTEMS) else {}
    if agrees:
        say(", ".join(f"{name} differs by {value:.1e}" for name, value in agrees.items()))
    micro = best_micro_batch(bench, work) if any(s.peer == "trl" for s in systems) else 1
    runs: dict[str, list[dict[str, Any]]] = {system.name: [] for system in systems}
    rates: list[dict[str, Any]] = []
    for repeat in range(repeats):
        rates.append(bench.rates(work, 0.3 if quick else 1.0))
        for index in range(len(systems)):
            system = systems[(index + repeat) % len(systems)]
            load = os.getloadavg()[0]
            try:
                result = bench.train(system, work, micro_batch=micro)
            except RuntimeError as error:  # killed from outside, or out of memory: once more, then give up
                say(f"{system.name}: {error}\nOnce more …")
                result = bench.train(system, work, micro_batch=micro)
            runs[system.name].append({"load": load, **{k: result[k] for k in ("loop", "process", "losses")}})
            loop = result["loop"]
            say(
                f"{repeat + 1}/{repeats} {system.name}: {loop['cpu_s']:.1f} CPU s, {loop['wall_s']:.1f} s, "
                f"{loop['peak_mb']:.0f} MB (load {load:.1f})"
            )
    best = {
        dtype: {part: max(rate[dtype][part] for rate in rates) for part in rates[0][dtype]}
        for dtype in ("float32", "bfloat16", "float32 by torch.mm")
    }
    return summary(bench, work, runs, best) | {"agreement": agrees, "trl_micro_batch": micro, "runs": runs}


def summary(
    bench: Bench, work: Workload, runs: dict[str, list[dict[str, Any]]], rates: dict[str, dict[str, float]]
) -> dict[str, Any]:
    """Medians, ratios and the distance to the floor."""
    parts = flops(work)
    # A rate is per second of the clock; with several threads that many CPU seconds go by in one.
    floors = {
        dtype: floor_seconds(parts, rate) * bench.threads for dtype, rate in rates.items() if " " not in dtype
    }
    table = {}
    for name, results in runs.items():
        cpu = [result["loop"]["cpu_s"] for result in results]
        table[name] = {
            "cpu_s": median(cpu),
            "cpu_s_range": [min(cpu), max(cpu)],
            "tokens_per_cpu_s": work.tokens * work.passes / median(cpu),
            "wall_s": median(r["loop"]["wall_s"] for r in results),
            "peak_mb": median(r["loop"]["peak_mb"] for r in results),
            "process_cpu_s": median(r["process"]["cpu_s"] for r in results),
            "process_wall_s": median(r["process"]["wall_s"] for r in results),
            "process_peak_mb": median(r["loop"]["process_peak_mb"] for r in results),
            "times_floor": median(cpu) / floors[name.split()[1]],
        }
    ratios = []
    for ours in (n for n in table if n.startswith("clawback")):
        for theirs in (n for n in table if not n.startswith("clawback")):
            if ours.split()[1] == theirs.split()[1] or ours.endswith("bfloat16"):
                for what, unit in (("cpu_s", "CPU s"), ("peak_mb", "MB at most")):
                    _page.compare(
                        f"training {work.name}, {ours.split()[1]}",
                        peer=theirs,
                        unit=unit,
                        ours=[one["loop"][what] for one in runs[ours]],
                        theirs=[one["loop"][what] for one in runs[theirs]],
                        more=False,
                    )
                ratios.append(
                    {
                        "ours": ours,
                        "theirs": theirs,
                        "tokens_per_cpu_s": table[ours]["tokens_per_cpu_s"]
                        / table[theirs]["tokens_per_cpu_s"],
                        "process_cpu_s": table[theirs]["process_cpu_s"] / table[ours]["process_cpu_s"],
                        "wall_s": table[theirs]["wall_s"] / table[ours]["wall_s"],
                        "peak_mb": table[ours]["peak_mb"] / table[theirs]["peak_mb"],
                        "goal": GOALS.get((work.name, ours, theirs)),
                    }
                )
    return {
        "workload": {**work.__dict__, "steps": work.steps},
        "gflop": {part: amount / 1e9 for part, amount in parts.items()} | {"all": sum(parts.values()) / 1e9},
        "gflop_per_s": {d: {part: rate / 1e9 for part, rate in r.items()} for d, r in rates.items()},
        "floor_cpu_s": floors,
        "systems": table,
        "ratios": ratios,
    }


def render(report: dict[str, Any]) -> str:
    """The report as Markdown."""
    lines = [f"{report['machine']}; {report['threads']} thread(s); {report['versions']}", ""]
    for result in report["workloads"]:
        work, agrees = result["workload"], result["agreement"]
        lines += [
            f"### {work['name']}",
            "",
            f"{work['about']}. {work['turns']} turns, {work['tokens']:,} tokens of which {work['response_tokens']:,} response; "
            f"{work['steps']} steps of {work['batch']} turns; LoRA rank {work['rank']} on every linear layer.",
            "",
            "| system | CPU s (range) | tokens / CPU s | wall s | peak MB | × floor | whole process: CPU s | wall s | peak MB |",
            "| --- | --- | --- | --- | --- | --- | --- | --- | --- |",
        ]
        for name, row in result["systems"].items():
            low, high = row["cpu_s_range"]
            lines.append(
                f"| {name} | {row['cpu_s']:.2f} ({low:.2f}–{high:.2f}) | {row['tokens_per_cpu_s']:,.0f} | {row['wall_s']:.2f} "
                f"| {row['peak_mb']:,.0f} | {row['times_floor']:.2f} | {row['process_cpu_s']:.1f} | {row['process_wall_s']:.1f} "
                f"| {row['process_peak_mb']:,.0f} |"
            )
        lines += [
            "",
            "| ours | theirs | tokens / CPU s, ours over theirs | wall | process CPU | peak memory, ours over theirs | goal |",
            "| --- | --- | --- | --- | --- | --- | --- |",
        ]
        for ratio in result["ratios"]:
            goal = ratio["goal"]
            verdict = (
                ""
                if goal is None
                else f"≥ {goal}×: {'met' if ratio['tokens_per_cpu_s'] >= goal else 'missed'}"
            )
            lines.append(
                f"| {ratio['ours']} | {ratio['theirs']} | {ratio['tokens_per_cpu_s']:.2f}× | {ratio['wall_s']:.2f}× "
                f"| {ratio['process_cpu_s']:.2f}× | {ratio['peak_mb']:.2f} | {verdict} |"
            )
        rates = {
            d: ", ".join(f"{p} {v:,.0f}" for p, v in r.items()) for d, r in result["gflop_per_s"].items()
        }
        lines += [
            "",
            f"Floor: {result['gflop']['all']:,.0f} GFLOP ("
            + ", ".join(f"{p} {v:,.0f}" for p, v in result["gflop"].items() if p != "all")
            + "); "
            + "; ".join(
                f"{d} {s:.2f} CPU s at GFLOP/s of {rates[d]}" for d, s in result["floor_cpu_s"].items()
            )
            + f". Float32 by torch.mm: {rates['float32 by torch.mm']}"
            + ".",
        ]
        if agrees:
            lines.append(
                f"Same maths: log-probs within {agrees['logprob']:.1e} of ReinforceClaw's a token, first gradient within "
                f"{agrees['gradient']:.1e} of its norm; log-probs within {agrees['trl_logprob']:.1e} of TRL's (mean of a turn)."
            )
        lines.append("")
    return "\n".join(lines)


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks training", description=__doc__.partition("\n")[0]
    )
    parser.add_argument(
        "--quick", action="store_true", help="a fraction of the turns, once: does it run? (minutes)"
    )
    parser.add_argument("--json", action="store_true", help="print one JSON object instead of tables")
    parser.add_argument("--repeats", type=int, default=3, help="runs of each system (default 3)")
    parser.add_argument("--threads", type=int, default=1, help="threads of each system (default 1)")
    parser.add_argument(
        "--workload", choices=WORKLOADS, action="append", help="only this one (may be repeated)"
    )
    parser.add_argument(
        "--system", choices=[s.name for s in SYSTEMS], action="append", help="only this one; skips the check"
    )
    parser.add_argument(
        "--cache", type=Path, default=cache_folder(), help="where venvs and models are kept (%(default)s)"
    )
    parser.add_argument("--output", type=Path, default=ROOT / "bench-results", help="where the figures go")
    options = parser.parse_args(argv)

    systems = [s for s in SYSTEMS if not options.system or s.name in options.system]
    chosen = [WORKLOADS[name] for name in options.workload or WORKLOADS]
    if options.quick:
        chosen = [work.scaled(2 * work.batch, 1) for work in chosen]
    with tempfile.TemporaryDirectory(prefix="clawback-training-") as scratch:
        bench = Bench(options.cache.resolve(), options.threads, Path(scratch))
        versions = installed(bench.python("clawback"), "torch", "transformers", "peft")
        for peer in sorted({s.peer for s in systems} - {"clawback"}):
            versions |= installed(bench.python(peer), peer)
        began = time.perf_counter()
        report: dict[str, Any] = {
            "machine": f"{platform.machine()}, {os.cpu_count()} cores, {platform.system()}",
            "threads": options.threads,
            "versions": ", ".join(f"{name} {number}" for name, number in versions.items()),
            "quick": options.quick,
            "repeats": 1 if options.quick else options.repeats,
        }
        report["workloads"] = [
            measure(bench, work, systems, report["repeats"], options.quick) for work in chosen
        ]
        report["seconds"] = time.perf_counter() - began
    options.output.mkdir(parents=True, exist_ok=True)
    path = options.output / f"training-{time.strftime('%Y%m%d-%H%M%S')}.json"
    path.write_text(json.dumps(report, indent=1), "utf-8")
    print(json.dumps(report) if options.json else render(report))
    say(f"Raw figures: {path}")
    return 0
