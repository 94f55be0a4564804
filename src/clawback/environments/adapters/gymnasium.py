"""Any Gymnasium environment as a conversation: observations as text, an action parsed from each reply.

A task is an initial state (a seed of ``reset``); the episode's own seed decides the randomness after it. So
two episodes of one task begin alike and may be compared, as group-relative advantages need it. Nothing is
pickled or imported from a hub.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping, Sequence
from typing import Any

from clawback.environments import worlds
from clawback.environments.adapters import toy_text
from clawback.environments.core import Observation, Split, Step, Task
from clawback.errors import NotFound, UsageError
from clawback.records import Message

PACKAGE = "gymnasium"
OURS = ("tasks", "held_out", "patience", "goal", "turns")
"""Settings that are not the world's own."""
PATIENCE = 3
"""Replies in a row that name no action, after which the episode is over."""
TURNS = 200
"""Steps of a world that has no limit of its own."""
MOST_NUMBERS = 128
_QUICK = ("gymnasium.envs.toy_text", "gymnasium.envs.classic_control")
"""Worlds whose steps take microseconds: a thread would cost more than the step."""


def names() -> list[str]:
    gym = worlds.needed(PACKAGE, "Gymnasium")
    return [str(name) for name in gym.registry]


def make(rest: str, settings: Mapping[str, Any]) -> GymnasiumSet:
    gym = worlds.needed(PACKAGE, "Gymnasium")
    known = worlds.member("gymnasium", rest, names())
    own = {key: value for key, value in settings.items() if key not in OURS}
    found = GymnasiumSet(known, own, {key: value for key, value in settings.items() if key in OURS})
    try:
        inner = found.open_world()
    except (gym.error.Error, TypeError, ImportError) as error:
        raise UsageError(f"Gymnasium cannot make {rest}: {error}") from error
    if not isinstance(inner.unwrapped, gym.Env):
        raise UsageError(f"{rest} is a {type(inner).__name__}, not one world: name a gymnasium.Env.")
    size = getattr(inner.observation_space, "shape", None) or ()
    if len(size) > 2 or _count(size) > MOST_NUMBERS:
        raise UsageError(
            f"{rest} shows {_count(size)} numbers a step (a picture?), which is no text. Wrap it so that it says what it sees."
        )
    try:
        has_way = (
            toy_text.way(inner.unwrapped.P, 0, int(inner.action_space.n))
            if hasattr(inner.unwrapped, "P")
            else None
        )
    finally:
        inner.close()
    # A return of 1 is what counts as solved: only a lake pays that.
    return (
        SolvableGymnasiumSet(found.world, own, found.ours)
        if has_way and toy_text.world(known) == "FrozenLake"
        else found
    )


def _count(shape: Sequence[int]) -> int:
    total = 1
    for size in shape:
        total *= size
    return total


class GymnasiumSet:
    """Tasks of one Gymnasium id: initial states by seed."""

    def __init__(
        self, world: str, own: Mapping[str, Any] | None = None, ours: Mapping[str, Any] | None = None
    ) -> None:
        self.world, self.own, self.ours = world, dict(own or {}), dict(ours or {})
        self.name = worlds.full_name("gymnasium", world, self.own)

    def tasks(self, split: Split) -> Sequence[Task]:
        given = (self.ours.get("tasks", worlds.TRAIN_TASKS), self.ours.get("held_out", worlds.TEST_TASKS))
        return worlds.seeded_tasks(self.name, split, *given)

    def make(self) -> Gymnasium:
        return Gymnasium(self)

    def action_replies(self) -> Sequence[str]:
        """A reply for each discrete action (``action_form.Acting``)."""
        episode = self.make()
        episode.inner = self.open_world()
        try:
            return [f"Action: {name}" for name in episode.options()]
        finally:
            episode.inner.close()

    def open_world(self) -> Any:
        import gymnasium

        return gymnasium.make(self.world, **self.own)


class SolvableGymnasiumSet(GymnasiumSet):
    """A world whose map and rules are known and leave nothing to chance."""

    def solution(self, task: Task) -> Sequence[Message]:
        inner = self.open_world()
        try:
            start, _ = inner.reset(seed=int(task.data["seed"]))
            steps = toy_text.way(inner.unwrapped.P, int(start), int(inner.action_space.n))
        finally:
            inner.close()
        if steps is None:
            raise NotFound(f"No way leads to the goal in {task.id}.")
        words = toy_text.ACTIONS[toy_text.world(self.world)]
        return [{"role": "assistant", "content": f"Action: {words[step]}"} for step in steps]


class Gymnasium:
    """One episode. Create it by ``GymnasiumSet.make``."""

    def __init__(self, of: GymnasiumSet) -> None:
        self.of = of
        self.inner: Any = None
        self.unread = 0
        self.turns = 0

    async def reset(self, task: Task, seed: int) -> Observation:
        self.unread = self.turns = 0
        seen = await self._call(self._reset, int(task.data["seed"]), worlds.mixed(task.id, seed))
        goal = self.of.ours.get("goal") or toy_text.GOALS.get(
            self.world, f"You act in the world {self.of.world}."
        )
        return Observation(
            (
                {"role": "system", "content": f"{goal}\n{self.how()}"},
                {"role": "user", "content": self.words(seen)},
            )
        )

    async def step(self, message: Message) -> Step:
        self.turns += 1
        late = self.inner.spec.max_episode_steps is None and self.turns >= int(
            self.of.ours.get("turns", TURNS)
        )
        action = self.read(worlds.text(message))
        if action is None:
            self.unread += 1
            over = self.unread >= int(self.of.ours.get("patience", PATIENCE)) or late
            said = {"role": "user", "content": f"That names no action. {self.how()}"}
            return Step(() if over else (said,), 0.0 if over else None, over, {"unparsable": True})
        self.unread = 0
        seen, reward, ended, cut, _ = await self._call(self.inner.step, action)
        cut = cut or late
        info: dict[str, Any] = {"action": _plain(action)} | ({"truncated": True} if cut and not ended else {})
        answer = () if ended or cut else ({"role": "user", "content": self.words(seen)},)
        return Step(answer, float(reward), bool(ended or cut), info)

    async def close(self) -> None:
        inner, self.inner = self.inner, None
        if inner is not None:
            with worlds.faults(self.of.name):
                inner.close()

    @property
    def world(self) -> str:
        return toy_text.world(self.of.world)

    def how(self) -> str:
        """What a reply has to look like."""
        options = list(self.options())
        if options:
            shown = ", ".join(options) if len(options) <= 40 else f"{options[0]} to {options[-1]}"
            return f"Reply with one action, as in `Action: {options[0]}`. The actions are: {shown}."
        import gymnasium

        if isinstance(self.inner.action_space, gymnasium.spaces.Text):
            return "Your whole reply is the action."
        return f"Reply with an action as JSON, as in `Action: {json.dumps(_plain(self.inner.action_space.sample()))}`."

    def options(self) -> dict[str, int]:
        """Names of discrete actions → the actions; empty for other spaces."""
        import gymnasium

        space = self.inner.action_space
        if not isinstance(space, gymnasium.spaces.Discrete):
            return {}
        first, count = int(space.start), int(space.n)
        words = toy_text.ACTIONS.get(self.world, ())
        return {(words[n] if len(words) == count else str(first + n)): first + n for n in range(count)}

    def read(self, reply: str) -> Any:
        """The action that a reply names, or None."""
        import gymnasium

        space = self.inner.action_space
        if options := self.options():
            numbers = {str(value): value for value in options.values()}
            return worlds.choose(reply, {**numbers, **options})
        if isinstance(space, gymnasium.spaces.Text):
            return reply.strip() if space.contains(reply.strip()) else None
        try:
            value = json.loads(reply.rpartition("Action:")[2])
            action = _as(space, value)
            return action if space.contains(action) else None
        except (ValueError, TypeError, KeyError, IndexError, RecursionError, OverflowError):
            return None

    def words(self, seen: Any) -> str:
        """An observation as text."""
        if describe := toy_text.IN_WORDS.get(self.world):
            return describe(seen, self.inner.unwrapped)
        return show(seen)

    def _reset(self, begin: int, luck: int) -> Any:
        if self.inner is None:
            self.inner = self.of.open_world()
        seen, _ = self.inner.reset(seed=begin)
        self.inner.action_space.seed(luck)
        from gymnasium.utils import seeding

        self.inner.unwrapped.np_random = seeding.np_random(luck)[0]
        return seen

    async def _call(self, function: Any, *arguments: Any) -> Any:
        """In a thread where a step may take long: other episodes wait for nothing."""
        with worlds.faults(self.of.name):
            if self.inner is not None and type(self.inner.unwrapped).__module__.startswith(_QUICK):
                return function(*arguments)
            return await asyncio.to_thread(function, *arguments)


def show(seen: Any) -> str:
    """Any observation as short text: numbers rounded, parts named."""
    plain = _plain(seen)
    if isinstance(plain, dict):
        return "\n".join(f"{name}: {show(part)}" for name, part in plain.items())
    return plain if isinstance(plain, str) else json.dumps(plain, ensure_ascii=False)


def _plain(value: Any) -> Any:
    """What JSON can hold; decimals to four places."""
    if isinstance(value, Mapping):
        return {str(name): _plain(part) for name, part in value.items()}
    if isinstance(value, (tuple, list)):
        return [_plain(part) for part in value]
    if hasattr(value, "tolist"):
        return _plain(value.tolist())
    return round(value, 4) if isinstance(value, float) else value


def _as(space: Any, value: Any) -> Any:
    """JSON as an element of a space; what fits none of it raises whatever it raises."""
    import gymnasium
    import numpy

    if isinstance(space, gymnasium.spaces.Discrete):
        if isinstance(value, bool) or not isinstance(value, int):
            raise TypeError(value)
        return value
    if isinstance(
        space, (gymnasium.spaces.Box, gymnasium.spaces.MultiDiscrete, gymnasium.spaces.MultiBinary)
    ):
        return numpy.asarray(value, dtype=space.dtype).reshape(space.shape)
    if isinstance(space, gymnasium.spaces.Tuple):
        return tuple(_as(part, given) for part, given in zip(space.spaces, value, strict=True))
    if isinstance(space, gymnasium.spaces.Dict):
        return {name: _as(part, value[name]) for name, part in space.spaces.items()}
    return value
