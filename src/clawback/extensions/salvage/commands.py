"""``data salvage``: a way out of a damaged database."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path

import click

from clawback.errors import NotFound
from clawback.terminal import current_home, emit, json_option


@click.command()
@json_option
def salvage(as_json: bool) -> None:
    """Save what can be read of a damaged database into a new one, and put that in its place.

    The damaged file is kept beside it; a file that is intact stays as it is. Stop the server first. Readable rows that fit nowhere any more go into a file of JSON lines.

    \b
    clawback doctor
    clawback data salvage
    """
    from clawback.extensions.salvage import damaged_database

    here = current_home()
    if not here.database.exists():
        raise NotFound(f"There is no database {here.database}.")
    report = damaged_database.save_what_can_be_read(here)
    if report is None:
        emit({"intact": True}, f"Nothing is damaged. {here.database} stays as it is.", as_json)
        return
    lines = [
        f"Saved: {report.saved.get('turns', 0)} turns and {report.saved.get('feedback', 0)} pieces of feedback.",
        f"Parts of these tables could not be read: {', '.join(sorted(report.damaged_parts))}."
        if report.damaged_parts
        else "Every row could be read.",
    ]
    if report.leftovers:
        lines.append(f"{report.aside} rows can be read but fit nowhere any more: {report.leftovers}.")
    lines.append(f"The damaged file is {report.damaged}.")
    if restored := sum(report.from_copy.values()):
        lines.append(
            f"{restored} rows of these parts are as they were in {report.copy}; what came after it is lost."
        )
    elif report.damaged_parts:
        lines.append("No copy has the rows of these parts: they are lost.")
    data = {name: str(value) if isinstance(value, Path) else value for name, value in asdict(report).items()}
    emit({"intact": False} | data, "\n".join(lines), as_json)
