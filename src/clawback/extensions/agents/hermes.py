"""The Hermes Agent integration: a plugin (``integrations/hermes``), and its name in ``plugins.enabled`` of Hermes's ``config.yaml``.

YAML is changed line by line: a base install has no YAML library, and one would lose comments. What is not understood is left alone, and
the person told which command of Hermes does it.
"""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from pathlib import Path

from clawback.capture.agent_integration import State
from clawback.capture.take_out import without_listed
from clawback.errors import ConfigError
from clawback.extensions.agents import settings_file
from clawback.extensions.agents.plugged import PluginAgent
from clawback.files import replace
from clawback.paths import Home

PLUGIN = "clawback"
_EMPTY = ("", "[]", "{}", "null", "~")
_ENABLED = re.compile(r"( +)enabled:\s*(.*?)\s*(?:#.*)?")
_ITEM = re.compile(r"( *)- ")


class Hermes(PluginAgent):
    name = "hermes"
    title = "Hermes Agent"
    program = "hermes"
    targets = {"__init__.py": "plugins/clawback/__init__.py", "plugin.yaml": "plugins/clawback/plugin.yaml"}

    def file(self) -> Path:
        folder = os.environ.get("HERMES_HOME")
        return (Path(folder) if folder else Path.home() / ".hermes") / "config.yaml"

    def plan(self, home: Home, settings: Path | None = None) -> Sequence[str]:
        return [*super().plan(home, settings), f"{self._config(settings)}: the plugin is enabled"]

    def install(self, home: Home, settings: Path | None = None) -> list[Path]:
        config = self._config(settings)
        before = config.read_bytes() if config.exists() else b""
        after = enabled(before, config)  # settings that are not understood stop us before anything is written
        changed = super().install(home, settings)
        return changed + ([config] if settings_file.change(home, self.name, config, after) else [])

    def uninstall(self, home: Home, settings: Path | None = None) -> list[Path]:
        config = self._config(settings)
        changed = []
        if config in settings_file.known(home, self.name):
            changed = [config] if config.exists() and self.take_out(home, config) else []
            settings_file.forget(home, self.name, config)
        return [*super().uninstall(home, settings), *changed]

    def take_out(self, home: Home, path: Path) -> bool:
        if path.name != "config.yaml":
            return super().take_out(home, path)
        if settings_file.put_back(home, self.name, path):
            return True
        now = path.read_bytes()
        rest = without_listed(now)
        if rest != now:
            replace(path, rest)
        return rest != now

    def status(self, home: Home, settings: Path | None = None) -> State:
        state = super().status(home, settings)
        if not state.installed or state.problem:
            return state
        config = self._config(settings)
        held = config.read_bytes() if config.exists() else b""
        if without_listed(held) == held:
            return State(
                True, state.settings, f"{config} does not enable the plugin: `hermes plugins enable {PLUGIN}`"
            )
        return state

    def _config(self, settings: Path | None) -> Path:
        return (settings or self.file()).expanduser().resolve()


def enabled(content: bytes, path: Path) -> bytes:
    """Hermes's settings with our plugin in ``plugins.enabled``. Raises ``ConfigError`` for a form that is not understood."""
    if without_listed(content) != content:
        return content
    refusal = ConfigError(
        f"{path} has `plugins` in a form that is not changed here, so it was left alone. Run `hermes plugins enable {PLUGIN}`, then this again."
    )
    try:
        lines = content.decode("utf-8").splitlines(keepends=True)
    except UnicodeDecodeError:
        raise refusal from None
    start = next(
        (
            place
            for place, line in enumerate(lines)
            if line.startswith(("plugins:", '"plugins"', "'plugins'"))
        ),
        None,
    )
    if start is None:
        if any(line.startswith(("{", "...", "\t")) for line in lines):
            raise refusal
        end = "" if not lines or lines[-1].endswith("\n") else "\n"
        return content + f"{end}plugins:\n  enabled:\n    - {PLUGIN}\n".encode()
    value = _value(lines[start].removeprefix("plugins:"))
    if not lines[start].startswith("plugins:") or value not in _EMPTY:
        raise refusal
    if value:  # an empty table
        lines[start] = "plugins:\n"
    _list(lines, start, refusal)
    return "".join(lines).encode()


def _list(lines: list[str], start: int, refusal: ConfigError) -> None:
    """Put the plugin into the list under the line ``plugins:``. Raises ``refusal`` for a form that is not understood."""
    end = next(
        (n for n in range(start + 1, len(lines)) if lines[n].strip() and lines[n][0] not in " #"), len(lines)
    )
    first = next(
        (
            lines[n]
            for n in range(start + 1, end)
            if lines[n].strip() and not lines[n].lstrip().startswith("#")
        ),
        "",
    )
    indent = len(first) - len(first.lstrip(" ")) or 2
    lines[start] = lines[start].rstrip("\n") + "\n"
    for place in range(start + 1, end):
        match = _ENABLED.fullmatch(lines[place].rstrip("\n"))
        if match is None or len(match[1]) != indent:
            continue
        value = match[2]
        if value in _EMPTY and value:
            lines[place] = f"{match[1]}enabled: [{PLUGIN}]\n"
        elif re.fullmatch(r"\[[^\[\]{}#]*[^\[\]{}#,\s]\s*\]", value):
            lines[place] = lines[place].replace(value, f"{value[:-1].rstrip()}, {PLUGIN}]", 1)
        elif not value:
            item = next((m for n in range(place + 1, end) if (m := _ITEM.match(lines[n]))), None)
            inside = item[1] if item and len(item[1]) >= indent else " " * (indent + 2)
            lines[place] = lines[place].rstrip("\n") + f"\n{inside}- {PLUGIN}\n"
        else:
            raise refusal
        return
    lines.insert(start + 1, f"{' ' * indent}enabled:\n{' ' * (indent + 2)}- {PLUGIN}\n")


def _value(text: str) -> str:
    return re.sub(r"(?:^|\s)#.*", "", text.strip()).strip()
