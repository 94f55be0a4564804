"""The Gemini CLI integration: hooks in its ``settings.json``. An example of an agent added by one file: docs/agents.md explains it."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from clawback.capture.agent_integration import text
from clawback.capture.events import AnswerEvent, Event, PromptEvent
from clawback.capture.ingest import Unusable
from clawback.extensions.agents.hooked import HookedAgent

if TYPE_CHECKING:
    from clawback.records import JsonObject


class GeminiCli(HookedAgent):
    name = "gemini-cli"
    title = "Gemini CLI"
    events = ("BeforeAgent", "AfterAgent")
    timeout = 10_000  # milliseconds here

    def file(self) -> Path:
        return Path.home() / ".gemini" / "settings.json"

    def reply(self, sentence: str) -> JsonObject:
        return {"decision": "deny", "reason": sentence}

    def parse(self, event: Mapping[str, object]) -> Event | None:
        """Events do not name their prompt; ``AfterAgent`` brings prompt and answer together."""
        session, asked = text(event, "session_id", 200), text(event, "prompt")
        if not session:
            raise Unusable("no session_id")
        transcript = text(event, "transcript_path", 4096)
        if event.get("hook_event_name") == "BeforeAgent":
            return PromptEvent(session, asked, transcript=transcript, last=True)
        if event.get("hook_event_name") == "AfterAgent":
            answer = text(event, "prompt_response")
            cwd = text(event, "cwd", 4096)
            return AnswerEvent(session, answer, prompt=asked, cwd=cwd, transcript=transcript)
        return None
