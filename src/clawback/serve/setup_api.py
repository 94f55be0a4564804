"""``/api/agents``, ``/api/models``, ``/api/settings``: what a person sets up, as the page shows it.

Settings that name an address, a program or a file are shown and not changed here: for those there is ``clawback config set``.
"""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from clawback import config
from clawback.config import settings
from clawback.errors import ClawbackError, UsageError
from clawback.paths import tidy
from clawback.records import JsonObject
from clawback.serve.bodies import SettingValue
from clawback.serve.endpoints import endpoint, writing

if TYPE_CHECKING:
    from starlette.requests import Request

    from clawback.inference.server import Server

CHANGEABLE = (
    "training.threshold",
    "training.background",
    "training.preset",
    "training.budget",
    "schedule.quiet_hours",
    "schedule.only_when_idle",
    "gate.confidence",
    "gate.more_ratings",
    "generation.temperature",
    "generation.max_tokens",
    "capture.ask",
    "capture.unrated",
    "capture.fade_days",
    "rules.remind",
    "rules.send_back",
)
"""Keys that the page changes."""
AT_START = "generation."
"""Settings that the server reads when it starts begin with this."""


def routes(server: Server) -> list[Any]:
    from starlette.routing import Route

    return [
        Route("/agents", endpoint(server, agents), methods=["GET"]),
        Route("/models", endpoint(server, models), methods=["GET"]),
        Route("/settings", endpoint(server, every_setting), methods=["GET"]),
        Route("/settings", writing(server, SettingValue, change), methods=["POST"]),
    ]


def agents(server: Server, request: Request) -> Any:  # noqa: ARG001
    """Every agent that can be set up, those of this machine first, with the command that does it."""
    from clawback.capture import agent_integration

    rows = []
    for name in agent_integration.names():
        agent = agent_integration.find(name)
        row = {"name": name, "title": agent.title, "usage": agent.usage, "command": _command(server, f"init --agent {name}")}  # fmt: skip
        try:
            state = agent.status(server.home)
            rows.append(
                row | {"found": agent.is_present(), "installed": state.installed, "problem": state.problem}
            )
        except (ClawbackError, OSError) as error:
            rows.append(row | {"found": True, "installed": False, "problem": str(error)})
    rows.sort(key=lambda row: (not row["installed"], not row["found"]))
    return {
        "agents": rows,
        "open": server.serve.host in ("127.0.0.1", "localhost", "::1") and server.train is None,
        "token_file": tidy(server.home.root / "token"),
        "upstream": server.serve.upstream,
        "mcp": _command(server, "connect mcp"),
    }


def models(server: Server, request: Request) -> Any:  # noqa: ARG001
    """The models of this machine; ``set`` marks the one of the settings."""
    from clawback.admin import model_choice
    from clawback.models import local_models

    base, machine = config.load(server.home.config).model.base, model_choice.machine()
    rows = [
        {
            "name": model.name,
            "set": model.name == base,
            "parameters": model.info.total_parameters,
            "bytes": model.bytes,
            "verdict": model_choice.verdict(model, machine),
            "fits": not model.problem and model_choice.fits(model.info, machine),
            "command": _command(server, f"init --model {shlex.quote(model.name)}"),
        }
        for model in local_models.find()
    ]
    return {"base": base, "demonstration": base == config.EMBEDDED, "models": rows}


def every_setting(server: Server, request: Request) -> Any:  # noqa: ARG001
    chosen = config.load(server.home.config)
    return [_shown(one, chosen) for one in settings.settings()]


def change(server: Server, request: Request, body: SettingValue) -> Any:  # noqa: ARG001
    """Set a value as ``clawback config set`` does; an empty one takes the setting out of the file."""
    from clawback.jobs import inputs

    if body.key not in CHANGEABLE:
        settings.find(body.key)
        raise UsageError(f"{body.key} is changed in a terminal: `clawback config set {body.key} VALUE`.")
    value = settings.read(body.key, body.value) if body.value else None
    if value is not None:
        inputs.setting(body.key, value)
    section, _, name = body.key.partition(".")
    chosen = config.save(server.home.config, {section: {name: value}})
    server.settings = chosen
    return _shown(settings.find(body.key), chosen) | {"at_start": body.key.startswith(AT_START)}


def _shown(setting: settings.Setting, chosen: config.Config) -> JsonObject:
    value = settings.value(chosen, setting.key)
    return {
        "key": setting.key,
        "value": value if isinstance(value, str) else settings.shown(value),
        "default": setting.default if isinstance(setting.default, str) else settings.shown(setting.default),
        "is_default": msgspec.to_builtins(value) == msgspec.to_builtins(setting.default),
        "takes": setting.allowed,
        "choices": settings.choices(setting.key),
        "meaning": setting.meaning,
        "changeable": setting.key in CHANGEABLE,
    }


def _command(server: Server, words: str) -> str:
    """A command for a terminal; it names the home where that is not the usual one."""
    named = server.home.root != Path.home() / ".clawback"
    return (f"CLAWBACK_HOME={shlex.quote(str(server.home.root))} " if named else "") + f"clawback {words}"
