"""Real agents from npm, each in a throwaway home and a network namespace that holds loopback alone."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

CLAUDE_CODE = "2.1.330"
CODEX = "0.169.0"
GEMINI_CLI = "0.61.0"
OPENCLAW = "2026.9.6"
OPENCODE = "1.18.33"
HERMES = "0.19.0"
NODE = "24"
"""OpenClaw wants a newer Node.js than most machines have: it comes from npm, too."""
CACHE = Path(os.environ.get("CLAWBACK_TEST_CACHE", Path(__file__).parents[2] / ".venv" / "agents"))
"""Where agents are installed once and kept (under .venv, so that `make clean` takes them too)."""


def claude_code() -> Path:
    """The program, installed from npm on the first use; skips with a reason where that is not possible."""
    return _from_npm("claude-code", "@anthropic-ai/claude-code", CLAUDE_CODE, "claude")


def codex() -> Path:
    """The same for Codex."""
    return _from_npm("codex", "@openai/codex", CODEX, "codex")


def gemini_cli() -> Path:
    return _from_npm("gemini-cli", "@google/gemini-cli", GEMINI_CLI, "gemini")


def opencode() -> Path:
    """With the package that its plugins are written against: it would fetch that itself, and waits for it."""
    return _from_npm(
        "opencode", "opencode-ai", OPENCODE, "opencode", also=[f"@opencode-ai/plugin@{OPENCODE}"]
    )


def hermes() -> Path:
    """Hermes Agent from PyPI, in an environment of its own."""
    program = CACHE / f"hermes-{HERMES}" / "bin" / "hermes"
    if not program.exists():
        subprocess.run([sys.executable, "-m", "venv", str(program.parents[1])], check=True)
        command = [str(program.with_name("pip")), "install", "--quiet", f"hermes-agent=={HERMES}"]
        done = subprocess.run(command, capture_output=True, text=True, timeout=400, check=False)
        if done.returncode:
            pytest.skip(f"pip could not install hermes-agent: {done.stderr.strip().splitlines()[-1:]}")
    return program


def openclaw() -> tuple[Path, Path]:
    """OpenClaw, and the folder of the Node.js that it runs on."""
    node = _from_npm("node", "node", NODE, "node").resolve().parent
    return _from_npm("openclaw", "openclaw", OPENCLAW, "openclaw", node), node


def _from_npm(
    name: str, package: str, version: str, command: str, node: Path | None = None, also: Sequence[str] = ()
) -> Path:
    """``node``: the folder of the Node.js that the package wants for its installation. ``also``: further packages."""
    program = CACHE / f"{name}-{version}" / "node_modules" / ".bin" / command
    if not program.exists():
        if not shutil.which("npm"):
            pytest.skip(f"npm is not installed, so there is no real {name} to test with")
        folder = program.parents[2]
        folder.mkdir(parents=True, exist_ok=True)
        options, environment = ["--no-audit", "--no-fund"], dict(os.environ)
        if node:
            # Another Node.js has another prefix, and npm would no longer read the machine's own settings.
            asked = ["npm", "config", "get", "globalconfig"]
            options += [
                "--globalconfig",
                subprocess.run(asked, capture_output=True, text=True).stdout.strip(),
            ]
            environment["PATH"] = f"{node}:{environment['PATH']}"
        try:
            done = subprocess.run(
                ["npm", *options, "install", f"{package}@{version}", *also],
                cwd=folder,
                env=environment,
                capture_output=True,
                text=True,
                timeout=400,
            )
        except subprocess.TimeoutExpired:
            pytest.skip(f"npm took too long to install {package}")
        if done.returncode:
            pytest.skip(f"npm could not install {package}: {done.stderr.strip().splitlines()[-1:]}")
    return program


def on_loopback(script: Path, *arguments: str, timeout: float) -> dict[str, Any]:
    """Run a Python script where only loopback exists; the last line that it prints is a JSON object."""
    if not (shutil.which("unshare") and shutil.which("ip")):
        pytest.skip(
            "unshare and ip (util-linux, iproute2) are needed to shut the agent off from the internet"
        )
    namespace = ["unshare", "-n"] if os.geteuid() == 0 else ["unshare", "-rn"]
    if subprocess.run([*namespace, "true"], capture_output=True).returncode:
        pytest.skip("this machine does not let us make a network namespace")
    inner = [sys.executable, str(script), *arguments]
    done = subprocess.run(
        [*namespace, "sh", "-c", 'ip link set lo up && exec "$@"', "_", *inner],
        capture_output=True,
        text=True,
        timeout=timeout,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
    )
    assert done.returncode == 0, f"{script.name} failed:\n{done.stdout[-3000:]}\n{done.stderr[-6000:]}"
    result: dict[str, Any] = json.loads(done.stdout.strip().splitlines()[-1])
    return result


def soon(what: str, true: Callable[[], Any], seconds: float = 240) -> Any:
    """Other processes do it, so it is looked for until it is so."""
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        if found := true():
            return found
        time.sleep(0.2)
    raise AssertionError(f"not within {seconds:g} s: {what}")


def claude_environment(home: Path, url: str, clawback_home: Path) -> dict[str, str]:
    """A cleaned environment: nothing of the caller's but PATH, every known switch for outside traffic off."""
    return {
        "PATH": os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]]),
        "HOME": str(home),
        "TERM": "xterm",
        "LANG": "C.UTF-8",
        "XDG_CONFIG_HOME": str(home / ".config"),
        "XDG_CACHE_HOME": str(home / ".cache"),
        "XDG_DATA_HOME": str(home / ".local/share"),
        "XDG_STATE_HOME": str(home / ".local/state"),
        "CLAUDE_CONFIG_DIR": str(home / ".claude"),
        "CLAWBACK_HOME": str(clawback_home),
        "ANTHROPIC_BASE_URL": url,
        "ANTHROPIC_API_KEY": "dummy-key",
        "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1",
        "DISABLE_TELEMETRY": "1",
        "DISABLE_AUTOUPDATER": "1",
        "DISABLE_ERROR_REPORTING": "1",
        # A bare interpreter finds Clawback as this one does (an editable install needs no help).
        "PYTHONPATH": os.pathsep.join(p for p in sys.path if p.endswith("src")),
    }
