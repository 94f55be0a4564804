"""An agent's three methods and a Gym-like environment as an environment set, so that many episodes can be played at once."""

from __future__ import annotations

import copy
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, overload

from clawback.environments.core import Environment, Observation, Split, Step, Task
from clawback.records import Message

_ANSI = re.compile(r"\x1b\[[0-9;?]*[ -/]*[@-~]")
UNREAD = object()
"""What ``read_action`` gives for a reply that cannot be read."""


class Speaks(Protocol):
    """What is needed of an agent here: no model."""

    retries: int

    def get_system_prompt(self) -> str: ...

    def format_observation(self, observation: Any) -> str: ...

    def extract_action(self, response: str) -> Any: ...

    def hint(self, response: str) -> str: ...

    def fallback_action(self, observation: Any) -> Any: ...


def read_action(agent: Speaks, response: str) -> Any:
    """The action of a reply, or ``UNREAD``: whatever the method raises, and None, mean that it could not be read."""
    try:
        action = agent.extract_action(response)
    except Exception:
        return UNREAD
    return UNREAD if action is None else action


def shown(agent: Speaks, observation: Any) -> Message:
    """An observation as the message that the model reads, without a terminal's colours."""
    return {"role": "user", "content": _ANSI.sub("", str(agent.format_observation(observation)))}


def opening(agent: Speaks, observation: Any) -> list[Message]:
    system = agent.get_system_prompt()
    return [*([{"role": "system", "content": system}] if system else []), shown(agent, observation)]


def begun(env: Any, seed: int | None) -> Any:
    """The first observation, of Gymnasium's ``reset`` or of an older one without seeds (TextWorld)."""
    try:
        said = env.reset(seed=seed)
    except TypeError:
        if seed is not None and hasattr(env, "seed"):
            env.seed(seed)
        said = env.reset()
    return said[0] if isinstance(said, tuple) and len(said) == 2 and isinstance(said[1], dict) else said


def taken(env: Any, action: Any) -> tuple[Any, float, bool, bool]:
    """Observation, reward, terminated and truncated, of Gymnasium's five values or of Gym's four."""
    said = env.step(action)
    if len(said) == 4:
        observation, reward, done, info = said
        cut = bool(info.get("TimeLimit.truncated")) if isinstance(info, dict) else False
        return observation, float(reward), bool(done) and not cut, cut
    observation, reward, terminated, truncated, _ = said
    return observation, float(reward), bool(terminated), bool(truncated)


@dataclass(frozen=True, slots=True)
class SeedTasks(Sequence[Task]):
    """A task for each of some seeds, made when it is asked for: of a hundred thousand, a run looks at a few hundred."""

    name: str
    seeds: range
    split: Split

    def __len__(self) -> int:
        return len(self.seeds)

    @overload
    def __getitem__(self, place: int) -> Task: ...

    @overload
    def __getitem__(self, place: slice) -> SeedTasks: ...

    def __getitem__(self, place: int | slice) -> Task | SeedTasks:
        if isinstance(place, slice):
            return SeedTasks(self.name, self.seeds[place], self.split)
        seed = self.seeds[place]
        return Task(f"{self.name}/{seed}", {"seed": seed}, self.split)


class AgentWorlds:
    """An environment set: ``make_env`` makes the Gym-like environment of one episode, the agent puts it into words.

    A task is a seed of the environment; those of ``test`` are none of ``train``'s. There are more than a run plays: a seed decides all that is
    left to chance, and of a thousand hands of Blackjack a policy learns by which of its sums the dealer happened to go bust.
    """

    def __init__(
        self,
        name: str,
        agent: Speaks,
        make_env: Callable[[], Any],
        *,
        train: int = 100_000,
        test: int = 10_000,
    ) -> None:
        self.name, self.agent, self.make_env = name, agent, make_env
        self.counts = {"train": train, "test": test}

    def tasks(self, split: Split) -> Sequence[Task]:
        first = 0 if split == "train" else 1_000_000
        return SeedTasks(self.name, range(first, first + self.counts[split]), split)

    def make(self) -> Environment:
        # A copy each: what an agent notes down about its episode is that episode's.
        return _AgentWorld(copy.copy(self.agent), self.make_env())


class _AgentWorld:
    def __init__(self, agent: Speaks, env: Any) -> None:
        self.agent, self.env = agent, env
        self.observation: Any = None
        self.missed = 0
        """Replies in a row that could not be read."""

    async def reset(self, task: Task, seed: int) -> Observation:
        """The task's own seed is the world's: ``seed`` would make another world of it."""
        self.observation = begun(self.env, int(task.data.get("seed", seed)))
        self.missed = 0
        return Observation(tuple(opening(self.agent, self.observation)))

    async def step(self, message: Message) -> Step:
        reply = str(message.get("content") or "")
        action = read_action(self.agent, reply)
        unread = action is UNREAD
        if unread:
            self.missed += 1
            if self.missed <= self.agent.retries:
                return Step(({"role": "user", "content": self.agent.hint(reply)},), info={"unparsable": True})
            action = self.agent.fallback_action(self.observation)
        self.missed = 0
        self.observation, reward, terminated, truncated = taken(self.env, action)
        over = terminated or truncated
        return Step(
            () if over else (shown(self.agent, self.observation),),
            reward,
            over,
            {"unparsable": unread, "truncated": truncated and not terminated},
        )

    async def close(self) -> None:
        close = getattr(self.env, "close", None)
        if close is not None:
            close()
