"""Verifiers: rewards from a check instead of a judgement. What one is, and how one is found by its name.

A verifier is a frozen dataclass whose fields are its settings; calling it gives a score in [0, 1]. Each is installed under the
entry point ``clawback.rewards`` (``examples/my_reward`` is one).
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any, ClassVar, Protocol, cast, runtime_checkable

from clawback import plugins
from clawback.errors import UsageError


@runtime_checkable
class Verifier(Protocol):
    """What a verifier has to offer."""

    name: ClassVar[str]

    def __call__(self, prompt: str, response: str) -> float:
        """The score of a response to a prompt, from 0 (fails) to 1 (passes)."""
        ...


def names() -> list[str]:
    """Every verifier that can be asked for."""
    return plugins.names(plugins.REWARDS)


def find(name: str) -> type[Verifier]:
    """The class behind a name. Raises ``UsageError`` for one that nobody provides."""
    if name in plugins.BUILT_IN[plugins.REWARDS] or plugins.where(plugins.REWARDS, name):
        return cast("type[Verifier]", plugins.load(plugins.REWARDS, name))
    raise UsageError(f"There is no verifier {name!r}. Choose one of: {', '.join(names())}.")


def make(name: str, settings: Mapping[str, Any] | None = None) -> Verifier:
    """The named verifier with these settings. Raises ``UsageError`` for a setting that it does not have."""
    kind = find(name)
    known = {field.name for field in dataclasses.fields(cast(Any, kind))}
    if unknown := set(settings or {}) - known:
        raise UsageError(
            f"The verifier {name!r} has no setting {sorted(unknown)[0]!r}. It has: {', '.join(sorted(known))}."
        )
    return kind(**(settings or {}))


_CHECKS = {
    "ExitCode": "exit-code",
    "JsonSchema": "json-schema",
    "PythonTests": "python-tests",
    "Regex": "regex",
}
"""Classes that other programs know from here, by their name in the group."""


def __getattr__(name: str) -> object:
    if name not in _CHECKS:
        raise AttributeError(f"module 'clawback.rewards.verifiers' has no attribute {name!r}")
    return find(_CHECKS[name])
