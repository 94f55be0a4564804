"""What one run is to do other than the settings say, as one value: for a call, and as arguments of a background process; and the machines that share a run.

Those are named by the variables that PyTorch's own launchers use.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from typing import TYPE_CHECKING, Any

from clawback.errors import UsageError

if TYPE_CHECKING:
    from clawback.records import JsonObject

_NUMBERS = frozenset({"seed", "resume", "processes", "prepared"})
_FLAGS = frozenset({"anyway", "if_due", "fold", "shard"})


@dataclass(frozen=True, slots=True)
class RunOptions:
    """Options of one run on ratings. None and "" mean: as the settings say."""

    algorithm: str | None = None
    preset: str | None = None
    seed: int | None = None
    resume: int | None = None
    """The stopped run to continue. Its own settings count then."""
    prepared: int | None = None
    """The run that whoever started this process has entered in the store."""
    anyway: bool = False
    """Train also where there is little to gain, or nothing was read."""
    if_due: bool = False
    """Do only what is due: train, judge the version that waits, or nothing."""
    fold: bool = False
    """Learn the live prompt into the adapter."""
    processes: int = 1
    shard: bool = False
    """The base in parts, one for each process."""
    ray: tuple[str, int] | None = None
    """Address and number of workers (0: one for each machine) of a cluster that draws fresh answers."""
    draw: str = ""
    """What draws fresh answers in its place (``jobs.seams.chosen``)."""

    def arguments(self) -> list[str]:
        """These options for ``from_arguments``. A cluster is no option of a background process."""
        if self.ray is not None:
            raise ValueError("a background process draws with no cluster")
        values = {f.name: getattr(self, f.name) for f in fields(self) if getattr(self, f.name) != f.default}
        words = {name: name.replace("_", "-") for name in values}
        return [f"--{words[n]}" if n in _FLAGS else f"--{words[n]}={value}" for n, value in values.items()]

    @classmethod
    def from_arguments(cls, arguments: Sequence[str]) -> RunOptions:
        """The options that ``arguments`` wrote."""
        values: JsonObject = {}
        for argument in arguments:
            word, equals, value = argument.removeprefix("--").partition("=")
            name = word.replace("-", "_")
            if name in _FLAGS:
                values[name] = True
            elif equals:
                values[name] = int(value) if name in _NUMBERS else value
        return cls(**values)

    def changed(self, **values: Any) -> RunOptions:
        """The same with some values changed."""
        return replace(self, **values)


DEFAULTS = RunOptions()


MACHINE_VARIABLES = ("MASTER_ADDR", "MASTER_PORT", "NNODES", "NODE_RANK")


def machine_count() -> int:
    """Machines that the environment speaks of. Raises ``UsageError``."""
    return max(1, environment_number("NNODES", 1))


def machine_number() -> int:
    """This machine's place among them. Raises ``UsageError`` where they could not find each other by what is set."""
    machines, number = machine_count(), environment_number("NODE_RANK", 0)
    known = os.environ.get("MASTER_ADDR") and environment_number("MASTER_PORT", 0)
    if number >= machines or (machines > 1 and not known):
        here = ", ".join(f"{name}={os.environ.get(name, '')}" for name in MACHINE_VARIABLES)
        raise UsageError(
            "Several machines need the same MASTER_ADDR, MASTER_PORT and NNODES on each, and NODE_RANK from 0 (where the run is begun) to "
            f"NNODES - 1. Here: {here}."
        )
    return number


def environment_number(name: str, otherwise: int) -> int:
    """A variable's value. Raises ``UsageError``."""
    text = os.environ.get(name, "")
    if not text:
        return otherwise
    if not text.isdecimal():
        raise UsageError(f"{name} is {text!r}; it has to be a whole number.")
    return int(text)
