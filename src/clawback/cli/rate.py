"""``good bad rate undo prefer edit remark``: feedback in one tap. Nothing heavy may be imported here."""

from __future__ import annotations

import os
import shlex
import sys
from dataclasses import asdict
from typing import TYPE_CHECKING

import click

from clawback import endings
from clawback.errors import ClawbackError, NotFound, UsageError
from clawback.terminal import confirm, current_home, emit, fold, json_option, open_turns, shorten, width
from clawback.terminal.options import F

if TYPE_CHECKING:
    from clawback.records import Feedback, JsonObject
    from clawback.store import TurnStore


def turn_option(function: F) -> F:
    return click.option(
        "--turn", type=int, metavar="ID", help="The turn to rate; by default the newest of this folder."
    )(function)


def any_option(function: F) -> F:
    return click.option("--any", "anywhere", is_flag=True, help="The newest turn of any folder.")(function)


def remark_option(function: F) -> F:
    return click.option(
        "--remark", "--note", "remark", default="", metavar="TEXT", help="Why, in your own words."
    )(function)


def newest(store: TurnStore, turn: int | None, anywhere: bool = False) -> int:
    """The named turn, or the one whose answer was seen last in this folder. Of another folder's only where the person says so.

    Raises ``NotFound``.
    """
    if turn is not None:
        return turn
    here = os.getcwd()  # noqa: PTH109  (pathlib costs time here)
    if not anywhere and (last := store.last_turn(cwd=here)):
        return last.id
    last = store.last_turn()
    if last is None:
        raise NotFound(
            unvouched(store)
            or "There is no captured turn to rate yet. Use your agent, `clawback chat`, or `clawback import FILE`."
        )
    if not anywhere:
        of = f"of {last.cwd}" if last.cwd else "without a known folder"
        named = f'turn {last.id}, {of} ("{shorten(last.response, 60)}")'
        question = f"There is no turn of this folder. The newest is {named}. Rate that one?"
        if not (sys.stdin.isatty() and confirm(question, err=True)):
            raise NotFound(
                f"There is no turn of this folder. The newest is {named}: `--any` rates that, `--turn ID` any other. {unvouched(store)}".strip()
            )
    return last.id


def unvouched(store: TurnStore) -> str:
    """Why the newest turn is passed by, and how it is rated; "" where it is not passed by."""
    turn = store.last_unvouched()
    if turn is None:
        return ""
    context = click.get_current_context(silent=True)
    words = [context.info_name or "good", *context.params.get("words", ())] if context else ["good"]
    return (
        f'Turn {turn.id} ("{shorten(turn.response, 60)}") came from a client that does not send Clawback\'s token, so it could be'
        f" from any program on this machine. If it is yours: `clawback {shlex.join(words)} --turn {turn.id}`."
    )


def done(store: TurnStore, opinion: Feedback, sentence: str, as_json: bool) -> None:
    """Say what was stored, warn when ratings lean one way, and start a run when enough are fresh."""
    from clawback import feedback

    turn = store.turn(opinion.turn_id)
    warning, cut = feedback.balance(store).warning, endings.notice(turn.ending, turn.kind)
    started = start_training_if_due(store)
    data: JsonObject = asdict(opinion) | {"warning": warning, "notice": cut, "training_started": started}
    about = f"{sentence} (turn {turn.id}: "
    lines = [f'{about}"{shorten(turn.response, max(width() - len(about) - 3, 20))}")']
    lines += [fold(text) for text in (cut, warning) if text]
    lines += [training_prepared(store)] if started else []
    emit(data, "\n".join(lines), as_json)


def training_prepared(store: TurnStore) -> str:
    from clawback.feedback.due import begun

    return fold(f"Enough ratings have come together. {begun(store, current_home(), 'clawback status')}")


def start_training_if_due(store: TurnStore) -> bool:
    """A cheap count first; the room that starts processes is only imported when it has something to do."""
    from clawback.feedback import training_due

    if not training_due(store, current_home()):
        return False
    from clawback import jobs

    return bool(jobs.maybe_train(current_home()))


def typed_by() -> str:
    """``cli``, or ``agent`` where an agent runs this command."""
    from clawback.feedback.provenance import of_terminal

    return of_terminal(os.environ)


def _rate(words: tuple[str, ...], turn: int | None, anywhere: bool, remark: str, as_json: bool) -> None:
    """What was typed, in the words of every other surface (``feedback.command``); the rest of the line is the remark."""
    from dataclasses import replace

    from clawback.feedback.command import understood

    if words[1:] and all(word.isdecimal() for word in words[1:]) and words[0] in ("good", "bad"):
        raise UsageError(f"To name a turn: `clawback {words[0]} --turn {words[1]}`.")
    try:
        opinion, sentence = understood(words[0], " ".join(words[1:]))
    except UsageError as error:
        if words[0] != "rate" or str(error).startswith("A score"):
            raise
        raise UsageError(f"SCORE is a number from 1 to 10, not `{words[1]}`.") from None
    text = "; ".join(filter(None, (opinion.text, remark)))
    with open_turns() as store:
        number = newest(store, turn, anywhere)
        stored = store.add_feedback(replace(opinion, turn_id=number, text=text, source=typed_by()))
        done(store, stored, f"{sentence}.", as_json)


@click.command()
@click.argument("words", nargs=-1, metavar="[WHY]")
@turn_option
@any_option
@remark_option
@json_option
def good(words: tuple[str, ...], turn: int | None, anywhere: bool, remark: str, as_json: bool) -> None:
    """Rate the last turn of this folder as good. What follows is the remark.

    \b
    clawback good
    clawback good short and right
    clawback good --turn 12 --remark "short and right"
    """
    _rate(("good", *words), turn, anywhere, remark, as_json)


@click.command()
@click.argument("words", nargs=-1, metavar="[WHY]")
@turn_option
@any_option
@remark_option
@json_option
def bad(words: tuple[str, ...], turn: int | None, anywhere: bool, remark: str, as_json: bool) -> None:
    """Rate the last turn of this folder as bad. What follows is the remark.

    \b
    clawback bad
    clawback bad too wordy
    clawback bad --remark "do not apologise"
    """
    _rate(("bad", *words), turn, anywhere, remark, as_json)


@click.command()
@click.argument("words", nargs=-1, required=True, metavar="SCORE [WHY]")
@turn_option
@any_option
@remark_option
@json_option
def rate(words: tuple[str, ...], turn: int | None, anywhere: bool, remark: str, as_json: bool) -> None:
    """Rate a turn from 1 (awful) to 10 (perfect). What follows is the remark.

    Scores count by what is usual for you: where you never give less than 6, a 6 is a bad rating.

    \b
    clawback rate 8
    clawback rate 7.5 nearly right
    clawback rate 4/5 --turn 12
    """
    _rate(("rate", *words), turn, anywhere, remark, as_json)


@click.command()
@click.option("--turn", type=int, metavar="ID", help="The newest on this turn; by default the newest of all.")
@json_option
def undo(turn: int | None, as_json: bool) -> None:
    """Take back the last feedback (or the last on one turn).

    Versions that have already learned from it are marked, and can be retrained without it.

    \b
    clawback undo
    clawback undo --turn 12
    """
    from clawback import feedback
    from clawback.records import KIND_WORDS

    with open_turns() as store:
        taken = feedback.undo(store, turn)
        stale = [v.number for v in store.versions() if v.stale]
        worth = f" {taken.value:+.2g}" if taken.value else ""
        text = f"Taken back: {KIND_WORDS.get(taken.kind, taken.kind)}{worth} on turn {taken.turn_id}."
        if stale:
            text += f"\nVersions that learned from feedback taken back: {', '.join(map(str, stale))}."
            text += " `clawback train` makes one without it."
        emit(asdict(taken) | {"stale_versions": stale}, text, as_json)


@click.command()
@click.argument("better", type=int)
@click.argument("worse", type=int)
@remark_option
@json_option
def prefer(better: int, worse: int, remark: str, as_json: bool) -> None:
    """Say that turn BETTER is better than turn WORSE.

    \b
    clawback prefer 12 15
    """
    from clawback import feedback

    with open_turns() as store:
        preference = feedback.prefer(store, better, worse, note=remark, source=typed_by())
        done(store, preference, f"Noted: {better} is better than {worse}.", as_json)


@click.command()
@click.argument("turn", type=int)
@click.option("--text", help="The corrected response; without it your editor opens.")
@json_option
def edit(turn: int, text: str | None, as_json: bool) -> None:
    """Correct the response of a turn.

    Without --text your editor opens with the response. Save to store your version; close without saving to change nothing.

    \b
    clawback edit 12
    clawback edit 12 --text "Otters eat fish."
    """
    from clawback import feedback

    with open_turns() as store:
        if text is None:
            response = store.turn(turn).response
            try:
                written = click.edit(response)
            except click.ClickException as error:
                raise ClawbackError(
                    f"The editor failed ({error.message}), so nothing was changed. Name another in $EDITOR, or give the text: `clawback edit {turn} --text …`."
                ) from None
            if written is None:
                emit({"changed": False}, "Nothing was changed.", as_json)
                return
            text = written.rstrip("\n")
        done(store, feedback.edit(store, turn, text, source=typed_by()), "Noted: your correction.", as_json)


@click.command()
@click.argument("turn", type=int)
@click.argument("text")
@json_option
def remark(turn: int, text: str, as_json: bool) -> None:
    """Say in words what was wrong with the response of a turn.

    \b
    clawback turns remark 12 "Bullet points, please, and no apology."
    """
    from clawback import feedback

    with open_turns() as store:
        done(store, feedback.critique(store, turn, text, source=typed_by()), "Noted.", as_json)
