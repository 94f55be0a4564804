"""The opencode integration: a plugin (``integrations/opencode``) and the ``/rl`` command in its folder of settings."""

from __future__ import annotations

import os
from pathlib import Path

from clawback.extensions.agents.plugged import PluginAgent


class OpenCode(PluginAgent):
    name = "opencode"
    title = "opencode"
    usage = "/rl good, /rl bad or /rl rate 1-10"
    program = "opencode"
    targets = {"clawback.js": "plugins/clawback.js", "rl.md": "commands/rl.md"}

    def file(self) -> Path:
        if folder := os.environ.get("OPENCODE_CONFIG_DIR"):
            return Path(folder) / "opencode.json"
        configs = os.environ.get("XDG_CONFIG_HOME")
        return (Path(configs) if configs else Path.home() / ".config") / "opencode" / "opencode.json"
