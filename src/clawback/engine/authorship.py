"""Who wrote an answer, and whether it may be learned as it is.

A policy may learn its own answers and a person's edits. Answers of another model are learned only where the person
named that model in ``[training] learn_from``: the terms of many vendors forbid it, and only the person knows theirs.
Ratings of such answers are read in any case: that an answer was liked says what the person likes.
"""

from __future__ import annotations

from collections.abc import Sequence
from fnmatch import fnmatchcase

from clawback.records import Sample

OWN = frozenset(("clawback", "clawback-base", "local"))
"""Names of the live version and its base, as our server and ``--api local`` give them."""


def is_foreign(sample: Sample, base: str) -> bool:
    """Whether another model than ``base`` and its versions wrote the response. An answer of an unknown model is not foreign."""
    name = sample.model.lower()
    if sample.edited or sample.version is not None or not name or name in OWN or name.startswith("clawback/"):
        return False
    return _short(sample.model) != _short(base)


def may_learn(sample: Sample, base: str, learn_from: Sequence[str]) -> bool:
    """Whether the response may be a target: the policy's own, a person's, or of a model that the person named."""
    return not is_foreign(sample, base) or is_named(sample.model, learn_from)


def is_named(model: str, learn_from: Sequence[str]) -> bool:
    """Whether one of the patterns names the model, with or without its owner (``openai/gpt-4o`` or ``gpt-4o``)."""
    names = {model.lower(), _short(model)}
    return bool(model) and any(fnmatchcase(name, one.lower()) for name in names for one in learn_from)


def _short(name: str) -> str:
    """A model's name without its owner or folder, and without what Ollama puts after a colon."""
    return name.rstrip("/").rsplit("/", 1)[-1].split(":")[0].lower()
