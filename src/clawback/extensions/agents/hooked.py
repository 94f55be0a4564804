"""A base class for agents whose hooks are kept in a JSON file of Claude Code's shape: ``{"hooks": {EVENT: [{"hooks": [ENTRY]}]}}``."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from clawback.capture import script
from clawback.capture.agent_integration import State
from clawback.capture.events import AnswerEvent, Event
from clawback.capture.take_out import is_ours, without_hooks
from clawback.errors import ConfigError
from clawback.extensions.agents import settings_file
from clawback.paths import Home

if TYPE_CHECKING:
    from clawback.records import JsonObject

INVITATION = "Clawback: was that good? {usage}"


class HookedAgent(ABC):
    """Installs hooks, removes them, and reports their state. A subclass adds the settings file and how events are parsed."""

    name: str
    title: str
    usage: str = "rl: good, rl: bad or rl: rate 1-10"
    events: tuple[str, ...]
    timeout: int = 10
    """In the agent's own unit."""

    @abstractmethod
    def file(self) -> Path:
        """Where the agent keeps its hooks."""

    @abstractmethod
    def parse(self, event: Mapping[str, object]) -> Event | None: ...

    def pages(self, path: Path) -> dict[Path, bytes]:  # noqa: ARG002
        """Further files of ours that belong to the settings at ``path``: a page that makes ``/rl`` known, say."""
        return {}

    def more(self, settings: JsonObject, home: Home) -> None:  # noqa: B027
        """Change further settings, where nobody else has set them."""

    def without_more(self, settings: JsonObject) -> None:  # noqa: B027
        """Take those out again."""

    def trouble(self, home: Home, path: Path) -> str:  # noqa: ARG002
        """A problem that only this agent can have, or ""."""
        return ""

    # -------------------------------------------------------------------------------------- the agent's interface

    def settings(self, named: Path | None) -> Path:
        """The path of the settings file, with links followed."""
        return (named or self.file()).expanduser().resolve()

    def is_present(self) -> bool:
        import shutil

        return self.file().parent.is_dir() or shutil.which(self.name.split("-")[0]) is not None

    def plan(self, home: Home, settings: Path | None = None) -> Sequence[str]:
        path = self.settings(settings)
        lines = [f"{path}: hooks for {', '.join(self.events)}, which run {self.command(home)}"]
        if other := self.status(home, path).other:
            lines.append(f"{path}: no longer {other}, which its hooks run now")
        return [*lines, *(f"{page}: the /rl command" for page in self.pages(path))]

    def install(self, home: Home, settings: Path | None = None) -> list[Path]:
        path = self.settings(settings)
        before = path.read_bytes() if path.exists() else None
        held = self._without_ours(self._parse(path, before))
        entry = {"type": "command", "command": self.command(home), "timeout": self.timeout}
        hooks = held.setdefault("hooks", {})
        for event in self.events:
            hooks.setdefault(event, []).append({"hooks": [entry]})
        self.more(held, home)
        script.write(home)
        changed = (
            [path]
            if settings_file.change(home, self.name, path, settings_file.json_text(held, before))
            else []
        )
        return changed + [p for p, content in self.pages(path).items() if settings_file.add_file(p, content)]

    def uninstall(self, home: Home, settings: Path | None = None) -> list[Path]:
        changed = []
        paths = [self.settings(settings)] if settings else self.known(home) or [self.settings(None)]
        for path in paths:
            changed += [p for p, content in self.pages(path).items() if settings_file.remove_file(p, content)]
            if path.exists() and settings_file.take_out(home, self.name, path, self._without_ours):
                changed.append(path)
            settings_file.forget(home, self.name, path)
        return changed

    def status(self, home: Home, settings: Path | None = None) -> State:
        path = self.settings(settings) if settings else next(iter(self.known(home)), self.settings(None))
        if not path.exists():
            return State(False, path)
        commands = self._own_commands(self._parse(path, path.read_bytes()))
        if not commands:
            return State(False, path)
        if missing := [event for event in self.events if event not in commands]:
            return State(True, path, f"{path} lacks the hooks for {', '.join(missing)}")
        import shlex

        named = Path(shlex.split(next(iter(commands.values())))[0])
        if named != script.path(home):
            gone = "" if named.exists() else ", which is gone"
            return State(
                True, path, f"the hooks in {path} run {named}{gone}, not the one of this home", named
            )
        return State(True, path, script.trouble(home) or self.trouble(home, path))

    def reply(self, sentence: str) -> JsonObject:
        # "block" alone keeps command and reply out of the model's context.
        return {"decision": "block", "reason": sentence}

    def remind(self, text: str) -> JsonObject | None:  # noqa: ARG002
        """Hook output that lets the model read a text with the person's prompt; None where the agent has no such thing."""
        return None

    def send_back(self, sentence: str) -> JsonObject | None:  # noqa: ARG002
        """Hook output that makes the agent answer once more; None where the agent has no such thing."""
        return None

    def ask(self, home: Home, event: Event) -> JsonObject | None:
        """After an answer, a line that invites the person to rate, where they want one. It blocks nothing."""
        if not isinstance(event, AnswerEvent) or not _asking(home):
            return None
        return {"systemMessage": INVITATION.format(usage=self.usage)}

    # ------------------------------------------------------------------------------------------- the JSON file

    def command(self, home: Home) -> str:
        import shlex

        return shlex.join([str(script.path(home)), self.name])

    def known(self, home: Home) -> list[Path]:
        """Every file that we put hooks into."""
        return [path for path in settings_file.known(home, self.name) if path.suffix == ".json"]

    def _parse(self, path: Path, data: bytes | None) -> JsonObject:
        settings = settings_file.read_json(path, data)
        hooks = settings.get("hooks", {})
        if not isinstance(hooks, dict) or not all(isinstance(hooks.get(e, []), list) for e in self.events):
            raise ConfigError(f"{path} does not look like {self.title}'s settings, so it was left alone.")
        return settings

    def _without_ours(self, settings: JsonObject) -> JsonObject:
        self.without_more(without_hooks(settings))
        return settings

    def _own_commands(self, settings: JsonObject) -> dict[str, str]:
        """Event → the command of ours that it runs."""
        commands = {}
        for event, groups in settings.get("hooks", {}).items():
            for group in groups if isinstance(groups, list) else []:
                inner = group.get("hooks") if isinstance(group, dict) else None
                for hook in inner if isinstance(inner, list) else []:
                    if is_ours(hook):
                        commands[event] = str(hook["command"])
        return commands


def _asking(home: Home) -> bool:
    try:
        if b"[capture]" not in home.config.read_bytes():
            return False
    except FileNotFoundError:
        return False
    from clawback import config

    return config.load(home.config).capture.ask
