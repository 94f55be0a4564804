"""What a base model is, in parts that are compared and named apart, and whether a version's folder was made for it.

A name or a commit says where a model was found; its weights, settings, tokenizer and chat template say whether it is the same. A commit that changes a
README, or a ``config.json`` that another release of transformers wrote again, changes none of them.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
from collections.abc import Iterable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from clawback import files, paths
from clawback.errors import ModelError
from clawback.models.types import ModelInfo

if TYPE_CHECKING:
    from clawback.records import JsonObject

CACHE = "hashes.json"
"""In the folder of models: the hashes of large files, so that each is read once."""
MOST_CACHED = 512
_COMMIT = re.compile(r"[0-9a-f]{40}")
_BLOB = re.compile(r"[0-9a-f]{64}")
_INERT = frozenset({
    "transformers_version", "_name_or_path", "_commit_hash", "name_or_path", "architectures", "dtype", "torch_dtype",
    "use_cache", "eos_token_id", "bos_token_id", "pad_token_id", "id2label", "label2id", "num_labels", "return_dict",
    "output_attentions", "output_hidden_states", "task_specific_params", "problem_type", "tokenizer_class",
    "quantization_config", "auto_map", "chunk_size_feed_forward", "is_encoder_decoder", "_attn_implementation",
})  # fmt: skip
"""Keys of a configuration that change no logit: descriptions, and what is decided elsewhere."""
_PROBES = (
    "The otter's 3 friends don't swim at 7:45 a.m.;  they sleep (really!).",
    "Größe, naïve café, Ελληνικά, Привет, 日本語のテスト, 한국어, عربى, हिन्दी 👩‍💻🦦",
    "def f(x):\n\treturn x**2  # 1234567890\n\n    if x != 0.5e-3:\r\n",
    "<|im_start|>user\nHello<|im_end|>\n<s>[INST] Hi [/INST]</s> <think>a</think>",
)
"""Texts whose tokens tell tokenizers with the same vocabulary apart: words, scripts, white space, markers."""


def is_commit(revision: str) -> bool:
    return bool(_COMMIT.fullmatch(revision))


def weight_files(folder: Path) -> list[Path]:
    """The files of weights that are loaded from a model folder; empty where they are not there."""
    index, single = folder / "model.safetensors.index.json", folder / "model.safetensors"
    if index.is_file():
        with suppress(OSError, ValueError, KeyError, AttributeError):
            named = set(json.loads(index.read_text("utf-8"))["weight_map"].values())
            found = [folder / name for name in sorted(named)]
            return found if all(path.is_file() for path in found) else []
    return [single] if single.is_file() else sorted(folder.glob("*.safetensors"))


def of_weights(folder: Path) -> str:
    """``weights:…`` over the content of a folder's weights, whatever their files are called; "" where there are none."""
    found = weight_files(folder)
    if not found:
        return ""
    digest = hashlib.sha256("\n".join(sorted(_content_hashes(found))).encode())
    return f"weights:{digest.hexdigest()}"


def _content_hashes(weights: Iterable[Path]) -> list[str]:
    """SHA-256 of each file. The cache of ``huggingface_hub`` names large files by it; others are read once a machine."""
    cache = paths.home().models / CACHE
    known: dict[str, str] = {}
    with suppress(OSError, ValueError):
        held = json.loads(cache.read_text("utf-8"))
        known = held if isinstance(held, dict) else {}
    fresh, hashes = {}, []
    for path in weights:
        target = path.resolve()
        if target != path and target.parent.name == "blobs" and _BLOB.fullmatch(target.name):
            hashes.append(target.name)
            continue
        stat = target.stat()
        key = f"{target} {stat.st_size} {stat.st_mtime_ns} {stat.st_ino}"
        if key not in known:
            fresh[key] = files.sha256(target)
        hashes.append(str(known.get(key) or fresh[key]))
    if fresh and os.access(paths.home().root, os.W_OK):
        kept = dict(list((known | fresh).items())[-MOST_CACHED:])
        with suppress(OSError):
            files.replace(cache, (json.dumps(kept, indent=0) + "\n").encode())
    return hashes


def of_tokenizer(tokenizer: Any) -> str:
    """``tokenizer:…`` over the vocabulary, the ends, and what becomes of a few texts: the same however its files are written."""
    vocabulary = sorted((number, token) for token, number in tokenizer.get_vocab().items())
    ends = [tokenizer.eos_token_id, tokenizer.bos_token_id]
    tokens = [tokenizer(text, add_special_tokens=False)["input_ids"] for text in _PROBES]
    text = json.dumps([vocabulary, ends, tokens], ensure_ascii=True)
    return f"tokenizer:{hashlib.sha256(text.encode()).hexdigest()}"


def template_of(tokenizer: object) -> str:
    """The text of the chat template; all of them as JSON where there are several, "" where there is none."""
    template = getattr(tokenizer, "chat_template", None) or ""
    return template if isinstance(template, str) else json.dumps(template, sort_keys=True, ensure_ascii=False)


def settings_of(config: Mapping[str, object]) -> str:
    """A configuration as canonical JSON, without the keys that change no logit."""
    return json.dumps(_shaping(config), sort_keys=True, default=str)


def _shaping(value: object) -> object:
    if isinstance(value, Mapping):
        return {str(key): _shaping(inner) for key, inner in value.items() if key not in _INERT}
    return value


def changed_settings(earlier: str, now: str) -> list[str]:
    """Keys in which two configurations differ, once the installed transformers has read both."""
    if earlier == now:
        return []
    first, second = json.loads(earlier), json.loads(now)
    with suppress(Exception):  # a kind that this transformers does not know: compared as they are written
        first, second = _read_again(first), _read_again(second)
    keys = {*first, *second}
    return sorted(key for key in keys if first.get(key) != second.get(key))


def _read_again(config: JsonObject) -> JsonObject:
    """With the names and defaults of the installed transformers."""
    from transformers import AutoConfig

    values = {key: value for key, value in config.items() if key != "model_type"}
    read = AutoConfig.for_model(config["model_type"], **values).to_dict()
    again: JsonObject = json.loads(settings_of(read))
    return again


STAMP = "clawback.json"
"""Beside a version's weights: the base that they belong to."""
ROUTERS = frozenset({"gate", "router", "shared_expert_gate", "mlp_router"})
"""Layers that choose experts; they stay as they are."""


def in_layer(name: str) -> bool:
    """A module inside the numbered layers of the decoder: some part of its name is a number."""
    return any(part.isdigit() for part in name.split(".")) and "vision" not in name and "audio" not in name


def stamp(info: ModelInfo, **more: str) -> str:
    """The text of ``clawback.json`` for a version of this base."""
    values: JsonObject = {
        "base": info.base,
        "base_revision": info.revision,
        "architecture": info.architecture,
        "format": 2 if info.weights else 1,
        **more,
    }
    parts = {"weights": info.weights, "tokenizer": info.tokenizer, "chat_template": info.template}
    if info.weights:
        values |= {**parts, "settings": json.loads(info.settings or "{}")}
    return json.dumps(values, indent=2, sort_keys=True) + "\n"


def check_base(folder: Path, info: ModelInfo) -> None:
    """A version of ours says which base it belongs to: its weights, its settings, its tokenizer, its chat template.

    An adapter from elsewhere says nothing, and is judged by its shapes alone. Raises ``ModelError`` with the part that
    differs, and with what to do.
    """
    try:
        made_for = json.loads((folder / STAMP).read_text("utf-8"))
        base, revision = str(made_for["base"]), str(made_for["base_revision"])
    except FileNotFoundError:
        return
    except (OSError, ValueError, KeyError, TypeError, RecursionError) as error:
        raise ModelError(
            f"The adapter {folder} is damaged: {STAMP} cannot be read. Roll back to another version."
        ) from error
    weights = made_for.get("weights") or _weights_of_commit(base, revision)
    if revision != info.revision and (not weights or weights != info.weights):
        raise ModelError(
            f"The adapter {folder} was made for {base} ({_short(revision)}), not for {info.base} "
            f"({_short(info.revision)}), whose weights are others. {_cure(base, revision)}"
        )
    if difference := _difference(made_for, info):
        raise ModelError(
            f"The adapter {folder} was made for {base} ({_short(revision)}), and {difference} since. "
            f"{_cure(base, revision)}"
        )


def _difference(made_for: JsonObject, info: ModelInfo) -> str:
    """What of a base with the same weights is not what it was, in words; "" where nothing is, or nothing is known."""
    if (settings := made_for.get("settings")) and info.settings:
        before = json.dumps(settings, sort_keys=True)
        if changed := changed_settings(before, info.settings):
            return f"{', '.join(changed[:3])} in its config.json changed"
    if (tokenizer := made_for.get("tokenizer")) and info.tokenizer and tokenizer != info.tokenizer:
        return "its tokenizer changed"
    template = made_for.get("chat_template")
    if template is not None and info.tokenizer and template != info.template:
        return f"its chat template changed (the old one is `chat_template` in the version's {STAMP})"
    return ""


def _weights_of_commit(base: str, revision: str) -> str:
    """Identity of the weights of another commit, if its snapshot is still in the cache: older versions name the commit alone."""
    from clawback.models import model_files

    if not is_commit(revision):
        return ""
    return of_weights(model_files.snapshot(base, revision))


def _cure(base: str, revision: str) -> str:
    if is_commit(revision):
        return f"Load that one: `clawback config set model.revision {revision}`."
    return (
        f"Load it on the base it was made for: put back the files that {base} had, or train again on these."
    )


def _short(revision: str) -> str:
    return revision.removeprefix("sha256:")[:12]
