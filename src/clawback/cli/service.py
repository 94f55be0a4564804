"""``service``: keep the server running."""

from __future__ import annotations

from dataclasses import asdict

import click

from clawback.terminal import CommandGroup, current_home, emit, json_option


@click.group(cls=CommandGroup)
def service() -> None:
    """Keep `clawback serve` running in the background, from login on (systemd or launchd).

    \b
    clawback connect service install
    clawback connect service status
    """


@service.command()
@json_option
def install(as_json: bool) -> None:
    """Start the server now and at every login.

    \b
    clawback connect service install
    """
    from clawback.admin import system_service as services

    changed = services.install(current_home())
    text = "\n".join(f"wrote {path}" for path in changed) or "It was in place already."
    emit({"changed": [str(p) for p in changed]}, text, as_json)


@service.command()
@json_option
def uninstall(as_json: bool) -> None:
    """Stop the server and do not start it again.

    \b
    clawback connect service uninstall
    """
    from clawback.admin import system_service as services

    changed = services.uninstall(current_home())
    text = "\n".join(f"removed {path}" for path in changed) or "There was nothing to take out."
    emit({"changed": [str(p) for p in changed]}, text, as_json)


@service.command()
@json_option
def status(as_json: bool) -> int:
    """Whether it is installed, and whether it runs. Exits with 1 when it does not run.

    \b
    clawback connect service status
    """
    from clawback.admin import system_service as services

    state = services.status(current_home())
    said = (
        "not installed" if not state.installed else "running" if state.running else "installed, not running"
    )
    text = f"The service is {said}." + (f" {state.note}" if state.note else "")
    emit(asdict(state) | {"file": str(state.file)}, text, as_json)
    return 0 if state.running else 1
