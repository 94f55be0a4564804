"""What every runner shares: read the job, measure the loop, write the result. Standard library only.

A job is a JSON file::

    {"model": folder, "samples": file of JSON lines {"prompt", "response", "rating"}, "out": result file, "work": folder,
     "dtype": "float32" | "bfloat16", "steps": n, "batch": samples a step, "rank": r, "learning_rate": x,
     "targets": ["q_proj", …], "check": bool, …}

The result is what was measured (``loop``, ``tokens``, ``steps``, …), as one JSON object.
"""

from __future__ import annotations

import hashlib
import json
import resource
import sys
import threading
import time
from pathlib import Path
from typing import Any


def read_job() -> dict[str, Any]:
    """The job named on the command line, with its samples."""
    job = json.loads(Path(sys.argv[1]).read_text("utf-8"))
    lines = Path(job["samples"]).read_text("utf-8").splitlines()
    job["rows"] = [json.loads(line) for line in lines if line]
    return job


def write_result(job: dict[str, Any], result: dict[str, Any]) -> None:
    Path(job["out"]).write_text(json.dumps(result), "utf-8")


def cpu_seconds() -> float:
    """User and system time of this process and of the children it has waited for."""
    return sum(
        u.ru_utime + u.ru_stime
        for u in map(resource.getrusage, (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    )


def peak_mb() -> float:
    """The most memory (resident) that this process has held so far, in MB. Linux counts it for the program; what
    ``getrusage`` says begins with the memory of the process that started it."""
    for line in Path("/proc/self/status").read_text("ascii").splitlines():
        if line.startswith("VmHWM:"):
            return int(line.split()[1]) / 1024
    raise RuntimeError("This benchmark needs Linux.")


def resident_mb() -> float:
    """Resident memory now. It is the peak *of the loop* that is compared: loading may need more than training."""
    pages = int(Path("/proc/self/statm").read_text("ascii").split()[1])
    return pages * resource.getpagesize() / 2**20


class Loop:
    """CPU, wall and memory between ``start`` and ``stop``; may be started and stopped several times."""

    def __init__(self) -> None:
        self.cpu = self.wall = 0.0
        self.peak_mb = 0.0
        self._began: tuple[float, float] | None = None

    def start(self) -> None:
        if self._began is None:
            self._done = threading.Event()
            self._watch = threading.Thread(target=self._watch_memory, daemon=True)
            self._watch.start()
            self._began = cpu_seconds(), time.perf_counter()

    def stop(self) -> None:
        if self._began is not None:
            self.cpu += cpu_seconds() - self._began[0]
            self.wall += time.perf_counter() - self._began[1]
            self._began = None
            self._done.set()
            self._watch.join()

    def _watch_memory(self) -> None:
        while True:
            self.peak_mb = max(self.peak_mb, resident_mb())
            if self._done.wait(0.005):
                return

    def result(self) -> dict[str, float]:
        return {"cpu_s": self.cpu, "wall_s": self.wall, "peak_mb": self.peak_mb, "process_peak_mb": peak_mb()}


def lora_name(parameter: str) -> str:
    """A name for a LoRA matrix that does not depend on how the model is wrapped: ``layers.3.self_attn.q_proj.A``."""
    path, _, kind = parameter.replace(".default", "").removesuffix(".weight").rpartition(".lora_")
    return path[path.index("layers.") :] + "." + kind


def same_adapter(model: Any) -> None:
    """Give every system the same LoRA matrices: A from a generator seeded by its name, B zero. For the check only."""
    import torch

    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if ".lora_A." in name:
                seed = int.from_bytes(hashlib.sha256(lora_name(name).encode()).digest()[:4], "big")
                noise = torch.randn(parameter.shape, generator=torch.Generator().manual_seed(seed))
                parameter.copy_(noise / parameter.shape[1] ** 0.5)
            elif ".lora_B." in name:
                parameter.zero_()


def gradients(model: Any) -> dict[str, list[float]]:
    """The gradient of every LoRA B matrix (those of A are zero while B is), flattened, by ``lora_name``."""
    return {
        lora_name(name): parameter.grad.float().flatten().tolist()
        for name, parameter in model.named_parameters()
        if ".lora_B." in name and parameter.grad is not None
    }
