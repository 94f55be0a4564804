"""Claude Code: put the hooks into its settings, take exactly them out again, and say how they are.

What the file held before is kept byte for byte under ``$CLAWBACK_HOME/installed/``. Untouched since, it is put back
as it was; changed since, only our entries are taken out.
"""

from __future__ import annotations

import hashlib
import json
import os
import shlex
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from clawback.errors import ConfigError
from clawback.paths import Home

EVENTS = ("UserPromptSubmit", "Stop", "SubagentStop")
TIMEOUT_SECONDS = 10
MARK = "clawback.capture.hook"
"""What every command of ours holds, and nobody else's does."""

COMMAND_PAGE = """\
---
description: Rate the last response (good, bad, rate 1-10, note, undo, status)
argument-hint: good | bad | rate N | note TEXT | undo | status
---
Clawback's hook answers `/rl` before a model is asked. If you can read this, the hook is not installed or is switched
off: tell the person to run `clawback doctor`, and do nothing else.
"""


@dataclass(frozen=True, slots=True)
class State:
    """Whether our hooks are in the settings, and what is wrong with them ("" when nothing is)."""

    installed: bool
    settings: Path
    problem: str = ""


def settings_path(named: Path | None = None) -> Path:
    """The settings file that is meant: the named one, or Claude Code's own place for it. Links are followed."""
    if named is None:
        folder = os.environ.get("CLAUDE_CONFIG_DIR")
        named = (Path(folder) if folder else Path.home() / ".claude") / "settings.json"
    return named.expanduser().resolve()


def hook_command(home: Home) -> str:
    """What Claude Code runs on each event.

    ``-I``: the agent runs in any folder, and a file of that folder (``json.py``) must not be imported by us.
    """
    return shlex.join([sys.executable, "-I", "-m", MARK, "claude-code", "--home", str(home.root.resolve())])


def plan(home: Home, named: Path | None = None) -> str:
    """What ``install`` will change, for a person to read first."""
    path = settings_path(named)
    lines = [f"  {path}: hooks for {', '.join(EVENTS)}, which run", f"    {hook_command(home)}"]
    return "\n".join([*lines, f"  {_page(path)}: the /rl command"])


def install(home: Home, named: Path | None = None) -> list[Path]:
    """Merge our hooks into the settings and add the ``/rl`` command; returns the files that changed.

    Again changes nothing; hooks of ours from an older place are replaced. Raises ``ConfigError`` when the settings
    are no JSON object, and leaves them alone.
    """
    path = settings_path(named)
    before = path.read_bytes() if path.exists() else None
    settings = _without_ours(_parse(path, before))
    hooks = settings.setdefault("hooks", {})
    entry = {"type": "command", "command": hook_command(home), "timeout": TIMEOUT_SECONDS}
    for event in EVENTS:
        hooks.setdefault(event, []).append({"hooks": [entry]})
    changed = []
    after = _text(settings, before)
    if after != before:
        _remember(home, path, before, after)
        _replace(path, after)
        changed.append(path)
    page = _page(path)
    if not page.exists():
        page.parent.mkdir(parents=True, exist_ok=True)
        _replace(page, COMMAND_PAGE.encode())
        changed.append(page)
    return changed


def uninstall(home: Home, named: Path | None = None) -> list[Path]:
    """Take out what ``install`` put in; returns the files that changed. Twice changes nothing more."""
    changed = []
    for path in [settings_path(named)] if named else _known(home) or [settings_path()]:
        page = _page(path)
        if page.exists() and page.read_bytes() == COMMAND_PAGE.encode():
            page.unlink()
            if not any(page.parent.iterdir()):
                page.parent.rmdir()
            changed.append(page)
        if path.exists() and _take_out(home, path):
            changed.append(path)
        _record(home, path).unlink(missing_ok=True)
    return changed


def _take_out(home: Home, path: Path) -> bool:
    """Put the settings back as they were, or, changed since, without our entries."""
    now = path.read_bytes()
    record = _read_record(home, path)
    if record and record["after"] == _sha(now):
        if record["before"] is None:
            path.unlink()
        else:
            _replace(path, bytes.fromhex(record["before"]))
        return True
    settings = _parse(path, now)
    rest = _without_ours(json.loads(json.dumps(settings)))
    if rest == settings:
        return False
    _replace(path, _text(rest, now))
    return True


def status(home: Home, named: Path | None = None) -> State:
    """Are our hooks in place, and would they run?"""
    path = settings_path(named) if named else next(iter(_known(home)), settings_path())
    if not path.exists():
        return State(False, path)
    commands = _our_commands(_parse(path, path.read_bytes()))
    if not commands:
        return State(False, path)
    missing = [event for event in EVENTS if event not in commands]
    if missing:
        return State(True, path, f"{path} lacks the hooks for {', '.join(missing)}")
    for command in commands.values():
        program = shlex.split(command)[0]
        if not Path(program).exists():
            return State(True, path, f"the hooks in {path} run {program}, which is gone")
    return State(True, path)


# ------------------------------------------------------------------------------------------------- the JSON file


def _parse(path: Path, data: bytes | None) -> dict[str, Any]:
    try:
        settings = json.loads(data) if data and data.strip() else {}
    except ValueError as error:
        raise ConfigError(
            f"{path} is not valid JSON ({error}), so it was left alone. Correct it and try again."
        ) from error
    hooks = settings.get("hooks", {}) if isinstance(settings, dict) else None
    if not isinstance(hooks, dict) or not all(isinstance(hooks.get(event, []), list) for event in EVENTS):
        raise ConfigError(f"{path} does not look like Claude Code's settings, so it was left alone.")
    return settings


def _text(settings: dict[str, Any], before: bytes | None) -> bytes:
    """JSON in the indentation that the file had."""
    lines = (before or b"").splitlines()
    second = next((line for line in lines[1:] if line.strip()), b"  ")
    indent: int | str = "\t" if second.startswith(b"\t") else (len(second) - len(second.lstrip(b" "))) or 2
    end = "\n" if not before or before.endswith(b"\n") else ""
    return (json.dumps(settings, indent=indent, ensure_ascii=False) + end).encode()


def _is_ours(entry: Any) -> bool:
    return isinstance(entry, dict) and MARK in str(entry.get("command", ""))


def _without_ours(settings: dict[str, Any]) -> dict[str, Any]:
    """The same settings, our hooks left out, and with them the groups and events that held nothing else."""
    hooks = settings.get("hooks", {})
    for event in list(hooks):
        if not isinstance(hooks[event], list):
            continue
        groups = []
        for group in hooks[event]:
            inner = group.get("hooks") if isinstance(group, dict) else None
            if isinstance(inner, list) and any(_is_ours(h) for h in inner):
                inner = [h for h in inner if not _is_ours(h)]
                group = {**group, "hooks": inner}
                if not inner:
                    continue
            groups.append(group)
        if groups or not hooks[event]:
            hooks[event] = groups
        else:
            del hooks[event]
    return settings


def _our_commands(settings: dict[str, Any]) -> dict[str, str]:
    """Event → the command of ours that it runs."""
    found = {}
    for event, groups in settings.get("hooks", {}).items():
        for group in groups if isinstance(groups, list) else []:
            for hook in group.get("hooks", []) if isinstance(group, dict) else []:
                if _is_ours(hook):
                    found[event] = str(hook["command"])
    return found


# ------------------------------------------------------------------------------------------ what was there before


def _record(home: Home, path: Path) -> Path:
    return home.root / "installed" / f"claude-code-{_sha(str(path).encode())[:12]}.json"


def _remember(home: Home, path: Path, before: bytes | None, after: bytes) -> None:
    """Keep the file as it was before the *first* install, for as long as only we change it."""
    record = _read_record(home, path)
    if record and record["after"] == _sha(before or b""):
        original = record["before"]
    else:
        original = None if before is None else before.hex()
    file = _record(home, path)
    file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    data = {"settings": str(path), "before": original, "after": _sha(after)}
    _replace(file, json.dumps(data).encode(), mode=0o600)


def _read_record(home: Home, path: Path) -> dict[str, Any] | None:
    try:
        record: dict[str, Any] = json.loads(_record(home, path).read_bytes())
    except (OSError, ValueError):
        return None
    return record


def _known(home: Home) -> list[Path]:
    """Every settings file that we put hooks into."""
    records = sorted((home.root / "installed").glob("claude-code-*.json"))
    return [Path(json.loads(r.read_bytes())["settings"]) for r in records]


def _page(path: Path) -> Path:
    return path.parent / "commands" / "rl.md"


def _sha(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def _replace(path: Path, data: bytes, mode: int | None = None) -> None:
    """Write beside, sync, rename: the file is the old one or the new one, never half of either."""
    path.parent.mkdir(parents=True, exist_ok=True)
    if mode is None:
        mode = path.stat().st_mode & 0o777 if path.exists() else 0o600
    beside = path.with_name(f".{path.name}.clawback")
    with os.fdopen(os.open(beside, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, mode), "wb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())
    beside.replace(path)
