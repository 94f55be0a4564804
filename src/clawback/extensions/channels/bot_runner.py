"""Runs one bot in the foreground until it is told to stop."""

from __future__ import annotations

import asyncio
import logging
import signal
import threading
from collections.abc import Iterable

from clawback.capture import server_proof
from clawback.errors import UsageError
from clawback.extensions import channels
from clawback.extensions.channels.channel import Desk, address
from clawback.paths import Home


def run(home: Home, name: str) -> None:
    """Run the bot; never returns. Ctrl-C (or the service manager's SIGTERM) raises ``KeyboardInterrupt`` when everything is closed.

    Raises ``UsageError`` for missing settings, ``ClawbackError`` where the platform refuses access.
    """
    if wrong := channels.missing(home, name):
        raise UsageError(" ".join(wrong))
    platform, settings = channels.find(name), channels.settings_of(home, name)
    tokens = channels.take_tokens(settings, platform)
    write_log(tokens.values())
    if threading.current_thread() is threading.main_thread():
        # A shell starts background jobs with SIGINT ignored, and asyncio would then hear of neither signal.
        signal.signal(signal.SIGINT, signal.default_int_handler)
        signal.signal(signal.SIGTERM, lambda *_: signal.raise_signal(signal.SIGINT))
    desk = Desk(home, name, settings, platform.LIMIT)
    asyncio.run(platform.run(desk, settings, tokens))


def server_answers(home: Home) -> bool:
    """Whether `clawback serve` is running and reachable."""
    url, _ = address(home)
    return server_proof.proven(home, int(url.rpartition(":")[2]))


class Masked(logging.Formatter):
    """Log lines without the tokens, whoever wrote them: some libraries put one into an address or an error."""

    def __init__(self, secrets: Iterable[str]) -> None:
        super().__init__("%(asctime)s %(message)s", "%Y-%m-%dT%H:%M:%S")
        self.secrets = [secret for secret in secrets if secret]

    def format(self, record: logging.LogRecord) -> str:
        line = super().format(record)
        for secret in self.secrets:
            line = line.replace(secret, "[token]")
        return line


def write_log(secrets: Iterable[str]) -> None:
    """Our own lines, and warnings of the libraries, to stderr."""
    handler = logging.StreamHandler()
    handler.setFormatter(Masked(secrets))
    logging.basicConfig(level=logging.WARNING, handlers=[handler], force=True)
    logging.getLogger("clawback.channels").setLevel(logging.INFO)
    logging.getLogger("discord.client").setLevel(logging.ERROR)  # it warns that it cannot speak aloud
