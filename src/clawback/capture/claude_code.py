"""Claude Code (terminal and desktop share the settings): hooks, the ``/rl`` command, the status line."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from clawback.capture import script
from clawback.capture.adapter import text
from clawback.capture.door import Unusable
from clawback.capture.events import Answer, Event, Prompt, SideAnswer
from clawback.capture.hooked import HookedAgent, is_ours
from clawback.paths import Home

PAGE = b"""\
---
description: Rate the last response (good, bad, rate 1-10, note, undo, status)
argument-hint: good | bad | rate N | note TEXT | undo | status
---
Clawback's hook answers `/rl` before a model is asked. If you can read this, the hook is not installed or is switched
off: tell the person to run `clawback doctor`, and do nothing else.
"""
SYNTHETIC = ("<task-notification>", "<system-reminder>")
"""How prompts begin that the agent writes to itself."""


class ClaudeCode(HookedAgent):
    name = "claude-code"
    title = "Claude Code"
    usage = "/rl good, /rl bad or /rl rate 1-10"
    events = ("UserPromptSubmit", "Stop", "SubagentStop")

    def file(self) -> Path:
        folder = os.environ.get("CLAUDE_CONFIG_DIR")
        return (Path(folder) if folder else Path.home() / ".claude") / "settings.json"

    def pages(self, path: Path) -> dict[Path, bytes]:
        # Unregistered, `/rl` is refused before any hook runs.
        return {path.parent / "commands" / "rl.md": PAGE}

    def more(self, settings: dict[str, Any], home: Home) -> None:
        """The status line, where the person has none of their own."""
        import shlex

        command = shlex.join([str(script.path(home)), "status-line"])
        settings.setdefault("statusLine", {"type": "command", "command": command})

    def without_more(self, settings: dict[str, Any]) -> None:
        if is_ours(settings.get("statusLine")):
            del settings["statusLine"]

    def reply(self, sentence: str) -> dict[str, Any]:
        return super().reply(sentence) | {"suppressOriginalPrompt": True}

    def parse(self, event: Mapping[str, Any]) -> Event | None:
        """The transcript is not read: when ``Stop`` fires, its last message is often not written yet."""
        name, session = text(event, "hook_event_name", 100), text(event, "session_id", 200)
        if not session:
            raise Unusable("no session_id")
        if name == "UserPromptSubmit":
            asked = text(event, "prompt")
            asked = "" if asked.lstrip().startswith(SYNTHETIC) else asked
            return Prompt(session, asked, text(event, "prompt_id", 200))
        said, cwd = text(event, "last_assistant_message"), text(event, "cwd", 4096)
        if name == "Stop":
            return Answer(session, said, text(event, "prompt_id", 200), cwd=cwd)
        if name == "SubagentStop":
            return SideAnswer(session, said, text(event, "agent_id", 200), cwd)
        return None
