"""Adapters of many people, made in a moment: LoRA folders whose every weight is drawn, so strong that each says something of its own."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import torch

from clawback import store
from clawback.models import adapter as adapters
from clawback.paths import Home
from clawback.records import Version
from clawback.release import version_registry


def write_adapters(
    policy: Any, folder: Path, count: int, *, rank: int = 8, strength: float = 0.15
) -> list[Path]:
    """Folders ``0000`` … on the policy's base, which is bare again afterwards."""
    from safetensors.torch import save_file

    chance = torch.Generator().manual_seed(0)
    policy.model = adapters.attach(policy.model, policy.info, rank=rank, alpha=2 * rank, seed=0)
    made = []
    try:
        first = folder / f"{0:04d}"
        first.mkdir(parents=True)
        adapters.write(policy.model, policy.info, first)
        shapes = {name: t.shape for name, t in adapters.read(first)[1].items()}
        beside = {name: (first / name).read_bytes() for name in (adapters.CONFIG, adapters.STAMP)}
        for number in range(count):
            one = folder / f"{number:04d}"
            one.mkdir(exist_ok=True)
            for name, content in beside.items():
                (one / name).write_bytes(content)
            tensors = {
                name: torch.randn(shape, generator=chance)
                * (strength if "lora_B" in name else shape[-1] ** -0.5)
                for name, shape in shapes.items()
            }
            save_file(tensors, one / adapters.WEIGHTS, metadata={"format": "pt"})
            made.append(one)
    finally:
        policy.model = adapters.strip(policy.model)
    return made


def live_with(home: Home, folder: Path, info: Any) -> None:
    """A home whose live version is a copy of that adapter."""
    home.create()
    there = home.version(1)
    shutil.copytree(folder, there)
    files = {file.name: version_registry.sha256(file) for file in there.iterdir()}
    (there / version_registry.PROVENANCE).write_text(json.dumps({"files": files}), "utf-8")
    with store.connect(home.database) as db:
        db.add_version(Version(1, "candidate", info.base, info.revision, parent=0, path=str(there)))
        db.promote(1)
