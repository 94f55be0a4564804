"""The limits of a command in a box, and its result."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

from clawback.errors import UsageError

Ended = Literal["", "time", "memory", "disk", "output", "processes", "stopped"]
MIB = 1 << 20


@dataclass(frozen=True, slots=True)
class Limits:
    """Limits of a box. Sizes are in bytes; times in seconds."""

    seconds: float = 60.0
    """By the clock, for each command (``timeout`` of a call may shorten it)."""
    cpu_seconds: float = 60.0
    """Of all processes of a command together."""
    memory: int = 1024 * MIB
    """Of all processes of a command together."""
    address_space: int | None = None
    """Of each process; as ``memory`` unless it is named. Runtimes that reserve far more than they use (Node, Java) need more."""
    processes: int = 64
    """At once, threads included where the rung can count them."""
    disk: int = 256 * MIB
    """Of the box's folders together."""
    files: int = 20_000
    """In the box's folders."""
    output: int = 1 * MIB
    """Kept of each of stdout and stderr. Past 16 times as much the command is ended."""
    open_files: int = 256
    cpus: int | None = None
    """Cores that it may use at once; None: all."""

    def __post_init__(self) -> None:
        for name in (
            "seconds",
            "cpu_seconds",
            "memory",
            "processes",
            "disk",
            "files",
            "output",
            "open_files",
        ):
            if getattr(self, name) <= 0:
                raise UsageError(
                    f"The sandbox's limit {name!r} is {getattr(self, name)}: it must be above 0."
                )


@dataclass(frozen=True, slots=True)
class BoxCommand:
    """A command in a box."""

    argv: Sequence[str]
    env: Mapping[str, str] = field(default_factory=dict)
    """Beside the box's own variables."""
    cwd: str = "."
    input: bytes = b""
    timeout: float | None = None
    """Seconds; None: as the box's limits say."""


@dataclass(frozen=True, slots=True)
class CommandResult:
    """What came of a command. ``exit_code`` is 128 + the signal for one that a signal ended (137 where a limit did)."""

    exit_code: int
    stdout: str
    stderr: str
    truncated: bool = False
    """More was written than is kept."""
    timed_out: bool = False
    ended: Ended = ""
    """The limit that ended it; "" where it ended by itself."""
    seconds: float = 0.0

    @property
    def ok(self) -> bool:
        return self.exit_code == 0 and not self.ended
