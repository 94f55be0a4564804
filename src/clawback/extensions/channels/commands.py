"""``connect channel`` and ``connect mcp``: where people already are: chat and MCP clients."""

from __future__ import annotations

import signal
import sys
from contextlib import suppress

import click

from clawback import installed
from clawback.errors import MissingExtra
from clawback.extensions import channels
from clawback.terminal import current_home, emit, json_option, say


@click.command()
@click.argument("platform", type=click.Choice(channels.NAMES))
@click.option(
    "--check", is_flag=True, help="Say what is missing, and start nothing. Exits with 1 when something is."
)
@json_option
def channel(platform: str, check: bool, as_json: bool) -> int:
    """Run a bot in Slack, Discord or Telegram, where people talk to the live version and rate it. Ctrl-C ends it.

    The set-up of each, step by step: docs/channels.md. `clawback serve` must run as well.

    \b
    clawback connect channel telegram --check
    clawback connect channel telegram
    """
    from clawback.extensions.channels import bot_runner

    here = current_home()
    if not check:
        with suppress(KeyboardInterrupt):
            bot_runner.run(here, platform)
        return 0
    wrong = channels.missing(here, platform)
    if not bot_runner.server_answers(here):
        wrong.append("The server does not run (`clawback serve`), or is too busy to answer.")
    text = "\n".join(wrong) or f"Nothing is missing: `clawback connect channel {platform}` starts it."
    emit({"missing": wrong}, text, as_json)
    return 1 if wrong else 0


@click.command()
def mcp() -> None:
    """Serve tools to any MCP client, over stdin and stdout: rate, undo, status, what is worth rating.

    How to set up clients: docs/mcp.md.

    \b
    claude mcp add clawback -- clawback connect mcp
    """
    try:
        from clawback.extensions.channels import mcp as tools

        server = tools.make(current_home())
    except ImportError as error:
        raise MissingExtra(f"The MCP server needs one more part: {installed.add('mcp')}.") from error
    if sys.stdin.isatty():
        say("An MCP client starts this and talks to it in JSON (docs/mcp.md). Ctrl-C ends it.", err=True)
        signal.signal(
            signal.SIGINT, signal.SIG_DFL
        )  # the thread that reads the terminal would hold the end up
    server.run("stdio")
