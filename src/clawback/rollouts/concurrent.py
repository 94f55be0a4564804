"""Many episodes at once over one batched generator.

Environments live on an event loop in a thread of its own; the policy samples in the caller's. Each *wave*
takes every episode whose environment has answered one reply further, in one batch, with what was read before
still in the cache. Environments that answer within ``patience`` are waited for, so that with fast ones the
waves, and with them the bits of every episode, follow from the seed alone; slow ones join a later wave.

A failing environment is no fault of the policy: its episode begins again in a fresh one, at most ``retries``
times, and is then ``failed``, without a reward and excluded from training (``episode_loop``).
"""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Awaitable, Callable, Hashable, Iterable, Sequence
from concurrent.futures import Future, wait
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from clawback.environments.core import (
    Environment,
    EnvironmentFailure,
    EnvironmentSet,
    Observation,
)
from clawback.environments.episode_loop import (
    AskReply,
    AskStep,
    Ending,
    EpisodeLimits,
    Loop,
    Order,
    advance,
    episode_loop,
)
from clawback.environments.world_helpers import mixed
from clawback.environments.world_loops import RESPONDS, BackgroundLoop, Hanging, WorldLoops, answer_seconds
from clawback.errors import MissingExtra
from clawback.models import Sampling
from clawback.records import Episode
from clawback.rollouts.token_record import TokenRecord

if TYPE_CHECKING:
    from clawback.policy import Policy
    from clawback.sampling import Sampled, TurnRequest

T = TypeVar("T")
LATE = 1.0
"""Seconds past its time limit after which a world's loop is looked at."""
MOST_FAILED = 0.5
"""Share of episodes whose world may break before playing stops, once there are ``FEWEST_FAILED``."""
FEWEST_FAILED = 8


@dataclass(frozen=True, slots=True)
class Play:
    """How episodes are played."""

    together: int = 32
    """Episodes under way at once."""
    max_turns: int = 40
    """Replies in an episode; one that is not over by then is ``truncated``."""
    max_tokens: int = 32
    """Of a reply."""
    penalty: float = 0.5
    """What a reply costs that the environment could not read. It stays in the conversation."""
    retries: int = 2
    """How often an episode is begun again when its world breaks."""
    patience: float = 1.0
    """Seconds that a wave waits for the worlds that have not answered yet."""
    timeout: float = 120.0
    """Seconds after which a world that does not answer is broken."""
    keep_cache: bool = True


class Drawer(Protocol):
    """The sampler of the replies: the engine in this process (``Conversations``), or a server (an extension)."""

    def draw(self, turns: Sequence[TurnRequest]) -> list[Sampled]: ...

    def refresh(self) -> None:
        """The policy's weights have changed."""

    def forget(self, key: Hashable) -> None:
        """That conversation is over."""


class EpisodeSource(Protocol):
    """Who plays what is ordered: this process (``Rollouts``), or a cluster (an extension)."""

    worlds: EnvironmentSet

    @property
    def idle(self) -> bool:
        """Nothing waits and nothing is under way."""
        ...

    def start(self, orders: Iterable[Order]) -> None: ...

    def wave(self) -> list[Episode]:
        """Go on for a while: the episodes that are over by now."""
        ...

    def refreshed(self, update: int) -> None:
        """The policy's weights have changed."""
        ...

    def rest(self) -> None:
        """Nothing is played for a while: the learner takes its steps."""
        ...


@dataclass(eq=False, slots=True)
class _Live:
    """An episode under way, in one environment: where that fails, another one takes its loop and its record."""

    order: Order
    loop: Loop
    record: TokenRecord
    lane: BackgroundLoop
    """Where its environment runs."""
    answer: Future[Any]
    """What the environment is asked for: an observation first, then a step."""
    world: Environment | None = None
    asked_at: float = 0.0
    """When it was asked."""


class Rollouts:
    """``start`` orders, ``wave`` until enough of them are over, ``close``. Or ``play`` for all of them."""

    def __init__(
        self,
        policy: Policy,
        worlds: EnvironmentSet,
        play: Play | None = None,
        *,
        sampling: Sampling | None = None,
        on_episodes: Callable[[Sequence[Episode]], None] = lambda _: None,
        drawer: Drawer | None = None,
    ) -> None:
        """``on_episodes``: told of the episodes that a wave finished, once each, before anything else is done with them. ``drawer``: who draws the
        replies in place of this process; it is closed with the rollouts."""
        from clawback.sampling import Conversations

        self.policy, self.worlds, self.how = policy, worlds, play or Play()
        self.max_tokens = min(self.how.max_tokens, max(1, policy.info.context // 2))
        """Of a reply: half of what the model can read is left for what led to it."""
        self.on_episodes = on_episodes
        self.update = 0
        """How often the weights have changed: noted with each reply."""
        self.conversations: Drawer = drawer or Conversations(
            policy, sampling=sampling or policy.sampling, keep=self.how.keep_cache
        )
        self.broken, self.over = 0, 0
        """Worlds that broke, and episodes that are over."""
        self._waiting: deque[Order] = deque()
        self._live: list[_Live] = []
        self.timeout = answer_seconds(worlds, self.how.timeout)
        self._loops = WorldLoops()

    # ------------------------------------------------------------------------------------------------- the outside

    @property
    def idle(self) -> bool:
        """Nothing waits and nothing is under way."""
        return not self._waiting and not self._live

    def start(self, orders: Iterable[Order]) -> None:
        self._waiting += orders

    def play(self, orders: Sequence[Order]) -> list[Episode]:
        """All of them to their ends, in order."""
        self.start(orders)
        done: dict[int, Episode] = {}
        while not self.idle:
            done |= {episode.number: episode for episode in self.wave()}
        return [done[order.number] for order in orders]

    def refreshed(self, update: int) -> None:
        """The policy's weights have changed. Episodes under way go on under the new ones."""
        self.update = update
        self.conversations.refresh()

    def rest(self) -> None:
        """Nothing is played for a while: the learner takes its steps."""
        if callable(rest := getattr(self.conversations, "rest", None)):
            rest()

    def wave(self) -> list[Episode]:
        """Every episode whose world has answered goes one reply further. Those that are over by now."""
        self._admit()
        done: list[Episode] = []
        ready: list[_Live] = []
        for live in self._answered():
            asks = self._take(live)
            if isinstance(asks, Ending):
                done.append(self._finish(live, asks))
            elif isinstance(asks, AskReply):
                ready.append(live)
        self._reply(ready)
        if done:
            self.over += len(done)
            self.on_episodes(done)
            self._check()
        return done

    def close(self, shared: bool = True) -> None:
        """Close every environment. Unfinished episodes are lost; finished ones have been returned. ``shared``: what the set's episodes
        share is closed, too."""
        for live in self._live:
            live.answer.cancel()
            self._let_go(live)
        self._live, self._waiting = [], deque()
        if shared and callable(
            end := getattr(self.worlds, "aclose", None)
        ):  # what its episodes shared, such as a browser
            self._loops.submit(partial(_quietly, end))
        self._loops.close()
        if callable(end := getattr(self.conversations, "close", None)):
            end()

    def __enter__(self) -> Rollouts:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    # ----------------------------------------------------------------------------------------------------- a wave

    def _admit(self) -> None:
        limits = EpisodeLimits(self.how.max_turns, self.how.retries)
        while self._waiting and len(self._live) < self.how.together:
            record = TokenRecord(self.policy, self.max_tokens, self.how.penalty)
            loop = episode_loop(record, limits)
            advance(loop)
            self._live.append(self._open(self._waiting.popleft(), loop, record))

    def _open(self, order: Order, loop: Loop, record: TokenRecord) -> _Live:
        live = _Live(order, loop, record, self._loops.lane(), Future())

        async def start() -> Observation:
            live.world = self.worlds.make()
            return await live.world.reset(order.task, order.seed)

        self._ask(live, start)
        return live

    def _ask(self, live: _Live, what: Callable[[], Awaitable[Any]]) -> None:
        live.answer = live.lane.submit(partial(_within, what, self.timeout))
        live.asked_at = time.monotonic()

    def _answered(self) -> list[_Live]:
        """Those whose world has answered, in the order in which they were started."""
        asked = [live.answer for live in self._live]
        _, slow = wait(asked, timeout=self.how.patience)
        while len(slow) == len(asked) and asked:
            _, slow = wait(asked, timeout=LATE, return_when="FIRST_COMPLETED")
            self._unblock()
            asked = [live.answer for live in self._live]
            slow = {answer for answer in asked if not answer.done()}
        return [live for live in self._live if live.answer.done()]

    def _unblock(self) -> None:
        """Episodes whose loop is blocked, so that not even their time limit is noticed, are broken."""
        late = time.monotonic() - self.timeout - LATE
        for lane in {live.lane for live in self._live if not live.answer.done() and live.asked_at < late}:
            if lane.responds(RESPONDS):
                continue
            self._loops.found_blocked(lane)
            for live in self._live:
                if live.lane is lane and not live.answer.done():
                    live.answer, live.world = Future(), None
                    live.answer.set_exception(Hanging("the environment blocks and does not answer"))

    def _take(self, live: _Live) -> AskReply | Ending | None:
        """What the environment answered, handed to the episode's loop, and what that asks next. None: another environment was opened."""
        try:
            answer = live.answer.result()
        except MissingExtra:  # no world of this set will ever open here, however often it is tried
            raise
        except Exception as error:
            asks = advance(live.loop, failure=error)
        else:
            asks = advance(live.loop, answer)
        if isinstance(asks, AskReply) or (isinstance(asks, Ending) and asks.status != "failed"):
            return asks
        self.broken += 1
        self._let_go(live)
        self.conversations.forget(live.order.number)
        if isinstance(asks, Ending):
            return asks
        self._live[self._live.index(live)] = self._open(live.order, live.loop, live.record)
        return None

    def _finish(self, live: _Live, ending: Ending) -> Episode:
        self._live.remove(live)
        if ending.status != "failed":  # whose world has been let go of
            self.conversations.forget(live.order.number)
            self._let_go(live)
        return live.record.episode(self.worlds.name, live.order, ending)

    def _let_go(self, live: _Live) -> None:
        if live.world is not None:
            closed = live.lane.submit(partial(_quietly, live.world.close))
            closed.add_done_callback(lambda _: self._loops.leave(live.lane))

    def _reply(self, ready: Sequence[_Live]) -> None:
        """One batch of replies; each is handed to its world."""
        turns = [
            live.record.turn(
                live.order.number, mixed(live.order.draws, live.order.number, len(live.record.steps))
            )
            for live in ready
        ]
        for live, drawn in zip(ready, self.conversations.draw(turns), strict=True):
            asks = advance(live.loop, live.record.write(drawn, self.update))
            assert isinstance(asks, AskStep)
            assert live.world is not None
            self._ask(live, partial(live.world.step, asks.message))

    def _check(self) -> None:
        check_broken(self.over, self.broken, self.worlds.name)


def check_broken(over: int, broken: int, name: str) -> None:
    """Raises ``EnvironmentFailure`` where most worlds break."""
    tries = over + broken
    if broken >= FEWEST_FAILED and broken > MOST_FAILED * tries:
        raise EnvironmentFailure(
            f"{broken} of {tries} tries at {name} ended because the environment failed, not the policy. "
            "`clawback env episodes list` shows why; fix it, then resume."
        )


async def _within(what: Callable[[], Awaitable[T]], seconds: float) -> T:
    try:
        return await asyncio.wait_for(what(), seconds)
    except TimeoutError:
        raise EnvironmentFailure(f"the environment did not answer within {seconds:.0f} s") from None


async def _quietly(what: Callable[[], Awaitable[None]]) -> None:
    """A world that cannot be closed is one more that broke; its episode is over all the same."""
    with suppress(Exception):
        await asyncio.wait_for(what(), 30)
