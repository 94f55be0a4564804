"""Plays tasks with a policy to measure it, without learning. Many episodes run at once in one event loop.

A broken environment (``EnvironmentFailure``) is tried again, then counted apart: it is never a reward of 0 (``episode_loop``).
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from math import sqrt
from typing import Any, Literal, Protocol, runtime_checkable

from clawback.environments.core import EnvironmentFailure, EnvironmentSet, Observation, Step, Task, Tool
from clawback.environments.episode_loop import (
    Answer,
    AskOpening,
    AskReply,
    AskStep,
    Ending,
    EpisodeLimits,
    advance,
    episode_loop,
)
from clawback.environments.world_loops import BoundedWorld, let_go
from clawback.errors import MissingExtra, UsageError
from clawback.records import JsonObject, Message

__all__ = ["PlayedEpisode", "Player", "View", "episode", "let_go", "play", "summary", "wilson"]

Stop = Literal["done", "truncated", "turns", "failed"]
TURNS = 64
ATTEMPTS = 2
"""How often a world that breaks is tried."""
SOLVED = 1 - 1e-6


@dataclass(frozen=True, slots=True)
class View:
    """What a policy sees when it is its turn."""

    task: Task
    messages: tuple[Message, ...]
    tools: tuple[Tool, ...]
    seed: int
    turn: int


class Player(Protocol):
    """Anything that answers: a model, a server, a script."""

    async def __call__(self, view: View) -> Message: ...


@runtime_checkable
class Counting(Protocol):
    """A player that waits for the episodes that are being played: it is told how many there are."""

    under_way: int


@dataclass(frozen=True, slots=True)
class PlayedEpisode:
    """One episode. ``reward`` is the sum of its steps' rewards; None where its world broke."""

    task: Task
    seed: int
    stop: Stop
    reward: float | None
    messages: tuple[Message, ...] = ()
    turns: int = 0
    unparsable: int = 0
    seconds: float = 0.0
    error: str = ""
    info: Mapping[str, Any] = field(default_factory=dict)

    @property
    def solved(self) -> bool:
        """By the world's own word where it has one, else by a reward of 1."""
        return bool(self.info.get("success", (self.reward or 0.0) >= SOLVED))


class _Messages:
    """What an episode's policy sees, and what it was given: a ``Record`` of an episode loop."""

    def __init__(self, task: Task, seed: int) -> None:
        self.task, self.seed = task, seed
        self.begin()

    def begin(self) -> None:
        self.messages: list[Message] = []
        self.tools: tuple[Tool, ...] = ()
        self.reward, self.turns, self.unparsable = 0.0, 0, 0
        self.info: Mapping[str, Any] = {}

    def open(self, observation: Observation) -> None:
        self.messages, self.tools = list(observation.messages), observation.tools

    def view(self) -> View:
        return View(self.task, tuple(self.messages), self.tools, self.seed, self.turns)

    def write(self, message: Message) -> None:
        self.messages.append(message)
        self.turns += 1

    def hear(self, step: Step) -> None:
        self.messages += step.messages
        self.reward += 0.0 if step.reward is None else step.reward
        self.unparsable += bool(step.info.get("unparsable"))
        self.info = step.info

    def played(self, ending: Ending, seconds: float) -> PlayedEpisode:
        if ending.status == "failed":
            return PlayedEpisode(self.task, self.seed, "failed", None, seconds=seconds, error=ending.reason)
        stop: Stop = "turns" if ending.at_limit else "truncated" if ending.status == "truncated" else "done"
        return PlayedEpisode(
            self.task,
            self.seed,
            stop,
            self.reward,
            tuple(self.messages),
            self.turns,
            self.unparsable,
            seconds,
            "",
            self.info,
        )


async def episode(
    environments: EnvironmentSet,
    task: Task,
    player: Player,
    seed: int = 0,
    turns: int = TURNS,
    seconds: float | None = None,
) -> PlayedEpisode:
    """One try at a task, with a second one where the world breaks; none where it does not answer.

    Whatever the world raises is its failure, and so is an ``EnvironmentFailure`` of the player. ``seconds``: what one answer of
    the world may take.
    """
    began = time.monotonic()
    record = _Messages(task, seed)
    loop = episode_loop(record, EpisodeLimits(turns, ATTEMPTS - 1, retry_hanging=False))
    asks, world = advance(loop), None
    try:
        while not isinstance(asks, Ending):
            try:
                match asks:
                    case AskOpening():
                        await _close(world)
                        world = BoundedWorld(environments, seconds)
                        answer: Answer = await world.reset(task, seed)
                    case AskReply():
                        answer = await player(record.view())
                        record.write(answer)
                    case AskStep(message):
                        assert world is not None
                        answer = await world.step(message)
            except MissingExtra:
                raise
            except Exception as error:
                if isinstance(asks, AskReply) and not isinstance(error, EnvironmentFailure):
                    raise
                asks = advance(loop, failure=error)
            else:
                asks = advance(loop, answer)
        return record.played(asks, time.monotonic() - began)
    finally:
        await _close(world)


async def _close(world: BoundedWorld | None) -> None:
    if world is None:
        return
    with suppress(Exception):  # its episode is over all the same
        await world.close()
    world.leave()


@dataclass(frozen=True, slots=True)
class PlaySettings:
    """How tasks are played."""

    seed: int = 0
    each: int = 1
    """Tries at each task."""
    together: int = 8
    """Episodes at once."""
    turns: int = TURNS
    seconds: float | None = None
    """For one answer of the world."""


DEFAULTS = PlaySettings()


async def play(
    environments: EnvironmentSet,
    tasks: Sequence[Task],
    player: Player,
    settings: PlaySettings = DEFAULTS,
    on_played: Callable[[PlayedEpisode, int, int], None] | None = None,
) -> list[PlayedEpisode]:
    """The episodes, in the order of the tasks. Also lets go of what the set holds."""
    each, together = settings.each, settings.together
    if min(each, together, settings.turns) < 1:
        raise UsageError("Tries, episodes at once and turns must be at least 1.")
    gate = asyncio.Semaphore(together)
    done = 0

    async def play_task(task: Task, number: int) -> PlayedEpisode:
        nonlocal done
        async with gate:
            played = await episode(
                environments, task, player, settings.seed + number, settings.turns, settings.seconds
            )
        done += 1
        if isinstance(player, Counting):
            player.under_way = min(together, len(tasks) * each - done)
        if on_played:
            on_played(played, done, len(tasks) * each)
        return played

    if isinstance(player, Counting):
        player.under_way = min(together, len(tasks) * each)
    try:
        async with asyncio.TaskGroup() as group:
            started = [group.create_task(play_task(task, number)) for task in tasks for number in range(each)]
        return [task.result() for task in started]
    except BaseExceptionGroup as errors:
        raise _first(errors) from None
    finally:
        await let_go(environments)


def _first(errors: BaseExceptionGroup[Any]) -> BaseException:
    error: BaseException = errors
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return error


def summary(played: Iterable[PlayedEpisode]) -> JsonObject:
    """The figures of some episodes. Those whose world broke are counted and in no mean."""
    every = list(played)
    whole = [one for one in every if one.reward is not None]
    count = len(whole)
    solved = sum(one.solved for one in whole)
    low, high = wilson(solved, count)
    turns = sum(one.turns for one in whole)
    return {
        "episodes": len(every),
        "failed": len(every) - count,
        "reward": sum(one.reward or 0.0 for one in whole) / count if count else None,
        "solved": solved / count if count else None,
        "solved_low": low,
        "solved_high": high,
        "truncated": sum(one.stop in ("truncated", "turns") for one in whole),
        "turns": turns / count if count else None,
        "unparsable": sum(one.unparsable for one in whole) / turns if turns else None,
        "idle": sum(bool(one.info.get("idle")) for one in whole),
        "all_solved": _all_solved(whole),
        "seconds": sum(one.seconds for one in every),
    }


def _all_solved(episodes: Sequence[PlayedEpisode]) -> float | None:
    """Share of tasks that were solved at every try (pass^k): what one can rely on."""
    by_task: dict[str, bool] = {}
    for one in episodes:
        by_task[one.task.id] = by_task.get(one.task.id, True) and one.solved
    return sum(by_task.values()) / len(by_task) if by_task else None


def wilson(hits: int, count: int, z: float = 1.96) -> tuple[float | None, float | None]:
    """Wilson's interval of a share, at 95 %."""
    if not count:
        return None, None
    share = hits / count
    middle = share + z * z / (2 * count)
    half = z * sqrt(share * (1 - share) / count + z * z / (4 * count * count))
    whole = 1 + z * z / count
    return max(0.0, (middle - half) / whole), min(1.0, (middle + half) / whole)
