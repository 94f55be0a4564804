"""``ask chat``: talk to a version."""

from __future__ import annotations

import os
import re
import shutil
import sys
import time
import uuid
from collections.abc import Collection
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from clawback import config, endings
from clawback.cli.common import current_home, emit, fold, json_option, open_store
from clawback.errors import UsageError
from clawback.records import Turn

if TYPE_CHECKING:
    from clawback.engine.torch.models.policy import Policy
    from clawback.records import Version
    from clawback.store import Store

KEYS = "[g]ood [b]ad [1-9,0] score [e]dit [enter] skip [q]uit"
DIGITS = tuple("1234567890")
"""A tuple: `in` asks for the whole key, so that neither no key nor a pasted word counts as one."""
NAMES = {
    "g": "good", "b": "bad", "e": "edit", "q": "quit", "": "quit", "\r": "skipped", "\n": "skipped",
    **{digit: digit for digit in DIGITS},
}  # fmt: skip
UNKNOWN = "no such key"
WORD_SECONDS, LONGEST_SECONDS = 0.03, 2.0
"""How an answer is shown word by word: the pause between two, and the most that all of them take."""


def live_policy(store: Store) -> tuple[Version, Policy]:
    """The live version, ready; a damaged one is passed over (and said)."""
    from clawback import release

    here = current_home()
    if healed := release.heal(store, here):
        click.echo(f"The live version was damaged; version {healed.number} answers now.", err=True)
    version = store.live()
    return version, release.load(here, version)


@click.command()
@click.argument("text")
@click.option(
    "--picture", "shown", multiple=True, type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="A picture that it is about (PNG, JPEG, WebP, GIF), for a base model that sees. Can be repeated.",
)  # fmt: skip
@click.option("--seed", type=int, help="The same seed gives the same answer.")
@json_option
def ask(text: str, shown: tuple[Path, ...], seed: int | None, as_json: bool) -> None:
    """Ask the live version one thing. The answer is captured and can be rated.

    \b
    clawback ask "Tell me about the otter."
    clawback ask "Which animal is this?" --picture photo.jpg
    clawback good
    """
    from clawback.jobs.answering import Answering

    parts = [picture_part(file) for file in shown]
    with open_store() as store:
        version, policy = live_policy(store)
        if parts and policy.chat.eyes is None:
            raise UsageError(f"{policy.info.base} reads text alone: ask without --picture.")
        content = [*parts, {"type": "text", "text": text}] if parts else text
        messages = [{"role": "user", "content": content}]
        _, pixels = policy.chat.looked(messages, policy.max_prompt) if parts else ((), None)
        if len(parts) > (len(pixels.pictures) if pixels else 0):
            raise UsageError(
                f"A picture cannot be read, is too large, or does not fit into {policy.max_prompt} tokens."
            )
        draw = Answering(current_home(), store).draw(
            policy, version, messages, fresh_seed() if seed is None else seed
        )
        session = f"ask:{uuid.uuid4().hex}"
        turn = store.add_turn(draw.turn(session, messages, version.number, str(Path.cwd())))
        for notice in filter(None, (draw.notice, endings.notice(turn.ending))):
            if not as_json:
                click.echo(fold(notice), err=True)
    data = {"turn": turn.id, "version": version.number, "response": turn.response, "ending": turn.ending}
    emit(data | ({"best_of": draw.count} if draw.count > 1 else {}), turn.response, as_json)


def picture_part(file: Path) -> dict[str, Any]:
    """A file as the part of a message. Raises ``UsageError`` for one that is no picture, or too large."""
    from clawback import pictures

    data = file.read_bytes() if file.stat().st_size <= pictures.MOST_BYTES else b""
    if not pictures.kind_of(data):
        raise UsageError(f"{file} is no PNG, JPEG, WebP or GIF of at most {pictures.MOST_BYTES >> 20} MB.")
    return pictures.part_of(data)


def fresh_seed() -> int:
    return int.from_bytes(os.urandom(4))


@click.command()
@click.option("--seed", type=int, help="The same seed gives the same answers.")
def chat(seed: int | None) -> None:
    """Talk to the live version; rate each answer with one key.

    An empty line, Ctrl-D or Ctrl-C ends it. What was rated stays rated.

    \b
    clawback chat
    """
    if not sys.stdin.isatty():
        raise UsageError("A chat needs a terminal. To ask one thing from a script: clawback ask TEXT")
    session, seed = f"chat:{uuid.uuid4().hex}", fresh_seed() if seed is None else seed
    with suppress(KeyboardInterrupt), open_store() as store:
        converse(store, session, seed)
    click.echo()


def converse(store: Store, session: str, seed: int) -> None:
    """Question, answer, one key, until the person leaves. A version that goes live meanwhile takes over."""
    from clawback.cli import chat_commands
    from clawback.jobs.answering import Answering

    messages: list[dict[str, str]] = []
    turn: Turn | None = None
    version, policy = live_policy(store)
    answering = Answering(current_home(), store)
    click.echo(f"You are talking to {name_of(version)}. An empty line or Ctrl-D ends it.")
    if policy.info.base == config.EMBEDDED:
        click.echo(fold(config.DEMONSTRATION))
    while text := prompt_line():
        if (reply := chat_commands.reply(store, session, text, turn.id if turn else None)) is not None:
            click.echo(reply)
            continue
        if store.live().number != version.number:
            version, policy = live_policy(store)
            click.echo(f"{name_of(version)} is live now and answers from here on.")
        messages = [*messages, {"role": "user", "content": text}]
        draw = answering.draw(policy, version, messages, seed)
        seed += 1
        turn = store.add_turn(draw.turn(session, messages, version.number, str(Path.cwd())))
        say(turn.response)
        if draw.notice:
            click.echo(fold(draw.notice))
        if cut := endings.notice(turn.ending):
            click.echo(fold(cut))
        messages = [*messages, {"role": "assistant", "content": turn.response}]
        if not rate_by_key(store, turn):
            break


def name_of(version: Version) -> str:
    return "the base model" if version.number == 0 else f"version {version.number}"


def say(text: str) -> None:
    """Word by word, at a pace to read along with; at once where nobody watches. Stored already: it can be cut short."""
    watched = sys.stdout.isatty()
    words = re.findall(r"\s*\S+\s*", folded(text, shutil.get_terminal_size().columns) if watched else text)
    pause = min(WORD_SECONDS, LONGEST_SECONDS / max(1, len(words))) if watched else 0.0
    click.echo()
    for word in words:
        click.echo(word, nl=False)
        sys.stdout.flush()
        time.sleep(pause)
    click.echo("\n")


def folded(text: str, columns: int) -> str:
    """Lines that are too long broken between words; all others as they are."""
    from rich.cells import cell_len, chop_cells

    lines = []
    for line in text.split("\n"):
        while cell_len(line) > columns:
            fits = len(chop_cells(line, columns)[0])
            place = line.rfind(" ", 0, fits + 1)
            if not line[: max(place, 0)].strip():
                break  # one word
            lines.append(line[:place])
            line = line[place + 1 :]
        lines.append(line)
    return "\n".join(lines)


def prompt_line() -> str:
    try:
        return input("you> ").strip()
    except EOFError:
        return ""


def one_key(question: str, err: bool = False) -> str:
    """Ask, and read the key that is pressed, in lower case; "" for Ctrl-D. Ctrl-C is raised.

    What was typed before is thrown away, for it cannot be about an answer that nobody has seen yet; and that is done
    before the question is shown, so that a quick answer to it counts.
    """
    import termios
    import tty

    terminal = sys.stdin.fileno()
    before = termios.tcgetattr(terminal)
    try:
        tty.setcbreak(terminal, termios.TCSAFLUSH)
        mode = termios.tcgetattr(terminal)
        mode[3] &= ~termios.ISIG  # Ctrl-C comes as a key: it is ours to raise, whoever owns the terminal
        termios.tcsetattr(terminal, termios.TCSANOW, mode)
        click.echo(question, nl=False, err=err)
        key = os.read(terminal, 32).decode("utf-8", "replace").lower()
    finally:
        termios.tcsetattr(terminal, termios.TCSADRAIN, before)
    if key == "\x03":
        raise KeyboardInterrupt
    return "" if key == "\x04" else key


def known_key(question: str, known: Collection[str]) -> str:
    """Ask until one of the keys is pressed: a slip must not skip the answer that the person wants to rate."""
    while (key := one_key(f"{question} ")) not in known:
        click.echo(UNKNOWN)
    return key


def rate_by_key(store: Store, turn: Turn) -> bool:
    """One key says what the answer was worth; False when the person wants to leave."""
    key = known_key(KEYS, NAMES)
    click.echo(NAMES[key])
    try:
        if give(store, turn, key):
            from clawback.cli.rate import start_training_if_due, training_prepared

            if start_training_if_due(store):
                click.echo(training_prepared())
    except UsageError as error:
        click.echo(str(error))
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
