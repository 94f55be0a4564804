"""Who wrote an answer, and whether it may be learned as it is.

A policy may learn its own answers and a person's edits. Answers of another model are learned only where the person
named that model in ``[training] learn_from``: the terms of many vendors forbid it, and only the person knows theirs.
Ratings of such answers are read in any case: that an answer was liked says what the person likes. And that one was
disliked may be learned, for this makes nothing of it likelier.

``may_learn`` decides, for every source of examples (``tests/engine/test_authorship.py`` lists them).
"""

from __future__ import annotations

from collections.abc import Sequence
from fnmatch import fnmatchcase

from clawback.records import OWN_MODELS, Sample

NONE_LEFT = (
    "All liked answers are of other models, and `[training] learn_from` names none of these. `clawback edit` shows what an answer should have "
    "been; `clawback config set training.learn_from '[\"NAME\"]'` allows a model whose terms you have read."
)


def is_foreign(sample: Sample, base: str) -> bool:
    """Whether another model than ``base`` and its versions wrote the response. An answer of an unknown model is not foreign, and an edit is a
    person's unless it names a model."""
    return sample.version is None and is_other(sample.model, base)


def is_other(model: str, base: str) -> bool:
    """Whether the name is that of another model than ``base`` and its versions; "" is not."""
    name = model.lower()
    if not name or name in OWN_MODELS or name.startswith("clawback/"):
        return False
    return _short(model) != _short(base)


def may_learn(sample: Sample, base: str, learn_from: Sequence[str]) -> bool:
    """Whether the response may be a target: the policy's own, a person's, or of a model that the person named."""
    return not is_foreign(sample, base) or is_named(sample.model, learn_from)


def is_named(model: str, learn_from: Sequence[str]) -> bool:
    """Whether one of the patterns names the model, with or without its owner (``openai/gpt-4o`` or ``gpt-4o``)."""
    names = {model.lower(), _short(model)}
    return bool(model) and any(fnmatchcase(name, one.lower()) for name in names for one in learn_from)


def _short(name: str) -> str:
    """A model's name without the program that has it (``ollama:``), its owner or folder, and without what Ollama puts after a colon."""
    name = name.removeprefix("ollama:").removeprefix("lmstudio:")
    return name.rstrip("/").rsplit("/", 1)[-1].split(":")[0].lower()
