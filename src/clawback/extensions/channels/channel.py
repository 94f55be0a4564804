"""What all chat channels have in common. A platform's own file only speaks the platform's protocol.

**Owners** may ask and rate everywhere, and give the commands that the settings allow; people who are
**allowed** may ask, and rate in direct messages; nobody else is answered. The state is in the store: after a
restart a bot still knows every answer that it gave.
"""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any
from weakref import WeakValueDictionary

from clawback import config
from clawback.admin.remote_commands import order
from clawback.capture import ingest, script, server_proof, spool
from clawback.capture.events import AnswerEvent, DisplayEvent, FailureEvent, PromptEvent, ReactionEvent
from clawback.errors import ClawbackError, StoreBusy
from clawback.feedback import command
from clawback.paths import Home, secret
from clawback.records import OWNER
from clawback.scales import SIGNS

if TYPE_CHECKING:
    from clawback.records import Message
    from clawback.store import Store

log = logging.getLogger("clawback.channels")

USAGE = (
    "Write to me and the live version answers. Rate an answer with 👍 or 👎 on it, or reply to it with /rl good, /rl bad, "
    "/rl rate 8, /rl remark TEXT or /rl undo (rl: good does the same). /rl status says what was learned so far, and "
    "/rl ab asks which of two answers is better, where a new version waits for that."
)
NOT_RUNNING = "Clawback's server does not answer: start it with `clawback serve`, then ask again."
BUSY = "Clawback's server is there and busy: it said nothing for {seconds:g} seconds. Ask again later."
STOPPED = "was given up when the bot stopped"
ANSWER_SECONDS = 600.0
PROOF_SECONDS = 10.0
"""How long one try at the server's proof may take. A busy server is asked again, within ``ANSWER_SECONDS``."""
HISTORY_MESSAGES, HISTORY_CHARACTERS = 20, 24_000
"""How much of a conversation the model is told again."""
REMEMBERED = 300
"""Messages of which is known that they were acted on, for a platform that tells of one twice."""
MOST_STRANGERS = 100


class Unanswered(Exception):
    """The model could not be asked; the message is for the person."""


@dataclass(frozen=True, slots=True)
class Heard:
    """A message that somebody wrote where the bot can read it. Ids are the same whenever the platform tells of it."""

    session: str
    """The conversation: chat and thread."""
    id: str
    by: str
    text: str
    """Without the mention of the bot."""
    direct: bool
    mentioned: bool = False
    about: str = ""
    """The message that it replies to."""
    under: str = ""
    """The message that began its thread: a command is about that one where nothing was asked in the thread itself."""


Send = Callable[[str], Awaitable[str]]
"""Posts a text as one message and gives back the message's id ("" where it has none)."""


class Desk:
    """Connects one platform to Clawback. ``hear`` and ``react`` raise nothing: a bot keeps running."""

    def __init__(self, home: Home, name: str, settings: config.ChannelSection, limit: int) -> None:
        self.home, self.name, self.settings, self.limit = home, name, settings, limit
        self.owners = {str(one) for one in settings.owners}
        self.known = self.owners | {str(one) for one in settings.allowed}
        if len(self.owners) == 1:  # of several nobody can say which is the person whose home this is
            with ingest.connect(home) as store:
                store.identify(f"{name}:{next(iter(self.owners))}", OWNER)
        self.strangers: set[str] = set()
        self.entry = asyncio.Lock()
        """What comes in enters the store in the order in which it came."""
        self.turns: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()
        """One question at a time in a conversation: the next one goes on from the answer."""
        self.working: set[asyncio.Task[Any]] = set()
        self.open: set[tuple[str, str]] = set()
        """(session, id) of the questions that are being answered."""

    def welcomes(self, by: str) -> bool:
        """Whether this person is answered. One who is not is named in the log once, so that the owner can let them in."""
        if by in self.known:
            return True
        if by not in self.strangers and len(self.strangers) < MOST_STRANGERS:
            self.strangers.add(by)
            log.warning(
                "%s: %r wrote or reacted, who is not in [%s] owners; ignored", self.name, by, self.name
            )
        return False

    def may_rate(self, by: str, direct: bool) -> bool:
        return by in self.owners or (direct and by in self.known)

    async def hear(self, message: Heard, send: Send) -> None:
        """Handle a message: execute a command, answer a question, ignore anything else."""
        words = command.parse(message.text)
        if not (words or message.direct or message.mentioned) or not message.text.strip():
            return
        if not self.welcomes(message.by):
            return
        task = asyncio.current_task()
        assert task
        self.working.add(task)
        try:
            if words:
                if self.may_rate(message.by, message.direct):
                    async with self.entry:
                        said = await asyncio.to_thread(self.obey, message, words)
                    await self._say(send, said)
            elif message.direct and message.text.split()[0].lower() in ("/start", "/help"):
                await self._say(send, USAGE)
            else:
                await self._answer(message, send)
        except Exception as error:  # the platform's, in posting: whatever it is, the next message is heard
            log.error("%s: a message could not be answered: %s", self.name, type(error).__name__)
        finally:
            self.working.discard(task)

    async def react(self, message: str, by: str, sign: int, on: bool, *, direct: bool, at: float) -> None:
        """A reaction that rates (``sign``, see ``sign_of``) was put on a message of the bot (``on``), or taken away.

        ``at``: when, by the platform's clock; what comes late or twice is known by it.
        """
        if sign == 0 or not self.welcomes(by) or not self.may_rate(by, direct):
            return
        event = ReactionEvent("", message, sign if on else 0, by, f"{message}:{by}:{sign:+d}", at)
        async with self.entry:
            await self._try(spool.deliver, self.home, self.name, event)

    async def close(self) -> None:
        """Cancel the questions that are being answered."""
        mine = [task for task in self.working if task is not asyncio.current_task()]
        for task in mine:
            task.cancel()
        await asyncio.gather(*mine, return_exceptions=True)

    # ------------------------------------------------------------------------------------------------ commands

    def obey(self, message: Heard, words: list[str]) -> str:
        """Execute a command and return the reply. Blocking, and quick."""
        event = PromptEvent(message.session, message.text, message.id, about=message.about, by=message.by)
        try:
            if spool.waiting(self.home):
                spool.drain(self.home)
            with ingest.connect(self.home) as store:
                # A rating twice is one rating; these would do their work twice.
                if words[0] in ("undo", *command.ADMIN) and not self._first(store, message):
                    return ""
                about = message.about
                if not about and message.under:
                    # Said in a thread: it is about the last answer there, whoever asked for it.
                    newest = store.newest_prompt(self.name, message.session)
                    about = newest.id if newest else message.under
                self._settle(store, message.session, about)
            if words[0] in command.ORDERS:
                return self._order(message, words[0])
            return spool.deliver(self.home, self.name, event._replace(about=about)) or ""
        except StoreBusy as error:
            if words[0] in command.ORDERS:
                return f"Clawback: {error}"
            return spool.deliver(self.home, self.name, event) or ""
        except (ClawbackError, ingest.Unusable) as error:
            return f"Clawback: {error}"

    def _order(self, message: Heard, word: str) -> str:
        """A command for owners alone. A comparison shows the owner's prompts, so it is made where nobody else reads."""
        if message.by not in self.owners:
            return f"Clawback: `{word}` is for owners."
        if word in command.COMPARES and not message.direct:
            return f"Clawback: `{word}` shows your own prompts: say it to me in a direct message."
        text = order(
            self.home, self.name, message.text, session=message.session, by=message.by, event_id=message.id
        )
        return text or ""

    def _first(self, store: Store, message: Heard) -> bool:
        """Whether it was not acted on before; from now on it was."""
        with store.together():
            before: list[str] = store.get(f"channel:{self.name}", [])
            if message.id in before:
                return False
            store.set(f"channel:{self.name}", [*before, message.id][-REMEMBERED:])
        return True

    # ----------------------------------------------------------------------------------------------- questions

    async def _answer(self, arrival: Heard, send: Send) -> None:
        question = (arrival.session, arrival.id)
        try:
            async with self.entry:
                self.open.add(question)
                if await self._try(self._begin, arrival) is False:
                    return
            async with self.turns.setdefault(arrival.session, asyncio.Lock()):
                answer = await self._answer_to(arrival, send)
        finally:
            self.open.discard(question)
        if answer is None:
            return
        for message in await self._say(send, answer.text):
            await self._try(
                spool.deliver, self.home, self.name, DisplayEvent(arrival.session, arrival.id, message)
            )
        if arrival.direct and arrival.by in self.owners and (news := await self._try(self._news, arrival.by)):
            await self._say(send, news)

    async def _answer_to(self, message: Heard, send: Send) -> AnswerEvent | None:
        """Ask the model and store what it answers. None where it does not: the person is told that, and what it means for their ratings."""
        try:
            messages = await self._try(self._messages, message) or [{"role": "user", "content": message.text}]
            text, model = await self._ask(message.session, messages)
        except BaseException as error:
            # Else what is said next would be kept for an answer that never comes.
            failed = isinstance(error, Unanswered)
            lost = await self._try(self._give_up, message, "failed" if failed else STOPPED)
            if not failed:
                raise
            await self._say(send, " ".join([str(error), *(lost or [])]))
            return None
        answer = AnswerEvent(message.session, text, message.id, prompt=message.text, model=model)
        await self._try(spool.deliver, self.home, self.name, answer)
        return answer

    def _news(self, by: str) -> str:
        """What the last run brought, once."""
        from clawback.jobs.news_answer import first_mention

        with ingest.connect(self.home) as store:
            return first_mention(store, f"{self.name}:{by}")

    def _begin(self, message: Heard) -> bool:
        prompt = PromptEvent(message.session, message.text, message.id, by=message.by)
        try:
            with ingest.connect(self.home) as store:
                if not self._first(store, message):
                    return False
                self._settle(store, message.session)
        except StoreBusy:
            pass  # answered all the same; a question that is told of twice meanwhile is answered twice
        spool.deliver(self.home, self.name, prompt)
        return True

    def _settle(self, store: Store, session: str, about: str = "") -> None:
        """Questions that a bot before this one has left behind get no answer: what waits for them is lost, and is told at the next command."""
        start = ingest.of_prompt(self.name, session, "")
        left = [place[len(start) :] for place in store.waits_at(start)]
        newest = store.newest_prompt(self.name, session)
        left += [name for name in (about, newest.id if newest else "") if name]
        for name in dict.fromkeys(left):
            kept = store.kept_prompt(self.name, session, name)
            waits = (kept is not None and bool(kept.parts)) or start + name in store.waits_at(start)
            if waits and (session, name) not in self.open and store.at_post(start + name) is None:
                ingest.take_into(self.home, store, self.name, FailureEvent(session, name, STOPPED))

    def _give_up(self, message: Heard, why: str) -> list[str]:
        """No answer comes to the question. Returns a sentence for each rating that waited for it."""
        from clawback.capture import taps

        failed = FailureEvent(message.session, message.id, why)
        spool.deliver(self.home, self.name, failed)
        if why == STOPPED:
            return []  # nobody is told now; the next command does it
        with ingest.connect(self.home) as store:
            place = ingest.of_prompt(self.name, message.session, message.id)
            return [taps.told_of(lost) for lost in store.untold(place)]

    def _messages(self, message: Heard) -> list[Message]:
        """The conversation so far, as far as it is told again, and the question."""
        with ingest.connect(self.home) as store:
            last = store.last_turn(session=message.session)
            last = last or store.last_turn(session=f"{self.name}:{message.session}")
        before: list[Message] = []
        if last:
            before = [m for m in last.messages if m.get("role") in ("user", "assistant")]
            before.append({"role": "assistant", "content": last.response})
        before = before[-HISTORY_MESSAGES:]
        while before and (
            before[0].get("role") != "user"
            or sum(len(str(m["content"])) for m in before) > HISTORY_CHARACTERS
        ):
            del before[0]
        return [*before, {"role": "user", "content": message.text}]

    async def _ask(self, session: str, messages: list[Message]) -> tuple[str, str]:
        """The answer and the model's name. Raises ``Unanswered``."""
        import aiohttp

        url, headers = address(self.home)
        headers |= {"X-Session-Id": session, "X-Turn-Type": "main"}
        body = {"model": self.settings.model, "messages": messages}
        deadline = asyncio.get_running_loop().time() + ANSWER_SECONDS
        try:
            async with aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=ANSWER_SECONDS)) as client:
                await self._proved(client, url, deadline)
                async with client.post(
                    f"{url}/v1/chat/completions", json=body, headers=headers, allow_redirects=False
                ) as answer:
                    raw = await answer.read()
                    status = answer.status
        except TimeoutError:
            raise Unanswered(f"There was no answer within {ANSWER_SECONDS:g} seconds.") from None
        except (aiohttp.ClientError, OSError):
            raise Unanswered(NOT_RUNNING) from None
        if status != 200:
            log.warning("%s: the server answered %s", self.name, status)
            raise Unanswered(f"The model did not answer (status {status}); `clawback doctor` may say why.")
        try:
            data = json.loads(raw)
            said = data["choices"][0]["message"]["content"]
            model = data.get("model") or ""
        except (ValueError, LookupError, TypeError, AttributeError):
            said = model = None
        if not isinstance(said, str) or not said.strip():
            raise Unanswered("The model answered with nothing; ask again.")
        return said, str(model)

    async def _proved(self, client: Any, url: str, deadline: float) -> None:
        """Who listens there is our server. Raises ``Unanswered`` where it is not, or is busy until the deadline: nothing was said to it yet."""
        import aiohttp

        clock = asyncio.get_running_loop().time
        while True:
            asked = server_proof.nonce()
            patience = aiohttp.ClientTimeout(total=max(min(PROOF_SECONDS, deadline - clock()), 0.01))
            question = client.get(
                f"{url}{server_proof.PATH}",
                headers={server_proof.HEADER: asked},
                timeout=patience,
                allow_redirects=False,
            )
            try:
                async with question as answer:
                    said = (await answer.content.read(1000)).decode("utf-8", "replace")
                break
            except TimeoutError:
                # It listens, and has no time: a machine in the middle of a training run.
                if clock() >= deadline:
                    raise Unanswered(BUSY.format(seconds=ANSWER_SECONDS)) from None
        port = int(url.rpartition(":")[2])
        if not await asyncio.to_thread(server_proof.holds, self.home, port, asked, said):
            log.error("%s: what answers on %s is not our server; nothing was said to it", self.name, url)
            raise Unanswered(NOT_RUNNING)

    # -------------------------------------------------------------------------------------------------- shared

    async def _say(self, send: Send, text: str) -> list[str]:
        """Post it, in as many messages as it takes; the ids of those."""
        return [posted for piece in cut(text, self.limit) if (posted := await send(piece))]

    async def _try(self, function: Callable[..., Any], *arguments: object) -> Any:
        """Off the event loop; what the store cannot do is logged, and None: the person is answered all the same."""
        try:
            return await asyncio.to_thread(function, *arguments)
        except (ClawbackError, ingest.Unusable) as error:
            log.error("%s: %s", self.name, error)
            return None


def address(home: Home) -> tuple[str, dict[str, str]]:
    """The server's address, and the header that it requires."""
    serve = config.load(home.config).serve
    host, port = serve.host, serve.port
    if announced := script.announced(home):
        port = announced[0]
    if host in ("127.0.0.1", "localhost", "::1"):
        headers: dict[str, str] = {}
    else:
        headers = {"X-Clawback-Token": secret(home.root / "token")}
        host = "127.0.0.1" if host in ("0.0.0.0", "::") else host  # noqa: S104
    return f"http://{f'[{host}]' if ':' in host else host}:{port}", headers


def sign_of(reaction: str) -> int:
    """👍 → 1, 👎 → -1, by sign or name, whatever the colour of the hand; 0 for one that does not rate."""
    plain = "".join(
        c for c in reaction.split("::")[0] if not "\U0001f3fb" <= c <= "\U0001f3ff" and c != "\ufe0f"
    )
    return SIGNS.get(plain, 0)


def cut(text: str, limit: int) -> list[str]:
    """Split a text into pieces of at most ``limit`` UTF-16 units, which is how platforms count; between paragraphs, lines or words if possible.

    White space at a cut is dropped, and so are pieces of nothing else; all other characters are kept in order.
    """
    pieces = []
    rest = text.strip()
    while rest:
        room = most(rest, limit)
        if room < len(rest):
            places = (rest.rfind(mark, room // 2, room + 1) for mark in ("\n\n", "\n", " "))
            room = next((place for place in places if place > 0), room)
        pieces.append(rest[:room].rstrip())
        rest = rest[room:].lstrip()
    return pieces


def most(text: str, limit: int) -> int:
    """The number of characters of it that fit into ``limit`` UTF-16 units."""
    units = 0
    for count, character in enumerate(text):
        units += 2 if ord(character) > 0xFFFF else 1
        if units > limit:
            return count
    return len(text)
