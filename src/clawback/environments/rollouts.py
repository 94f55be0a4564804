"""Many episodes at once over one batched generator.

Environments live on an event loop in a thread of its own; the policy samples in the caller's. Each *wave*
takes every episode whose environment has answered one reply further, in one batch, with what was read before
still in the cache. Environments that answer within ``patience`` are waited for, so that with fast ones the
waves, and with them the bits of every episode, follow from the seed alone; slow ones join a later wave.

A failing environment is no fault of the policy: its episode begins again in a fresh one, at most ``retries``
times, and is then ``failed``, without a reward and excluded from training.
"""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Awaitable, Callable, Hashable, Iterable, Sequence
from concurrent.futures import Future, wait
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING, Any, Literal, Protocol, TypeVar

from clawback.environments.background_loop import BackgroundLoop
from clawback.environments.core import (
    Environment,
    EnvironmentFailure,
    EnvironmentSet,
    Observation,
    Request,
    Step,
    Task,
)
from clawback.environments.program_dialogue import ProgramDialogue
from clawback.environments.tools.calls import in_words
from clawback.environments.world_loops import RESPONDS, Hanging, WorldLoops, answer_seconds, checked
from clawback.environments.worlds import mixed
from clawback.errors import ClawbackError, MissingExtra
from clawback.models import Sampling
from clawback.records import Episode, EpisodeStatus, EpisodeStep

if TYPE_CHECKING:
    from clawback.environments.conversations import Turn
    from clawback.environments.dialogue import Dialogue
    from clawback.policy import Policy
    from clawback.sampling import Sampled

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

    def draw(self, turns: Sequence[Turn]) -> list[Sampled]: ...

    def refresh(self) -> None:
        """The policy's weights have changed."""

    def forget(self, key: Hashable) -> None:
        """That conversation is over."""


@dataclass(frozen=True, slots=True)
class Order:
    """One episode that is to be played. What it draws follows from ``seed``, ``draws`` and its ``number`` alone."""

    number: int
    task: Task
    seed: int
    """Of the world."""
    draws: int
    """Of the policy's replies."""
    group: int = 0
    split: Literal["train", "test"] = "train"


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
    """An episode under way."""

    order: Order
    lane: BackgroundLoop
    """Where its world runs."""
    answer: Future[Any]
    """What the world is asked for: an observation first, then a step."""
    attempt: int = 0
    world: Environment | None = None
    asked: float = 0.0
    """When it was asked."""
    dialogue: Dialogue | ProgramDialogue | None = None
    steps: list[EpisodeStep] = field(default_factory=list)


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
        from clawback.environments.conversations import Conversations

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
            if (episode := self._take(live)) is not None:
                done.append(episode)
            elif live in self._live and live.answer.done() and live.dialogue is not None:
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
        while self._waiting and len(self._live) < self.how.together:
            self._live.append(self._open(self._waiting.popleft(), 0))

    def _open(self, order: Order, attempt: int) -> _Live:
        live = _Live(order, self._loops.lane(), Future(), attempt)

        async def start() -> Observation:
            live.world = self.worlds.make()
            return await live.world.reset(order.task, order.seed)

        self._ask(live, start)
        return live

    def _ask(self, live: _Live, what: Callable[[], Awaitable[Any]]) -> None:
        live.answer = live.lane.submit(partial(_within, what, self.timeout))
        live.asked = time.monotonic()

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
        for lane in {live.lane for live in self._live if not live.answer.done() and live.asked < late}:
            if lane.responds(RESPONDS):
                continue
            self._loops.found_blocked(lane)
            for live in self._live:
                if live.lane is lane and not live.answer.done():
                    live.answer, live.world = Future(), None
                    live.answer.set_exception(Hanging("the environment blocks and does not answer"))

    def _take(self, live: _Live) -> Episode | None:
        """What the world said, entered. The episode, where that ended it."""
        from clawback.environments.dialogue import Dialogue

        try:
            said = checked(live.answer.result(), Step if live.dialogue else Observation)
        except MissingExtra:  # no world of this set will ever open here, however often it is tried
            raise
        except Exception as error:
            return self._again(live, error)
        if isinstance(said, Observation):
            if said.request is not None:
                live.dialogue = ProgramDialogue(self.policy)
                return self._request(live, said.request)
            room = self.policy.info.context - self.max_tokens
            live.dialogue = Dialogue(
                self.policy.chat,
                in_words(said.messages, said.tools),
                max_prompt=max(16, min(self.policy.max_prompt, room)),
            )
            return None
        assert isinstance(said, Step)
        assert live.dialogue is not None
        live.dialogue.heard(in_words(said.messages, ()))
        live.steps[-1] = scored(live.steps[-1], said, self.how.penalty)
        if said.done:
            cut = bool(said.info.get("truncated"))
            why = str(said.info.get("stop_reason") or ("the environment's limit" if cut else "done"))
            return self._finish(live, "truncated" if cut else "completed", why)
        if said.request is not None:  # a program ends at a limit of its own, and is judged then
            return self._request(live, said.request)
        if len(live.steps) >= self.how.max_turns:
            return self._finish(live, "truncated", f"{self.how.max_turns} turns")
        return None

    def _request(self, live: _Live, request: Request) -> Episode | None:
        """What a program asks next; where it cannot be put to the policy, its episode broke."""
        assert isinstance(live.dialogue, ProgramDialogue)
        try:
            live.dialogue.request(request)
        except Exception as error:
            return self._again(live, error)
        return None

    def _again(self, live: _Live, error: Exception) -> Episode | None:
        """The world broke: a fresh one, or the end."""
        self.broken += 1
        self._let_go(live)
        self.conversations.forget(live.order.number)
        place = self._live.index(live)
        if live.attempt < self.how.retries:
            self._live[place] = self._open(live.order, live.attempt + 1)
            return None
        why = str(error) if isinstance(error, ClawbackError) else f"{type(error).__name__}: {error}"
        return self._finish(live, "failed", why)

    def _finish(self, live: _Live, status: EpisodeStatus, why: str) -> Episode:
        self._live.remove(live)
        self.conversations.forget(live.order.number)
        if status != "failed":  # whose world has been let go of
            self._let_go(live)
        order, dialogue = live.order, live.dialogue
        whole = status != "failed" and dialogue is not None
        return Episode(
            environment=self.worlds.name,
            task=order.task.id,
            seed=order.seed,
            messages=tuple(dialogue.messages) if dialogue else (),
            branches=dialogue.branches if whole and dialogue else (),
            steps=tuple(live.steps) if whole else (),
            status=status,
            stop_reason=why,
            number=order.number,
            group=order.group,
            split=order.split,
            created_at=time.time(),
        )

    def _let_go(self, live: _Live) -> None:
        if live.world is not None:
            closed = live.lane.submit(partial(_quietly, live.world.close))
            closed.add_done_callback(lambda _: self._loops.leave(live.lane))

    def _reply(self, ready: Sequence[_Live]) -> None:
        """One batch of replies; each is handed to its world."""
        from clawback.environments.conversations import Turn

        turns = []
        for live in ready:
            assert live.dialogue is not None
            order = live.order
            seed = mixed(order.draws, order.number, len(live.steps))
            prompt, most = live.dialogue.prompt(), self.max_tokens
            if isinstance(live.dialogue, ProgramDialogue):
                most = live.dialogue.most_tokens(most)
            turns.append(Turn(order.number, prompt, seed, most, live.dialogue.pixels))
        for live, sampled in zip(ready, self.conversations.draw(turns), strict=True):
            assert live.dialogue is not None
            branch = live.dialogue.branch
            start, end, _ = live.dialogue.wrote(sampled.ids, sampled.logprobs, sampled.finished)
            live.steps.append(EpisodeStep(branch, start, end, update=self.update, ended=sampled.finished))
            assert live.world is not None
            self._ask(live, partial(live.world.step, live.dialogue.messages[-1]))

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


def scored(step: EpisodeStep, said: Step, penalty: float) -> EpisodeStep:
    """A reply with what its world made of it."""
    unparsable = bool(said.info.get("unparsable"))
    return replace(
        step, reward=said.reward, unparsable=unparsable, penalty=-abs(penalty) if unparsable else 0.0
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
