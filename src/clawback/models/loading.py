"""Loads a base model from a folder or the hub: safetensors only, never with code from the model's repository."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import torch
from torch import nn

from clawback import paths
from clawback.config import EMBEDDED
from clawback.errors import ModelError, NotFound
from clawback.files import sample
from clawback.models import identity, local_models, model_files
from clawback.models.linear import quicken
from clawback.models.model_files import check_folder
from clawback.models.traits import number
from clawback.models.types import ModelInfo, Sampling

if TYPE_CHECKING:
    from clawback.models.types import Bits


def resolve(base: str, revision: str | None = None) -> tuple[str, str]:
    """Where the weights are, and what they are: (folder or hub id, identity).

    The identity of a folder is ``sha256:…`` over its configuration and weights, that of a GGUF file ``sha256:…`` over the file (it is
    converted where that was not done yet), that of a hub id its commit.
    Raises ``ModelError`` for what is missing, incomplete, or holds pickled or quantised weights only.
    """
    if base == EMBEDDED:
        from clawback import embedded

        base = str(embedded.path())
    if (made := _from_gguf(base)) is not None:
        return str(made[0]), made[1]
    folder = Path(base).expanduser()
    looks_local = folder.is_absolute() or base.startswith((".", "~")) or base.count("/") != 1
    if folder.is_dir():
        return str(folder.resolve()), fingerprint(folder)
    if folder.is_file():
        raise ModelError(f"{base} is neither a model folder nor a GGUF file.")
    if looks_local and "/" in base:
        raise ModelError(
            f"There is no folder {base}. Check the path, or name a model of the Hugging Face hub."
        )
    return base, _commit(base, revision)


def names_of(base: str, revision: str | None = None) -> list[str]:
    """What the weights of a base are called, the best name first: by their content, where they are on this machine, and by where they are."""
    source, found_as = resolve(base, revision)
    folder = Path(source) if found_as.startswith("sha256:") else model_files.snapshot(source, found_as)
    return [name for name in (identity.of_weights(folder), found_as) if name]


def _from_gguf(base: str) -> tuple[Path, str] | None:
    """The converted folder of a name that means a GGUF file, and the file's identity."""
    try:
        source = local_models.source(base)
    except NotFound:
        from clawback.models import conversions

        # The file has gone, and what was made of it has not.
        made = conversions.conversion_of(paths.home().models, base)
        if made is None:
            raise
        return made
    if source is None:
        return None
    from clawback.models import gguf

    return gguf.converted(source)


def fingerprint(folder: Path) -> str:
    """``sha256:…`` over ``config.json`` and the weights, of which large files are sampled (``files.sample``)."""
    weights = check_folder(folder)
    digest = hashlib.sha256((folder / "config.json").read_bytes())
    for path in weights:
        digest.update(f"\n{path.name} ".encode())
        sample(path, digest)
    return f"sha256:{digest.hexdigest()}"


def _check_finite(model: nn.Module, base: str) -> None:
    """One pass over the weights: a NaN anywhere makes every answer one."""
    for name, weights in model.named_parameters():
        if weights.is_meta or not weights.is_floating_point():
            continue
        if not bool(torch.isfinite(weights.detach().sum(dtype=torch.float32))):
            raise ModelError(
                f"The model {base} is damaged: {name} holds values that are no numbers. Fetch it again."
            )


@dataclass(frozen=True)
class UnloadedModel:
    """A base model that has not been loaded: where it is, and what it is made of."""

    source: str
    """The folder or hub id."""
    options: dict[str, Any]
    """Of every ``from_pretrained``: the revision, and never code from the model's repository."""
    info: ModelInfo
    quantised: bool
    """Its weights are stored quantised, in a way of their own."""
    sees: bool = False
    """It takes pictures beside text."""

    @property
    def folder(self) -> Path:
        """Where its files are on this machine, once they have been fetched."""
        commit = self.options.get("revision")
        return model_files.snapshot(self.source, commit) if commit else Path(self.source)


def look(base: str, revision: str | None = None) -> UnloadedModel:
    """What a base model is made of, by its configuration alone: nothing but ``config.json`` is read.

    Raises ``ModelError`` where it cannot be found, or transformers does not know its kind.
    """
    from transformers import MODEL_FOR_IMAGE_TEXT_TO_TEXT_MAPPING, AutoConfig

    source, found_as = resolve(base, revision)
    options: dict[str, Any] = {"trust_remote_code": False}
    if not found_as.startswith("sha256:"):
        options["revision"] = found_as
    try:
        config = AutoConfig.from_pretrained(source, **options)
        with torch.device("meta"):  # shapes without values
            model = _kind(config).from_config(config, trust_remote_code=False)
    except Exception as error:  # transformers raises many kinds; each means the same to the user
        raise _unloadable(base, error) from error
    quantised = getattr(config, "quantization_config", None) is not None
    sees = type(config) in MODEL_FOR_IMAGE_TEXT_TO_TEXT_MAPPING
    return UnloadedModel(source, options, describe(model, base, found_as), quantised, sees)


def load_tokenizer(base: str, revision: str | None = None) -> tuple[Any, ModelInfo]:
    """The tokenizer of a base model and what it is made of; its weights are not read. Raises ``ModelError``."""
    from transformers import AutoTokenizer

    found = look(base, revision)
    try:
        return AutoTokenizer.from_pretrained(found.source, **found.options), found.info
    except Exception as error:  # transformers raises many kinds
        reason = str(error).strip().split("\n")[0]
        raise ModelError(f"The tokenizer of {base} cannot be loaded: {reason}") from error


def sampling_of(base: str, revision: str | None = None) -> Sampling:
    """How a base model's own settings draw; its weights are not read. Raises ``ModelError``."""
    from transformers import GenerationConfig

    found = look(base, revision)
    try:
        named = GenerationConfig.from_pretrained(found.source, **found.options)
    except (OSError, ValueError):  # it has none
        named = None
    return own_sampling(SimpleNamespace(generation_config=named))


def _kind(config: object) -> Any:
    """The class that loads it: of language models, else of those that see as well."""
    from transformers import (
        MODEL_FOR_CAUSAL_LM_MAPPING,
        MODEL_FOR_IMAGE_TEXT_TO_TEXT_MAPPING,
        AutoModelForCausalLM,
        AutoModelForImageTextToText,
    )

    sees_alone = type(config) in MODEL_FOR_IMAGE_TEXT_TO_TEXT_MAPPING and (
        type(config) not in MODEL_FOR_CAUSAL_LM_MAPPING
    )
    return AutoModelForImageTextToText if sees_alone else AutoModelForCausalLM


def load_base(source: UnloadedModel, *, bits: Bits, device: torch.device) -> tuple[nn.Module, Any, ModelInfo]:
    """The model (frozen, in evaluation mode), its tokenizer, and what it is made of.

    Raises ``ModelError`` where transformers cannot load it, with the reason in one sentence.
    """
    from transformers import AutoConfig, AutoTokenizer
    from transformers.utils import logging

    # Its bar for reading weights would be drawn over ours; downloads keep theirs.
    logging.disable_progress_bar()
    extra: dict[str, Any] = {}
    if bits < 16 and not source.quantised:
        extra["quantization_config"] = _quantisation(bits)
    if device.type != "cpu":
        extra["device_map"] = {"": device}
    dtype = torch.float32 if bits == 32 else torch.bfloat16
    base = source.info.base
    try:
        tokenizer = AutoTokenizer.from_pretrained(source.source, **source.options)
        config = AutoConfig.from_pretrained(source.source, **source.options)
        settings = identity.settings_of(config.to_dict())
        model, report = _kind(config).from_pretrained(
            source.source,
            dtype=dtype,
            use_safetensors=True,
            output_loading_info=True,
            **source.options,
            **extra,
        )
    except Exception as error:
        raise _unloadable(base, error) from error
    _check_missing(model, base, report)
    _check_finite(model, base)
    model.eval()
    model.requires_grad_(False)
    quicken(model)
    info = replace(
        describe(model, base, source.info.revision),
        weights=identity.of_weights(source.folder),
        settings=settings,
        tokenizer=identity.of_tokenizer(tokenizer),
        template=identity.template_of(tokenizer),
    )
    return model, tokenizer, info


def _check_missing(model: nn.Module, base: str, report: Mapping[str, Any]) -> None:
    """Raises ``ModelError`` where weights of the model are in no file: transformers would go on with random ones."""
    missing = sorted(set(report["missing_keys"]) & {name for name, _ in model.named_parameters()})
    if not missing:
        return
    others = sorted(report["unexpected_keys"])
    foreign = f" It holds {others[0]} and others that the model does not have." if others else ""
    raise ModelError(
        f"The model {base} is incomplete: {len(missing)} of its weights are in no file ({missing[0]}).{foreign} Fetch or export it again."
    )


def _quantisation(bits: Bits) -> object:
    """bitsandbytes' NF4 (Dettmers et al. 2023, arXiv:2305.14314) or LLM.int8 (arXiv:2208.07339)."""
    from transformers import BitsAndBytesConfig

    if bits == 8:
        return BitsAndBytesConfig(load_in_8bit=True)
    return BitsAndBytesConfig(
        load_in_4bit=True,
        bnb_4bit_quant_type="nf4",
        bnb_4bit_compute_dtype=torch.bfloat16,
        bnb_4bit_use_double_quant=True,
    )


def _unloadable(base: str, error: Exception) -> ModelError:
    reason = str(error).strip().split("\n")[0]
    if "ignore_mismatched_sizes" in reason:
        reason = "its files hold weights of another shape than its config.json says. Fetch it again."
    if "does not recognize this architecture" in reason:
        kind = reason.partition("`")[2].partition("`")[0]
        reason = f"the installed transformers knows no models of the kind {kind}. A newer one may."
    elif "trust_remote_code" in reason or "custom code" in reason:
        reason = "it needs code of its own repository, which is never run."
    return ModelError(f"The model {base} cannot be loaded: {reason}")


def describe(model: nn.Module, base: str, revision: str) -> ModelInfo:
    """Count what a model is made of. Tied weights count once; quantised ones as what they stand for."""
    inner: Any = model
    config = inner.config.get_text_config()
    total = sum(_elements(parameter) for parameter in model.parameters())
    experts, chosen = _experts(config)
    in_experts = sum(_elements(p) for name, p in model.named_parameters() if ".experts." in name)
    active = total - round(in_experts * (1 - chosen / experts)) if experts > 1 else total
    hidden = int(number(config, "hidden_size", "n_embd", "d_model") or 0)
    return ModelInfo(
        base=base,
        revision=revision,
        architecture=type(model).__name__,
        total_parameters=total,
        active_parameters=active,
        hidden=hidden,
        layers=int(number(config, "num_hidden_layers", "n_layer", "num_layers") or 0),
        vocabulary=int(config.vocab_size),
        intermediate=int(
            number(config, "moe_intermediate_size", "intermediate_size", "n_inner") or 4 * hidden
        ),
        context=int(number(config, "max_position_embeddings", "n_positions", "max_seq_len") or 2048),
        experts=experts,
    )


def _elements(parameter: nn.Parameter) -> int:
    # A 4-bit weight is stored as bytes that hold two values each.
    return parameter.numel() * (2 if parameter.dtype == torch.uint8 else 1)


def _experts(config: object) -> tuple[int, int]:
    """How many experts a layer has, and how many a token goes to."""
    count = int(
        number(config, "num_local_experts", "num_experts", "n_routed_experts", "moe_num_experts") or 0
    )
    chosen = int(
        number(config, "num_experts_per_tok", "num_experts_per_token", "moe_topk", "top_k_experts") or 1
    )
    return count, min(chosen, count)


def _commit(base: str, revision: str | None) -> str:
    """The commit of a hub id, from the cache where it is there, else from the hub."""
    from transformers.utils.hub import cached_file, extract_commit_hash

    try:
        path = cached_file(base, "config.json", revision=revision)
        commit = extract_commit_hash(path, None)
    except Exception as error:
        reason = str(error).strip().split("\n")[0]
        raise ModelError(f"The model {base} was not found: {reason}") from error
    if not commit:
        raise ModelError(
            f"The model {base} has no commit that could be recorded. Download it and name its folder."
        )
    return str(commit)


USUAL = Sampling(temperature=0.6, top_p=0.95)
"""For a model that names nothing: what most makers of instruct models recommend for theirs (Llama 3: 0.6 and 0.9, Qwen 3 and
DeepSeek R1: 0.6 and 0.95). At temperature 1 a small model of this kind writes gibberish, at 0.6 it is a sane assistant."""


def own_sampling(model: object) -> Sampling:
    """Temperature, top-p and top-k as the model's folder gives them.

    A model that says ``do_sample`` means what it leaves out to be off (Gemma 3 names top-k and top-p alone and is drawn from at
    temperature 1). ``do_sample: false`` is what the library writes for makers who said nothing: it is no wish for greedy answers.
    """
    given = getattr(model, "generation_config", None)
    named = {name: getattr(given, name, None) for name in ("temperature", "top_p", "top_k")}
    found: dict[str, Any] = {
        name: value
        for name, value in named.items()
        if isinstance(value, (int, float)) and not isinstance(value, bool)
    }
    if not found and not getattr(given, "do_sample", None):
        return USUAL
    return Sampling(
        temperature=max(0.0, float(found.get("temperature", 1.0))),
        top_p=min(1.0, float(found.get("top_p", 1.0))) or 1.0,
        top_k=max(0, int(found.get("top_k", 0))),
    )


def own_max_tokens(model: object) -> int | None:
    """Longest answer that the model's folder names; None where it names none."""
    named = getattr(getattr(model, "generation_config", None), "max_new_tokens", None)
    return int(named) if isinstance(named, int) and named > 0 else None
