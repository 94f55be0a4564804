"""What starts an agent program: a preset, or any command, with the words and variables that a task fills in."""

from __future__ import annotations

import re
import shlex
import shutil
import sys
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

from clawback.errors import NotFound, UsageError

if TYPE_CHECKING:
    from clawback.records import JsonObject

PRESETS = Path(__file__).with_name("presets.toml")
TASK = "{task}"
BOX_PATH = ("/usr/local/bin", "/usr/bin", "/bin")
"""Where programs of a box are found, beside this Python's."""
_PLACE = re.compile(r"\{(\w+)\}")
VARIABLES: Mapping[str, str] = {
    "OPENAI_BASE_URL": "{url}/v1",
    "OPENAI_API_BASE": "{url}/v1",
    "OPENAI_API_KEY": "{key}",
    "OPENAI_MODEL": "{model}",
    "ANTHROPIC_BASE_URL": "{url}",
    "ANTHROPIC_API_KEY": "{key}",
    "CLAWBACK_TASK": "{task}",
    "NO_PROXY": "127.0.0.1",
    "OPENSSL_CONF": "/dev/null",  # the machine's is not shown in a box
}
"""What every program finds in its environment."""


@dataclass(frozen=True, slots=True)
class Command:
    """A program and its arguments. ``copied``: files and folders of yours that it names, by the word that names them."""

    words: tuple[str, ...]
    env: Mapping[str, str] = field(default_factory=dict)
    files: Mapping[str, str] = field(default_factory=dict)
    copied: Mapping[str, Path] = field(default_factory=dict)
    shown: tuple[Path, ...] = ()
    """Folders outside of the system's that the program lies in."""


@cache
def presets() -> dict[str, JsonObject]:
    """Agents that are known, as ``presets.toml`` has them."""
    return tomllib.loads(PRESETS.read_text("utf-8"))


def command(text: str) -> Command:
    """A preset's name, or a command line. Raises ``UsageError``, and ``NotFound`` where its program is not installed."""
    known, shown = presets().get(text.strip()), tuple[Path, ...]()
    if known is not None:
        word, shown = locate(known["command"][0], f"Install it: {known['install']}")
        return Command((word, *known["command"][1:]), known.get("env", {}), known.get("files", {}), {}, shown)
    try:
        words = tuple(shlex.split(text))
    except ValueError as error:
        raise UsageError(f"The harness {text!r} is no command: {error}.") from error
    if not words:
        raise UsageError(
            f"Name a harness: {', '.join(presets())}, or a command such as 'python3 agent.py {TASK}'."
        )
    copied = {word: Path(word) for word in words if not word.startswith("-") and Path(word).exists()}
    copied = {word: path.resolve() for word, path in copied.items() if not system(path.resolve())}
    if words[0] not in copied or "/" not in words[0]:
        word, shown = locate(words[0], f"Harnesses that are known by name: {', '.join(presets())}.")
        copied.pop(words[0], None)
        words = (word, *words[1:])
    return Command(_with_task(words), {}, {}, copied, shown)


def _with_task(words: tuple[str, ...]) -> tuple[str, ...]:
    """The task is the last word where the command does not say where it goes."""
    return words if any(TASK in word for word in words) else (*words, TASK)


def locate(program: str, advice: str) -> tuple[str, tuple[Path, ...]]:
    """What a program is called in a box, and the folders that have to be shown there for it. Raises ``NotFound``."""
    if shutil.which(program, path=":".join((f"{sys.base_prefix}/bin", *BOX_PATH))):
        return program, ()
    path = shutil.which(program)
    if path is None:
        raise NotFound(f"The harness needs the program {program!r}, which is not installed. {advice}")
    return path, folders_of(Path(path))


def system(path: Path) -> bool:
    """Whether every box shows this path."""
    from clawback.extensions.sandbox.rungs import SYSTEM

    return any(path.is_relative_to(folder) for folder in SYSTEM)


def folders_of(program: Path) -> tuple[Path, ...]:
    """The folders that a program outside of the system's folders needs: of its link, and of what that leads to."""
    real = program.resolve()
    at = {program.parent.parent, *(parent for parent in real.parents if parent.name == "node_modules")}
    return tuple(sorted(path for path in at if not system(path)))


def fill(text: str, values: Mapping[str, str]) -> str:
    """A text with its places filled in; what stands in other braces stays."""
    return _PLACE.sub(lambda match: values.get(match[1], match[0]), text)
