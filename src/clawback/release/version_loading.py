"""Loads a version, ready to answer."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from clawback import config
from clawback.models import identity
from clawback.paths import Home
from clawback.records import Version
from clawback.release.version_registry import check

if TYPE_CHECKING:
    from clawback.policy import Policy


def revision_of(settings: config.Config, base: str, recorded: str) -> str | None:
    """The commit to load a version's base at: that of the settings, if they name the same base, else the one that the version records."""
    if base == settings.model.base:
        return settings.model.revision
    return recorded if identity.is_commit(recorded) else None


def load(home: Home, version: Version, settings: config.Config | None = None) -> Policy:
    """Load a version's base model with its adapter and its prompt, after checking that the files are what was trained.

    Raises ``ModelError`` when they are not, ``MissingExtra`` when torch is not installed.
    """
    from clawback import engine

    check(version)
    settings = settings or config.load(home.config)
    model = settings.model
    base = version.base or model.base
    policy = engine.load(
        base,
        revision=revision_of(settings, base, version.base_revision),
        adapter=Path(version.path) if version.path else None,
        dtype=model.dtype,
        load_in_4bit=model.load_in_4bit,
        device=model.load_device,
    )
    policy.configure(
        settings.generation, settings.model.chat_template_args, settings.training.thinking, version.prompt
    )
    return policy
