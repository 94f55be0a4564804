"""The base model of a version: which of its weights training may change, and whether a folder was made for it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from clawback.errors import ModelError
from clawback.models import identity
from clawback.models.types import ModelInfo

STAMP = "clawback.json"
"""Beside a version's weights: the base that they belong to."""
ROUTERS = frozenset({"gate", "router", "shared_expert_gate", "mlp_router"})
"""Layers that choose experts; they stay as they are."""


def in_layer(name: str) -> bool:
    """A module inside the numbered layers of the decoder: some part of its name is a number."""
    return any(part.isdigit() for part in name.split(".")) and "vision" not in name and "audio" not in name


def stamp(info: ModelInfo, **more: str) -> str:
    """The text of ``clawback.json`` for a version of this base."""
    values: dict[str, Any] = {
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


def _difference(made_for: dict[str, Any], info: ModelInfo) -> str:
    """What of a base with the same weights is not what it was, in words; "" where nothing is, or nothing is known."""
    if (settings := made_for.get("settings")) and info.settings:
        before = json.dumps(settings, sort_keys=True)
        if changed := identity.changed_settings(before, info.settings):
            return f"{', '.join(changed[:3])} in its config.json changed"
    if (tokenizer := made_for.get("tokenizer")) and info.tokenizer and tokenizer != info.tokenizer:
        return "its tokenizer changed"
    template = made_for.get("chat_template")
    if template is not None and info.tokenizer and template != info.template:
        return f"its chat template changed (the old one is `chat_template` in the version's {STAMP})"
    return ""


def _weights_of_commit(base: str, revision: str) -> str:
    """Identity of the weights of another commit, if its snapshot is still in the cache: older versions name the commit alone."""
    from clawback.models import hub_cache

    if not identity.is_commit(revision):
        return ""
    return identity.of_weights(hub_cache.snapshot(base, revision))


def _cure(base: str, revision: str) -> str:
    if identity.is_commit(revision):
        return f"Load that one: `clawback config set model.revision {revision}`."
    return (
        f"Load it on the base it was made for: put back the files that {base} had, or train again on these."
    )


def _short(revision: str) -> str:
    return revision.removeprefix("sha256:")[:12]
