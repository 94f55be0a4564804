"""What a model folder holds, by its files alone: whether its weights are all there, and whether it can be trained. No torch."""

from __future__ import annotations

import importlib.util
import json
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from clawback import installed
from clawback.errors import ModelError

ADAPTER_CONFIG = "adapter_config.json"
_TOKENIZERS = ("tokenizer.json", "vocab.json", "vocab.txt", "spiece.model", "sentencepiece.bpe.model")
"""Files that transformers reads a tokenizer from without another library, or names the library that it needs."""


def check_folder(folder: Path) -> list[Path]:
    """The weight files of a model folder. Raises ``ModelError`` with what to do where it cannot be loaded."""
    weights = [path for path in sorted(folder.glob("*.safetensors")) if not path.name.startswith("adapter_")]
    if (folder / ADAPTER_CONFIG).is_file() and not (weights and (folder / "config.json").is_file()):
        raise ModelError(_of_adapter(folder))
    if not (folder / "config.json").is_file():
        raise ModelError(_without_config(folder))
    if not weights:
        if any(folder.glob("*.bin")) or any(folder.glob("*.pt*")):
            raise ModelError(
                f"{folder} holds pickled weights, which may run code when loaded. Convert them to safetensors first."
            )
        raise ModelError(f"{folder} holds no weights (*.safetensors).")
    index = folder / "model.safetensors.index.json"
    if index.is_file():
        try:
            places = dict(json.loads(index.read_text("utf-8"))["weight_map"])
            named = set(places.values())
        except (ValueError, KeyError, AttributeError, TypeError, OSError) as error:
            raise ModelError(f"{index} cannot be read: {error}. Fetch the model again.") from error
        missing = sorted(named - {path.name for path in weights})
        if missing:
            raise ModelError(f"{folder} is incomplete: {missing[0]} is missing. Fetch the model again.")
        _check_places(folder, places)
    tensors = [name for path in weights for name in _tensors(path)]
    _check_sizes(folder, tensors)
    return weights


def _of_adapter(folder: Path) -> str:
    """A folder of an adapter that was named as a model: whose it is."""
    base = str(read_json(folder / ADAPTER_CONFIG).get("base_model_name_or_path") or "")
    cure = f"Name its base, {base}" if base else "Name the model that it was made for"
    return f"{folder} is an adapter{f' of {base}' if base else ''}, not a model. {cure}, and take the adapter in with `clawback adopt {folder}`."


def _without_config(folder: Path) -> str:
    """Why a folder without ``config.json`` cannot be used, and what to take in its place."""
    if any(folder.glob("*.gguf")):
        return f"{folder} is a folder with GGUF files. Name the file."
    if (folder / "params.json").is_file():
        maker = "Mistral's" if any(folder.glob("consolidated*.safetensors")) else "Meta's"
        return (
            f"{folder} holds a model in {maker} own format (params.json), which is not read here. Fetch the same model in the "
            "format of Hugging Face: config.json, tokenizer.json and model*.safetensors."
        )
    return f"{folder} is no model folder: it has no config.json."


def check_trainable(folder: Path) -> None:
    """Raises ``ModelError`` where the weights are quantised or there is no tokenizer that is read here. ``check_folder`` comes first."""
    if method := quantisation(read_json(folder / "config.json")):
        original = original_of(folder)
        cure = f"Name the original model, {original}" if original else "Name the original model"
        raise ModelError(f"{folder} holds weights quantised by {method}, which cannot be trained. {cure}.")
    check_tokenizer(folder)


def check_tokenizer(folder: Path) -> None:
    """Raises ``ModelError`` where the folder has no tokenizer, or one that needs a library that is not installed."""
    if any((folder / name).is_file() for name in _TOKENIZERS):
        return
    if (folder / "tokenizer.model").is_file():
        if importlib.util.find_spec("sentencepiece") is None:
            raise ModelError(
                f"The only tokenizer of {folder} is tokenizer.model, and what reads it is not installed. "
                f"Run: {installed.add_package('sentencepiece protobuf')}"
            )
        return
    if (folder / "tekken.json").is_file():
        raise ModelError(
            f"The only tokenizer of {folder} is tekken.json, Mistral's own format, which is not read here. "
            "Fetch the same model with a tokenizer.json."
        )
    raise ModelError(
        f"{folder} has no tokenizer. Copy tokenizer.json and tokenizer_config.json of the model that it was made from into it."
    )


def quantisation(config: Mapping[str, Any]) -> str:
    """How the weights of a model are quantised, by its ``config.json``; "" where they are not."""
    settings = config.get("quantization_config") or config.get("quantization")
    if not settings:
        return ""
    return str(settings.get("quant_method") or "MLX") if isinstance(settings, dict) else "an unknown method"


def original_of(folder: Path) -> str:
    """The model that a quantised one was made from, as the front matter of its card says; "" where it says nothing."""
    try:
        lines = (folder / "README.md").read_text("utf-8", "replace").splitlines()[:60]
    except OSError:
        return ""
    for number, line in enumerate(lines):
        if line.startswith("base_model:"):
            value = line.partition(":")[2].strip() or "".join(lines[number + 1 : number + 2]).strip(" -")
            return value.strip("\"' []")
    return ""


def read_json(path: Path) -> dict[str, Any]:
    """A file that holds a JSON object; empty where it cannot be read."""
    try:
        content = json.loads(path.read_text("utf-8"))
    except (OSError, ValueError, RecursionError):
        return {}
    return content if isinstance(content, dict) else {}


def _check_places(folder: Path, places: Mapping[str, str]) -> None:
    """That each tensor is in the file where the index says that it is."""
    held = {file: set(_tensors(folder / file)) for file in set(places.values())}
    for name, file in places.items():
        if name not in held[file]:
            raise ModelError(f"{folder} is incomplete: {name} is not in {file}. Fetch the model again.")


_SIZES = {
    "layers": ("num_hidden_layers", "n_layer", "num_layers"),
    "hidden": ("hidden_size", "n_embd", "d_model"),
    "vocabulary": ("vocab_size",),
}
_MOST = {"layers": 2_000, "hidden": 1_000_000, "vocabulary": 20_000_000}
_MOST_HEADER = 100_000_000
"""Bytes of a safetensors header; the format itself allows no more."""


def _check_sizes(folder: Path, tensors: Sequence[str]) -> None:
    """That there are tensors of as many layers as ``config.json`` asks for: transformers would make all of them before it looks."""
    try:
        settings = json.loads((folder / "config.json").read_text("utf-8"))
        inner = settings.get("text_config", settings)
        asked = {
            name: next((inner[f] for f in fields if inner.get(f) is not None), 0)
            for name, fields in _SIZES.items()
        }
    except (ValueError, RecursionError, AttributeError, TypeError, OSError) as error:
        raise ModelError(
            f"{folder / 'config.json'} cannot be read ({type(error).__name__}). Fetch the model again."
        ) from error
    for name, value in asked.items():
        most = min(_MOST[name], len(tensors)) if name == "layers" else _MOST[name]
        if not isinstance(value, int) or not 0 <= value <= most:
            raise ModelError(
                f"{folder / 'config.json'} says {str(value)[:40]} for {name}, which its {len(tensors)} tensors cannot be. Fetch the model again."
            )

    if (missing := _missing_layer(tensors, asked["layers"])) is not None:
        raise ModelError(
            f"{folder} is incomplete: no weights of layer {missing} are in its files. Fetch or export it again."
        )


_NUMBERED = re.compile(r"(.*?)\.(\d+)\.")


def _missing_layer(tensors: Sequence[str], count: int) -> int | None:
    """The first of so many layers that has no tensors; None where some list of modules has all, or none is numbered."""
    lists: dict[str, set[int]] = {}
    for name in tensors:
        if found := _NUMBERED.match(name):
            lists.setdefault(found[1], set()).add(int(found[2]))
    wanted = range(count)
    if not lists or any(numbers.issuperset(wanted) for numbers in lists.values()):
        return None
    longest = max(lists.values(), key=len)
    return next((n for n in wanted if n not in longest), None)


def _tensors(path: Path) -> list[str]:
    """The names of the tensors of a safetensors file."""
    try:
        with path.open("rb") as file:
            size = int.from_bytes(file.read(8), "little")
            header = json.loads(file.read(size)) if 0 < size <= _MOST_HEADER else None
    except (ValueError, RecursionError, OSError):
        header = None
    if not isinstance(header, dict):
        raise ModelError(f"{path} cannot be loaded: its header is damaged. Fetch the model again.")
    return [name for name in header if name != "__metadata__"]
