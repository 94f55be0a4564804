"""Keeps ``clawback serve`` running: a systemd user unit, or a launchd agent. The server starts training on schedule by itself."""

from __future__ import annotations

import os
import plistlib
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

from clawback.errors import ClawbackError
from clawback.files import replace
from clawback.paths import Home

LABEL = "ai.clawback.serve"
UNIT = "clawback.service"
SECONDS = 20

_UNIT = """\
[Unit]
Description=Clawback answers agents, records their turns and learns from ratings

[Service]
ExecStart={command}
Environment={environment}
Restart=on-failure
RestartSec=5
Nice=5
NoNewPrivileges=true

[Install]
WantedBy=default.target
"""


@dataclass(frozen=True, slots=True)
class ServiceState:
    installed: bool
    running: bool
    file: Path
    note: str = ""
    """What the service manager says, where that is no plain yes."""


def available() -> bool:
    """Is there something that keeps programs running?"""
    return shutil.which("launchctl" if sys.platform == "darwin" else "systemctl") is not None


def file() -> Path:
    if sys.platform == "darwin":
        return Path.home() / "Library" / "LaunchAgents" / f"{LABEL}.plist"
    folder = os.environ.get("XDG_CONFIG_HOME")
    return (Path(folder) if folder else Path.home() / ".config") / "systemd" / "user" / UNIT


def text(home: Home) -> bytes:
    """The whole file, for the service manager of this system."""
    command = [sys.executable, "-m", "clawback", "serve"]
    if sys.platform == "darwin":
        return plistlib.dumps(
            {
                "Label": LABEL,
                "ProgramArguments": command,
                "EnvironmentVariables": {"CLAWBACK_HOME": str(home.root.resolve())},
                "RunAtLoad": True,
                "KeepAlive": {"SuccessfulExit": False},
                "ProcessType": "Background",
                "Nice": 5,
            }
        )
    environment = quoted(f"CLAWBACK_HOME={home.root.resolve()}", dollar="$")
    return _UNIT.format(command=" ".join(map(quoted, command)), environment=environment).encode()


def quoted(word: str, dollar: str = "$$") -> str:
    """One word as systemd reads it: in quotes, with what it would expand doubled (``$`` in commands alone)."""
    word = word.replace("\\", "\\\\").replace('"', '\\"').replace("%", "%%").replace("$", dollar)
    return f'"{word}"'


def plan(home: Home) -> list[str]:
    return [f"{file()}: keeps `clawback serve` running with {home.root.resolve()}"]


def install(home: Home) -> list[Path]:
    """Write the file and start it now and at every login; the files that changed.

    Raises ``ClawbackError`` where the service manager refuses, with its own words; the file then stays, so that it can be tried by hand.
    """
    path, made = file(), text(home)
    changed = not path.exists() or path.read_bytes() != made
    if changed:
        replace(path, made, mode=0o644)
    if sys.platform == "darwin":
        domain = f"gui/{os.getuid()}"
        if changed:
            _call(["launchctl", "bootout", f"{domain}/{LABEL}"])
        steps = [["launchctl", "bootstrap", domain, str(path)]] if changed else []
    else:
        steps = [["systemctl", "--user", "daemon-reload"], ["systemctl", "--user", "enable", "--now", UNIT]]
        steps += [["systemctl", "--user", "restart", UNIT]] if changed else []
    for step in steps:
        if why := _call(step):
            raise ClawbackError(f"{path} is written, but `{' '.join(step)}` failed: {why}")
    return [path] if changed else []


def uninstall(home: Home) -> list[Path]:  # noqa: ARG001
    """Stop it and take the file away; the files that changed. Where there is none nothing happens."""
    path = file()
    if not path.exists():
        return []
    if sys.platform == "darwin":
        _call(["launchctl", "bootout", f"gui/{os.getuid()}/{LABEL}"])
    else:
        _call(["systemctl", "--user", "disable", "--now", UNIT])
    path.unlink()
    if sys.platform != "darwin":
        _call(["systemctl", "--user", "daemon-reload"])
    return [path]


def status(home: Home) -> ServiceState:
    path = file()
    if not path.exists():
        return ServiceState(False, False, path)
    asked = (
        ["launchctl", "print", f"gui/{os.getuid()}/{LABEL}"]
        if sys.platform == "darwin"
        else ["systemctl", "--user", "is-active", "--quiet", UNIT]
    )
    why = _call(asked)
    stale = (
        ""
        if path.read_bytes() == text(home)
        else "the file is of another home or Python: `clawback connect service install` renews it"
    )
    return ServiceState(True, why == "", path, stale or why)


def _call(command: list[str]) -> str:
    """What the service manager complains of; "" when it does not."""
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=SECONDS, check=False)
    except FileNotFoundError:
        return f"{command[0]} is not on this machine"
    except subprocess.TimeoutExpired:
        return f"no answer within {SECONDS} seconds"
    if done.returncode == 0:
        return ""
    return (done.stderr or done.stdout).strip() or f"exit code {done.returncode}"
