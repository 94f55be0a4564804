"""``people add|list|token``: who may use a server of many."""

from __future__ import annotations

import click

from clawback.extensions.people.homes import PersonHomes
from clawback.terminal import CommandGroup, current_home, emit, json_option


def here() -> PersonHomes:
    return PersonHomes(current_home().root)


@click.group(cls=CommandGroup)
def people() -> None:
    """Manage the people who share this server, each with a separate home (`clawback serve --people`).

    \b
    clawback people add ada
    CLAWBACK_HOME=~/.clawback/people/ada clawback status
    """


@people.command()
@click.argument("name")
@json_option
def add(name: str, as_json: bool) -> None:
    """Make a home for somebody, and print its token.

    \b
    clawback people add ada
    """
    token = here().add(name)
    emit({"name": name, "token": token}, f"{name}'s token, shown this once: {token}", as_json)


@people.command(name="list")
@json_option
def show(as_json: bool) -> None:
    """Who there is.

    \b
    clawback people list
    """
    names = here().names()
    emit(names, "\n".join(names) or "Nobody yet: `clawback people add NAME`.", as_json)


@people.command()
@click.argument("name")
@json_option
def token(name: str, as_json: bool) -> None:
    """Give somebody a new token; the old one stops working at once.

    \b
    clawback people token ada
    """
    new = here().renew(name)
    emit({"name": name, "token": new}, f"{name}'s token, shown this once: {new}", as_json)
