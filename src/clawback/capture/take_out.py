"""Remove Clawback's hooks from agents' settings: ``python3 remove-hooks.py HOME``.

A copy of this file is kept beside the program that the hooks run, in case Clawback itself has been removed:
it imports nothing of ours.
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from clawback.records import JsonObject


MARKS = ("clawback-hook", "clawback.capture.hook")
"""Every command of ours holds one of these, and nobody else's does (the second: of versions before 0.2)."""
PAGE = b"Clawback's hook answers `/rl`"


def is_ours(entry: object) -> bool:
    return isinstance(entry, dict) and any(mark in str(entry.get("command", "")) for mark in MARKS)


def without_hooks(settings: JsonObject) -> JsonObject:
    """The same settings without our hooks, and without the groups that contained only them."""
    hooks = settings.get("hooks", {})
    for event in list(hooks) if isinstance(hooks, dict) else []:
        if not isinstance(hooks[event], list):
            continue
        groups = []
        for group in hooks[event]:
            inner = group.get("hooks") if isinstance(group, dict) else None
            if isinstance(inner, list) and any(is_ours(h) for h in inner):
                inner = [h for h in inner if not is_ours(h)]
                group = {**group, "hooks": inner}
                if not inner:
                    continue
            groups.append(group)
        hooks[event] = groups
    return settings


def without_plugin(settings: JsonObject) -> JsonObject:
    """OpenClaw's settings without our plugin."""
    plugins = settings.get("plugins")
    if isinstance(plugins, dict):
        if isinstance(plugins.get("entries"), dict):
            plugins["entries"].pop("clawback", None)
        load = plugins.get("load")
        if isinstance(load, dict) and isinstance(load.get("paths"), list):
            load["paths"] = [
                p for p in load["paths"] if Path(str(p)).parts[-2:] != ("integrations", "openclaw")
            ]
        if isinstance(plugins.get("allow"), list):
            plugins["allow"] = [name for name in plugins["allow"] if name != "clawback"]
    return settings


def json_text(settings: JsonObject, original: bytes | None) -> bytes:
    """JSON in the indentation that the file had."""
    lines = (original or b"").splitlines()
    second = next((line for line in lines[1:] if line.strip()), b"  ")
    indent: int | str = "\t" if second.startswith(b"\t") else (len(second) - len(second.lstrip(b" "))) or 2
    end = "\n" if not original or original.endswith(b"\n") else ""
    return (json.dumps(settings, indent=indent, ensure_ascii=False) + end).encode()


def restored(now: bytes, former: bytes | None, remove: Callable[[JsonObject], Any]) -> bytes | None:
    """Settings without what ``remove`` takes out of them. If nobody else has changed what they say: as they were, byte for byte.

    Args:
        before: what the file held before us; None if there was none, and None is then what to leave.
        remove: takes our part out of the object that it is given.
    """
    settings, rest = json.loads(now), json.loads(now)
    original = json.loads(former) if former and former.strip() else {}
    remove(rest)
    if rest == settings:
        return now
    _drop_emptied(rest, settings, original)
    return former if rest == original else json_text(rest, now)


def _drop_emptied(rest: JsonObject, now: JsonObject, original: object) -> None:
    """Remove lists and tables that held nothing but our part, if they were not there before us."""
    known = original if isinstance(original, dict) else {}
    for key in [key for key in rest if rest[key] != now[key]]:
        if isinstance(rest[key], dict):
            _drop_emptied(rest[key], now[key], known.get(key))
        if rest[key] in ([], {}) and key not in known:
            del rest[key]


def without_listed(now: bytes) -> bytes:
    """Hermes Agent's settings without our plugin in the list ``plugins.enabled``. Every other line stays."""
    lines, inside = [], ""
    for line in now.decode("utf-8", "surrogateescape").splitlines(keepends=True):
        body = line.strip()
        if body and not line[0].isspace() and not body.startswith(("#", "-")):
            inside = "plugins" if body.startswith("plugins:") else ""
        elif inside and body.startswith("enabled:"):
            inside = "enabled"
            line = re.sub(
                r"\[\s*clawback\s*(?:,\s*)?|,\s*clawback(?=\s*[,\]])",
                lambda m: "[" if m[0][0] == "[" else "",
                line,
            )
        elif inside and body.endswith(":") and not body.startswith("-"):
            inside = "plugins"
        if inside == "enabled" and re.fullmatch(r"-\s+(['\"]?)clawback\1(?:\s+#.*)?", body):
            continue
        lines.append(line)
    return "".join(lines).encode("utf-8", "surrogateescape")


def remove_folder(folder: Path) -> None:
    """Remove a folder that holds nothing, or nothing but what Python compiled."""
    cache = folder / "__pycache__"
    if (
        folder.is_dir()
        and list(folder.iterdir()) == [cache]
        and all(p.suffix == ".pyc" for p in cache.iterdir())
    ):
        for compiled in cache.iterdir():
            compiled.unlink()
        cache.rmdir()
    if folder.is_dir() and not any(folder.iterdir()):
        folder.rmdir()


def _without_us(settings: JsonObject) -> None:
    if is_ours(settings.get("statusLine")):
        del settings["statusLine"]
    without_plugin(without_hooks(settings))


def _rest(path: Path, now: bytes, original: bytes | None) -> bytes | None:
    """What the file holds without us; None: it was not there."""
    if path.suffix == ".toml":
        lines = now.splitlines(keepends=True)
        return b"".join(x for x in lines if not (x.startswith(b"notify") and MARKS[0].encode() in x))
    if path.suffix == ".yaml" and original is not None:
        return without_listed(now)
    if original is None and path.suffix in (".js", ".py", ".md", ".yaml"):
        return None  # a file of a plugin of ours
    return restored(now, original, _without_us)


def main(home: Path) -> int:
    """Restore the files that nobody else has changed; from others remove only our part."""
    import hashlib  # brings OpenSSL along, and hooks import this file for the rest of it

    problems = 0
    folders: list[Path] = []
    for record in sorted((home / "installed").glob("*.json")):
        try:
            kept = json.loads(record.read_bytes())
            path, before = Path(kept["settings"]), kept["before"]
            before = None if before is None else bytes.fromhex(before)
            if path.exists():
                now = path.read_bytes()
                rest = (
                    before if hashlib.sha256(now).hexdigest() == kept["after"] else _rest(path, now, before)
                )
                if rest is None:
                    path.unlink()
                else:
                    path.write_bytes(rest)
            page = path.parent / "commands" / "rl.md"
            if page.exists() and PAGE in page.read_bytes():
                page.unlink()
                if not any(page.parent.iterdir()):
                    page.parent.rmdir()
            folders += map(Path, kept.get("folders", []))
            record.unlink()
            print(f"taken out of {path}")
        except (OSError, ValueError, KeyError, TypeError) as error:
            problems = 1
            print(f"{record}: {error}. Delete what names clawback-hook by hand.", file=sys.stderr)
    for folder in sorted(folders, key=lambda folder: -len(folder.parts)):
        remove_folder(folder)
    return problems


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1])))
