"""The Codex integration (command line and desktop app share ``$CODEX_HOME``): hooks where the user trusts them, else ``notify``.

Codex silently skips hooks that its user has not reviewed. Only the user can mark hooks as trusted, in Codex
itself; Clawback does not edit that. ``notify`` needs no trust: it reports answers, but cannot answer ``rl:
good`` in the model's place.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from clawback.capture import script
from clawback.capture.agent_integration import text
from clawback.capture.errands import is_errand, is_title
from clawback.capture.events import AnswerEvent, Event, PromptEvent, SideAnswerEvent
from clawback.capture.ingest import Unusable
from clawback.errors import ConfigError
from clawback.extensions.agents import settings_file
from clawback.extensions.agents.hooked import HookedAgent
from clawback.feedback import command
from clawback.files import replace
from clawback.paths import Home

if TYPE_CHECKING:
    from clawback.records import JsonObject

UNTRUSTED = (
    "Codex skips the hooks until you have trusted them: start `codex`, choose “Review hooks” (or `/hooks`) and trust those that run "
    "clawback-hook. Until then only answers are recorded, by `notify`"
)


class Codex(HookedAgent):
    name = "codex"
    title = "Codex"
    events = ("UserPromptSubmit", "Stop", "SubagentStop")

    def file(self) -> Path:
        return self.folder() / "hooks.json"

    @staticmethod
    def folder() -> Path:
        return Path(os.environ.get("CODEX_HOME") or Path.home() / ".codex")

    # ------------------------------------------------------------------------------------------------- notify

    def plan(self, home: Home, settings: Path | None = None) -> Sequence[str]:
        path = self.settings(settings).parent / "config.toml"
        return [*super().plan(home, settings), f"{path}: `notify`, where it is not set"]

    def install(self, home: Home, settings: Path | None = None) -> list[Path]:
        changed = super().install(home, settings)
        path = self.settings(settings).parent / "config.toml"
        before = path.read_bytes() if path.exists() else b""
        if "notify" in _toml(path, before):
            return changed
        # Before the first table, for a key after it would belong to that; the rest of the file stays as it is.
        line = f"notify = {json.dumps([str(script.path(home)), 'codex'])}\n".encode()
        return changed + ([path] if settings_file.change(home, self.name, path, line + before) else [])

    def uninstall(self, home: Home, settings: Path | None = None) -> list[Path]:
        path = self.settings(settings).parent / "config.toml"
        changed = []
        if path.exists():
            if settings_file.put_back(home, self.name, path):
                changed.append(path)
            else:
                now = path.read_bytes()
                rest = b"".join(line for line in now.splitlines(keepends=True) if not _our_line(line))
                if rest != now:
                    replace(path, rest)
                    changed.append(path)
        settings_file.forget(home, self.name, path)
        return super().uninstall(home, settings) + changed  # the folder goes with its last file

    def trouble(self, home: Home, path: Path) -> str:  # noqa: ARG002
        config = path.parent / "config.toml"
        held = _toml(config, config.read_bytes() if config.exists() else b"").get("hooks")
        states = held.get("state") if isinstance(held, dict) else None
        trusted = [key for key in states if str(path) in key] if isinstance(states, dict) else []
        return "" if trusted else UNTRUSTED

    # ------------------------------------------------------------------------------------------------- events

    def remind(self, text: str) -> JsonObject | None:
        return {"hookSpecificOutput": {"hookEventName": "UserPromptSubmit", "additionalContext": text}}

    def send_back(self, sentence: str) -> JsonObject | None:
        return {"decision": "block", "reason": sentence}

    def parse(self, event: Mapping[str, object]) -> Event | None:
        if event.get("type") == "agent-turn-complete":
            return _notified(event)
        name, session = text(event, "hook_event_name", 100), text(event, "session_id", 200)
        if not session:
            raise Unusable("no session_id")
        if name == "UserPromptSubmit":
            if text(event, "agent_id", 200):
                return None  # what one agent asks another
            transcript = text(event, "transcript_path", 4096)
            return PromptEvent(
                session,
                text(event, "prompt"),
                text(event, "turn_id", 200),
                transcript=transcript,
                last=True,
                ends=True,
                delivery=text(event, script.DELIVERY, 100),
            )
        answer, cwd = text(event, "last_assistant_message"), text(event, "cwd", 4096)
        if name == "Stop" and not text(event, "agent_id", 200):
            model = text(event, "model", 200)
            transcript = text(event, "transcript_path", 4096)
            went_on, turn = bool(event.get("stop_hook_active")), text(event, "turn_id", 200)
            return AnswerEvent(
                session, answer, turn, cwd=cwd, model=model, transcript=transcript, went_on=went_on
            )
        if name in ("Stop", "SubagentStop"):
            return SideAnswerEvent(
                session, answer, text(event, "agent_id", 200) or text(event, "turn_id", 200), cwd
            )
        return None


def _notified(event: Mapping[str, object]) -> Event | None:
    """What ``notify`` tells. Sub-agents name no client; threads that only make a title are told by what is asked for, and by the answer."""
    session, turn = text(event, "thread-id", 200), text(event, "turn-id", 200)
    if not session:
        raise Unusable("no thread-id")
    asked, answer = event.get("input-messages"), text(event, "last-assistant-message")
    last = asked[-1] if isinstance(asked, list) and asked and isinstance(asked[-1], str) else ""
    if not text(event, "client", 200) or is_title(answer) or is_errand(last) or not last.strip():
        return None
    if command.parse(last) is not None:
        return PromptEvent(
            session, last, turn
        )  # the model was asked, for want of trust; the rating counts all the same
    return AnswerEvent(session, answer, turn, prompt=last, cwd=text(event, "cwd", 4096))


def _our_line(line: bytes) -> bool:
    return line.startswith(b"notify") and script.NAME.encode() in line


def _toml(path: Path, data: bytes) -> JsonObject:
    import tomllib

    try:
        return tomllib.loads(data.decode("utf-8"))
    except ValueError as error:
        raise ConfigError(
            f"{path} is not valid TOML ({error}), so it was left alone. Correct it and try again."
        ) from error
