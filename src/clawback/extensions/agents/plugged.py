"""Agents that load a plugin of ours (``integrations/``): their base class, opencode, and the events that such plugins send.

The plugins of opencode and Hermes Agent run ``$CLAWBACK_HOME/clawback-hook``, as hooks do; those of OpenClaw and Open WebUI speak to our server.
All send the same events: ``{"event": "prompt" | "answer" | "failed" | "shown" | "reaction", "session": …}``.
"""

from __future__ import annotations

import os
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from clawback.capture import script
from clawback.capture.agent_integration import State, text
from clawback.capture.events import AnswerEvent, DisplayEvent, Event, FailureEvent, PromptEvent, ReactionEvent
from clawback.capture.ingest import Unusable
from clawback.endings import ending_of
from clawback.extensions.agents import settings_file
from clawback.paths import Home

if TYPE_CHECKING:
    from clawback.records import JsonObject

HOOK = 'HOOK = "clawback-hook"'
"""The line of a plugin that names the program to run; the path of this home's takes its place."""


class PluginAgent(ABC):
    """Puts the files of a plugin into the agent's folder, takes them out, and reports their state."""

    name: str
    title: str
    usage: str = "/rl good, /rl bad or /rl rate 1-10"
    program: str
    """What the agent's command is called."""
    targets: Mapping[str, str]
    """A file under ``integrations/NAME`` → its place beside the agent's settings. The first one names the hook."""

    @abstractmethod
    def file(self) -> Path:
        """The agent's settings."""

    def is_present(self) -> bool:
        import shutil

        return self.file().parent.is_dir() or shutil.which(self.program) is not None

    def plan(self, home: Home, settings: Path | None = None) -> Sequence[str]:
        paths = list(self.files(home, settings))
        return [f"{path}: a plugin, which runs {script.path(home)}" for path in paths[:1]] + [
            f"{path}: part of it" for path in paths[1:]
        ]

    def install(self, home: Home, settings: Path | None = None) -> list[Path]:
        files = self.files(home, settings)
        script.write(home)
        return [p for p, content in files.items() if settings_file.change(home, self.name, p, content)]

    def uninstall(self, home: Home, settings: Path | None = None) -> list[Path]:
        """A file of the plugin is ours whole, whatever has become of it."""
        known = settings_file.known(home, self.name)
        paths = [path for path in self.files(home, settings) if path in known] if settings else known
        changed = [path for path in paths if path.exists() and self.take_out(home, path)]
        for path in paths:
            settings_file.forget(home, self.name, path)
        return changed

    def take_out(self, home: Home, path: Path) -> bool:
        if not settings_file.put_back(home, self.name, path):
            path.unlink()
        return True

    def status(self, home: Home, settings: Path | None = None) -> State:
        files = self.files(home, settings)
        main = next(iter(files))
        if not main.exists():
            return State(False, main)
        lines = main.read_text("utf-8", "replace").splitlines()
        line = next((line for line in lines if line.removeprefix("const ").startswith("HOOK = ")), "")
        named = Path(line.partition('"')[2].rpartition('"')[0])
        if named != script.path(home):
            gone = "" if named.exists() else ", which is gone"
            return State(True, main, f"the plugin {main} runs {named}{gone}, not the one of this home", named)
        if missing := [
            path for path, content in files.items() if not path.exists() or path.read_bytes() != content
        ]:
            return State(True, main, f"{missing[0]} is of another version: run `clawback init` again")
        return State(True, main, script.trouble(home))

    def files(self, home: Home, settings: Path | None = None) -> dict[Path, bytes]:
        """Every file of the plugin, as it belongs to this home."""
        folder = (settings or self.file()).expanduser().resolve().parent
        source = integration(self.name)
        hook = HOOK.replace("clawback-hook", str(script.path(home)).replace("\\", "\\\\").replace('"', '\\"'))
        return {
            folder / target: (source / name).read_bytes().replace(HOOK.encode(), hook.encode())
            for name, target in self.targets.items()
        }

    def parse(self, event: Mapping[str, object]) -> Event | None:
        return parse(event)

    def reply(self, sentence: str) -> JsonObject:
        return {"reply": sentence}

    def ask(self, home: Home, event: Event) -> JsonObject | None:  # noqa: ARG002
        return None


class OpenCode(PluginAgent):
    """opencode: our plugin, and the ``/rl`` command in its folder of settings."""

    name = "opencode"
    title = "opencode"
    program = "opencode"
    targets = {"clawback.js": "plugins/clawback.js", "rl.md": "commands/rl.md"}

    def file(self) -> Path:
        if folder := os.environ.get("OPENCODE_CONFIG_DIR"):
            return Path(folder) / "opencode.json"
        configs = os.environ.get("XDG_CONFIG_HOME")
        return (Path(configs) if configs else Path.home() / ".config") / "opencode" / "opencode.json"


def integration(name: str) -> Path:
    """The folder of an integration: in the package, or beside the sources."""
    packaged = Path(__file__).parents[2] / "integrations" / name
    return packaged if packaged.is_dir() else Path(__file__).parents[4] / "integrations" / name


def parse(event: Mapping[str, object]) -> Event | None:
    """Translate a plugin's event; None for one that is not known. Raises ``Unusable``."""
    kind, session = text(event, "event", 40), text(event, "session", 500)
    if kind == "reaction":
        value, message, by = event.get("value"), text(event, "message", 500), text(event, "by", 200)
        if type(value) is not int or value not in (-1, 0, 1) or not (message and by):
            raise Unusable("a reaction without value, message or person")
        return ReactionEvent(session, message, value, by, text(event, "id", 500))
    if not session:
        raise Unusable("no session")
    prompt_id = text(event, "id", 500)
    if kind == "prompt":
        by, delivery = text(event, "by", 200), text(event, script.DELIVERY, 100)
        last, about = event.get("last") is True, text(event, "about", 500)
        return PromptEvent(session, text(event, "text"), prompt_id, about, by, last=last, delivery=delivery)
    if kind == "answer":
        model, cwd = text(event, "model", 200), text(event, "cwd", 4096)
        ending, work = ending_of(text(event, "ending", 100)) or "", work_of(event.get("work"))
        return AnswerEvent(
            session, text(event, "text"), prompt_id, cwd=cwd, model=model, work=work, ending=ending
        )
    if kind == "failed":
        return FailureEvent(session, prompt_id)
    if kind == "shown":
        message = text(event, "message", 500)
        if not (prompt_id and message):
            raise Unusable("a shown answer without id or message")
        return DisplayEvent(session, prompt_id, message)
    return None


def work_of(messages: object) -> tuple[JsonObject, ...]:
    """The tool calls and results that came with an answer, as chat messages; what is none of these is left out."""
    if not isinstance(messages, list) or not messages:
        return ()
    from clawback.capture.exchanges import Exchange

    exchange = Exchange()
    for number, message in enumerate(m for m in messages if isinstance(m, dict)):
        if message.get("role") == "tool":
            exchange.add_result(message.get("tool_call_id"), message.get("content"))
        elif message.get("role") == "assistant":
            if isinstance(words := message.get("content"), str) and words:
                exchange.add_text(f"{number}", words)
            calls = message.get("tool_calls")
            for call in calls if isinstance(calls, list) else []:
                if isinstance(call, dict):
                    exchange.add_call(f"{number}", call.get("id"), call.get("name"), call.get("arguments"))
    return tuple(exchange.work_before(""))
