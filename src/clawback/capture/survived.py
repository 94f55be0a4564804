"""How much of what an agent wrote into files is still there at the next commit: an implicit signal, off until ``[capture] survived`` is on.

The lines that an answer's tool calls added are looked up in the first commit that changed those files afterwards. All of them there is +1,
none −1, at an implicit signal's small weight: it counts only where nobody has said anything (``feedback/turn_reward.py``). Nothing leaves the
machine; git reads its own objects, and runs nothing that a repository names. Files that a later answer changed before that commit are left
out: the person asked for that change.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING

from clawback.records import Feedback

if TYPE_CHECKING:
    from clawback.records import Turn
    from clawback.store import TurnStore

SOURCE = "survived"
LOOKED_AT = 40
"""Newest answers among which those of the folder are looked for, after each answer."""
FEWEST = 3
"""Lines under which a change is too small to tell."""
GIT_SECONDS = 2.0
_GIT_SETTINGS = ("core.fsmonitor=false", "core.hooksPath=/dev/null", "log.showSignature=false")
_GIT_VARIABLES = {
    "LC_ALL": "C",
    "HOME": "/nonexistent",
    "GIT_CONFIG_GLOBAL": os.devnull,
    "GIT_CONFIG_NOSYSTEM": "1",
    "GIT_TERMINAL_PROMPT": "0",
    "GIT_NO_LAZY_FETCH": "1",
    "GIT_ALLOW_PROTOCOL": "none",
}
_PATHS = ("file_path", "filePath", "path", "filename", "absolute_path")
_OLD = ("old_string", "oldString", "old_str")
_NEW = ("new_string", "newString", "new_str", "content", "new_source", "file_text")
_PATCHES = ("input", "patch", "patch_text", "patchText")
_FILE = re.compile(r"\*\*\* (?:Add|Update) File: (.+)")


def notice(store: TurnStore, folder: str) -> list[Feedback]:
    """Keep what the commits since say of the newest answers of that folder. Each answer is judged once."""
    found = []
    later: set[str] = set()
    for turn in store.turns(limit=LOOKED_AT, kind="main"):
        if turn.cwd != folder:
            continue
        lines = {path: added for path, added in added_lines(turn).items() if path not in later}
        later |= set(lines)
        name = f"implicit:{SOURCE}:{turn.id}"
        if sum(map(len, lines.values())) < FEWEST or any(
            f.event_id == name for f in store.feedback(turn_id=turn.id, active=False)
        ):
            continue
        if (held := committed(folder, lines, turn.created_at)) is not None:
            value = round(2 * share(lines, held) - 1, 3)
            found.append(
                store.add_feedback(Feedback(turn.id, "implicit", value, source=SOURCE, event_id=name))
            )
    return found


def share(lines: Mapping[str, Iterable[str]], held: Mapping[str, str]) -> float:
    """The share of the lines that the files hold, each line as often as it was written."""
    total = kept = 0
    for path, added in lines.items():
        wanted, there = Counter(added), Counter(map(_plain, held.get(path, "").splitlines()))
        total += sum(wanted.values())
        kept += sum(min(count, there[line]) for line, count in wanted.items())
    return kept / total if total else 0.0


def added_lines(turn: Turn) -> dict[str, list[str]]:
    """File → the lines that the answer's tool calls wrote into it, without blanks at their ends. Lines without three letters do not count."""
    start = max((n for n, m in enumerate(turn.messages) if m.get("role") == "user"), default=-1)
    found: dict[str, list[str]] = {}
    for message in turn.messages[start + 1 :]:
        for call in message.get("tool_calls") or ():
            for path, old, new in _edits(_arguments(call)):
                added = Counter(_lines(new)) - Counter(_lines(old))
                found.setdefault(path, []).extend(added.elements())
    return {path: lines for path, lines in found.items() if lines}


def committed(folder: str, paths: Iterable[str], since: float) -> dict[str, str] | None:
    """Path → its content in the first commit after that time that changed one of the paths; None where there is no such commit."""
    base = os.path.realpath(folder)
    places = {path: os.path.relpath(os.path.realpath(os.path.join(folder, path)), base) for path in paths}  # noqa: PTH118
    listed = _git(folder, "log", "--reverse", "--format=%H", f"--since=@{int(since)}", "--", *places.values())
    commit = (listed or "").split("\n", 1)[0]
    if not commit:
        return None
    held = {}
    for path, place in places.items():
        relative = place if place.startswith("..") else f"./{place}"
        held[path] = _git(folder, "cat-file", "blob", f"{commit}:{relative}") or ""
    return held


def _git(folder: str, *arguments: str) -> str | None:
    """What git prints; None where it fails. The folder is an agent's: no program that its settings name may run, and nothing is fetched."""
    settings = [word for setting in _GIT_SETTINGS for word in ("-c", setting)]
    command = ["git", "--no-pager", "--no-optional-locks", "--literal-pathspecs", *settings, *arguments]
    variables = {"PATH": os.environ.get("PATH", os.defpath), **_GIT_VARIABLES}
    try:
        done = subprocess.run(
            command, cwd=folder, env=variables, capture_output=True, timeout=GIT_SECONDS, check=False
        )
    except (OSError, subprocess.TimeoutExpired, ValueError):
        return None
    return done.stdout.decode("utf-8", "replace") if done.returncode == 0 else None


def _arguments(call: object) -> Mapping[str, object]:
    function = call.get("function") if isinstance(call, dict) else None
    words = function.get("arguments") if isinstance(function, dict) else None
    try:
        read = json.loads(words) if isinstance(words, str) else words
    except (ValueError, RecursionError):  # cut in its middle, or a patch as it is
        read = {"input": words}
    return read if isinstance(read, dict) else {}


def _edits(arguments: Mapping[str, object]) -> Iterator[tuple[str, str, str]]:
    """(file, old text, new text) of each edit that a tool call asks for, in the forms that agents use."""
    for key in _PATCHES:
        if isinstance(patch := arguments.get(key), str) and "*** " in patch:
            yield from _patched(patch)
            return
    path = _first(arguments, _PATHS)
    if not path:
        return
    edits = arguments.get("edits")
    for edit in edits if isinstance(edits, list) else [arguments]:
        if isinstance(edit, dict) and (new := _first(edit, _NEW)):
            yield path, _first(edit, _OLD), new


def _patched(patch: str) -> Iterator[tuple[str, str, str]]:
    """The same of a patch in Codex's form."""
    path = ""
    for line in patch.splitlines():
        if found := _FILE.fullmatch(line.strip()):
            path = found[1].strip()
        elif path and line.startswith("+"):
            yield path, "", line[1:]


def _first(table: Mapping[str, object], keys: Iterable[str]) -> str:
    return next((value for key in keys if isinstance(value := table.get(key), str) and value), "")


def _lines(text: str) -> list[str]:
    return [line for raw in text.splitlines() if sum(map(str.isalnum, line := _plain(raw))) >= 3]


def _plain(line: str) -> str:
    return line.strip()
