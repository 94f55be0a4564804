"""The conversation of `clawback chat`: inputs, commands, answers and their ratings."""

from __future__ import annotations

import re
import sys
import uuid
from collections.abc import Callable
from contextlib import suppress
from typing import TYPE_CHECKING

import click

from clawback import config, endings
from clawback.cli.chat import (
    ask_about_news,
    fresh_seed,
    model_name,
    name_of,
    notice_of,
    open_source,
    rate_by_key,
    show_answer,
)
from clawback.errors import ClawbackError, UsageError
from clawback.feedback import command
from clawback.terminal import current_home, named_version, open_store, say

if TYPE_CHECKING:
    from clawback.paths import Home
    from clawback.records import Message, Version
    from clawback.store import Store

SOURCE = "chat"

QUOTES = '"""'
"""Begins and ends a text of several lines."""
REMEMBERED = 200
"""Turns whose inputs the arrow keys bring back."""
_COMMAND = re.compile(r"/([a-z]+)(?:\s+(.*))?", re.DOTALL)


class Conversation:
    """Question, answer, one key, until the person leaves. A version that goes live meanwhile takes over."""

    def __init__(self, home: Home, store: Store, seed: int) -> None:
        self.home, self.store, self.seed = home, store, seed
        self.source = open_source(home, store)
        self.messages: list[Message] = []
        self.system = ""
        self.session = new_session()
        self.version: Version | None = None
        """The version that was chosen; None for whichever is live."""
        self.live = store.live().number
        self.open = True
        self.newest: int | None = None
        """The turn of the newest answer."""
        self.commands: dict[str, tuple[Callable[[str], None], str]] = {
            "help": (self.help, "/help              this list"),
            "clear": (self.clear, "/clear             begin a new conversation"),
            "version": (self.choose, "/version N         answers of version N (a number, live or base)"),
            "system": (self.instruct, "/system TEXT       what every answer keeps to; without TEXT nothing"),
            "regenerate": (self.regenerate, "/regenerate        the last answer once more"),
            "quit": (self.leave, "/quit              end the chat"),
        }

    def run(self) -> None:
        """Talk until the person leaves."""
        remember_inputs(self.store)
        ask_about_news(self.home, self.store)
        say(
            f"You are talking to {name_of(self.store.live())} of {model_name(self.home)}. /help lists the commands; /quit or Ctrl-D ends it."
        )
        if config.load(self.home.config).model.base == config.EMBEDDED:
            say(config.DEMONSTRATION)
        try:
            while self.open and (text := read_input()):
                if (reply := reply_to_command(self.store, self.session, text, self.newest)) is not None:
                    say(reply)
                elif command := _COMMAND.fullmatch(text):
                    self.obey(command[1], (command[2] or "").strip())
                else:
                    self.answer({"role": "user", "content": text.strip()})
        finally:
            self.source.close()

    def obey(self, name: str, rest: str) -> None:
        """Execute a command; one that there is not is named."""
        command = self.commands.get(name)
        if command is None:
            say(f"There is no command /{name}; /help lists them. (A space before it makes it a message.)")
            return
        try:
            command[0](rest)
        except ClawbackError as error:
            say(str(error))

    def answer(self, question: Message) -> None:
        """Ask, show the answer, and let the person rate it."""
        from clawback.inference.streams import AnswerRequest, limit_of

        if self.version is None and (live := self.store.live()).number != self.live:
            self.live = live.number
            say(f"{name_of(live)} is live now and answers from here on.")
        messages = [*self.messages, question]
        system = ({"role": "system", "content": self.system},) if self.system else ()
        limit = limit_of(config.load(self.home.config))
        asked = AnswerRequest((*system, *messages), self.session, self.seed, self.version, limit)
        self.seed += 1
        say()
        try:
            turn, cut = show_answer(self.source, asked)
        except ClawbackError as error:
            say(str(error))
            if not isinstance(error, UsageError):  # a server that has ended does not end the chat
                self.source.close()
                self.source = open_source(self.home, self.store)
            return
        if turn is None:
            say("Stopped before the first word." if cut else "The model answered with nothing.")
            return
        say()
        self.newest = turn.id
        if notice := " ".join(filter(None, [notice_of(self.source), endings.notice(turn.ending)])):
            say(notice)
        self.messages = [*messages, {"role": "assistant", "content": turn.response}]
        self.open = rate_by_key(self.store, turn)

    # ------------------------------------------------------------------------------------------------- commands

    def help(self, _: str) -> None:
        """The commands and the keys."""
        say("\n".join(line for _, line in self.commands.values()))
        say("/rl … rates, notes and compares as in agents: /rl good too long, /rl ab.")
        say(
            f"{QUOTES} begins and ends a text of several lines; a line that ends with \\ goes on in the next."
        )
        say(
            "Ctrl-C stops an answer (what there is of it is kept), Ctrl-D ends the chat; the arrow keys bring back what you wrote."
        )

    def clear(self, _: str) -> None:
        """A new conversation, with the same system prompt."""
        self.messages, self.session = [], new_session()
        say("A new conversation.")

    def choose(self, which: str) -> None:
        """Another version answers from here on."""
        if which:
            version = named_version(self.store, which if which in ("live", "base") else number_in(which))
            self.version = None if which == "live" else version
        answering = self.version or self.store.live()
        say(f"{name_of(answering)} answers.".capitalize())

    def instruct(self, text: str) -> None:
        """A system prompt for the answers to come."""
        self.system = text
        say("Noted: every answer keeps to it." if text else "No system prompt.")

    def regenerate(self, _: str) -> None:
        """The last question once more; both answers are kept."""
        if not self.messages:
            say("Nothing was asked yet.")
            return
        question = self.messages[-2]
        self.messages = self.messages[:-2]
        self.answer(question)

    def leave(self, _: str) -> None:
        """End the chat."""
        self.open = False


def new_session() -> str:
    return f"chat:{uuid.uuid4().hex}"


def number_in(text: str) -> str:
    """The number of a version. Raises ``UsageError``."""
    from clawback.terminal import VERSION

    return VERSION.convert(text.removeprefix("v"), None, None)


def read_input() -> str:
    """What the person writes: a line, lines that end with a backslash and the one after them, or what stands between two ``QUOTES``. "" at the end."""
    try:
        text = input("you> ").rstrip()
        while text.endswith("\\"):
            text = f"{text[:-1]}\n{input('...> ').rstrip()}"
        if text.lstrip().startswith(QUOTES):
            text = text.lstrip().removeprefix(QUOTES)
            while not text.rstrip().endswith(QUOTES):
                text += "\n" + input("...> ")
            text = text.rstrip().removesuffix(QUOTES)
    except EOFError:
        return ""
    return text.rstrip() if text.strip() else ""


def remember_inputs(store: Store) -> None:
    """The arrow keys bring back what was written in earlier chats: it is in the store, and goes with what is deleted there."""
    try:
        import readline
    except ImportError:  # a Python without it reads lines all the same
        return
    readline.clear_history()
    for turn in reversed(store.turns(limit=REMEMBERED)):
        if turn.session.startswith(("chat:", "ask:")) and turn.prompt:
            readline.add_history(turn.prompt)


def reply_to_command(store: Store, session: str, text: str, turn: int | None) -> str | None:
    """What a line of the person's comes to if it is a command; None for anything else, which is for the model.

    Args:
        turn: the last answer, which a rating is about; None before the first.
    """
    words = command.parse(text)
    if words is None:
        return None
    if words[0] in command.COMPARES:
        from clawback.jobs import comparing

        return comparing.reply(current_home(), comparing.Surface(SOURCE, session), words[0])
    if words[0] in command.NEWS:
        from clawback.jobs import news_answer

        return news_answer.decide(store, current_home(), command.NEWS[words[0]])
    if words[0] in command.ADMIN:
        return f"That is a command of its own: `clawback {command.ADMIN[words[0]]}`."
    return command.run(store, words, turn, source=SOURCE).text


@click.command()
@click.option("--seed", type=int, help="The same seed gives the same answers.")
def chat(seed: int | None) -> None:
    """Talk to the live version; rate each answer with one key.

    An empty line, Ctrl-D or Ctrl-C ends it; Ctrl-C in an answer stops that answer, which is kept. What was rated stays rated.
    /help lists the commands: another version, a system prompt, the answer once more. Three double quotes begin and end a text of several lines.

    \b
    clawback chat
    """
    if not sys.stdin.isatty():
        raise UsageError("A chat needs a terminal. To ask one thing from a script: `clawback ask TEXT`.")
    with suppress(KeyboardInterrupt), open_store() as store:
        Conversation(current_home(), store, fresh_seed() if seed is None else seed).run()
    say()
