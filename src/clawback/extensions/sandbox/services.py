"""What the core asks of the sandbox: a tool that runs Python, a command in a box, what ``doctor`` says about it."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from clawback.extensions import sandbox
from clawback.extensions.sandbox.python_tool import PythonTool

__all__ = ["PythonTool", "boxed", "findings"]


def boxed(command: Sequence[str], folder: Path, variables: Iterable[str] = ()) -> list[str]:
    """The command that runs another one in a box. Raises ``SandboxRefused`` where there is no sandbox."""
    sandbox.choose()
    words = [sys.executable, "-m", "clawback.extensions.sandbox.relay", "--folder", str(folder)]
    if sys.prefix != sys.base_prefix:
        words += ["--read", sys.prefix]
    for name in variables:
        words += ["--env", name]
    return [*words, "--", *command]


def findings() -> Iterator[str]:
    """Which isolation works on this machine, one sentence each."""
    rungs = sandbox.probe()
    holds = [rung for rung in rungs if rung.usable and rung.name != "none"]
    why = "; ".join(
        f"{rung.name}: {rung.why}" for rung in rungs if not rung.usable and not rung.why.startswith("only")
    )
    if holds:
        stronger = f". Not here: {why}" if why and not rungs[0].usable else ""
        yield f"programs that models write run in {holds[0].name} ({holds[0].walls}){stronger}"
    else:
        yield f"no sandbox works here, so programs that models write are not run ({why})"
    engines = [rung.name for rung in sandbox.engines() if rung.usable]
    if engines:
        yield f"tasks that name a container image run in {engines[0]}, once the image has passed a trial"
    else:
        why = " and ".join(rung.why for rung in sandbox.engines())
        yield f"tasks that name a container image are left out ({why})"
