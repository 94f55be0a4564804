"""Remove Clawback's hooks from agents' settings: ``python3 remove-hooks.py HOME``.

A copy of this file is kept beside the program that the hooks run, in case Clawback itself has been removed:
it imports nothing of ours.
"""

import json
import sys
from pathlib import Path
from typing import Any

MARKS = ("clawback-hook", "clawback.capture.hook")
"""Every command of ours holds one of these, and nobody else's does (the second: of versions before 0.2)."""
PAGE = b"Clawback's hook answers `/rl`"


def is_ours(entry: Any) -> bool:
    return isinstance(entry, dict) and any(mark in str(entry.get("command", "")) for mark in MARKS)


def without_hooks(settings: dict[str, Any]) -> dict[str, Any]:
    """The same settings without our hooks, and without the groups and events that contained only them."""
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
        if groups or not hooks[event]:
            hooks[event] = groups
        else:
            del hooks[event]
    return settings


def _without_plugin(settings: dict[str, Any]) -> dict[str, Any]:
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


def _rest(path: Path, now: bytes) -> bytes:
    """What the file holds without us."""
    if path.suffix == ".toml":
        lines = now.splitlines(keepends=True)
        return b"".join(x for x in lines if not (x.startswith(b"notify") and MARKS[0].encode() in x))
    settings = json.loads(now)
    if is_ours(settings.get("statusLine")):
        del settings["statusLine"]
    rest = _without_plugin(without_hooks(settings))
    return (json.dumps(rest, indent=2, ensure_ascii=False) + "\n").encode()


def main(home: Path) -> int:
    """Restore the files that nobody else has changed; from others remove only our part."""
    import hashlib  # brings OpenSSL along, and hooks import this file for the rest of it

    problems = 0
    for record in sorted((home / "installed").glob("*.json")):
        try:
            kept = json.loads(record.read_bytes())
            path, before = Path(kept["settings"]), kept["before"]
            now = path.read_bytes() if path.exists() else None
            if now is not None and hashlib.sha256(now).hexdigest() == kept["after"]:
                if before is None:
                    path.unlink()
                else:
                    path.write_bytes(bytes.fromhex(before))
            elif now is not None:
                path.write_bytes(_rest(path, now))
            page = path.parent / "commands" / "rl.md"
            if page.exists() and PAGE in page.read_bytes():
                page.unlink()
            record.unlink()
            print(f"taken out of {path}")
        except (OSError, ValueError, KeyError, TypeError) as error:
            problems = 1
            print(f"{record}: {error}. Delete what names clawback-hook by hand.", file=sys.stderr)
    return problems


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1])))
