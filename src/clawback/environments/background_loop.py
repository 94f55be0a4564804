"""An event loop in a thread of its own, for environments: the policy samples in the caller's."""

from __future__ import annotations

import asyncio
import threading
from collections import deque
from collections.abc import Callable, Coroutine
from concurrent.futures import Future, InvalidStateError
from contextlib import suppress
from functools import partial
from typing import Any, TypeVar

T = TypeVar("T")


async def _into(what: Callable[[], Coroutine[Any, Any, T]], answer: Future[T]) -> None:
    """What comes of ``what``, into ``answer``, unless nobody wants it any more."""
    try:
        came = await what()
    except BaseException as error:
        with suppress(InvalidStateError):
            answer.set_exception(error)
    else:
        with suppress(InvalidStateError):
            answer.set_result(came)


class BackgroundLoop:
    """It is handed calls, not coroutines: what is cancelled before its turn comes has no coroutine yet that nobody would await."""

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        self._asked: deque[tuple[Callable[[], Coroutine[Any, Any, Any]], Future[Any]]] = deque()
        self._woken = False
        self._running: set[asyncio.Task[None]] = set()
        """The loop itself holds its tasks weakly."""
        self._thread = threading.Thread(target=self._loop.run_forever, name="worlds", daemon=True)
        self._thread.start()

    def submit(self, what: Callable[[], Coroutine[Any, Any, T]]) -> Future[T]:
        """To be run. The loop is woken once for all that is asked before it comes to it: waking costs more than a quick world's step."""
        answer: Future[T] = Future()
        self._asked.append((what, answer))
        if not self._woken:
            self._woken = True
            self._loop.call_soon_threadsafe(self._begin)
        return answer

    def _begin(self) -> None:
        self._woken = False  # first: what is asked from here on wakes the loop again
        while self._asked:
            what, answer = self._asked.popleft()
            if answer.cancelled():
                continue
            task = self._loop.create_task(_into(what, answer))
            self._running.add(task)
            task.add_done_callback(self._running.discard)
            answer.add_done_callback(partial(self._unwanted, task))

    def _unwanted(self, task: asyncio.Task[None], answer: Future[Any]) -> None:
        if answer.cancelled():
            self._loop.call_soon_threadsafe(task.cancel)

    def close(self) -> None:
        """What is still under way gets its chance to let go."""
        if self._loop.is_closed():
            return

        async def rest() -> None:
            others = [task for task in asyncio.all_tasks() if task is not asyncio.current_task()]
            if others:
                await asyncio.wait(others, timeout=5)

        self.submit(rest).result()
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(timeout=10)
        self._loop.close()
