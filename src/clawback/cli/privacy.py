"""``backup forget prune``: copy the database, delete what was said, and versions that nobody needs."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import click

from clawback import plugins
from clawback.errors import UsageError
from clawback.terminal import as_record, confirm, current_home, emit, json_option, open_store, quantity, say
from clawback.terminal.encryption import locking, write_encrypted

if TYPE_CHECKING:
    from clawback.privacy.retention import RetentionRules


@dataclass(frozen=True, slots=True)
class ForgetOptions:
    """What is deleted, and what follows."""

    turns: tuple[int, ...]
    session: str
    person: str
    copy: Path | None
    retrain: bool
    seed: int | None


@click.command()
@click.argument("path", type=click.Path(dir_okay=False, path_type=Path))
@locking
@json_option
def backup(path: Path, to: tuple[str, ...], phrase: bool, as_json: bool) -> None:
    """Copy the database, also while it is in use.

    The copy of an encrypted database needs the same key. With --to or --passphrase the file itself is encrypted, and the database in it needs no
    other key.

    \b
    clawback data backup ~/clawback-2026-11-21.db
    clawback data backup ~/clawback.age --passphrase
    """

    def write(file: Path) -> int:
        with open_store() as store:
            store.backup(file, plain=file != path)
        return 0

    write_encrypted(path, to, phrase, write)
    emit({"path": str(path)}, f"The database was copied to {path}.", as_json)


@click.command()
@click.option(
    "--turn", "turns", type=int, multiple=True, metavar="ID", help="A turn; more than once for several."
)
@click.option("--session", default="", metavar="NAME", help="All turns of a conversation.")
@click.option(
    "--person", default="", metavar="NAME", help="What a rater said (`clawback raters`), and what they asked."
)
@click.option(
    "--export", "copy", type=click.Path(path_type=Path), help="First write all of it to this file (JSONL)."
)
@click.option("--retrain", is_flag=True, help="Train a version without it, and show that it is gone.")
@click.option("--seed", type=int, help="For --retrain.")
@click.option("--dry-run", is_flag=True, help="Only say what would go.")
@click.option("--yes", is_flag=True, help="Do not ask.")
@json_option
@as_record(ForgetOptions)
def forget(options: ForgetOptions, dry_run: bool, yes: bool, as_json: bool) -> int:
    """Delete turns for good, with all feedback on them. Versions that learned from them are marked.

    With --retrain the newest version that did not learn from them goes live, a new one is trained from the rest, and the log-probabilities of
    the deleted answers are shown under both. --retrain alone does this for earlier deletions. Backups, exports and the agents' own
    transcripts are not deleted.

    \b
    clawback data forget --turn 12 --turn 13
    clawback data forget --session claude-code:ab12 --retrain
    clawback data forget --person slack:U024 --export all-of-it.jsonl
    """
    from clawback.admin import forgetting
    from clawback.privacy import erasure
    from clawback.terminal.progress_bar import progress_bar

    here = current_home()
    if options.copy is not None:
        plugins.require(plugins.IMPORTERS, "files", "`--export`")
    with open_store() as store:
        if options.retrain and not (options.turns or options.session or options.person):
            forgetting.needs_training(store)
            wish = None
        else:
            wish = erasure.wanted(store, turns=options.turns, session=options.session, person=options.person)
        if options.copy is not None and wish is not None:
            plugins.load(plugins.IMPORTERS, "files").export_file(
                store, options.copy, turns=wish.turns, session=options.session, person=options.person
            )
    if wish is None:
        with progress_bar(quiet=as_json) as follow:
            version, why = forgetting.train_without(here, seed=options.seed, on_progress=follow)
        said = (
            why or f"Version {version.number} was trained without it ({version.status})." if version else why
        )
        emit({"version": version.number if version else None, "why": why}, said, as_json)
        return 0 if version else 1
    what = f"{len(wish.turns)} turns" + (
        f" and {len(wish.feedback)} pieces of feedback" if wish.feedback else ""
    )
    if dry_run:
        emit(asdict(wish), f"{what} would be deleted.", as_json)
        return 0
    if not yes:
        confirm(f"Delete {what} for good?", abort=True, err=True)
    with progress_bar(quiet=as_json) as follow:
        done = forgetting.forget(here, wish, retrain=options.retrain, seed=options.seed, on_progress=follow)
    emit(done.to_dict(), _summary(done, options.retrain), as_json)
    return 1 if done.why else 0


def _summary(done: object, retrain: bool) -> str:
    from clawback.admin.forgetting import ForgettingOutcome

    assert isinstance(done, ForgettingOutcome)
    lines = [done.erased.text()]
    if done.memory is not None:
        lines.append(done.memory.text())
    if done.version is not None:
        lines.append(f"Version {done.version.number} was trained without it ({done.version.status}).")
    if done.why:
        lines.append(f"It is deleted, but no version was trained without it: {done.why}")
    if not retrain and done.erased.live is not None:
        lines.append(
            f"Version {done.erased.live}, which is live, is one of them: `clawback data forget --retrain` trains without it."
        )
    return "\n".join(lines)


@click.command()
@click.option("--days", type=click.IntRange(min=0), help="Turns older than this.")
@click.option("--keep-turns", type=click.IntRange(min=0), metavar="N", help="All but the newest N turns.")
@click.option(
    "--answered-by",
    "version",
    type=click.IntRange(min=0),
    metavar="V",
    help="Turns that version V, or an older one, answered.",
)
@click.option(
    "--rated", is_flag=True, help="Turns with feedback, too; versions that learned from them are marked."
)
@click.option(
    "--keep-versions",
    type=click.IntRange(min=0),
    metavar="N",
    help="All but N versions, beside the live one and the one before.",
)
@click.option("--stale", is_flag=True, help="Versions that learned from what was deleted.")
@click.option("--dry-run", is_flag=True, help="Only say what would go.")
@click.option(
    "--trust-clock",
    is_flag=True,
    help="The clock is right, though it is far ahead of when this home was last used.",
)
@click.option("--yes", is_flag=True, help="Do not ask.")
@json_option
@as_record("clawback.privacy.retention:RetentionRules", "rules")
def prune(rules: RetentionRules, dry_run: bool, trust_clock: bool, yes: bool, as_json: bool) -> None:
    """Delete old turns and old versions; without options by [privacy] keep_days and keep_versions.

    Turns with feedback stay unless --rated is given. The base, the live version, the one before it, candidates and versions on trial
    always stay.

    \b
    clawback data prune --days 90 --dry-run
    clawback data prune --keep-turns 5000 --keep-versions 5
    clawback data prune --stale
    """
    from clawback import config
    from clawback.privacy import retention

    here = current_home()
    settings = config.load(here.config).privacy
    if rules.empty:
        rules = retention.RetentionRules(
            days=settings.keep_days or None, rated=rules.rated, keep_versions=settings.keep_versions or None
        )
    if rules.empty:
        raise UsageError(
            "Name what may go, such as --days 90 or --keep-versions 5, or set [privacy] keep_days and keep_versions."
        )
    with open_store() as store:
        if trust_clock:
            store.trust_clock()
        if rules.days and (ahead := store.clock_ahead() / retention.DAY) > 1:
            say(
                f"The clock is {ahead:.0f} days ahead of when this home was last used. Until as long as --days has passed since, ages"
                " are counted without these days. If the clock is right: --trust-clock.",
                err=True,
            )
        chosen = retention.plan(store, rules)
        what = f"{quantity(len(chosen.turns), 'turn')} and {quantity(len(chosen.versions), 'version')}"
        if dry_run or not (chosen.turns or chosen.versions):
            emit(asdict(chosen), f"{what} would go.", as_json)
            return
        if not yes:
            confirm(f"Delete {what} for good?", abort=True, err=True)
        store.deletion_time(0)  # noted, so that the next look knows what has passed
        retention.prune(store, here, chosen)
    emit(asdict(chosen), f"{what} are deleted.", as_json)
