"""``serve``: the server on the network; and ``turns sessions``: the conversations that it knows."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict
from importlib.util import find_spec
from typing import Any

import click

from clawback import config, installed, plugins
from clawback.capture import script
from clawback.cli.inspect import marks
from clawback.errors import ClawbackError, MissingExtra, UsageError
from clawback.paths import Home, secret
from clawback.terminal import (
    columns,
    current_home,
    emit,
    fold,
    json_option,
    listen,
    open_store,
    say,
    shorten,
    when,
)

IDLE_SECONDS = 30
CLOSING_SECONDS = 10


@click.command()
@click.option(
    "--port", type=click.IntRange(0, 65535), help="Where to listen; 0 takes a free one. [default: 8742]"
)
@click.option("--host", help="The address to listen on. [default: 127.0.0.1, this machine alone]")
@click.option(
    "--upstream", metavar="URL", help="Another server that answers; its answers are passed on and recorded."
)
@click.option(
    "--people",
    is_flag=True,
    help="Serve everybody in `clawback people list`, each from a separate home.",
)
@click.option(
    "--log-level",
    type=click.Choice(["debug", "info", "warning"]),
    default="warning",
    show_default=True,
    help="What the server writes about: everything, requests that matter, or warnings alone.",
)
def serve(port: int | None, host: str | None, upstream: str | None, people: bool, log_level: str) -> None:
    """Answer agents, record their turns, and show the web page. Ctrl-C ends it; nothing is lost.

    \b
    clawback serve
    clawback serve --upstream http://127.0.0.1:11434
    clawback serve --people --host 10.0.0.5
    ANTHROPIC_BASE_URL=http://127.0.0.1:8742 claude
    """
    try:
        import uvicorn

        from clawback.serve import app, protocol
    except ImportError as error:
        raise MissingExtra(f"The server needs more parts: {installed.add('serve')}.") from error
    here = current_home()
    here.create()
    options = {"port": port, "host": host, "upstream": upstream}
    settings = config.load(here.config).serve
    settings = config.changed(settings, {name: value for name, value in options.items() if value is not None})
    if settings.upstream and not settings.upstream.startswith(("http://", "https://")):
        raise UsageError(
            f"The upstream {settings.upstream!r} is no address: it begins with http:// or https://."
        )
    if not settings.upstream and find_spec("torch") is None:
        raise MissingExtra(
            f"Only the recording proxy is installed here. For your own model to answer: {installed.add('serve')}. "
            "Or name who answers: `clawback serve --upstream URL`."
        )
    if people:
        plugins.require(plugins.SERVERS, "people", "`--people`")
    if people and settings.upstream:
        raise UsageError("With --people the embedded engine answers: leave --upstream out.")
    if people:
        _warn_of_raters(here)
    listening = listen(settings.host, settings.port)
    number = listening.getsockname()[1]
    _announce(here, settings, number, people)
    server = uvicorn.Server(
        uvicorn.Config(
            plugins.load(plugins.SERVERS, "people").make(here, settings)
            if people
            else app.make(here, settings=settings),
            log_level=log_level,
            access_log=False,
            server_header=False,
            timeout_keep_alive=IDLE_SECONDS,
            timeout_graceful_shutdown=CLOSING_SECONDS,
            http=protocol.Limited,
        )
    )
    keep_log(here)
    with announced(here, number), ended_by_signals(server):
        server.run(sockets=[listening])
    if not server.started:
        raise ClawbackError("The server could not start; the lines above say why.")


def _warn_of_raters(here: Home) -> None:
    """Raters of this home are not served with --people."""
    if names := invited(here):
        say(
            f"With --people the home {here.root} is not served: the tokens of its raters ({', '.join(names)}) open nothing. "
            f"Invite raters into a person's home: `CLAWBACK_HOME={here.root}/people/NAME clawback raters invite RATER`.",
            err=True,
        )


def _announce(here: Home, settings: config.ServeSection, number: int, people: bool) -> None:
    """Print where the page is, who answers, and whether another server of this home runs."""
    token = "" if people else secret(here.root / "token")
    shown = f"[{settings.host}]" if ":" in settings.host else settings.host
    say(f"Clawback answers on http://{shown}:{number}  (Ctrl-C ends it)")
    # Not into a journal or a file that others may read.
    hidden = not people and not sys.stdout.isatty()
    if people:
        say(f"The page:            http://{shown}:{number}/  (it asks for a person's token)")
        count = len(plugins.load(plugins.SERVERS, "people").names(here))
        say(f"People:              {count or 'nobody yet: `clawback people add NAME`'}")
    else:  # on a line of its own it fits 80 columns, so that it is copied whole
        say(f"The page:\nhttp://{shown}:{number}/#token={'…' if hidden else token}")
    if hidden:
        say(f"The token is in:     {here.root / 'token'}")
    base = config.load(here.config).model.base
    if settings.upstream:
        say(f"Upstream:            {settings.upstream} answers; its answers are recorded")
    else:
        say(f"Model:               the live version of {base} answers")
        if base == config.EMBEDDED:
            say(config.DEMONSTRATION)
    if not people and (other := other_server(here, number)):
        say(
            f"Another server of this home answers on port {other}. Both go on; from now on agents' hooks find this one. End the other if"
            " it is left over.",
            err=True,
        )


def invited(here: Home) -> list[str]:
    """Who has a rater's token of this home; nobody where there is no store yet."""
    if not here.database.exists():
        return []
    with open_store() as store:
        return [one.name for one in store.invited()]


def other_server(here: Home, port: int) -> int | None:
    """The port of a server of this home that answers already; None where there is none."""
    from clawback.capture import server_proof

    known = script.announced(here)
    return known[0] if known and known[0] != port and server_proof.proven(here, known[0]) else None


def keep_log(here: Home) -> None:
    """What the server warns of goes to ``logs/serve.log`` as well, where nobody watches its terminal; four files of a megabyte at most."""
    import logging
    from logging.handlers import RotatingFileHandler

    here.logs.mkdir(mode=0o700, exist_ok=True)
    log = here.logs / "serve.log"
    os.close(os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600))
    log.chmod(0o600)
    file = RotatingFileHandler(log, maxBytes=1_000_000, backupCount=3, encoding="utf-8", delay=True)
    file.setFormatter(logging.Formatter("%(asctime)s %(levelname)s %(message)s"))
    file.setLevel(logging.WARNING)
    for name in ("clawback", "uvicorn.error"):
        logging.getLogger(name).addHandler(file)
    # What libraries warn of is for who develops them: into the file, not onto the terminal.
    logging.captureWarnings(True)
    for name in ("py.warnings", "transformers"):
        quiet = logging.getLogger(name)
        quiet.handlers, quiet.propagate = [file], False
    os.environ.setdefault("TRANSFORMERS_VERBOSITY", "error")


@contextmanager
def announced(here: Home, port: int) -> Iterator[None]:
    """Agents' hooks find the server by this file; the newest server is the one that they find."""
    script.announce(here, port)
    try:
        yield
    finally:
        now = script.announced(here)
        if now and now[0] == port:
            with suppress(OSError):
                (here.root / script.SERVER).unlink()


@contextmanager
def ended_by_signals(server: Any) -> Iterator[None]:
    """What ends us (`systemctl stop`, a terminal that closes) ends us in order: uvicorn raises the signal once more when it is done, and
    its default would leave the file that announces us behind."""

    def leave(number: int, _: Any) -> None:
        server.should_exit = True
        if number == signal.SIGTERM and server.started:  # uvicorn has closed already
            raise SystemExit(0)

    before = {number: signal.signal(number, leave) for number in (signal.SIGTERM, signal.SIGHUP)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


@click.command()
@click.argument("name", required=False)
@click.option("--limit", default=20, show_default=True, type=click.IntRange(1, 10_000), help="How many.")
@json_option
def sessions(name: str | None, limit: int, as_json: bool) -> None:
    """List conversations, newest first; or show the turns of one.

    \b
    clawback turns sessions
    clawback turns sessions 0f9c2d
    """
    with open_store() as store:
        if name is None:
            records = store.sessions(limit)
            lines = [
                f"{when(s.created_at)}  {shorten(s.agent, 11):<11} {s.main:>3} main {s.side:>3} side {s.rated:>3} rated "
                f"{'' if s.reward is None else f'{s.reward:+.2f}':<5} {'done' if s.done_at else '':<4} {s.name}"
                for s in records
            ]
            emit([asdict(s) for s in records], fold("\n".join(lines), "  ") or "No sessions yet.", as_json)
            return
        one = store.session(name)
        members = list(reversed(store.turns(limit=limit, session=name)))
        said = {turn.id: store.feedback(turn_id=turn.id) for turn in members}
    data = asdict(one) | {
        "turns": [{"id": t.id, "kind": t.kind, "prompt": t.prompt, "response": t.response} for t in members]
    }
    lines = [columns(f"{t.id:>6}  {t.kind}  {marks(said[t.id]):<4}", t.prompt, t.response) for t in members]
    emit(
        data,
        "\n".join([f"{one.agent} · {one.main} main, {one.side} side · {when(one.created_at)}", *lines]),
        as_json,
    )
