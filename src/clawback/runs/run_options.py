"""What one run is to do other than the settings say, as one value: for a call, and as arguments of a background process."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from typing import Any

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
        values: dict[str, Any] = {}
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
