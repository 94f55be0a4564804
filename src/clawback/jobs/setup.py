"""What ``clawback init`` does: look at the machine, propose, say what will change, change it, take it out again."""

from __future__ import annotations

import shutil
import urllib.error
import urllib.request
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from clawback import config
from clawback.capture import adapter
from clawback.errors import UsageError
from clawback.jobs import service
from clawback.paths import Home

SERVERS = {
    "Ollama": "http://127.0.0.1:11434",
    "vLLM": "http://127.0.0.1:8000",
    "llama.cpp": "http://127.0.0.1:8080",
    "LM Studio": "http://127.0.0.1:1234",
}
"""Inference servers and where they listen unless told otherwise."""
LOOK_SECONDS = 0.5


@dataclass(frozen=True, slots=True)
class Seen:
    """What is on this machine."""

    agents: list[str]
    servers: dict[str, str]
    """Name → address of inference servers that answer."""
    memory: int
    """Bytes in all."""
    gpu: str
    """What the card is called; "" for none that can be trained on."""
    training: bool
    """Are the parts that training needs installed?"""
    service: bool
    """Is there something that keeps programs running (systemd for users, launchd)?"""


@dataclass(frozen=True, slots=True)
class Proposal:
    agents: list[str]
    model: str
    preset: str
    upstream: str
    service: bool


def look() -> Seen:
    """Reads no agent's settings and starts nothing; asks well-known ports on this machine."""
    import importlib.util

    import psutil

    found = [name for name in adapter.names() if adapter.find(name).found()]
    servers = {name: url for name, url in SERVERS.items() if _answers(url)}
    training = all(importlib.util.find_spec(part) for part in ("torch", "transformers", "peft"))
    total = int(psutil.virtual_memory().total)
    return Seen(found, servers, total, _gpu(), training, service.available())


def describe(seen: Seen) -> str:
    agents = ", ".join(adapter.find(name).title for name in seen.agents) or "none that we know"
    servers = ", ".join(f"{name} ({url})" for name, url in seen.servers.items()) or "none"
    lines = [
        f"Agents            {agents}",
        f"Inference servers {servers}",
        f"Memory            {seen.memory / 1e9:.0f} GB"
        + (f", {seen.gpu}" if seen.gpu else ", no graphics card to train on"),
    ]
    if not seen.training:
        lines.append('Training          not installed: pip install "clawback[train]"')
    return "\n".join(lines)


def propose(
    seen: Seen,
    agents: Sequence[str],
    model: str | None,
    preset: str | None,
    upstream: str | None,
    keep_running: bool | None,
) -> Proposal:
    """What was named, else what fits what was seen. Raises ``UsageError`` for an agent that nobody knows."""
    chosen = [name for name in agents if name != "none"] if agents else list(seen.agents)
    for name in chosen:
        adapter.find(name)
    return Proposal(
        chosen, model or config.EMBEDDED, preset or "balanced", upstream or "", bool(keep_running)
    )


def plan(home: Home, proposed: Proposal, settings: Path | None = None) -> list[str]:
    """Every file that will be written, a line each."""
    lines = [f"{home.config}: model {proposed.model}, preset {proposed.preset}"]
    if proposed.upstream:
        lines[0] += f", upstream {proposed.upstream}"
    for name in proposed.agents:
        lines += adapter.find(name).plan(home, settings)
    if proposed.service:
        lines += service.plan(home)
    return lines


def carry_out(home: Home, proposed: Proposal, settings: Path | None = None) -> tuple[list[Path], list[str]]:
    """Do it; the files that changed, and what the person should know. Raises ``ConfigError`` before anything is half done."""
    for name in proposed.agents:
        adapter.find(name).status(
            home, settings
        )  # settings that cannot be read stop us here, before any is changed
    changes: dict[str, dict[str, object]] = {
        "model": {"base": proposed.model},
        "training": {"preset": proposed.preset},
    }
    if proposed.upstream:
        if not proposed.upstream.startswith(("http://", "https://")):
            raise UsageError(
                f"The upstream {proposed.upstream!r} is no address: it begins with http:// or https://."
            )
        changes["serve"] = {"upstream": proposed.upstream}
    before = home.config.read_bytes() if home.config.exists() else None
    config.save(home.config, changes)
    changed = [home.config] if home.config.read_bytes() != before else []
    notes = []
    for name in proposed.agents:
        agent = adapter.find(name)
        changed += agent.install(home, settings)
        notes.append(f"{agent.title}: rate with {agent.usage}.")
        if problem := agent.status(home, settings).problem:
            notes.append(f"{agent.title}: {problem}.")
    if proposed.service:
        changed += service.install(home)
    notes.append(
        "In any terminal: `clawback good` or `clawback bad`. `clawback doctor` says whether all is well."
    )
    return changed, notes


def take_out(home: Home, agents: Sequence[str] = (), settings: Path | None = None) -> list[Path]:
    """Everything that was put in, or what was put into the named agents."""
    changed = []
    for name in agents or adapter.names():
        changed += adapter.find(name).uninstall(home, settings)
    if not agents:
        changed += service.uninstall(home)
    return changed


def _answers(url: str) -> bool:
    try:
        with urllib.request.urlopen(f"{url}/v1/models", timeout=LOOK_SECONDS):  # noqa: S310
            return True
    except urllib.error.HTTPError:
        return True
    except (OSError, ValueError):
        return False


def _gpu() -> str:
    """Without importing torch, which takes seconds."""
    import subprocess

    if shutil.which("nvidia-smi") is None:
        return ""
    asked = ["nvidia-smi", "--query-gpu=name", "--format=csv,noheader"]
    try:
        done = subprocess.run(asked, capture_output=True, text=True, timeout=5, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return done.stdout.strip().splitlines()[0] if done.returncode == 0 and done.stdout.strip() else ""
