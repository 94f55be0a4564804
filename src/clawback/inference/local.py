"""The embedded model behind the three dialects: prompts in, tokens out; each response comes wholly from one version."""

from __future__ import annotations

import asyncio
import hashlib
import time
import uuid
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from clawback import config
from clawback.dialects import Asked, Said
from clawback.dialects.parsing import dicts
from clawback.dialects.shapes import DialectReply
from clawback.errors import ClawbackError, UsageError
from clawback.inference import tool_choice, tools
from clawback.inference.conversation_tokens import conversation_tokens
from clawback.paths import Home
from clawback.pictures import pictures
from clawback.records import Ending, Version, under
from clawback.release.best_of import model_name

if TYPE_CHECKING:
    from clawback.inference.batcher import AdapterShelf, Batcher
    from clawback.inference.schema_grammar import Grammars, JsonConstraint
    from clawback.models import Sampling
    from clawback.policy import Policy
    from clawback.sampling import SamplingRequest
    from clawback.templates import Pixels

LONG = 20_000
"""Characters from which on reading a prompt takes milliseconds."""
MANY = 100
"""Messages from which on it does so, however short they are."""
BASE, LIVE = "clawback-base", "clawback"
"""Names that a request may give as its model; every other name means the live version, too."""


def named(model: str) -> int | None:
    """The version that a model's name asks for: ``clawback-base``, ``clawback-v7``; None: whichever is live."""
    model = model.removesuffix(":latest")  # as Ollama's clients write a name
    tail = model.removeprefix("clawback-v")
    if tail != model and tail.isascii() and tail.isdigit() and len(tail) < 10:
        return int(tail)
    return 0 if model == BASE else None


@dataclass(slots=True)
class PartialAnswer:
    """What one request has come to so far."""

    id: str
    version: int
    prompt: list[int]
    request: Asked
    created: int
    ids: list[int]
    logprobs: list[float]
    cached: int = 0
    text: str = ""
    thinking: str = ""
    ended: str = ""
    stopped: str = ""
    spoken: bool = False
    """Whether the next speaker's label ended it, of a base model without a chat template."""
    calls: tuple[Mapping[str, Any], ...] = ()
    complete: bool = True
    """False where whoever asked left before the end."""
    token_logprobs: tuple[tuple[str, float], ...] = ()
    """(token, log-prob) of the whole answer, where that was asked for."""
    alternatives: tuple[tuple[tuple[str, float], ...], ...] = ()
    best_of: int = 1
    """Draws that it was chosen from."""
    drawn_tokens: int = 0
    """Tokens of all these draws; 0: its own."""

    def reply(self) -> DialectReply:
        return DialectReply(
            id=self.id,
            model=self.request.model or LIVE,
            created=self.created,
            prompt_tokens=len(self.prompt),
            tokens=len(self.ids),
            cached=self.cached,
            text=self.text,
            calls=self.calls,
            finished=self.ended == "stop",
            stopped=self.stopped,
            logprobs=self.token_logprobs,
            alternatives=self.alternatives,
        )

    def as_answer(self) -> Said:
        name = f"clawback-v{self.version}"
        if self.best_of > 1:
            name = model_name(self.version, self.best_of)
        return Said(self.text, self.calls, name, self.ending, self.thinking)

    @property
    def ending(self) -> Ending:
        """Why it ended."""
        if not self.complete:
            return "interrupted"
        if self.ended == "length":
            return "length"
        return "stop" if self.stopped or self.spoken else "done"


class LocalEngine:
    """One copy of the base model, all versions on it."""

    def __init__(self, home: Home, shelf_of: Callable[[Policy], AdapterShelf | None] | None = None) -> None:
        """``shelf_of``: makes a shelf on which answers by many adapters are drawn in one batch."""
        self.home, self.shelf_of = home, shelf_of
        self.settings = config.load(home.config)
        self.policy: Policy | None = None
        self.batcher: Batcher | None = None
        self.grammars: Grammars | None = None
        self.reading = asyncio.Lock()

    def start(self) -> None:
        """Load the base model; seconds for a large one. Raises ``ModelError`` or ``MissingExtra``."""
        from clawback import engine
        from clawback.inference.batcher import Batcher
        from clawback.inference.schema_grammar import Grammars
        from clawback.sampling import stop_ids

        model = self.settings.model
        self.policy = engine.load(
            model.base,
            revision=model.revision,
            dtype=model.dtype,
            load_in_4bit=model.load_in_4bit,
            device=model.torch_device,
        )
        self.policy.configure(
            self.settings.generation, self.settings.model.chat_template_args, self.settings.training.thinking
        )
        stop = stop_ids(self.policy.model, self.policy.chat.end_id)
        self.grammars = Grammars(self.policy.tokenizer, self.policy.info.vocabulary, stop)
        self.batcher = Batcher(self.policy, stop, self.shelf_of(self.policy) if self.shelf_of else None)
        self.batcher.start()

    def close(self) -> None:
        if self.batcher:
            self.batcher.close()

    async def answer(
        self, request: Asked, version: Version
    ) -> AsyncGenerator[tuple[PartialAnswer, str], None]:
        """Yields the answer so far with each further piece of text; ``answer.ended`` is set with the last.

        Raises ``UsageError`` for what does not fit into the model, ``ClawbackError`` where answering fails.
        """
        from clawback.sampling import SamplingRequest

        assert self.policy
        assert self.batcher
        constraint = await self.constraint(request)
        prompt, pixels = await self.look(request, version.prompt)
        if constraint is not None:
            prompt = self.policy.chat.thought_out(prompt)
        room = self.policy.info.context - len(prompt)
        if room < 1:
            raise UsageError(
                f"The conversation is {len(prompt)} tokens long; {self.policy.info.base} reads {self.policy.info.context}."
            )
        if version.path and self.batcher.shelf is not None:
            # Read from the disk here, so that those whose answers are under way do not wait for it.
            await asyncio.to_thread(self.batcher.shelf.warm, Path(version.path))
        loop = asyncio.get_running_loop()
        inbox: asyncio.Queue[tuple[int, float] | str] = asyncio.Queue()
        # A base model without a template need not end by itself.
        usual = self.policy.max_tokens if self.policy.chat.speaker else room
        wanted = request.max_tokens or self.settings.generation.max_tokens or usual
        if request.field is not None and request.field.most:
            wanted = min(wanted, request.field.most)
        drawing = SamplingRequest(
            prompt=prompt,
            max_tokens=max(1, min(wanted, room)),
            on_token=lambda token, logprob: _put(loop, inbox, (token, logprob)),
            on_end=lambda why: _put(loop, inbox, why),
            folder=Path(version.path) if version.path else None,
            sampling=_sampling(self.policy.sampling, request),
            top=request.top,
            constraint=constraint,
            speaker=self.policy.chat.speaker if request.raw is None else None,
            pixels=pixels,
            seed=(uuid.uuid4().int if request.seed is None else abs(request.seed)) % 2**62,
        )
        answer = PartialAnswer(
            uuid.uuid4().hex[:24], version.number, prompt, request, int(time.time()), [], []
        )
        self.batcher.submit(drawing)
        try:
            async for piece in self._pieces(answer, inbox, drawing):
                yield answer, piece
        finally:
            drawing.cancelled = True

    async def _pieces(
        self, answer: PartialAnswer, inbox: asyncio.Queue[tuple[int, float] | str], drawing: SamplingRequest
    ) -> AsyncIterator[str]:
        """Text as it becomes certain: half a character, a stop string that may be coming and tool calls are held back."""
        assert self.policy
        shown, whole = 0, ""
        stops = answer.request.stop
        speaker = self.policy.chat.speaker if answer.request.raw is None else None
        held = max((len(s) for s in stops), default=1) - 1
        while True:
            got = await inbox.get()
            if isinstance(got, str):
                if got.startswith("error") or got == "cancelled":
                    raise ClawbackError(f"The answer was cut off ({got}).")
                answer.ended = answer.ended or got
                break
            answer.cached = drawing.cached
            answer.ids.append(got[0])
            answer.logprobs.append(got[1])
            answer.thinking, whole = self._texts(answer)
            found = [(whole.index(s), s) for s in stops if s in whole]
            answer.spoken = not found and speaker is not None and speaker.spoke(answer.ids)
            if found or answer.spoken:
                cut, answer.stopped = min(found, default=(len(whole), ""))
                whole, answer.ended, drawing.cancelled = whole[:cut], "stop", True
                self._drop_tokens(answer, whole)
                break
            certain = (speaker.certain(whole) if speaker else len(whole)) - held
            if answer.request.form is None:
                certain = min(certain, tools.certain(whole, answer.request.tools))
            if certain > shown and not whole.endswith("\ufffd") and not answer.request.needs_its_end:
                answer.text = whole[:certain]
                yield whole[shown:certain]
                shown = certain
        if answer.request.logprobs and answer.request.field is None:
            names = [self.policy.tokenizer.decode([token]) for token in answer.ids]
            answer.token_logprobs = tuple(zip(names, answer.logprobs, strict=True))
            answer.alternatives = tuple(
                tuple((self.policy.tokenizer.decode([token]), value) for token, value in others)
                for others in drawing.likeliest[: len(answer.ids)]
            )
        if answer.request.field is not None:
            answer.text, answer.ended = answer.request.field.around(whole), "stop"
        elif answer.request.form is not None or answer.request.must_call:
            call = tool_choice.call_of(whole, answer.request.tools)
            answer.text, answer.calls = ("", (call,)) if call else (whole, ())
        else:
            answer.text, answer.calls = tools.find(whole, answer.request.tools)
        yield answer.text[shown:]

    def _drop_tokens(self, answer: PartialAnswer, text: str) -> None:
        """Leave out the tokens of what ended the answer: they are no part of it, and nothing is learned from them."""
        assert self.policy
        count = self.policy.chat.tokens_of(answer.prompt, answer.ids, text)
        del answer.ids[count:], answer.logprobs[count:]

    def _texts(self, answer: PartialAnswer) -> tuple[str, str]:
        """What was thought so far, and what was answered: while it thinks that is nothing."""
        assert self.policy
        return self.policy.chat.text(answer.prompt, answer.ids, answer.request.raw is None)

    async def constraint(self, request: Asked) -> JsonConstraint | None:
        """What the answer is held to, where it must keep to a schema. Raises ``UsageError`` for a schema that cannot be kept to."""
        assert self.grammars
        schema = None if request.field is not None else tool_choice.schema_of(request)
        return None if schema is None else await asyncio.to_thread(self.grammars.constraint, schema)

    @property
    def sees(self) -> bool:
        """Whether pictures are looked at: where the base sees, and one adapter speaks at a time."""
        return bool(
            self.policy and self.policy.chat.eyes and not (self.batcher and self.batcher.shelf is not None)
        )

    async def look(self, request: Asked, system: str = "") -> tuple[list[int], Pixels | None]:
        """The prompt, with what is seen beside it. Raises ``UsageError`` where the newest message has a picture that cannot be looked at."""
        if request.raw is None and self.sees and any(map(shows_a_picture, request.messages)):
            async with self.reading:
                ids, pixels = await asyncio.to_thread(self._looked, request, system)
            if pixels is not None:
                return ids, pixels
        return await self.read(request, system), None

    def _looked(self, request: Asked, system: str) -> tuple[list[int], Pixels | None]:
        assert self.policy
        room, newest = self.policy.max_prompt, request.messages[-1]
        ids, pixels = self.policy.chat.looked(under(request.messages, system), room, request.tools)
        if asks_about_a_picture(newest):
            brought = [hashlib.sha256(data).hexdigest() for data in pictures(newest.get("content"))]
            if len(brought) < shows_a_picture(newest):
                raise UsageError("A picture has to come with the request, as base64: none is fetched.")
            if pixels is None or list(pixels.pictures[-len(brought) :]) != brought:
                raise UsageError(
                    f"A picture cannot be read, is too large, or the message with it is longer than {room} tokens."
                )
        return ids, pixels

    async def read(self, request: Asked, system: str = "") -> list[int]:
        """``prompt``; a long one is read on a thread of its own, one at a time, so that others are not kept waiting."""
        if len(request.messages) < MANY and sum(len(str(m.get("content"))) for m in request.messages) < LONG:
            return self.prompt(request, system)
        async with self.reading:
            return await asyncio.to_thread(self.prompt, request, system)

    def prompt(self, request: Asked, system: str = "") -> list[int]:
        """See ``conversation_tokens``."""
        assert self.policy
        return conversation_tokens(self.policy, request, system)

    async def embed(self, texts: Sequence[str]) -> tuple[list[list[float]], int]:
        """Unit vectors ``[texts][hidden]`` of the base model, and how many tokens were read.

        Raises ``UsageError`` for a text longer than the model reads.
        """
        assert self.batcher
        loop = asyncio.get_running_loop()
        done: asyncio.Future[tuple[list[list[float]], int]] = loop.create_future()

        def work() -> None:
            try:
                made = self._vectors(texts)
            except Exception as error:  # whatever it is, it belongs to this request
                loop.call_soon_threadsafe(_end, done, None, error)
            else:
                loop.call_soon_threadsafe(_end, done, made, None)

        self.batcher.run(work)
        return await done

    def _vectors(self, texts: Sequence[str]) -> tuple[list[list[float]], int]:
        """On the batcher's thread, which owns the model."""
        assert self.policy
        encode, room = self.policy.tokenizer.encode, self.policy.info.context
        read = [[int(token) for token in encode(text)] for text in texts]
        if any(not ids or len(ids) > room for ids in read):
            raise UsageError(
                f"input: a text has no tokens, or more than the {room} that {self.policy.info.base} reads."
            )
        vectors: list[list[float]] = []
        for ids in read:
            vectors.append(self.policy.embedding(ids))
        return vectors, sum(map(len, read))


def shows_a_picture(message: Mapping[str, Any]) -> int:
    """How many parts of a message are pictures, or say that they are."""
    return sum(part.get("type") == "image_url" for part in dicts(message.get("content")))


def asks_about_a_picture(message: Mapping[str, Any]) -> bool:
    """Whether it is a person's. What lies further back, or a tool brought along, the conversation goes on without."""
    return message.get("role") == "user" and shows_a_picture(message) > 0


def _sampling(sampling: Sampling, request: Asked) -> Sampling:
    """As the request says where it says something, else as the model itself; what cannot be is taken as the nearest that can."""
    temperature, top_p, top_k = request.temperature, request.top_p, request.top_k
    return sampling.but(
        temperature=None if temperature is None else min(max(temperature, 0.0), 2.0),
        top_p=None if top_p is None else min(max(top_p, 1e-6), 1.0),
        top_k=None if top_k is None else max(top_k, 0),
    )


def _end(done: asyncio.Future[Any], result: Any, error: Exception | None) -> None:
    if not done.done():  # else whoever asked has gone
        done.set_result(result) if error is None else done.set_exception(error)


def _put(loop: asyncio.AbstractEventLoop, inbox: asyncio.Queue[Any], item: Any) -> None:
    if not loop.is_closed():
        loop.call_soon_threadsafe(inbox.put_nowait, item)
