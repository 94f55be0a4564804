"""The loop of one episode, without any waiting: a generator that says who is asked next, and is sent the answer.

Whoever plays waits for the answers in its own way: ``play`` awaits them, ``rollouts`` collects those of many episodes into batches. When an
episode opens again, when it ends and as what it counts is decided here alone.
"""

from __future__ import annotations

from collections.abc import Generator
from dataclasses import dataclass
from typing import Literal, Protocol, cast

from clawback.environments.core import Observation, Step, Task
from clawback.environments.world_loops import Hanging, checked
from clawback.errors import ClawbackError, MissingExtra
from clawback.records import EpisodeStatus, Message


@dataclass(frozen=True, slots=True)
class EpisodeLimits:
    """When an episode ends by itself."""

    turns: int
    """Replies. An episode that is not over by then is ``truncated``."""
    retries: int
    """How often an episode is begun again in a fresh environment when its own fails."""
    retry_hanging: bool = True
    """Also when it did not answer in time (``Hanging``)."""


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


@dataclass(frozen=True, slots=True)
class AskOpening:
    """A fresh environment is asked for its observation."""


@dataclass(frozen=True, slots=True)
class AskReply:
    """The policy is asked for a message."""


@dataclass(frozen=True, slots=True)
class AskStep:
    """The environment is asked for its step."""

    message: Message


@dataclass(frozen=True, slots=True)
class Ending:
    """How an episode ended."""

    status: EpisodeStatus
    reason: str
    at_limit: bool = False
    """Ended by ``EpisodeLimits.turns``, not by the environment."""


Ask = AskOpening | AskReply | AskStep
Answer = Observation | Message | Step
Loop = Generator[Ask, Answer | None, Ending]


class Record(Protocol):
    """What is kept of an episode. Whatever its methods raise is a failure of the environment that gave the answer."""

    def begin(self) -> None:
        """A try begins: nothing of an earlier one counts."""
        ...

    def open(self, observation: Observation) -> None: ...

    def hear(self, step: Step) -> None:
        """What came of the last reply."""
        ...


def episode_loop(record: Record, limits: EpisodeLimits) -> Loop:
    """Yields an ``Ask``, and is sent an ``Observation``, a ``Message`` or a ``Step``; a failure of the environment is thrown in (``advance``).

    Raises ``MissingExtra``: an environment that needs what is not installed opens nowhere, however often it is tried.
    """
    failures = 0
    while True:
        record.begin()
        try:
            return (yield from _try(record, limits.turns))
        except MissingExtra:
            raise
        except Exception as error:
            failures += 1
            hopeless = isinstance(error, Hanging) and not limits.retry_hanging
            if failures > limits.retries or hopeless:
                words = str(error) if isinstance(error, ClawbackError) else f"{type(error).__name__}: {error}"
                return Ending("failed", words)


def _try(record: Record, turns: int) -> Loop:
    record.open(checked((yield AskOpening()), Observation))
    replies = 0
    while True:
        message = cast(Message, (yield AskReply()))
        replies += 1
        step = checked((yield AskStep(message)), Step)
        record.hear(step)
        if step.done:
            cut = bool(step.info.get("truncated"))
            reason = str(step.info.get("stop_reason") or ("the environment's limit" if cut else "done"))
            return Ending("truncated" if cut else "completed", reason)
        # A program that leads its episode ends at a limit of its own, and is judged then.
        if replies >= turns and step.request is None:
            return Ending("truncated", f"{turns} turns", at_limit=True)


def advance(loop: Loop, answer: Answer | None = None, failure: Exception | None = None) -> Ask | Ending:
    """What a loop asks next, after this answer (None: it has not begun) or failure."""
    try:
        return loop.send(answer) if failure is None else loop.throw(failure)
    except StopIteration as end:
        return cast(Ending, end.value)
