"""Finds causal language models in the cache of ``huggingface_hub``, without importing it."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping
from math import prod
from pathlib import Path
from typing import Any

from clawback.errors import ModelError
from clawback.models.model_folder import check_tokenizer, original_of, quantisation, read_json
from clawback.models.types import LocalModel, ModelInfo


def hub_folder() -> Path:
    """The cache of ``huggingface_hub``, by the variables that it reads itself."""
    if named := os.environ.get("HF_HUB_CACHE"):
        return Path(named).expanduser()
    default = Path(os.environ.get("XDG_CACHE_HOME", "~/.cache")) / "huggingface"
    return Path(os.environ.get("HF_HOME", default)).expanduser() / "hub"


def models() -> Iterator[LocalModel]:
    """Every causal language model that the cache holds with safetensors weights."""
    for repository in sorted(hub_folder().glob("models--*")):
        snapshot = _snapshot(repository)
        if snapshot is not None and (one := folder(_name(repository), snapshot)):
            yield one


def _snapshot(repository: Path) -> Path | None:
    """The snapshot that ``main`` means, else the newest."""
    try:
        commit = (repository / "refs" / "main").read_text("utf-8").strip()
        if commit and (repository / "snapshots" / commit).is_dir():
            return repository / "snapshots" / commit
        return max((repository / "snapshots").iterdir(), key=lambda p: p.stat().st_mtime, default=None)
    except OSError:
        return None


def snapshot(name: str, commit: str) -> Path:
    """Where the cache has this commit of a model, if it has it."""
    return hub_folder() / f"models--{name.replace('/', '--')}" / "snapshots" / commit


def commit(name: str) -> str:
    """The commit that the cache has of a model; "" where it has none."""
    repository = hub_folder() / f"models--{name.replace('/', '--')}"
    found = _snapshot(repository)
    return found.name if found is not None else ""


def _name(repository: Path) -> str:
    return repository.name.removeprefix("models--").replace("--", "/")


def folder(name: str, snapshot: Path) -> LocalModel | None:
    """A folder with a causal language model in safetensors; None for whatever else a folder may hold."""
    try:
        config = json.loads((snapshot / "config.json").read_text("utf-8"))
        weights = sorted(snapshot.glob("*.safetensors"))
        if not weights or not any(str(a).endswith("ForCausalLM") for a in config.get("architectures") or ()):
            return None
        counts = [_elements(path) for path in weights]
    except (OSError, ValueError, AttributeError, TypeError):
        return None
    total = sum(counts)
    problem = ""
    if method := quantisation(config):
        original = original_of(snapshot)
        cure = f"Name the original model, {original}" if original else "Name the original model"
        problem = f"{name} holds weights quantised by {method}, which cannot be trained. {cure}."
    else:
        try:
            check_tokenizer(snapshot)
        except ModelError as error:
            problem = str(error)
    size = _sizes(config)
    experts = size("num_local_experts", "num_experts", "n_routed_experts")
    return LocalModel(
        name,
        "hub",
        snapshot,
        sum(path.stat().st_size for path in weights),
        ModelInfo(
            base=name,
            revision="",
            architecture=str(config["architectures"][0]),
            total_parameters=total,
            active_parameters=total,
            hidden=size("hidden_size", "n_embd"),
            layers=size("num_hidden_layers", "n_layer"),
            vocabulary=size("vocab_size"),
            intermediate=size("moe_intermediate_size", "intermediate_size"),
            context=size("max_position_embeddings", "n_positions"),
            experts=experts,
        ),
        _licence(snapshot),
        bool(template(snapshot)),
        problem,
        quantisation(config) or str(config.get("dtype") or config.get("torch_dtype") or ""),
    )


def _sizes(config: Mapping[str, Any]) -> Any:
    inner = config.get("text_config")
    text: Mapping[str, Any] = inner if isinstance(inner, dict) else config

    def size(*keys: str) -> int:
        return next((int(text[k]) for k in keys if isinstance(text.get(k), (int, float))), 0)

    return size


def _elements(path: Path) -> int:
    """Parameters in a safetensors file, from its header."""
    with path.open("rb") as file:
        length = int.from_bytes(file.read(8), "little")
        header = json.loads(file.read(min(length, 100 << 20)))
    shapes = [one["shape"] for key, one in header.items() if key != "__metadata__"]
    return sum(prod(one) for one in shapes)


def template(folder: Path) -> str:
    """The chat template of a model folder; empty where there is none."""
    try:
        return (folder / "chat_template.jinja").read_text("utf-8")
    except OSError:
        pass
    for name in ("chat_template.json", "tokenizer_config.json"):
        found = read_json(folder / name).get("chat_template")
        if found:
            return found if isinstance(found, str) else json.dumps(found, ensure_ascii=False)
    return ""


def sampling(folder: Path) -> dict[str, float]:
    """How a model's makers say to sample it."""
    held = read_json(folder / "generation_config.json")
    return {key: held[key] for key in ("temperature", "top_p", "top_k") if held.get(key) is not None}


def _licence(folder: Path) -> str:
    """The ``license:`` line of a model card's front matter."""
    try:
        lines = (folder / "README.md").read_text("utf-8", "replace").splitlines()[:60]
    except OSError:
        return ""
    named = (line.partition(":")[2].strip() for line in lines if line.startswith("license:"))
    return next(named, "")
