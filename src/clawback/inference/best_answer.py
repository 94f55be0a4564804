"""The best of several draws as the server's answer, while such a trial is on (``release.best_of``).

All draws have to end before one can be chosen, so a streamed answer comes in one piece.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncGenerator
from dataclasses import replace
from typing import TYPE_CHECKING

from clawback.inference.local import PartialAnswer, named
from clawback.records import Turn
from clawback.release import best_of

if TYPE_CHECKING:
    from clawback.config import Config
    from clawback.dialects import Asked
    from clawback.inference.local import LocalEngine
    from clawback.records import Version
    from clawback.release.best_of import BestOfTrial
    from clawback.store import Store


class BestAnswers:
    """Chooses among draws for a server; thread-safe."""

    def __init__(self, settings: Config) -> None:
        self.reading, self.lock = best_of.AnswerReading(settings), threading.Lock()

    def trial(self, store: Store, request: Asked, version: Version) -> BestOfTrial | None:
        """The trial that is on for a request; None where there is none, or the request wants more than an answer in words by the live version."""
        current = best_of.running(store)
        plain = not (request.tools or request.logprobs) and request.form is None and request.raw is None
        if current is None or not plain or named(request.model) is not None or request.temperature == 0:
            return None
        if version.number != current.live:
            return None
        with self.lock:
            return None if self.reading.unread(store) else current

    async def answer(
        self, local: LocalEngine, request: Asked, version: Version, current: BestOfTrial
    ) -> AsyncGenerator[tuple[PartialAnswer, str], None]:
        """As ``Local.answer``, in one piece. Raises as that does."""
        seeds = [None if request.seed is None else request.seed + number for number in range(current.count)]
        draws = await asyncio.gather(*(_draw(local, request, version, seed) for seed in seeds))
        question = Turn("", tuple(request.messages), "").prompt
        texts, ended = [one.text for one in draws], [one.ended != "length" for one in draws]
        place = await asyncio.to_thread(self._best, question, texts, ended)
        answer = draws[place]
        answer.best_of, answer.drawn_tokens = current.count, sum(len(one.ids) for one in draws)
        yield answer, answer.text

    def _best(self, question: str, texts: list[str], ended: list[bool]) -> int:
        with self.lock:
            return self.reading.best(question, texts, ended)


async def _draw(local: LocalEngine, request: Asked, version: Version, seed: int | None) -> PartialAnswer:
    answer: PartialAnswer | None = None
    async for current, _ in local.answer(replace(request, seed=seed), version):
        answer = current
    assert answer is not None
    answer.request = request
    return answer
