"""Several machines of one run: how many there are, and which of them this is, by the variables that PyTorch's own launchers use."""

from __future__ import annotations

import os

from clawback.errors import UsageError

NAMES = ("MASTER_ADDR", "MASTER_PORT", "NNODES", "NODE_RANK")


def nodes() -> int:
    """Machines that the environment speaks of. Raises ``UsageError``."""
    return max(1, number("NNODES", 1))


def node() -> int:
    """This machine's place among them. Raises ``UsageError`` where they could not find each other by what is set."""
    machines, found = nodes(), number("NODE_RANK", 0)
    known = os.environ.get("MASTER_ADDR") and number("MASTER_PORT", 0)
    if found >= machines or (machines > 1 and not known):
        here = ", ".join(f"{name}={os.environ.get(name, '')}" for name in NAMES)
        raise UsageError(
            "Several machines need the same MASTER_ADDR, MASTER_PORT and NNODES on each, and NODE_RANK from 0 (where the run is begun) to "
            f"NNODES - 1. Here: {here}."
        )
    return found


def number(name: str, otherwise: int) -> int:
    """A variable's value. Raises ``UsageError``."""
    text = os.environ.get(name, "")
    if not text:
        return otherwise
    if not text.isdecimal():
        raise UsageError(f"{name} is {text!r}; it has to be a whole number.")
    return int(text)
