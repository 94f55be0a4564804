"""``config import``: settings of OpenClaw-RL."""

from __future__ import annotations

from pathlib import Path

import click

from clawback import config as settings_file
from clawback.paths import tidy
from clawback.terminal import current_home, emit, fold, json_option


@click.command("import")
@click.argument("file", type=click.Path(exists=True, dir_okay=False, path_type=Path))
@click.option("--dry-run", is_flag=True, help="Say what would be set, and set nothing.")
@json_option
def import_(file: Path, dry_run: bool, as_json: bool) -> int:
    """Import the settings of OpenClaw-RL (YAML or JSON), with a line about each key of the file.

    Exits with 1 if a key is unknown; the others are set all the same.

    \b
    clawback config import training_config.yaml --dry-run
    clawback config import session_config.json
    """
    from clawback.extensions.openclaw_rl import translation

    answers = translation.read(file)
    found = translation.changes(answers)
    if found and not dry_run:
        settings_file.save(current_home().config, found)
    lines = [f"{one.key}: {translation.WORDS[one.kind]}: {one.note}" for one in answers]
    done = f"Set in {tidy(current_home().config)}." if found else "Nothing of it changes a setting here."
    lines.append("Nothing was set (--dry-run)." if dry_run else done)
    data = [
        {"key": a.key, "value": a.value, "answer": a.kind, "said": a.note, "sets": dict(a.sets)}
        for a in answers
    ]
    emit(data, "\n".join(fold(line, "    ") for line in lines), as_json)
    return int(any(one.kind == "unknown" for one in answers))
