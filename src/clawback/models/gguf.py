"""Conversion of a GGUF file to a base: dequantised once into a folder of safetensors, which is then loaded like any other.

transformers reads the weights (``gguf_file=``) but refuses to write them as long as the model says that it is
quantised, which it no longer is. The folder is named after the file's content, so a changed file is converted
anew; it is written under another name, synced and renamed, so an existing folder is complete. A version is
bound to the *file's* identity: deleting the folder loses nothing.
"""

from __future__ import annotations

import contextlib
import importlib.util
import io
import json
import math
import re
import shutil
import sys
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import psutil
import torch
from filelock import FileLock

from clawback import files, installed, paths
from clawback.errors import MissingExtra, ModelError
from clawback.models import gguf_file
from clawback.models.conversions import CARD, FORMAT, converted_before, stamp
from clawback.models.gguf_file import GgufFile
from clawback.models.local_models import GgufSource
from clawback.progress import note

_ENDS = ("eos_token_id", "eot_token_id", "eom_token_id")
"""Tokens that end an answer, as ``tokenizer.ggml.…``: of the text, of the turn, of the message."""

Say = Callable[[str], None]


def converted(source: GgufSource, say: Say | None = None) -> tuple[Path, str]:
    """The folder made from a GGUF file, and the file's identity (``sha256:…``). Converts it where that was not done yet.

    Args:
        say: told what is being done, a sentence each; None: on stderr.

    Raises:
        ModelError: damaged or cut off, no language model, an architecture that transformers cannot read, too little disk or memory.
        MissingExtra: the ``gguf`` package is not installed.
    """
    models = paths.home().models
    if (known := converted_before(models, source)) is not None:
        return known
    header = gguf_file.read(source.path)
    if header.problem:
        raise ModelError(header.problem)
    if importlib.util.find_spec("gguf") is None:
        raise MissingExtra(
            f"Reading GGUF files needs a part that is not installed (gguf). Run: {installed.add('gguf')}"
        )
    identity = header.identity()
    folder = models / f"{slug(source.name)}-{identity.removeprefix('sha256:')[:12]}-{FORMAT}"
    models.mkdir(mode=0o700, parents=True, exist_ok=True)
    with FileLock(models / ".converting.lock"):
        if not (folder / CARD).is_file():
            _check_whole(header)
            _check_room(header, models)
            _convert(source, header, folder, identity, say or note)
        _settle(folder, source, header)
    return folder, identity


def slug(name: str) -> str:
    """A name as part of a folder's: a file without its folders, and nothing that a path could mean."""
    last = Path(name).stem if name.lower().endswith(".gguf") else name
    return re.sub(r"[^A-Za-z0-9._-]+", "-", last).strip(".-")[:60] or "model"


def _check_whole(header: GgufFile) -> None:
    """Raises ``ModelError`` for a file that ends before its last weight does, or holds weights that nobody here can read."""
    from gguf import GGML_QUANT_SIZES, GGMLQuantizationType

    size = header.path.stat().st_size
    for tensor in header.tensors:
        try:
            block, width = GGML_QUANT_SIZES[GGMLQuantizationType(tensor.kind)]
        except (ValueError, KeyError) as error:
            raise ModelError(
                f"{header.path} holds weights of a kind ({tensor.kind}) that the installed gguf package does not know. "
                f"Run: {installed.add_package('-U gguf')}"
            ) from error
        if header.weights + tensor.offset + tensor.elements // block * width > size:
            raise ModelError(f"{header.path} is cut off: it ends before its weights do. Fetch it again.")


def _check_room(header: GgufFile, models: Path) -> None:
    """Raises ``ModelError`` where disk or memory would not do. Measured: 0.7 GB for SmolLM2, whose folder has 0.27 GB in 16 bits."""
    size = header.converted_bytes
    free = shutil.disk_usage(models).free
    if free < size * 1.05 + (200 << 20):
        raise ModelError(
            f"Converting {header.path.name} takes {size / 1e9:.1f} GB of disk in {models}, and {free / 1e9:.1f} GB are free. "
            "Make room, or choose a smaller model."
        )
    memory = int(psutil.virtual_memory().available)
    if memory < size * 2 + (300 << 20):
        raise ModelError(
            f"Converting {header.path.name} takes about {size * 2 / 1e9 + 0.3:.1f} GB of memory, and {memory / 1e9:.1f} GB are free. "
            "Close something, or choose a smaller model."
        )


def _convert(source: GgufSource, header: GgufFile, folder: Path, identity: str, say: Say) -> None:
    """Write the folder beside, sync it, rename it. What a killed conversion left is thrown away by the next one."""
    beside = folder.with_name(f".{folder.name}.part")
    shutil.rmtree(beside, ignore_errors=True)
    shutil.rmtree(folder, ignore_errors=True)  # one without its card was not made here
    beside.mkdir(mode=0o700)
    try:
        dtype = _write(source, header, beside, say)
        card = {
            "format": FORMAT,
            "name": source.name,
            "title": header.title,
            "architecture": header.architecture,
            "identity": identity,
            "licence": header.licence or source.licence,
            "chat_template": bool(header.template),
            "dtype": dtype,
            "source": stamp(source),
        }
        (beside / CARD).write_text(json.dumps(card, indent=2, ensure_ascii=False) + "\n", "utf-8")
        for path in beside.iterdir():
            files.sync(path)
        files.sync(beside)
        beside.rename(folder)
        files.sync(folder.parent)
    finally:
        shutil.rmtree(beside, ignore_errors=True)
    say(f"Made {paths.tidy(folder)}.\nIt is used from now on; delete it to have it made again.")


def _write(source: GgufSource, header: GgufFile, folder: Path, say: Say) -> str:
    """Configuration, tokenizer and weights, in the form of a Hugging Face folder. Returns the type of the weights."""
    import transformers
    from transformers import AutoConfig, AutoTokenizer

    say(
        f"Converting {source.name} for training, once: {header.parameters / 1e6:,.0f} M parameters, "
        f"{header.converted_bytes / 1e9:.1f} GB in {header.converted_dtype}."
    )
    if licence := header.licence or source.licence:
        say(f"Its licence: {licence}.")
    if not header.template:
        say(
            "It has no chat template, so it is a base model: conversations are put to it as plain text (User: … Assistant: …)."
        )
    link = folder / "source.gguf"  # Ollama's blobs end otherwise, and transformers goes by the ending
    link.symlink_to(source.path.resolve())
    named: dict[str, Any] = {"gguf_file": link.name, "trust_remote_code": False}
    with _quietly():
        say("Reading its description …")
        try:
            config = AutoConfig.from_pretrained(folder, **named)
            tokenizer = AutoTokenizer.from_pretrained(folder, config=config, **named)
        except Exception as error:  # transformers raises many kinds for what it does not know
            raise ModelError(
                f"transformers {transformers.__version__} cannot read GGUF files of the architecture {header.architecture!r} "
                f"({_first_line(error)}). Name the original model, with safetensors weights, instead."
            ) from error
        _scale_rope(config, header)
        model = _read_weights(header, folder, config, named, say)
        say("Writing …")
        link.unlink()
        # What was read is no longer quantised, and must not say so: transformers would neither write nor train it.
        model.hf_quantizer = None
        if hasattr(model.config, "quantization_config"):
            del model.config.quantization_config
        model.save_pretrained(folder, max_shard_size="2GB")
        tokenizer.save_pretrained(folder)
        return str(model.dtype).removeprefix("torch.")


def _read_weights(header: GgufFile, folder: Path, config: object, named: dict[str, Any], say: Say) -> Any:
    """The model with its weights in 16 bits, or as the file has them; in bfloat16 where float16 does not reach far enough."""
    from transformers import AutoModelForCausalLM

    for name in dict.fromkeys((header.converted_dtype, "bfloat16")):
        dtype: torch.dtype = getattr(torch, name)
        try:
            with _tensors_counted(len(header.tensors), say):
                loaded: Any = AutoModelForCausalLM.from_pretrained(
                    folder, config=config, dtype=dtype, output_loading_info=True, **named
                )
        except Exception as error:
            raise ModelError(f"The weights of {header.path} cannot be read: {_first_line(error)}.") from error
        model, report = loaded
        if missing := sorted(report["missing_keys"]):
            raise ModelError(
                f"{header.path} lacks weights that transformers expects of a {header.architecture} model ({missing[0]}, …). "
                "Name the original model, with safetensors weights, instead."
            )
        if dtype != torch.float16 or all(bool(weights.isfinite().all()) for weights in model.parameters()):
            break
    return model


@contextlib.contextmanager
def _tensors_counted(count: int, say: Say) -> Iterator[None]:
    """A context manager within which ``say`` is told each quarter of the weights that transformers has read."""
    from transformers import modeling_gguf_pytorch_utils as reading

    original = getattr(reading, "tqdm", None)
    if original is None:  # another release reads in another way: nothing is shown
        yield
        return

    def counted(tensors: Iterable[object], **_: object) -> Iterator[object]:
        for number, tensor in enumerate(tensors, 1):
            yield tensor
            if (quarter := number * 4 // count) > (number - 1) * 4 // count:
                say(f"Reading its weights: {quarter * 25} %")

    vars(reading)["tqdm"] = counted
    try:
        yield
    finally:
        vars(reading)["tqdm"] = original


def _settle(folder: Path, source: GgufSource, header: GgufFile) -> None:
    """Write ``generation_config.json``: what ends an answer, and how to sample, as file and holder say."""
    from transformers import AutoTokenizer

    metadata = header.metadata
    ends = [metadata.get(f"tokenizer.ggml.{key}") for key in _ENDS]
    if source.stop:
        words = AutoTokenizer.from_pretrained(folder).get_vocab()
        ends += [words.get(stop) for stop in source.stop]
    named = {"bos_token_id": "bos_token_id", "pad_token_id": "padding_token_id"}
    settings: dict[str, Any] = {
        key: metadata[f"tokenizer.ggml.{theirs}"]
        for key, theirs in named.items()
        if f"tokenizer.ggml.{theirs}" in metadata
    }
    settings["eos_token_id"] = list(dict.fromkeys(int(end) for end in ends if isinstance(end, int)))
    if sampling := source.settings(header):
        settings |= {"do_sample": True, **sampling}
    files.replace(folder / "generation_config.json", (json.dumps(settings, indent=2) + "\n").encode())
    card = json.loads((folder / CARD).read_text("utf-8"))
    if card.get("source") != stamp(source):
        card |= {"name": source.name, "source": stamp(source)}
        files.replace(folder / CARD, (json.dumps(card, indent=2, ensure_ascii=False) + "\n").encode())


def _scale_rope(config: object, header: GgufFile) -> None:
    """Long-context scaling of rotary positions, which transformers does not take over from GGUF.

    Llama 3.1 and later: GGUF keeps the factor of each frequency (``rope_freqs.weight``) in place of the four numbers that made them;
    three of them are the same in all these models, the fourth is the largest factor. Others say it in ``…rope.scaling``.
    """
    parameters = getattr(config, "rope_parameters", None)
    if not isinstance(parameters, dict):
        return
    parameters = parameters.get("full_attention", parameters)
    if parameters.get("rope_type", "default") != "default":
        return
    kind = header.metadata.get(f"{header.architecture}.rope.scaling.type")
    factor = header.metadata.get(f"{header.architecture}.rope.scaling.factor")
    if any(tensor.name == "rope_freqs.weight" for tensor in header.tensors):
        factors = _rope_factors(header)
        scaling = {"low_freq_factor": 1.0, "high_freq_factor": 4.0, "original_max_position_embeddings": 8192}
        wanted = _llama3_factors(len(factors), float(parameters["rope_theta"]), max(factors))
        if any(abs(a - b) > 0.01 * b for a, b in zip(factors, wanted, strict=True)):
            raise ModelError(
                f"{header.path} scales its positions in a way that is not known here. "
                "Name the original model, with safetensors weights, instead."
            )
        parameters.update(rope_type="llama3", factor=max(factors), **scaling)
    elif kind in ("linear", "yarn") and factor and float(factor) != 1.0:
        parameters.update(rope_type=kind, factor=float(factor))
        if original := header.number("rope.scaling.original_context_length"):
            parameters["original_max_position_embeddings"] = original


def _rope_factors(header: GgufFile) -> list[float]:
    from gguf import GGUFReader

    found = next(t for t in GGUFReader(header.path).tensors if t.name == "rope_freqs.weight")
    return [float(value) for value in found.data]


def _llama3_factors(count: int, theta: float, factor: float) -> list[float]:
    """By how much each frequency is slowed: short waves not at all, long ones by ``factor``, those between smoothly."""
    factors = []
    for index in range(count):
        turns = (
            8192 * theta ** (-index / count) / (2 * math.pi)
        )  # in the context that it was first trained on
        share = min(1.0, max(0.0, (turns - 1.0) / (4.0 - 1.0)))
        factors.append(1 / ((1 - share) / factor + share))
    return factors


@contextlib.contextmanager
def _quietly() -> Iterator[None]:
    """Neither warnings nor bars of transformers, but for the bar of tensors on a terminal."""
    from transformers.utils import logging

    level, bars = logging.get_verbosity(), logging.is_progress_bar_enabled()
    logging.set_verbosity_error()
    logging.disable_progress_bar()
    try:
        with contextlib.nullcontext() if sys.stderr.isatty() else contextlib.redirect_stderr(io.StringIO()):
            yield
    finally:
        logging.set_verbosity(level)
        if bars:
            logging.enable_progress_bar()


def _first_line(error: Exception) -> str:
    return str(error).strip().split("\n")[0].rstrip(".")[:200]
