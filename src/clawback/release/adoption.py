"""Takes an adapter that another program trained in as a version: a candidate that the gate judges like any other.

The folder is PEFT's (unsloth, axolotl, TRL) or mlx-lm's. It is read, put on the base of this home, and written again as a
plain version; the folder itself is not needed afterwards. An adopted version goes live by the person's word alone.
"""

from __future__ import annotations

import json
import re
import tempfile
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from clawback import config
from clawback.errors import ModelError, NotFound, UsageError
from clawback.files import sha256
from clawback.models import TrainResult, gguf_file, identity, local_models
from clawback.paths import Home
from clawback.records import Run, Version
from clawback.release import version_registry
from clawback.release.version_registry import ADOPTED, FOREIGN

if TYPE_CHECKING:
    from clawback.policy import Policy
    from clawback.store import Store

CONFIG = "adapter_config.json"
WEIGHTS = ("adapter_model.safetensors", "adapters.safetensors")
TRAINERS = ("unsloth", "axolotl", "llama-factory", "trl", "mlx-lm")
"""Programs that name themselves in the folder, the more particular ones first."""
_PACKED = re.compile(
    r"(?:[-_.](?:unsloth|bnb|mlx|gguf|hf|awq|gptq|[248]-?bits?|bf16|fp16|f16|f32|(?:i?q\d\w*|ud)))+$"
)
"""Endings of a model's name that say how its weights are stored."""


@dataclass(frozen=True, slots=True)
class Origin:
    """Where an adapter comes from."""

    folder: str
    trainer: str
    base: str
    """What the folder says that it was made for; "" where it says nothing."""
    sha256: str

    def sentence(self) -> str:
        made_for = f", made for {self.base}" if self.base else ""
        return f"Adopted from {self.folder} ({self.trainer}{made_for})."


def adopt(
    store: Store, home: Home, folder: Path, settings: config.Config, *, same_base: bool = False
) -> Version:
    """Enter the adapter of a folder as a candidate.

    Args:
        same_base: the person says that the base is the same under another name.

    Raises:
        UsageError: no adapter there.
        ModelError: damaged, not a plain LoRA, or made for another base.
    """
    from clawback import engine

    folder = folder.expanduser().resolve()
    origin = origin_of(folder)
    model = settings.model
    check_name(origin, model.base, same_base)
    policy = engine.load(
        model.base,
        revision=model.revision,
        adapter=folder,
        dtype=model.dtype,
        load_in_4bit=False,
        device=model.load_device,
    )
    if policy.full:
        raise UsageError(
            f"{folder} holds changes of all weights and no adapter. Name the folder of an adapter."
        )
    return _enter(store, home, policy, origin)


def _enter(store: Store, home: Home, policy: Policy, origin: Origin) -> Version:
    live = store.live()
    home.root.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=home.root, prefix=".adopted-") as name:
        folder = Path(name) / "adapter"
        folder.mkdir()
        policy.save(folder)
        info = policy.info
        run = store.add_ended_run(
            Run(
                info.base,
                info.revision,
                ADOPTED,
                {},
                0,
                live.number,
                created_at=time.time(),
                progress={"phase": "done", "note": origin.sentence()},
                kind="adopted",
            )
        )
        result = TrainResult(
            str(folder), ADOPTED, origin.sentence(), info.base, info.revision, 0, 0, "", (), 0.0
        )
        adapter = {
            "folder": origin.folder,
            "trainer": origin.trainer,
            "base": origin.base,
            "sha256": origin.sha256,
        }
        return version_registry.propose(store, home, run, result, {FOREIGN: adapter})


def origin_of(folder: Path) -> Origin:
    """What a folder says of itself. Raises ``UsageError`` where it holds no adapter."""
    if not folder.is_dir():
        raise UsageError(f"There is no folder {folder}.")
    weights = next((folder / name for name in WEIGHTS if (folder / name).is_file()), None)
    if weights is None or not (folder / CONFIG).is_file():
        if any(folder.glob("adapter_model.*")):
            raise UsageError(
                f"The adapter {folder} holds pickled weights, which may run code when loaded. Save it as safetensors."
            )
        raise UsageError(
            f"{folder} holds no adapter: {CONFIG} and {' or '.join(WEIGHTS)} make one (unsloth, axolotl, TRL and mlx-lm write them)."
        )
    try:
        settings = json.loads((folder / CONFIG).read_text("utf-8"))
        base = str(settings.get("base_model_name_or_path") or settings.get("model") or "")
    except (OSError, ValueError, AttributeError, RecursionError) as error:
        raise ModelError(f"{folder / CONFIG} cannot be read: {error}.") from error
    return Origin(str(folder), _trainer(folder, settings), base, sha256(weights))


def _trainer(folder: Path, settings: Mapping[str, object]) -> str:
    if "fine_tune_type" in settings or "lora_parameters" in settings:
        return "mlx-lm"
    try:
        card = (folder / "README.md").read_text("utf-8", "replace")[:4000].lower()
    except OSError:
        card = ""
    text = card + json.dumps(settings).lower()
    return next((name for name in TRAINERS if re.search(rf"\b{name}\b", text)), "PEFT")


def check_name(origin: Origin, base: str, same_base: bool) -> None:
    """Raises ``ModelError`` where the folder names another base. Models of one shape can differ in nothing else."""
    if same_base or not origin.base or (Path(origin.folder) / "clawback.json").is_file():
        return  # a version of a home says exactly which base it is for, and is checked by that
    ours = {base, *_titles(base)}
    if origin.base in ours or plain_name(origin.base) in {plain_name(name) for name in ours}:
        return
    if _same_weights(origin.base, base):
        return
    raise ModelError(
        f"The adapter {origin.folder} was made for {origin.base}, and the base here is {base}. An adapter means something on its own "
        "base alone. If both are the same model under two names, say so with --same-base; else `clawback init --model` sets another base."
    )


def plain_name(name: str) -> str:
    """``unsloth/Qwen2.5-0.5B-Instruct-bnb-4bit`` → ``qwen2.505binstruct``: without owner, storage and separators."""
    last = name.rstrip("/").rsplit("/", 1)[-1].lower().removesuffix(".gguf")
    short = _PACKED.sub("", last)
    return re.sub(r"[^a-z0-9.]", "", short)


def _titles(base: str) -> list[str]:
    """What else the base is called: by the header of its GGUF file, or by the configuration of its folder."""
    try:
        source = local_models.source(base)
    except NotFound:
        source = None
    if source is not None:
        header = gguf_file.read(source.path)
        named = ("general.name", "general.base_model.0.name", "general.basename")
        return [source.path.name, *(str(header.metadata[key]) for key in named if header.metadata.get(key))]
    try:
        settings = json.loads((Path(base).expanduser() / "config.json").read_text("utf-8"))
        return [str(settings["_name_or_path"])] if settings.get("_name_or_path") else []
    except (OSError, ValueError, AttributeError):
        return []


def _same_weights(named: str, base: str) -> bool:
    """Whether both are folders of this machine with the same weights."""
    folders = [Path(name).expanduser() for name in (named, base)]
    if not all(folder.is_dir() for folder in folders):
        return False
    first, second = (identity.of_weights(folder) for folder in folders)
    return bool(first) and first == second
