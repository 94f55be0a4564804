"""A policy: a base model in memory, and an adapter on it where there is one. It answers, scores, and is what training changes.

Importing this is cheap: torch is imported when a model is loaded.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from clawback import installed, plugins

if TYPE_CHECKING:
    from clawback.policy.interpolation import scale, within
    from clawback.policy.policy import Policy
    from clawback.policy.sampler import Sampler, gap
    from clawback.policy.throughput import MeasuredSampler, Speed
    from clawback.policy.torch_policy import DTYPES
else:
    __all__, __getattr__ = plugins.face(
        __name__,
        {
            "interpolation": "scale within",
            "policy": "Policy",
            "sampler": "Sampler gap",
            "throughput": "MeasuredSampler Speed throughput",
            "torch_policy": "DTYPES",
            "memory": "memory",
        },
    )
    __all__ += ["MLX", "load"]

MLX = "mlx"
"""The device of the engine on MLX."""


def load(
    base: str,
    *,
    revision: str | None = None,
    adapter: Path | None = None,
    dtype: str = "auto",
    load_in_4bit: bool | None = None,
    device: str | None = None,
) -> Policy:
    """Load a policy: a base model, and an adapter on it where one is given.

    Args:
        base: ``embedded``, ``smollm2``, a folder, a hub id, a GGUF file, ``ollama:NAME`` or ``lmstudio:NAME``.
        revision: branch, tag or commit of a hub id.
        adapter: a folder written by ``train`` (or any PEFT LoRA folder that fits the base).
        dtype: ``auto`` (by the device and the memory that is free on it, see ``memory.holds``), ``float32`` or ``bfloat16``.
        load_in_4bit: None: 8 or 4 bits where 16 do not fit (CUDA only); True: 4 bits; False: never quantised.
        device: ``cpu``, ``cuda``, ``mps``; None takes the best there is. ``mlx``: the engine on Apple's MLX (docs/mlx.md).

    Raises:
        ModelError: missing, damaged or unsafe folders, and an adapter made for another base.
        TrainingError: it does not fit even at its smallest. Says what would.
        UsageError: a device that is not there, or 4 bits where they cannot be had.
        MissingExtra: torch, transformers or peft is not installed.
    """
    import os

    from clawback.errors import MissingExtra

    # Threads that wait should sleep, not spin: a run in the background shares its cores with what the person does.
    # Read once, when torch is imported.
    os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
    # Products in bfloat16 are compiled for each length of a prompt and kept, 1,024 of them by oneDNN and as many again by PyTorch's layer above it: 0.9 GB
    # after 1,200 lengths. 32 of each are what a pass through a model uses again; no pass is slower for it (research/benchmarks/2026-11-26-serving.md).
    for name in ("ONEDNN_PRIMITIVE_CACHE_CAPACITY", "LRU_CACHE_CAPACITY"):
        os.environ.setdefault(name, "32")
    try:
        if device == MLX:
            policy: Policy = plugins.load(plugins.ENGINES, MLX).load(
                base, revision=revision, adapter=adapter, dtype=dtype, load_in_4bit=load_in_4bit
            )
            return policy
        from clawback.policy.torch_policy import load as load_policy
    except ImportError as error:
        raise MissingExtra(
            f"This needs a part that is not installed ({error.name}). Run: {installed.add('mlx' if device == MLX else 'train')}"
        ) from error
    return load_policy(
        base, revision=revision, adapter=adapter, dtype=dtype, load_in_4bit=load_in_4bit, device=device
    )
