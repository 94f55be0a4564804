"""The OpenClaw integration: sets up our plugin (``integrations/openclaw``) and parses the events that it sends over HTTP.

The plugin reports answers, commands and reactions. It starts no program and reads no environment: our
server's address and its token are in OpenClaw's own settings, where we put them. Its events already have our
format.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from clawback.capture.agent_integration import State
from clawback.capture.events import Event
from clawback.capture.take_out import without_plugin
from clawback.errors import ConfigError
from clawback.extensions.agents import plugged, settings_file
from clawback.paths import Home, secret

if TYPE_CHECKING:
    from clawback.records import JsonObject

ID = "clawback"


class OpenClaw:
    name = "openclaw"
    title = "OpenClaw"
    usage = "/rl good, /rl bad, or 👍 / 👎 on the message"

    def file(self) -> Path:
        named = os.environ.get("OPENCLAW_CONFIG_PATH")
        folder = os.environ.get("OPENCLAW_STATE_DIR")
        return (
            Path(named)
            if named
            else (Path(folder) if folder else Path.home() / ".openclaw") / "openclaw.json"
        )

    def is_present(self) -> bool:
        import shutil

        return self.file().exists() or shutil.which("openclaw") is not None

    def plan(self, home: Home, settings: Path | None = None) -> Sequence[str]:  # noqa: ARG002
        return [
            f"{self._settings(settings)}: the plugin {plugin_folder()}, with the address of `clawback serve`"
        ]

    def install(self, home: Home, settings: Path | None = None) -> list[Path]:
        path = self._settings(settings)
        before = path.read_bytes() if path.exists() else None
        held = settings_file.read_json(path, before)
        plugins = _table(held, "plugins", path)
        paths = _table(plugins, "load", path).setdefault("paths", [])
        if not isinstance(paths, list):
            raise ConfigError(f"{path}: plugins.load.paths is no list, so it was left alone.")
        ours = str(plugin_folder())
        paths[:] = [p for p in paths if not _is_ours(p)] + [ours]
        entry = _table(_table(plugins, "entries", path), ID, path)
        entry["enabled"] = True
        # Without this OpenClaw tells a plugin nothing of what is said.
        _table(entry, "hooks", path)["allowConversationAccess"] = True
        config = _table(entry, "config", path)
        config["url"] = _address(home)
        config["token"] = secret(home.root / "hook-token")
        allowed = plugins.get("allow")
        if isinstance(allowed, list) and ID not in allowed:
            allowed.append(ID)
        after = settings_file.json_text(held, before)
        return [path] if settings_file.change(home, self.name, path, after) else []

    def uninstall(self, home: Home, settings: Path | None = None) -> list[Path]:
        changed = []
        for path in [self._settings(settings)] if settings else settings_file.known(home, self.name):
            if path.exists() and settings_file.take_out(home, self.name, path, without_plugin):
                changed.append(path)
            settings_file.forget(home, self.name, path)
        return changed

    def status(self, home: Home, settings: Path | None = None) -> State:
        path = settings or next(iter(settings_file.known(home, self.name)), self._settings(None))
        if not path.exists():
            return State(False, path)
        plugins = settings_file.read_json(path, path.read_bytes()).get("plugins")
        plugins = plugins if isinstance(plugins, dict) else {}
        entries = plugins.get("entries")
        entry = entries.get(ID) if isinstance(entries, dict) else None
        if not isinstance(entry, dict):
            return State(False, path)
        return State(True, path, _trouble(home, path, plugins, entry))

    def parse(self, event: Mapping[str, object]) -> Event | None:
        return plugged.parse(event)

    def reply(self, sentence: str) -> JsonObject:
        return {"reply": sentence}

    def ask(self, home: Home, event: Event) -> JsonObject | None:  # noqa: ARG002
        return None

    def _settings(self, named: Path | None) -> Path:
        return (named or self.file()).expanduser().resolve()


def _address(home: Home) -> str:
    from clawback import config

    return f"http://127.0.0.1:{config.load(home.config).serve.port}"


def plugin_folder() -> Path:
    return plugged.integration("openclaw")


def _is_ours(path: object) -> bool:
    return isinstance(path, str) and Path(path).parts[-2:] == ("integrations", "openclaw")


def _trouble(home: Home, path: Path, plugins: JsonObject, entry: JsonObject) -> str:
    """Why the plugin would not reach us, or ""."""
    load = plugins.get("load")
    paths = load.get("paths", []) if isinstance(load, dict) else []
    ours = [p for p in paths if _is_ours(p)] if isinstance(paths, list) else []
    if not ours:
        return f"{path} does not name the plugin's folder under plugins.load.paths"
    if gone := [p for p in ours if not Path(p).is_dir()]:
        return f"{path} names the plugin {gone[0]}, which is gone"
    if entry.get("enabled") is False:
        return f"the plugin is switched off in {path}"
    config = entry.get("config")
    if not isinstance(config, dict) or config.get("token") != secret(home.root / "hook-token"):
        return f"{path} holds another home's token"
    if config.get("url") != _address(home):
        return f"{path} holds another address than the server's"
    return ""


def _table(held: JsonObject, key: str, path: Path) -> JsonObject:
    table = held.setdefault(key, {})
    if not isinstance(table, dict):
        raise ConfigError(f"{path}: {key} is no table, so it was left alone.")
    return table
