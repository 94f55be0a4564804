"""Clawback makes your own model better at what you like, from the feedback you already give your agents.

The loop as calls::

    import clawback

    here = clawback.home()
    with clawback.connect(here.database) as store:
        turn = store.add_turn(clawback.Turn(session="s1", messages=({"role": "user", "content": "Hi"},), response="Hello!"))
        clawback.rate(store, turn.id, +1)
    clawback.train_once(here)       # train, gate, and go live if it is better
    clawback.rollback(here)         # one call back

Nothing heavy is imported until a name that needs it is used.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from clawback import moved

if TYPE_CHECKING:
    from clawback.config import Config
    from clawback.engine import load, train
    from clawback.errors import ClawbackError
    from clawback.extensions.llamagym.agent import Agent
    from clawback.feedback import SampleQuery, critique, edit, prefer, rate, samples, score, undo
    from clawback.jobs import maybe_train, train_once
    from clawback.paths import Home, home
    from clawback.records import Feedback, Run, Sample, Turn, Version
    from clawback.release import promote, reset, rollback
    from clawback.store import Store, connect

__version__ = "0.2.0"

_WHERE = {
    "Config": "config",
    "ClawbackError": "errors",
    **dict.fromkeys(("Home", "home"), "paths"),
    **dict.fromkeys(("Feedback", "Run", "Sample", "Turn", "Version"), "records"),
    **dict.fromkeys(("Store", "connect"), "store"),
    **dict.fromkeys(
        ("SampleQuery", "critique", "edit", "prefer", "rate", "samples", "score", "undo"), "feedback"
    ),
    **dict.fromkeys(("load", "train"), "engine"),
    "gate": "gate.adapter_gate",
    **dict.fromkeys(("promote", "reset", "rollback"), "release"),
    **dict.fromkeys(("maybe_train", "train_once"), "jobs"),
}

__all__ = [
    "Agent",
    "ClawbackError",
    "Config",
    "Feedback",
    "Home",
    "Run",
    "Sample",
    "SampleQuery",
    "Store",
    "Turn",
    "Version",
    "connect",
    "critique",
    "edit",
    "gate",
    "home",
    "load",
    "maybe_train",
    "prefer",
    "promote",
    "rate",
    "reset",
    "rollback",
    "rollout",
    "samples",
    "score",
    "train",
    "train_once",
    "undo",
]


moved.install()


def __getattr__(name: str) -> Any:
    if name in _WHERE:
        return getattr(import_module(f"clawback.{_WHERE[name]}"), name)
    if name in __all__:  # an extension has it
        plugins = import_module("clawback.plugins")
        if path := plugins.built_in(plugins.NAMES).get(name):
            return plugins.load_value(path)
    raise AttributeError(f"module 'clawback' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted([*globals(), *__all__])
