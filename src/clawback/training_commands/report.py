"""``report``: how it goes, in one HTML file."""

from __future__ import annotations

import errno
from pathlib import Path

import click

from clawback.terminal import emit, json_option, open_store


@click.command()
@click.option(
    "--output",
    type=click.Path(dir_okay=False, path_type=Path),
    default=Path("clawback-report.html"),
    show_default=True,
    help="The HTML file.",
)
@json_option
def report(output: Path, as_json: bool) -> None:
    """Write one HTML file: satisfaction over time and by version, gate, surveys, raters, and groups that are rated differently.

    It holds no text of any turn, but names of raters. With --json the figures are printed as well.

    \b
    clawback runs report
    clawback runs report --output team.html
    """
    from clawback.admin import html_report as job
    from clawback.files import replace

    if not output.absolute().parent.is_dir():  # a folder that was mistyped is not to be made
        raise FileNotFoundError(errno.ENOENT, "", str(output))
    with open_store() as store:
        found = job.facts(store)
    replace(output, job.page(found).encode())
    leaning = [
        f"{title}: {g.name} ({g.good:.0%} good of {g.count})"
        for title, of in found.skew.items()
        for g in of
        if g.leans
    ]
    lines = [f"The report is {output}: {found.ratings} ratings, {found.good:.0%} good."]
    lines += [f"Ratings lean by {one}" for one in leaning]
    emit(found.to_dict() | {"output": str(output)}, "\n".join(lines), as_json)
