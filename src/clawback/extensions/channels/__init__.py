"""Chat bots for Slack, Discord and Telegram, and the tools that MCP clients see.

A bot asks the running server, which records the turn, and passes what people say about an answer to
``capture.ingest``.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from importlib import import_module
from typing import Protocol, cast

from clawback import config, installed
from clawback.errors import UsageError
from clawback.paths import Home

NAMES = ("slack", "discord", "telegram")


class Platform(Protocol):
    """The interface that a platform's module provides."""

    LIBRARY: str
    """The module without which it cannot run; the extra has the platform's name."""
    TOKENS: Mapping[str, str]
    """Setting → what the token in the variable that it names begins with ("" for anything)."""
    LIMIT: int
    """Length of a message, in UTF-16 units."""

    async def run(self, desk: object, settings: object, tokens: Mapping[str, str]) -> None:
        """Listen until cancelled. Raises ``ClawbackError`` where the platform does not let us in."""
        ...


def find(name: str) -> Platform:
    """Raises ``UsageError`` for a platform that there is not."""
    if name not in NAMES:
        raise UsageError(f"There is no channel {name!r}; there are: {', '.join(NAMES)}.")
    return cast("Platform", import_module(f"clawback.extensions.channels.{name}"))


def settings_of(home: Home, name: str) -> config.ChannelSection:
    return cast("config.ChannelSection", getattr(config.load(home.config), name))


def missing(home: Home, name: str) -> list[str]:
    """What must be done before the bot can run, one sentence each. Tokens are checked, never shown."""
    from importlib.util import find_spec

    platform, settings = find(name), settings_of(home, name)
    found = []
    if find_spec(platform.LIBRARY) is None or find_spec("aiohttp") is None:
        found.append(f"The library is missing: {installed.add(name)}.")
    for key, begins in platform.TOKENS.items():
        variable = getattr(settings, key)
        token = os.environ.get(variable, "")
        if not token:
            found.append(f"The environment variable {variable} is not set: it holds the token.")
        elif not token.startswith(begins):
            found.append(f"The token in {variable} does not begin with {begins}: it is another one.")
    if not (settings.owners or settings.allowed):
        found.append(f"Nobody may talk to the bot: name yourself in config.toml, [{name}] owners.")
    return found


def take_tokens(settings: config.ChannelSection, platform: Platform) -> dict[str, str]:
    """Take the tokens out of the environment, so that processes started from here do not inherit them."""
    return {key: os.environ.pop(getattr(settings, key), "") for key in platform.TOKENS}
