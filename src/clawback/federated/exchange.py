"""The shared folder of a federation (a synced folder, a repository, a USB stick): the agreed terms, and one file per person and round.

    federation.json                 base, its fingerprint, rank, alpha and seed of A, rule, clip, noise: the same for everybody
    round-0001/anna.safetensors     Anna's change of the factor that the round trains, and how many ratings it comes from
    round-0001/combined.safetensors what A and B have changed by, all rounds together
    round-0001/combined.json        who took part, with which weight, by which rule, and ε so far

Nothing in it can run code: safetensors and JSON alone. Everything that is read is checked: names, shapes, sizes, finite numbers, the base.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from clawback.errors import NotFound, StoreError, UsageError
from clawback.federated.aggregate import Array, Rule
from clawback.files import replace

TERMS = "federation.json"
COMBINED = "combined"
LARGEST = 512_000_000
"""Bytes of an update that is read."""
MOST_STEP = 32
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,63}")
_ROUND = re.compile(r"round-\d{4,8}")


@dataclass(frozen=True, slots=True)
class Terms:
    """What all agree on. ``clip`` 0: updates are not clipped, and noise is not possible. ``most``: ratings that one person counts for; ``step``: how
    far the combined change is followed (the server's learning rate of FedOpt, arXiv:2003.00295); 0: the root of the number of people."""

    base: str
    base_revision: str
    rank: int
    alpha: int
    seed: int
    rule: Rule = "mean"
    clip: float = 0.0
    noise: float = 0.0
    most: int = 256
    step: float = 0.0

    def __post_init__(self) -> None:
        if not 0 <= self.step <= MOST_STEP:
            raise UsageError(f"A step is a number of at least 0, and at most {MOST_STEP}.")
        if self.rule == "krum" and self.step not in (0, 1):
            raise UsageError("Krum takes one person's change as it is: leave the step at 1.")
        if self.noise and (not self.clip or self.rule != "mean"):
            raise UsageError(
                "Noise needs a clip and the rule `mean`: the other rules do not bound the influence of one person."
            )


def begin(folder: Path, terms: Terms) -> None:
    """Write what is agreed. Raises ``UsageError`` where something else is agreed already."""
    folder.mkdir(parents=True, exist_ok=True)
    if (folder / TERMS).exists():
        if read_terms(folder) != terms:
            raise UsageError(
                f"{folder / TERMS} already holds other terms. Choose another folder, or use these terms."
            )
        return
    replace(folder / TERMS, (json.dumps(asdict(terms), indent=2) + "\n").encode(), mode=0o644)


def read_terms(folder: Path) -> Terms:
    """Raises ``NotFound``, ``UsageError`` for terms that cannot be read."""
    try:
        return Terms(**json.loads((folder / TERMS).read_text("utf-8")))
    except FileNotFoundError:
        raise NotFound(f"There is no {TERMS} in {folder}. `clawback federated begin` writes it.") from None
    except (OSError, ValueError, TypeError) as error:
        raise UsageError(f"{folder / TERMS} cannot be used: {error}.") from error


def rounds(folder: Path) -> int:
    """How many rounds are combined. Folders of older rounds may be gone: the last one holds what came of all."""
    found = (path.parent.name for path in folder.glob(f"round-*/{COMBINED}.safetensors"))
    return max((int(name[6:]) for name in found if _ROUND.fullmatch(name)), default=0)


def factor(number: int) -> str:
    """The factor of ΔW = s·B·A that round ``number`` trains; the other one is the same for all, so what is combined is exact (RoLoRA, arXiv:2502.01755)."""
    return "lora_B" if number % 2 else "lora_A"


def place(folder: Path, number: int) -> Path:
    return folder / f"round-{number:04d}"


def put(folder: Path, number: int, name: str, arrays: Mapping[str, Array], said: Mapping[str, str]) -> Path:
    """Write one person's update, whole or not at all. Raises ``UsageError`` for a name that is none."""
    from safetensors.numpy import save

    if not _NAME.fullmatch(name):
        raise UsageError(f"{name!r} is no name for an update: letters, digits, - and _.")
    path = place(folder, number) / f"{name}.safetensors"
    replace(path, save({n: v.astype(np.float32) for n, v in arrays.items()}, dict(said)), mode=0o644)
    return path


def get(path: Path, like: Mapping[str, tuple[int, ...]]) -> tuple[dict[str, Array], dict[str, str]]:
    """An update and what is said with it. Raises ``UsageError`` where its arrays are not those of ``like``, finite, and of a sane size."""
    from safetensors import SafetensorError, safe_open

    try:
        if path.stat().st_size > LARGEST:
            raise UsageError(f"{path} is too large to be an update.")
        with safe_open(path, framework="numpy") as file:
            said = dict(file.metadata() or {})
            found = {name: np.asarray(file.get_tensor(name), dtype=np.float64) for name in file.keys()}  # noqa: SIM118
    except FileNotFoundError:
        raise NotFound(f"There is no update {path}.") from None
    except (OSError, SafetensorError, ValueError, TypeError) as error:
        raise StoreError(f"The update {path} cannot be read: {error}.") from error
    if {n: v.shape for n, v in found.items()} != dict(like):
        raise UsageError(f"The update {path} was made for another base, or another rank.")
    if not all(np.isfinite(v).all() for v in found.values()):
        raise UsageError(f"The update {path} holds numbers that are not finite.")
    return found, said


def names(folder: Path, number: int) -> list[str]:
    """Who has put an update into a round."""
    return sorted(
        p.stem
        for p in place(folder, number).glob("*.safetensors")
        if p.stem != COMBINED and _NAME.fullmatch(p.stem)
    )


def note(folder: Path, number: int, said: Mapping[str, Any]) -> None:
    replace(
        place(folder, number) / f"{COMBINED}.json",
        (json.dumps(dict(said), indent=2) + "\n").encode(),
        mode=0o644,
    )
