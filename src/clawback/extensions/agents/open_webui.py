"""The Open WebUI integration: a filter function (``integrations/open-webui``) that an administrator pastes into Open WebUI.

Nothing of Open WebUI is changed from here: ``install`` writes the function, with our address and token in it, into our own home.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from clawback.capture.agent_integration import State
from clawback.capture.events import AnswerEvent, Event
from clawback.extensions.agents import plugged
from clawback.files import replace
from clawback.paths import Home, home, secret
from clawback.thinking import DETAILS

if TYPE_CHECKING:
    from clawback.records import JsonObject

FUNCTION = "clawback.py"
DEFAULTS = ('URL = "http://127.0.0.1:8742"', 'TOKEN = ""')
"""Lines of the function in whose place this home's address and token stand."""


class OpenWebUI:
    name = "open-webui"
    title = "Open WebUI"
    usage = "its own thumbs and 1 to 10"

    def file(self) -> Path:
        return _path(home())

    def is_present(self) -> bool:
        """It runs in a container or on another machine, as a rule: nobody is asked about it unasked."""
        return False

    def plan(self, home: Home, settings: Path | None = None) -> Sequence[str]:
        return [
            f"{_path(home, settings)}: a function for Open WebUI. Admin Panel, Functions, + takes its text; switch it on, and make it global"
        ]

    def install(self, home: Home, settings: Path | None = None) -> list[Path]:
        path, content = _path(home, settings), function(home)
        if path.exists() and path.read_bytes() == content:
            return []
        replace(path, content)
        return [path]

    def uninstall(self, home: Home, settings: Path | None = None) -> list[Path]:
        path = _path(home, settings)
        if not path.exists():
            return []
        path.unlink()
        return [path]

    def status(self, home: Home, settings: Path | None = None) -> State:
        path = _path(home, settings)
        if not path.exists():
            return State(False, path)
        same = path.read_bytes() == function(home)
        return State(True, path, "" if same else f"{path} is of another version: run `clawback init` again")

    def parse(self, event: Mapping[str, object]) -> Event | None:
        parsed = plugged.parse(event)
        if isinstance(parsed, AnswerEvent):
            return parsed._replace(text=without_details(parsed.text))
        return parsed

    def reply(self, sentence: str) -> JsonObject:
        return {"reply": sentence}

    def ask(self, home: Home, event: Event) -> JsonObject | None:  # noqa: ARG002
        return None


def without_details(answer: str) -> str:
    """The text of an answer without the folded boxes."""
    parts = (part.strip() for part in DETAILS.split(answer)[:: DETAILS.groups + 1])
    return "\n\n".join(filter(None, parts))


def function(home: Home) -> bytes:
    """The function's text, as it belongs to this home."""
    from clawback import config

    text = (plugged.integration(OpenWebUI.name) / FUNCTION).read_text("utf-8")
    url = f"http://127.0.0.1:{config.load(home.config).serve.port}"
    for line, value in zip(DEFAULTS, (url, secret(home.root / "hook-token")), strict=True):
        text = text.replace(line, f"{line.partition(' ')[0]} = {json.dumps(value)}", 1)
    return text.encode()


def _path(here: Home, settings: Path | None = None) -> Path:
    return settings or here.root / "open-webui.py"
