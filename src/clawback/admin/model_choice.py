"""Which base a machine can train, how long a run would take there, and whether a typed name means a model. No torch."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from difflib import SequenceMatcher
from pathlib import Path
from typing import TYPE_CHECKING

from clawback import config, installed, paths
from clawback.errors import ClawbackError, ModelError, UsageError
from clawback.models import (
    LocalModel,
    ModelInfo,
    check_folder,
    check_trainable,
    converted_before,
    gguf_file,
    local_models,
    model_files,
)
from clawback.policy import memory

if TYPE_CHECKING:
    from clawback.records import JsonObject

RANK = 16
PATIENCE = 3600.0
"""Seconds: among models whose runs take less, the largest is proposed."""
_RUN = 1.8e5
"""Operations of a run for each active parameter: SmolLM2 (135 M) took 4 CPU minutes where products ran at 100 GFLOP/s in all."""
_CORE, _GPU = 4e10, 2e13
"""Operations a second that training reaches, on a core of today and on a graphics card: right within a factor of three."""


@dataclass(frozen=True, slots=True)
class Machine:
    """What there is to train on."""

    memory: int
    """Bytes in all."""
    cores: int
    gpu: str = ""
    """What the card is called; "" for none that can be trained on."""
    gpu_memory: int = 0


def machine() -> Machine:
    import psutil

    name, size = _gpu()
    cores = psutil.cpu_count(logical=False) or psutil.cpu_count() or 1
    return Machine(int(psutil.virtual_memory().total), cores, name, size)


def fits(info: ModelInfo, on: Machine) -> bool:
    """Can it be trained here: on the card in 16 or 4 bits, else on the CPU in float32?"""
    if on.gpu_memory:
        try:
            memory.decide(info, memory.DeviceMemory(int(on.gpu_memory * 0.95)), (16, 8, 4), rank=RANK)
        except ClawbackError:
            return False
        return True
    size = memory.need(
        info, bits=32, rank=RANK, micro_tokens=memory.CPU_MICRO_TOKENS, checkpointing=False, on_cpu=True
    )
    return size * 1.1 <= on.memory


def run_seconds(info: ModelInfo, on: Machine) -> float:
    """How long a run on 32 ratings takes, very roughly."""
    return _RUN * info.active_parameters / (_GPU if on.gpu_memory else _CORE * on.cores)


def choose(models: Sequence[LocalModel], on: Machine) -> str:
    """The largest chat model whose runs take no longer than ``PATIENCE``, else the one with the shortest; ``embedded`` where none fits.

    Files that lie about come after what a program holds: somebody may have downloaded them for something else.
    """
    usable = [one for one in models if one.kind == "instruct" and not one.problem and fits(one.info, on)]
    usable = [one for one in usable if one.holder != "file"] or usable
    quick = [one for one in usable if run_seconds(one.info, on) <= PATIENCE]
    if quick:
        return max(quick, key=lambda one: one.info.total_parameters).name
    return min(usable, key=lambda one: run_seconds(one.info, on)).name if usable else config.EMBEDDED


def verdict(model: LocalModel, on: Machine) -> str:
    """Whether it can be trained here, and how long a run takes, in a few words."""
    if model.problem:
        return model.problem
    if not fits(model.info, on):
        where = (
            f"{on.gpu_memory / 1e9:.0f} GB on {on.gpu}"
            if on.gpu_memory
            else f"{on.memory / 1e9:.0f} GB of memory"
        )
        return f"too large for {where}"
    base = "" if model.kind == "instruct" else "; a base model"
    return f"a run takes about {span(run_seconds(model.info, on))}{base}{'' if model.chat else ', no chat template'}"


def span(seconds: float) -> str:
    if seconds < 90:
        return "a minute"
    if seconds < 5400:
        return f"{seconds / 60:.0f} min"
    return f"{seconds / 3600:.0f} h" if seconds < 172_800 else f"{seconds / 86_400:.0f} days"


def size(count: int) -> str:
    return f"{count / 1e9:.1f} B" if count >= 1e9 else f"{count / 1e6:.0f} M"


def check(typed: str, models: Sequence[LocalModel]) -> tuple[str, str]:
    """What somebody typed, as it goes into the settings; and a sentence that they should read, or "".

    Raises ``UsageError`` (did you mean …) for what is no model, ``ModelError`` for one that cannot be trained.
    """
    typed = typed.strip()
    if typed == config.EMBEDDED:
        if local_models.smollm2():
            return (
                typed,
                f"{config.DEMONSTRATION} A small one is installed: `clawback init --model smollm2`.",
            )
        return (
            typed,
            f"{config.DEMONSTRATION} A small one to begin with: {local_models.install_smollm2()} && {installed.command()} init --model smollm2",
        )
    held = next((one for one in models if one.name == typed), None)
    if held is not None and held.holder != "hub":
        return typed, _note(held, models)
    if (source := local_models.source(typed)) is not None:
        return _file(source, typed, models)
    path = Path(typed).expanduser()
    if path.is_dir():
        return str(path.resolve()), _of_folder(path, models)
    known = [config.EMBEDDED, local_models.SMOLLM2, *(one.name for one in models)]
    if held is not None:
        return typed, _note(held, models)
    if typed.startswith((".", "~", "/")) or typed.count("/") > 1:
        raise UsageError(
            f"There is no folder and no GGUF file {typed}. Check the path, or choose one of `clawback model list`."
        )
    if typed.count("/") == 1 and all(typed.split("/")):
        return typed, _on_hub(typed, known)
    raise UsageError(
        f"There is no model {typed!r}.{local_models.similar(typed, known)} Name a folder, a GGUF file, a hub id (OWNER/NAME), "
        f"or one of: {', '.join(dict.fromkeys(known))}."
    )


def local_model(base: str) -> LocalModel | None:
    """A base as ``local_models.find`` lists it, without looking for others; None for what is not on this machine. Raises ``ClawbackError``."""
    if (source := local_models.source(base)) is not None:
        return local_models.of_file(source.name, source.path)
    folder = Path(base).expanduser()
    if not folder.is_dir():
        commit = model_files.commit(base)
        folder = model_files.snapshot(base, commit) if commit else folder
    return model_files.folder(base, folder)


def describe(base: str) -> JsonObject:
    """What a base is, as far as its files say, without loading it. Raises ``ClawbackError`` for what is not on this machine."""
    source = local_models.source(base)
    if source is not None:
        header, made = gguf_file.read(source.path), converted_before(paths.home().models, source)
        return {
            "name": source.name,
            "title": header.title,
            "file": str(source.path),
            "converted": str(made[0]) if made else "",
            **_sizes(local_models.shape(header, base)),
            "licence": header.licence or source.licence or "not said",
            "sampling": source.settings(header),
            "stop": list(source.stop),
            "chat_template": header.template,
        }
    held = next((one for one in model_files.models() if one.name == base), None)
    folder = Path(base).expanduser()
    if held is None and not folder.is_dir():
        raise UsageError(
            f"The model {base} is not on this machine, so there is nothing to tell of it. `clawback model list` shows what is."
        )
    held = held or model_files.folder(base, folder)
    if held is None:
        raise UsageError(f"{base} is no folder of a causal language model with safetensors weights.")
    return {
        "name": held.name,
        "folder": str(held.path),
        **_sizes(held.info),
        "licence": held.licence or "not said",
        "sampling": model_files.sampling(held.path),
        "chat_template": model_files.template(held.path),
    }


def _sizes(info: ModelInfo) -> JsonObject:
    return {
        "architecture": info.architecture,
        "parameters": info.total_parameters,
        "context": info.context,
        "layers": info.layers,
        "hidden": info.hidden,
        "vocabulary": info.vocabulary,
    }


def _note(model: LocalModel, models: Sequence[LocalModel]) -> str:
    """What the person should know of a model before it is taken, or "". Raises ``UsageError`` where it cannot be trained."""
    if model.problem:
        raise UsageError(f"{model.problem} {alternative(model.name, models)}")
    return "" if model.kind == "instruct" else of_base(model, models)


def _of_folder(path: Path, models: Sequence[LocalModel]) -> str:
    """The same of a folder. Raises ``ModelError``."""
    try:
        check_folder(path)
        check_trainable(path)
    except ModelError as error:
        raise ModelError(f"{error} {alternative(str(path), models)}") from error
    model = model_files.folder(str(path.resolve()), path)
    return _note(model, models) if model is not None else ""


def of_base(model: LocalModel, models: Sequence[LocalModel]) -> str:
    """What is said of a base model: ratings hardly help it. Names its chat model, if that is here."""
    why = "it has no chat template" if not model.chat else "its name says so"
    chat_model = chat_model_of(model, models)
    cure = (
        f"Its chat model is here: `clawback init --model {chat_model.name}`."
        if chat_model
        else "Take the file of the same model that was made for chat: its name ends in -it, -Instruct or -Chat."
    )
    return f"{model.name} is a base model ({why}): it was not made to answer, and ratings hardly help. {cure}"


def chat_model_of(model: LocalModel, models: Sequence[LocalModel]) -> LocalModel | None:
    """The model of the same shape that was made for chat; of several the one whose name is most alike."""
    shape = _shape(model.info)
    same = [other for other in models if other.kind == "instruct" and not other.problem]
    same = [other for other in same if _shape(other.info) == shape]
    alike = {other.name: SequenceMatcher(None, other.name, model.name).ratio() for other in same}
    return max(same, key=lambda other: alike[other.name], default=None)


def _shape(info: ModelInfo) -> tuple[int, int, int, int]:
    return info.hidden, info.layers, info.intermediate, info.experts


def alternative(name: str, models: Sequence[LocalModel]) -> str:
    """The nearest model that can be trained here, in a sentence: that of the same shape, else what would be proposed."""
    refused = next((model for model in models if model.name == name), None)
    same = chat_model_of(refused, models) if refused is not None and refused.info.hidden else None
    chosen = same.name if same else choose([model for model in models if model.name != name], machine())
    if chosen == config.EMBEDDED:
        return f"A small model that can be trained: {local_models.install_smollm2()}"
    return f"Of the models here, {chosen} can be trained: `clawback init --model {chosen}`."


def _file(source: local_models.GgufSource, typed: str, models: Sequence[LocalModel]) -> tuple[str, str]:
    """A GGUF file by its own path, or under another name than the list has it: its name, and what the person should know."""
    gguf_file.read(source.path)  # says what is wrong with one that cannot be read
    managed = (local_models.OLLAMA, local_models.LM_STUDIO)
    named = source.name.startswith(managed) or source.name == local_models.SMOLLM2
    name = source.name if named else str(Path(typed).expanduser().absolute())
    return name, _note(local_models.of_file(name, source.path), models)


def _on_hub(name: str, known: list[str]) -> str:
    """Ask the hub whether it has such a model; where it cannot be asked, say so. Raises ``UsageError`` where it has none."""
    try:
        from huggingface_hub import HfApi
        from huggingface_hub.errors import RepositoryNotFoundError
    except ImportError:
        return f"{name} was not looked up: training is not installed yet."
    try:
        HfApi().model_info(name, timeout=5)
    except RepositoryNotFoundError as error:
        raise UsageError(
            f"The Hugging Face hub has no model {name} that you may read.{local_models.similar(name, known)} "
            "Check the name, or log in with `hf auth login`."
        ) from error
    except Exception:  # offline, a proxy, a hub that is down: each means that nobody knows
        return f"{name} is not on this machine, and the Hugging Face hub could not be asked. The first run will show whether the model exists."
    return f"{name} is fetched from the Hugging Face hub when it is first used."


def commit_of(name: str) -> str:
    """The commit of a hub id that the cache has, else the newest on the hub; "" for other models, and where nobody can say."""
    if name == config.EMBEDDED or not (name.count("/") == 1 and all(name.split("/"))):
        return ""
    if Path(name).expanduser().is_dir() or local_models.source(name) is not None:
        return ""
    if held := model_files.commit(name):
        return held
    try:
        from huggingface_hub import HfApi

        return str(HfApi().model_info(name, timeout=5).sha or "")
    except Exception:  # not installed, offline, a hub that is down: each means that nobody knows
        return ""


def _gpu() -> tuple[str, int]:
    """The card's name and its bytes, without importing torch, which takes seconds."""
    if shutil.which("nvidia-smi") is None:
        return "", 0
    asked = ["nvidia-smi", "--query-gpu=name,memory.total", "--format=csv,noheader,nounits"]
    try:
        done = subprocess.run(asked, capture_output=True, text=True, timeout=5, check=False)
        name, _, mib = done.stdout.strip().splitlines()[0].rpartition(",")
        return (name.strip(), int(mib) << 20) if done.returncode == 0 else ("", 0)
    except (OSError, subprocess.TimeoutExpired, IndexError, ValueError):
        return "", 0
