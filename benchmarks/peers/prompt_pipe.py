"""A prompt optimiser in a venv of its own, and the world that it meets in ours: questions and answers as lines of JSON over its stdin and stdout.

The peer's side (``ask``) needs the standard library alone. Ours (``serve``) answers from a world, so that every optimiser, whatever it is installed
with, meets the same model, the same person and the same reflecting model, and every try is counted in one place.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol

HERE = Path(__file__).parent


class World(Protocol):
    """What optimisers meet."""

    start: str
    tried: int
    asked: int

    def tries(self, pairs: Sequence[tuple[str, str]]) -> list[tuple[float, str, str]]:
        """Score, words and answer of each prompt on its item."""

    def reflect(self, asked: str) -> str: ...

    def suggest(self) -> str: ...


def serve(python: Path, script: str, world: World, job: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Run a peer's script to its end. Returns its candidates: ``text``, ``calls`` after which it had them, and its own ``score`` of each."""
    # Its environment is of ours what a program needs, without whatever could send it elsewhere.
    environment = {k: v for k, v in os.environ.items() if k in ("PATH", "HOME", "LANG", "TMPDIR", "XDG_CACHE_HOME")}  # fmt: skip
    with tempfile.TemporaryFile("w+") as told:
        peer = subprocess.Popen(
            [str(python), str(HERE / script)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=told, text=True, env=environment
        )  # fmt: skip
        with peer:
            found = _answered(peer, world, job)
        if found is not None:
            return found
        told.seek(0)
        raise RuntimeError(
            f"{script} ended before it was done, with {peer.returncode}:\n{told.read()[-4000:]}"
        )


def _answered(peer: subprocess.Popen[str], world: World, job: Mapping[str, Any]) -> list[dict[str, Any]] | None:  # fmt: skip
    assert peer.stdin is not None
    assert peer.stdout is not None

    def tell(value: Any) -> None:
        print(json.dumps(value), file=peer.stdin, flush=True)

    kinds: dict[str, Callable[[Any], Any]] = {
        "try": lambda pairs: world.tries([(prompt, item) for prompt, item in pairs]),
        "reflect": world.reflect,
        "suggest": lambda _: world.suggest(),
    }
    tell(job)
    for line in peer.stdout:
        kind, value = json.loads(line)
        if kind == "done":
            return list(value)
        tell(kinds[kind](value))
    return None


def connect() -> tuple[dict[str, Any], Callable[[str, Any], Any]]:
    """The peer's side: its job, and how it asks. What else it prints goes to stderr."""
    out = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)

    def ask(kind: str, value: Any = None) -> Any:
        print(json.dumps([kind, value]), file=out, flush=True)
        return None if kind == "done" else json.loads(sys.stdin.readline())

    return json.loads(sys.stdin.readline()), ask
