"""An event loop in a thread of its own, for environments: the policy samples in the caller's."""

from __future__ import annotations

import asyncio
import threading
from collections import deque
from collections.abc import Callable, Coroutine
from concurrent.futures import Future, InvalidStateError, ThreadPoolExecutor
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


class DaemonThreads(ThreadPoolExecutor):
    """Each call in a thread of its own, which does not keep the process from ending."""

    def submit(self, fn: Callable[..., T], /, *args: Any, **kwargs: Any) -> Future[T]:
        answer: Future[T] = Future()

        def work() -> None:
            if not answer.set_running_or_notify_cancel():
                return
            try:
                came = fn(*args, **kwargs)
            except BaseException as error:
                answer.set_exception(error)
            else:
                answer.set_result(came)

        threading.Thread(target=work, name="world", daemon=True).start()
        return answer

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        """Threads end by themselves, or with the process."""


class BackgroundLoop:
    """It is handed calls, not coroutines: what is cancelled before its turn comes has no coroutine yet that nobody would await."""

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        self._loop.set_default_executor(DaemonThreads())
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

        with suppress(TimeoutError):
            self.submit(rest).result(timeout=10)
        self.abandon()
        self._thread.join(timeout=2)
        if not self._thread.is_alive():
            self._loop.close()

    def abandon(self) -> None:
        """Stop it as soon as it does anything; wait for nothing."""
        if not self._loop.is_closed():
            self._loop.call_soon_threadsafe(self._loop.stop)

    def responds(self, seconds: float) -> bool:
        """Whether it does something within this time, or is blocked by what it runs."""

        async def nothing() -> None:
            return

        try:
            self.submit(nothing).result(timeout=seconds)
        except TimeoutError:
            return False
        return True
