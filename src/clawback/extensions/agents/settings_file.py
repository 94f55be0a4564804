"""Changes to other programs' settings files: written in one rename, and restored byte for byte.

The previous content of a file is kept under ``$CLAWBACK_HOME/installed/``. If nobody else has changed the
file since, it is restored as it was; otherwise the caller must take out only what is ours.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from clawback.capture.take_out import json_text as json_text
from clawback.capture.take_out import remove_folder, restored
from clawback.errors import ConfigError
from clawback.files import replace
from clawback.paths import Home

if TYPE_CHECKING:
    from clawback.records import JsonObject


def read_json(path: Path, data: bytes | None) -> JsonObject:
    """Raises ``ConfigError`` for what is no JSON object; an absent or empty file is an empty one."""
    try:
        settings = json.loads(data) if data and data.strip() else {}
    except (ValueError, RecursionError) as error:
        raise ConfigError(
            f"{path} is not valid JSON ({error}), so it was left alone. Correct it and try again."
        ) from error
    if not isinstance(settings, dict):
        raise ConfigError(f"{path} is no JSON object, so it was left alone.")
    return settings


def change(home: Home, agent: str, path: Path, after: bytes) -> bool:
    """Write the file, keeping what it held before the *first* change, for as long as only we change it. False: it is so already."""
    before = path.read_bytes() if path.exists() else None
    if after == before:
        return False
    record = _read_record(home, agent, path)
    if record and record["after"] == _sha(before or b""):
        original = record["before"]
    else:
        original = None if before is None else before.hex()
    folders = record["folders"] if record and "folders" in record else _missing_folders(path)
    file = _record(home, agent, path)
    file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    data = {"settings": str(path), "before": original, "after": _sha(after), "folders": folders}
    replace(file, json.dumps(data).encode(), mode=0o600)
    replace(path, after)
    return True


def put_back(home: Home, agent: str, path: Path) -> bool:
    """Restore the file as it was before us. False: somebody has changed it since."""
    record = _read_record(home, agent, path)
    if record is None or not path.exists() or record["after"] != _sha(path.read_bytes()):
        return False
    _leave(path, _original_bytes(record))
    return True


def take_out(home: Home, agent: str, path: Path, remove: Callable[[JsonObject], Any]) -> bool:
    """Take out of JSON settings what ``remove`` takes out of an object that it is given. False: there is nothing of ours in it.

    A file that says the same as before us, whoever has written it since, holds the same bytes afterwards.
    """
    if put_back(home, agent, path):
        return True
    now = path.read_bytes()
    read_json(path, now)
    record = _read_record(home, agent, path)
    rest = restored(now, _original_bytes(record) if record else b"{}", remove)
    if rest == now:
        return False
    _leave(path, rest)
    return True


def forget(home: Home, agent: str, path: Path) -> None:
    """Remove what was kept, and the folders that were made for the file and hold nothing else."""
    record = _read_record(home, agent, path) or {}
    for folder in record.get("folders", []):
        remove_folder(Path(folder))
    _record(home, agent, path).unlink(missing_ok=True)


def _original_bytes(record: JsonObject) -> bytes | None:
    return None if record["before"] is None else bytes.fromhex(record["before"])


def _leave(path: Path, content: bytes | None) -> None:
    if content is None:
        path.unlink()
    else:
        replace(path, content)


def known(home: Home, agent: str) -> list[Path]:
    """Every file of that agent that we changed and have not restored."""
    records = sorted((home.root / "installed").glob(f"{agent}-*.json"))
    return [Path(json.loads(r.read_bytes())["settings"]) for r in records]


def add_file(path: Path, content: bytes) -> bool:
    """A file of our own beside the settings. False: there is one already, ours or somebody's."""
    if path.exists():
        return False
    replace(path, content)
    return True


def remove_file(path: Path, content: bytes) -> bool:
    """Remove it if it is still ours, and its folder if that is then empty."""
    if not path.exists() or path.read_bytes() != content:
        return False
    path.unlink()
    if not any(path.parent.iterdir()):
        path.parent.rmdir()
    return True


def _missing_folders(path: Path) -> list[str]:
    """The folders that the file needs and that are not there, innermost first."""
    return [str(folder) for folder in path.parents if not folder.exists()]


def _record(home: Home, agent: str, path: Path) -> Path:
    return home.root / "installed" / f"{agent}-{_sha(str(path).encode())[:12]}.json"


def _read_record(home: Home, agent: str, path: Path) -> JsonObject | None:
    try:
        record: JsonObject = json.loads(_record(home, agent, path).read_bytes())
    except (OSError, ValueError):
        return None
    return record


def _sha(data: bytes) -> str:
    import hashlib

    return hashlib.sha256(data).hexdigest()
