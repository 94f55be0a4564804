"""Where environments run: event loops in threads of their own, with a limit on the time of each answer.

An environment may be anybody's code: it may raise, wait for ever, or block its event loop. None of that reaches the
caller's loop, in which the policy samples, and no thread that hangs keeps the process from ending.
"""

from __future__ import annotations

import asyncio
import threading
from collections import deque
from collections.abc import Callable, Coroutine, Mapping
from concurrent.futures import Future, InvalidStateError, ThreadPoolExecutor
from contextlib import suppress
from functools import partial
from math import isfinite
from typing import Any, SupportsFloat, TypeVar

from clawback.environments.core import (
    Environment,
    EnvironmentFailure,
    EnvironmentSet,
    Observation,
    Step,
    Task,
)
from clawback.records import Message

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

    def submit(self, fn: Callable[..., T], /, *args: object, **kwargs: object) -> Future[T]:
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


SECONDS = 120.0
"""That an environment may take for one answer, where its set does not say otherwise (``answer_seconds``)."""
RESPONDS = 2.0
"""Seconds within which a loop that is not blocked does something."""


class Hanging(EnvironmentFailure):
    """The environment did not answer in time."""


def answer_seconds(environments: EnvironmentSet, otherwise: float = SECONDS) -> float:
    """How long one answer may take: as the set says (``answer_seconds``), or the set that it wraps (``of``)."""
    at: Any = environments
    while at is not None:
        if (seconds := getattr(at, "answer_seconds", None)) is not None:
            return max(float(seconds), otherwise)
        at = getattr(at, "of", None)
    return otherwise


def checked(answer: Any, kind: type[T]) -> T:
    """An answer that is an observation or a step as it should be. Raises ``EnvironmentFailure``."""
    if not isinstance(answer, kind):
        raise EnvironmentFailure(
            f"the environment answered with a {type(answer).__name__}, not a {kind.__name__}"
        )
    messages = answer.messages  # type: ignore[attr-defined]
    if not isinstance(messages, tuple | list) or not all(
        isinstance(m, Mapping) and "role" in m for m in messages
    ):
        raise EnvironmentFailure(
            "the environment answered with messages that are none (a `role` and a `content` each)"
        )
    if isinstance(answer, Step) and answer.reward is not None:
        number = isinstance(answer.reward, SupportsFloat) and not isinstance(answer.reward, str)
        if not number or not isfinite(float(answer.reward)):
            raise EnvironmentFailure(f"the environment gave the reward {answer.reward!r}, which is no number")
    checked_answer: T = answer
    return checked_answer


class WorldLoops:
    """Loops of one set: a shared one, until an environment blocks it; from then on one for each episode."""

    def __init__(self) -> None:
        self._shared = BackgroundLoop()
        self._apart = False

    def lane(self) -> BackgroundLoop:
        """The loop of a new episode."""
        return BackgroundLoop() if self._apart else self._shared

    def leave(self, lane: BackgroundLoop) -> None:
        """An episode of this loop is over."""
        if lane is not self._shared:
            lane.abandon()

    def found_blocked(self, lane: BackgroundLoop) -> None:
        """This loop does nothing any more: leave it to itself."""
        lane.abandon()
        if lane is self._shared:
            self._shared, self._apart = BackgroundLoop(), True

    def submit(self, call: Callable[[], Coroutine[Any, Any, T]]) -> Future[T]:
        """On the shared loop."""
        return self._shared.submit(call)

    def close(self) -> None:
        self._shared.close()


_LOOPS: dict[int, WorldLoops] = {}
"""By the identity of the set that they belong to, until it is let go of."""


async def let_go(environments: EnvironmentSet, seconds: float = 30.0) -> None:
    """Release what a set shares among its episodes (a browser), by its ``aclose``; and its loop."""
    loops = _LOOPS.pop(id(environments), None)
    end = getattr(environments, "aclose", None)
    if loops is None:
        if callable(end):
            await end()
        return
    try:
        if callable(end):
            with suppress(TimeoutError):
                await asyncio.wait_for(asyncio.wrap_future(loops.submit(end)), seconds)
    finally:
        await asyncio.to_thread(loops.close)


class BoundedWorld:
    """One episode's environment, each answer of which comes in time or is a failure (``Hanging``)."""

    def __init__(self, environments: EnvironmentSet, seconds: float | None = None) -> None:
        self.environments = environments
        self.seconds = answer_seconds(environments) if seconds is None else seconds
        self._loops = _LOOPS.setdefault(id(environments), WorldLoops())
        self._lane = self._loops.lane()
        self._world: Environment | None = None
        self._blocked = False

    async def reset(self, task: Task, seed: int) -> Observation:
        async def start() -> Observation:
            self._world = self.environments.make()
            return await self._world.reset(task, seed)

        return await self._call(start)

    async def step(self, message: Message) -> Step:
        async def answer() -> Step:
            assert self._world is not None
            return await self._world.step(message)

        return await self._call(answer)

    async def close(self) -> None:
        """Close the environment; one that cannot be closed in time is left behind."""
        world = self._world
        if self._blocked:
            return
        if world is not None:
            await self._call(world.close)

    def leave(self) -> None:
        """Nothing more is asked of it."""
        if not self._blocked:
            self._loops.leave(self._lane)

    async def _call(self, call: Callable[[], Coroutine[Any, Any, T]]) -> T:
        if self._blocked:
            raise Hanging("the environment does not answer any more")
        future = asyncio.wrap_future(self._lane.submit(call))
        done, _ = await asyncio.wait([future], timeout=self.seconds)
        if done:
            return future.result()
        future.cancel()
        if not await asyncio.to_thread(self._lane.responds, RESPONDS):
            self._blocked = True
            self._loops.found_blocked(self._lane)
            # Whoever blocks the loop is not known: each of its episodes may be tried again, on a loop of its own.
            raise EnvironmentFailure(
                f"the environment did not answer within {self.seconds:g} s: its loop is blocked"
            )
        raise Hanging(f"the environment did not answer within {self.seconds:g} s")
