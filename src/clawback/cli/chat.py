"""``ask``: one answer of a version, as it comes, and its rating by one key. ``conversation`` has `clawback chat`."""

from __future__ import annotations

import os
import uuid
from collections.abc import Collection
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from clawback import config, endings
from clawback.errors import ClawbackError, UsageError
from clawback.terminal import current_home, emit, json_option, one_key, open_store, say
from clawback.terminal.progress_bar import waiting

if TYPE_CHECKING:
    from clawback.inference.streams import AnswerRequest, AnswerSource
    from clawback.paths import Home
    from clawback.records import JsonObject, Turn, Version
    from clawback.store import Store

KEYS = "[g]ood [b]ad [1-9,0] score [e]dit [enter] skip [q]uit"
DIGITS = tuple("1234567890")
"""A tuple: `in` asks for the whole key, so that neither no key nor a pasted word counts as one."""
NAMES = {
    "g": "good", "b": "bad", "e": "edit", "q": "quit", "": "quit", "\r": "skipped", "\n": "skipped",
    **{digit: digit for digit in DIGITS},
}  # fmt: skip
UNKNOWN = "no such key"
STOPPED = 130
"""The exit code where Ctrl-C stopped the answer."""


def open_source(home: Home, store: Store, quiet: bool = False) -> AnswerSource:
    """The running server, or an engine in this process; a damaged live version is passed over, and named."""
    with waiting(f"loading {model_name(home)}", quiet):
        from clawback.inference import streams

        source = streams.source_of(home, store)
        if not isinstance(source, streams.ServerAnswers):  # the server checks what it loads
            from clawback import release

            if healed := release.heal(store, home):
                say(f"The live version was damaged; version {healed.number} answers now.", err=True)
    return source


def ask_about_news(home: Home, store: Store) -> None:
    """What a run brought since the person last looked; y keeps it, n goes back, any other key leaves the question for later."""
    from clawback.feedback.news import news

    current = news(store)
    if current is None:
        return
    say(current.sentence)
    if not current.live:
        return
    from clawback.jobs.news_answer import decide

    key = one_key("[y] keep  [n] go back  [any other key] later ")
    say()
    if key in ("y", "n"):
        say(decide(store, home, key == "y"))


def model_name(home: Home) -> str:
    """The base model as a person knows it: the last part of its path or address."""
    return Path(config.load(home.config).model.base).name


def show_answer(
    source: AnswerSource, question: AnswerRequest, quiet: bool = False
) -> tuple[Turn | None, bool]:
    """Show an answer as it comes. Returns its stored turn, None where nothing came, and whether Ctrl-C stopped it."""
    from clawback.terminal.answer_view import AnswerView

    view, cut, pieces = AnswerView(), False, source.answer(question)
    try:
        with waiting(source.activity, quiet):
            piece = next(pieces, None)
        while piece is not None:
            if not quiet:
                view.write(piece)
            piece = next(pieces, None)
    except KeyboardInterrupt:
        cut = True
    except BrokenPipeError:  # whoever read has left: what there is of the answer is kept
        source.finish(True)
        raise
    finally:
        with suppress(BrokenPipeError):
            view.end()
    return source.finish(cut), cut


@click.command()
@click.argument("text")
@click.option(
    "--picture", "shown", multiple=True, type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="A picture that it is about (PNG, JPEG, WebP, GIF), for a base model that sees. Can be repeated.",
)  # fmt: skip
@click.option(
    "--max-tokens", type=click.IntRange(1, 100_000),
    help="The longest answer.  [default: [generation] max_tokens, else 2048]",
)  # fmt: skip
@click.option("--seed", type=int, help="The same seed gives the same answer.")
@json_option
def ask(text: str, shown: tuple[Path, ...], max_tokens: int | None, seed: int | None, as_json: bool) -> int:
    """Ask the live version one thing. The answer is captured and can be rated.

    It comes word by word, from the running server if there is one. Ctrl-C stops it; what there is of it is kept.

    \b
    clawback ask "Tell me about the otter."
    clawback ask "Which animal is this?" --picture photo.jpg
    clawback good
    """
    if not text.strip() and not shown:
        raise UsageError('There is nothing to ask: `clawback ask "Tell me about the otter."`.')
    parts = [picture_part(file) for file in shown]
    content: Any = [*parts, {"type": "text", "text": text}] if parts else text
    here = current_home()
    with open_store() as store:
        source = open_source(here, store, as_json)
        from clawback.inference.streams import AnswerRequest, limit_of

        question = AnswerRequest(
            messages=({"role": "user", "content": content},),
            session=f"ask:{uuid.uuid4().hex}",
            seed=fresh_seed() if seed is None else seed,
            max_tokens=max_tokens or limit_of(config.load(here.config)),
        )
        turn, cut = show_answer(source, question, as_json)
        source.close()
    if turn is None and not cut:
        raise ClawbackError("The model answered with nothing, so nothing was stored. Ask again.")
    if as_json and turn is not None:
        data = {"turn": turn.id, "version": turn.version, "response": turn.response, "ending": turn.ending}
        data |= {"best_of": source.draws} if source.draws > 1 else {}
        emit(data, "", as_json)
    elif notice := " ".join(filter(None, [notice_of(source), _notice(turn, cut)])):
        say(notice, err=True)
    return STOPPED if cut else 0


def notice_of(source: AnswerSource) -> str:
    """How the newest answer was drawn, where that is another way than by one draw as usual; else ""."""
    return (
        f"The best of {source.draws} draws (`clawback versions trial`)."
        if source.draws > 1
        else source.notice
    )


def _notice(turn: Turn | None, cut: bool) -> str:
    """What is worth knowing about how an answer ended; "" for one that the model ended."""
    if turn is None:
        return "Stopped before the first word."
    stopped = (
        f"Stopped. What there is of it is turn {turn.id}: `clawback good` and `bad` rate it." if cut else ""
    )
    return " ".join(filter(None, [stopped, endings.notice(turn.ending)]))


def picture_part(file: Path) -> JsonObject:
    """A file as the part of a message. Raises ``UsageError`` for one that is no picture, or too large."""
    from clawback import pictures

    data = file.read_bytes() if file.stat().st_size <= pictures.MOST_BYTES else b""
    if not pictures.kind_of(data):
        raise UsageError(f"{file} is no PNG, JPEG, WebP or GIF of at most {pictures.MOST_BYTES >> 20} MB.")
    return pictures.part_of(data)


def fresh_seed() -> int:
    return int.from_bytes(os.urandom(4))


def name_of(version: Version) -> str:
    return "the base model" if version.number == 0 else f"version {version.number}"


def known_key(question: str, known: Collection[str]) -> str:
    """Ask until one of the keys is pressed: a slip must not skip the answer that the person wants to rate."""
    while (key := one_key(f"{question} ")) not in known:
        say(UNKNOWN)
    return key


def rate_by_key(store: Store, turn: Turn) -> bool:
    """One key says what the answer was worth; False when the person wants to leave."""
    key = known_key(KEYS, NAMES)
    say(NAMES[key])
    try:
        if give(store, turn, key):
            from clawback.cli.rate import start_training_if_due, training_prepared

            if start_training_if_due(store):
                say(training_prepared(store))
    except UsageError as error:
        say(str(error))
    return key not in ("q", "")


def give(store: Store, turn: Turn, key: str) -> bool:
    """Store what the key says; False for a key that says nothing about the answer."""
    from clawback import feedback

    if key in ("g", "b"):
        feedback.rate(store, turn.id, 1 if key == "g" else -1, source="chat")
        return True
    if key in DIGITS:
        feedback.score(store, turn.id, int(key) or 10, source="chat")
        return True
    if key == "e":
        written = click.edit(turn.response)
        if written is not None and written.rstrip("\n") != turn.response:
            feedback.edit(store, turn.id, written.rstrip("\n"), source="chat")
            return True
    return False
