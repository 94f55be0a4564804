"""The search engines, by name."""

from __future__ import annotations

from importlib import import_module
from typing import cast

from clawback.errors import UsageError
from clawback.prompts.search.optimize import Optimizer

ENGINES = {"reflect": "optimize", "evolve": "evolution", "gepa": "gepa_engine"}


def engine(name: str) -> Optimizer:
    """The optimizer of that name. Raises ``UsageError`` for another, ``MissingExtra`` when it is called and not installed."""
    if name not in ENGINES:
        raise UsageError(f"There is no engine {name!r}. There is: {', '.join(ENGINES)}.")
    return cast("Optimizer", import_module(f"clawback.prompts.search.{ENGINES[name]}").optimize)
