"""The Claude Code integration (terminal and desktop share the settings): hooks, the ``/rl`` command, the status line."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from clawback.capture import script
from clawback.capture.agent_integration import text
from clawback.capture.events import AnswerEvent, Event, PromptEvent, SideAnswerEvent
from clawback.capture.ingest import Unusable
from clawback.capture.take_out import is_ours
from clawback.extensions.agents.hooked import HookedAgent
from clawback.paths import Home

if TYPE_CHECKING:
    from clawback.records import JsonObject

PAGE = b"""\
---
description: Rate the last response (good, bad, rate 1-10, remark, undo, status, rules, learn)
argument-hint: good | bad | rate N | remark TEXT | undo | status | rules | learn
---
Clawback's hook answers `/rl` before a model is asked. If you can read this, the hook is not installed or is switched
off: tell the person to run `clawback doctor`, and do nothing else.
"""
NOTICE, REMINDER = "<task-notification>", "<system-reminder>"
"""How prompts begin that the agent writes to itself: about work in the background that the person asked for, and about anything else."""
REFRESH = 1
"""Seconds after which the status line is drawn anew, the fewest that there can be: after a rating there is no answer that would do it."""


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

    def plan(self, home: Home, settings: Path | None = None) -> Sequence[str]:
        path = self.settings(settings)
        lines = [*super().plan(home, settings)]
        return [*lines, f"{path}: the status line, if you have none"]

    def more(self, settings: JsonObject, home: Home) -> None:
        """The status line, where the person has none of their own."""
        import shlex

        command = shlex.join([str(script.path(home)), "status-line"])
        line = {"type": "command", "command": command, "refreshInterval": REFRESH}
        settings.setdefault("statusLine", line)

    def without_more(self, settings: JsonObject) -> None:
        if is_ours(settings.get("statusLine")):
            del settings["statusLine"]

    def reply(self, sentence: str) -> JsonObject:
        shown = {"hookEventName": "UserPromptSubmit", "suppressOriginalPrompt": True}
        return super().reply(sentence) | {"hookSpecificOutput": shown}

    def remind(self, text: str) -> JsonObject | None:
        return {"hookSpecificOutput": {"hookEventName": "UserPromptSubmit", "additionalContext": text}}

    def send_back(self, sentence: str) -> JsonObject | None:
        return {"decision": "block", "reason": sentence}

    def parse(self, event: Mapping[str, object]) -> Event | None:
        """``Stop`` brings the last block of text alone, and a queued message has no event: the transcript, which has both, is named."""
        name, session = text(event, "hook_event_name", 100), text(event, "session_id", 200)
        if not session:
            raise Unusable("no session_id")
        transcript, prompt_id = text(event, "transcript_path", 4096), text(event, "prompt_id", 200)
        if name == "UserPromptSubmit":
            asked = text(event, "prompt")
            start = asked.lstrip()[:30]
            asked = "" if start.startswith(REMINDER) else asked
            notice = start.startswith(NOTICE)
            delivery = text(event, script.DELIVERY, 100)
            return PromptEvent(
                session, asked, prompt_id, transcript=transcript, last=True, delivery=delivery, notice=notice
            )
        answer, cwd = text(event, "last_assistant_message"), text(event, "cwd", 4096)
        if name == "Stop":
            model = model_of(event)
            went_on, working = bool(event.get("stop_hook_active")), bool(event.get("background_tasks"))
            return AnswerEvent(
                session,
                answer,
                prompt_id,
                cwd=cwd,
                model=model,
                transcript=transcript,
                went_on=went_on,
                working=working,
            )
        if name == "SubagentStop":
            return SideAnswerEvent(session, answer, text(event, "agent_id", 200), cwd, transcript)
        return None


def model_of(event: Mapping[str, object]) -> str:
    """The model that an event names: by its id, or in a table with its id, as the status line's event has it."""
    named = event.get("model")
    return text(
        named if isinstance(named, Mapping) else event, "id" if isinstance(named, Mapping) else "model", 200
    )
