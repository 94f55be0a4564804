"""The files of models on this machine, read without torch and without loading a model.

A model folder: whether its weights are all there, and whether it can be trained. The cache of ``huggingface_hub``, without importing it. GGUF files in the
usual folders of other programs, by their names alone.
"""

from __future__ import annotations

import importlib.util
import json
import os
import re
from collections.abc import Iterator, Mapping, Sequence
from math import prod
from pathlib import Path
from typing import TYPE_CHECKING, Any

from clawback import installed
from clawback.errors import ModelError
from clawback.models.types import LocalModel, ModelInfo

if TYPE_CHECKING:
    from clawback.records import JsonObject

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


def quantisation(config: Mapping[str, object]) -> str:
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


def read_json(path: Path) -> JsonObject:
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


def _sizes(config: Mapping[str, object]) -> Any:
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


DEPTH = 4
"""Folders below one of the usual ones that are looked into."""
DOWNLOADS_DEPTH = 1
MOST_ENTRIES = 20_000
"""Names that are read of one usual folder: somebody may keep everything in it."""
_PART = re.compile(r"-(\d{5})-of-\d{5}\.gguf$", re.IGNORECASE)


def folders() -> list[tuple[Path, int]]:
    """Where GGUF files usually are, and how deep to look: llama.cpp, the hub cache, GPT4All, Jan, people's own folders."""
    person = Path.home()
    cache = Path(os.environ.get("XDG_CACHE_HOME") or person / ".cache")
    data = Path(os.environ.get("XDG_DATA_HOME") or person / ".local" / "share")
    mac = person / "Library"
    named = os.environ.get("LLAMA_CACHE")
    llama = [Path(named).expanduser()] if named else [cache / "llama.cpp", mac / "Caches" / "llama.cpp"]
    others = [
        hub_folder(),
        data / "nomic.ai" / "GPT4All",
        mac / "Application Support" / "nomic.ai" / "GPT4All",
        cache / "gpt4all",
        data / "Jan" / "data",
        mac / "Application Support" / "Jan" / "data",
        person / "jan",
        person / "models",
        person / "Models",
    ]
    return [(path, DEPTH) for path in (*llama, *others)] + [(person / "Downloads", DOWNLOADS_DEPTH)]


def find() -> list[Path]:
    """GGUF files by absolute path, each file once: no projectors, and of a file in parts the first."""
    by_file: dict[Path, Path] = {}
    for folder, depth in folders():
        for path in _gguf_files(folder, depth):
            by_file.setdefault(path.resolve(), path)
    return sorted(by_file.values())


def _gguf_files(folder: Path, depth: int) -> Iterator[Path]:
    waiting, entries = [(str(folder), 0)], 0
    while waiting and entries < MOST_ENTRIES:
        place, level = waiting.pop()
        try:
            content = sorted(os.scandir(place), key=lambda entry: entry.name)
        except OSError:  # not there, or only its owner may read it
            continue
        entries += len(content)
        for entry in content:
            name = entry.name.lower()
            if name.endswith(".gguf") and entry.is_file():
                part = _PART.search(name)
                if not name.startswith("mmproj") and (part is None or part[1] == "00001"):
                    yield Path(entry.path)
            elif level < depth and not name.startswith(".") and entry.is_dir(follow_symlinks=False):
                waiting.append((entry.path, level + 1))
