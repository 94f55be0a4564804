"""macOS's own sandbox, by the profile language that ``sandbox-exec`` reads."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

_SYSTEM = (
    "/System",
    "/Library",
    "/private/etc/ssl",
    "/private/var/select",
    "/dev",
    "/opt/homebrew",
    "/usr/local",
)


def profile(readable: Sequence[str], writable: Sequence[str]) -> str:
    """Everything is denied but what is named: programs and libraries to read, the box's folders to write."""
    shown = [*_SYSTEM, *(str(Path(path).resolve()) for path in readable if Path(path).exists())]
    own = [str(Path(path).resolve()) for path in writable]
    lines = [
        "(version 1)",
        "(deny default)",
        "(allow process-fork)",
        "(allow process-exec)",
        "(allow signal (target same-sandbox))",
        "(allow sysctl-read)",
        '(allow file-read-metadata (subpath "/"))',
        '(allow file-read* (literal "/"))',
        *(f"(allow file-read* (subpath {json.dumps(path, ensure_ascii=False)}))" for path in (*shown, *own)),
        *(f"(allow file-write* (subpath {json.dumps(path, ensure_ascii=False)}))" for path in own),
        *(f'(allow file-write* (literal "/dev/{name}"))' for name in ("null", "zero", "tty")),
        "(deny network*)",
    ]
    return "\n".join(lines)
