"""How many processes a run is made by: as asked for, as accelerate's own file says, and what `accelerate launch` makes of it."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from clawback.errors import UsageError

INSTEAD = "Start it without `accelerate launch`: `clawback train --processes {}` starts its processes itself."


def from_accelerate(path: Path) -> tuple[int, dict[str, str]]:
    """(processes on this machine, variables for several machines) of a file that `accelerate config` wrote. Raises ``UsageError``."""
    import yaml

    try:
        given: Any = yaml.safe_load(path.read_text("utf-8"))
    except (OSError, UnicodeDecodeError, yaml.YAMLError) as error:
        raise UsageError(f"{path} cannot be read: {' '.join(str(error).split())[:200]}.") from error
    if not isinstance(given, dict):
        raise UsageError(f"{path} is no file of `accelerate config`.")
    kind = str(given.get("distributed_type", "NO")).upper()
    if kind not in ("NO", "MULTI_CPU", "MULTI_GPU"):
        raise UsageError(
            f"{path} says distributed_type: {kind}. Here every process holds the whole base, and only gradients are exchanged: use MULTI_CPU "
            "or MULTI_GPU. A base that fits no device can be trained elsewhere (docs/hosted.md)."
        )
    machines, world = _whole(given, "num_machines", path), _whole(given, "num_processes", path)
    if world % machines:
        raise UsageError(f"{path}: {world} processes cannot be shared out among {machines} machines.")
    found = {"NNODES": str(machines), "NODE_RANK": str(given.get("machine_rank") or 0)}
    for name, key in (("MASTER_ADDR", "main_process_ip"), ("MASTER_PORT", "main_process_port")):
        if given.get(key):
            found[name] = str(given[key])
    if machines > 1 and not {"MASTER_ADDR", "MASTER_PORT"} <= found.keys():
        raise UsageError(f"{path}: several machines need main_process_ip and main_process_port.")
    return world // machines, found


def launched(environment: Mapping[str, str] = os.environ, parent: list[str] | None = None) -> str:
    """What `accelerate launch` or `torchrun` has made of this process, where it is not what was asked for; "" otherwise.

    Raises ``UsageError`` in each of several copies of one command: they would all train the same.
    """
    world = int(environment.get("WORLD_SIZE") or 1)
    if world > 1:
        raise UsageError(f"This command was started {world} times; start it once. {INSTEAD.format(world)}")
    if "ACCELERATE_MIXED_PRECISION" not in environment and "ACCELERATE_USE_CPU" not in environment:
        return ""
    asked = _asked(_parent() if parent is None else parent)
    if asked > 1:
        return (
            f"`accelerate launch` was asked for {asked} processes and started one (on CPUs it needs MPI for more, and does not say so). "
            + INSTEAD.format(asked)
        )
    return ""


def help_out(count: int) -> int:
    """On a machine that is not the first: ``count`` workers of the run that is begun there. The highest of their exit codes."""
    from clawback.engine.torch.loop import parallel

    return parallel.workers_of_a_node(count)


def _asked(command: list[str]) -> int:
    """Processes that a launcher's command line asks for."""
    for place, word in enumerate(command):
        name, equals, value = word.partition("=")
        if name in ("--num_processes", "--num-processes"):
            value = value if equals else (command[place + 1] if place + 1 < len(command) else "")
            return int(value) if value.isdecimal() else 1
    return 1


def _parent() -> list[str]:
    import psutil

    try:
        parent = psutil.Process().parent()
        return parent.cmdline() if parent else []
    except psutil.Error:
        return []


def _whole(given: Mapping[str, Any], name: str, path: Path) -> int:
    value = given.get(name, 1)
    if not isinstance(value, int) or isinstance(value, bool) or not 1 <= value <= 1024:
        raise UsageError(f"{path}: {name} is {value!r}; it has to be a whole number from 1.")
    return value
