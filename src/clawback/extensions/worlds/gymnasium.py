"""Any Gymnasium environment as a conversation: observations as text, an action parsed from each reply.

A task is an initial state (a seed of ``reset``); the episode's own seed decides the randomness after it. So
two episodes of one task begin alike and may be compared, as group-relative advantages need it. Nothing is
pickled or imported from a hub.
"""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Mapping, Sequence
from contextlib import suppress
from importlib.util import find_spec
from typing import Any

from clawback.environments import world_helpers
from clawback.environments.core import EnvironmentFailure, Observation, Split, Step, Task
from clawback.errors import NotFound, UsageError
from clawback.extensions.worlds import gymnasium_words, toy_text
from clawback.extensions.worlds.global_random import GlobalRandom
from clawback.extensions.worlds.gymnasium_words import plain, show
from clawback.records import JsonObject, Message

PACKAGE = "gymnasium"
OURS = ("tasks", "held_out", "patience", "goal", "turns", "names", "text", "weights")
"""Settings that are not the world's own."""
PATIENCE = 3
"""Replies in a row that name no action, after which the episode is over."""
TURNS = 200
"""Steps of a world that has no limit of its own."""
WATCHED = 8
"""Steps of an episode that show whether the package draws from the process's generators."""
MOST_NUMBERS = 128
MOST_NAMED = 30
"""Ids of a package that an error names."""
SEEN = "Observation: "
"""Before an observation that is one number or one word."""
_WORD = re.compile(r"\S+")
_QUICK = ("gymnasium.envs.toy_text", "gymnasium.envs.classic_control")
"""Worlds whose steps take microseconds: a thread would cost more than the step."""


def names() -> list[str]:
    gym = world_helpers.needed(PACKAGE, "Gymnasium")
    return [str(name) for name in gym.registry]


def make(rest: str, settings: Mapping[str, Any]) -> GymnasiumSet:
    """The environment of an id (``FrozenLake-v1``), of a package that registers one (``package:Id-v0``), or a class of its own
    (``module:Class``, ``file.py:Class``)."""
    world_helpers.needed(PACKAGE, "Gymnasium")
    if ":" in rest:
        return of_package(rest, settings)
    return _set_of(world_helpers.member("gymnasium", rest, names(), OWN_PACKAGE.format(rest)), settings)


OWN_PACKAGE = "An id that another package registers is named with it: gymnasium:PACKAGE:{}."


def of_package(name: str, settings: Mapping[str, Any]) -> GymnasiumSet:
    """What a package or a file of one's own provides: an id that it registers when it is imported or by a function, or a class. Raises ``NotFound``."""
    gym = world_helpers.needed(PACKAGE, "Gymnasium")
    module, _, rest = name.rpartition(":")
    package = world_helpers.imported(module)
    if rest not in gym.registry:
        _register(package)
    inner = f"{module}.envs"
    if rest not in gym.registry and hasattr(package, "__path__") and find_spec(inner):  # some register there
        world_helpers.imported(inner)
        module = inner if rest in gym.registry else module
    if rest in gym.registry:
        return _set_of(rest if module.endswith(".py") else f"{module}:{rest}", settings)
    known = [str(id) for id, spec in gym.registry.items() if _is_of(spec.entry_point, package.__name__)]
    if known and not hasattr(package, rest.partition(".")[0]):
        raise NotFound(
            f"There is no {rest} in {module}. It registers: {', '.join(sorted(known)[:MOST_NAMED])}."
        )
    return of_class(world_helpers.load_object(name), name, settings)


def _register(package: Any) -> None:
    """Call the function by which some packages register their environments."""
    for name in ("register", "register_envs", "register_environments"):
        function = getattr(package, name, None)
        if callable(function) and _is_of(getattr(function, "__module__", ""), package.__name__):
            with suppress(TypeError):  # it needs arguments that only its user knows
                function()


def _is_of(reference: Any, package: str) -> bool:
    """Whether what stands at this place (``module``, ``module:Class``, or a class) is of a package."""
    module = reference if isinstance(reference, str) else getattr(reference, "__module__", "")
    return module.partition(":")[0].partition(".")[0] == package.partition(".")[0]


def of_class(kind: Any, name: str, settings: Mapping[str, Any]) -> GymnasiumSet:
    """A subclass of ``gymnasium.Env``, or a function that makes one. Raises ``UsageError``."""
    if not callable(kind):
        raise UsageError(
            f"`{name}` is a {type(kind).__name__}; name a subclass of gymnasium.Env, or a function that makes one."
        )
    return _set_of(name, settings, kind)


def is_environment(kind: Any) -> bool:
    """Whether this is a subclass of ``gymnasium.Env``. Gymnasium is not imported for it."""
    bases = getattr(kind, "__mro__", ())
    return any(f"{base.__module__}.{base.__qualname__}" == "gymnasium.core.Env" for base in bases)


def _set_of(known: str, settings: Mapping[str, Any], kind: Any = None) -> GymnasiumSet:
    gym = world_helpers.needed(PACKAGE, "Gymnasium")
    own = {key: value for key, value in settings.items() if key not in OURS}
    found = GymnasiumSet(known, own, {key: value for key, value in settings.items() if key in OURS}, kind)
    try:
        inner = found.open_world()
    except ImportError as error:
        raise world_helpers.not_importable(known, error) from error
    except (gym.error.Error, TypeError) as error:
        raise UsageError(f"Gymnasium cannot make {known}: {error}") from error
    if not isinstance(inner.unwrapped, gym.Env):
        raise UsageError(f"{known} is a {type(inner).__name__}, not one world: name a gymnasium.Env.")
    _check_text(found, inner)
    size = getattr(inner.observation_space, "shape", None) or ()
    if not found.text_of(inner) and (len(size) > 2 or _count(size) > MOST_NUMBERS):
        raise UsageError(
            f"{known} shows {_count(size)} numbers a step (a picture?), which is no text. Wrap it so that it says what it sees."
        )
    try:
        has_way = (
            toy_text.way(inner.unwrapped.P, 0, int(inner.action_space.n))
            if hasattr(inner.unwrapped, "P")
            else None
        )
    finally:
        with suppress(Exception):
            inner.close()
    # A return of 1 is what counts as solved: only a lake pays that.
    return (
        SolvableGymnasiumSet(found.world, own, found.set_options)
        if kind is None and has_way and toy_text.world(known) == "FrozenLake"
        else found
    )


def _check_text(world_set: GymnasiumSet, inner: Any) -> None:
    """Raises ``UsageError`` where the method that is to say what is seen does not exist."""
    method = world_set.set_options.get("text")
    if method and not callable(getattr(inner.unwrapped, str(method), None)):
        raise UsageError(f"{world_set.world} has no method {method!r} that could say what is seen.")


def _count(shape: Sequence[int]) -> int:
    total = 1
    for size in shape:
        total *= size
    return total


class GymnasiumSet:
    """Tasks of one Gymnasium id: initial states by seed."""

    def __init__(
        self,
        world: str,
        world_options: Mapping[str, Any] | None = None,
        set_options: Mapping[str, Any] | None = None,
        kind: Any = None,
    ) -> None:
        """``kind``: makes the environment, in place of Gymnasium's registry."""
        self.world, self.world_options, self.set_options, self.kind = (
            world,
            dict(world_options or {}),
            dict(set_options or {}),
            kind,
        )
        self.name = world_helpers.full_name("gymnasium", world, self.world_options)
        self.draws_globally = False
        """Whether it draws from the process's generators, as ``reset`` and an episode's first steps showed."""

    def tasks(self, split: Split) -> Sequence[Task]:
        given = (
            self.set_options.get("tasks", world_helpers.TRAIN_TASKS),
            self.set_options.get("held_out", world_helpers.TEST_TASKS),
        )
        return world_helpers.seeded_tasks(self.name, split, *given)

    def make(self) -> Gymnasium:
        return Gymnasium(self)

    def action_replies(self) -> Sequence[str]:
        """A reply for each discrete action (``action_form.Acting``)."""
        return self.action_forms()[0]

    def action_forms(self) -> list[list[str]]:
        """The same by name and, where actions have names, by number: a model may know the one and not the other."""
        episode = self.make()
        episode.inner = self.open_world()
        try:
            options = episode.options()
            forms = [list(options or episode.listed()), list(map(str, options.values()))]
            return [[f"Action: {name}" for name in form] for form in (forms if options else forms[:1])]
        finally:
            with suppress(Exception):
                episode.inner.close()

    def total(self, reward: Any) -> float:
        """A reward as one number: one of several parts is weighted by the setting ``weights``. Raises ``EnvironmentFailure``."""
        parts = plain(reward)
        if not isinstance(parts, list):
            return float(reward)
        weights = [
            float(part) for part in str(self.set_options.get("weights", "")).split(",") if part.strip()
        ]
        if len(parts) == 1 and not weights:
            return float(parts[0])
        if len(weights) != len(parts):
            example = ",".join("1" for _ in parts)
            raise EnvironmentFailure(
                f"the reward of {self.world} has {len(parts)} parts: say what each weighs (?weights={example})"
            )
        return float(sum(weight * part for weight, part in zip(weights, parts, strict=True)))

    def number_names(self) -> Sequence[str]:
        """What the numbers of an observation are, in order: by the setting ``names``, or as they are known."""
        if names_ := self.set_options.get("names"):
            return [name.strip() for name in str(names_).split(",")]
        return toy_text.NUMBERS.get(toy_text.world(self.world), ())

    def text_of(self, inner: Any) -> str:
        """The environment's own method that says in text what is seen: by the setting ``text``, or one that is known; "" for none."""
        wanted = [str(self.set_options["text"])] if self.set_options.get("text") else toy_text.TEXT_METHODS
        return next((name for name in wanted if callable(getattr(inner.unwrapped, name, None))), "")

    def open_world(self) -> Any:
        import gymnasium

        if self.kind is not None:
            return self.kind(**self.world_options)
        return gymnasium.make(self.world, **self.world_options)


class SolvableGymnasiumSet(GymnasiumSet):
    """A world whose map and rules are known and leave nothing to chance."""

    def solution(self, task: Task) -> Sequence[Message]:
        inner = self.open_world()
        try:
            start, _ = inner.reset(seed=int(task.data["seed"]))
            steps = toy_text.way(inner.unwrapped.P, int(start), int(inner.action_space.n))
        finally:
            with suppress(Exception):
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
        self.luck = GlobalRandom()

    async def reset(self, task: Task, seed: int) -> Observation:
        self.unread = self.turns = 0
        seen = await self._call(self._reset, int(task.data["seed"]), world_helpers.mixed(task.id, seed))
        goal = (
            self.of.set_options.get("goal")
            or toy_text.GOALS.get(self.world)
            or gymnasium_words.goal(self.inner.unwrapped)
            or f"You act in the world {self.of.world}."
        )
        return Observation(
            (
                {"role": "system", "content": f"{goal}\n{self.how()}"},
                {"role": "user", "content": self.words(seen)},
            )
        )

    async def step(self, message: Message) -> Step:
        self.turns += 1
        spec = self.inner.spec
        endless = spec is None or spec.max_episode_steps is None
        late = endless and self.turns >= int(self.of.set_options.get("turns", TURNS))
        action = self.read(world_helpers.text(message))
        if action is None:
            self.unread += 1
            over = self.unread >= int(self.of.set_options.get("patience", PATIENCE)) or late
            said = {"role": "user", "content": f"That names no action. {self.how()}"}
            return Step(() if over else (said,), 0.0 if over else None, over, {"unparsable": True})
        self.unread = 0
        seen, reward, ended, cut, _ = await self._call(self._step, action)
        cut = cut or late
        info: JsonObject = {"action": plain(action)} | ({"truncated": True} if cut and not ended else {})
        answer = () if ended or cut else ({"role": "user", "content": self.words(seen)},)
        return Step(answer, self.of.total(reward), bool(ended or cut), info)

    async def close(self) -> None:
        inner, self.inner = self.inner, None
        if inner is not None:
            with suppress(Exception):  # some close a window that was never opened: no fault of the episode
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
        if listed := self.listed():
            return (
                f"Reply with one action, as in `Action: {listed[0]}`. The actions are: {', '.join(listed)}."
            )
        return f"Reply with an action as JSON, as in `Action: {json.dumps(plain(self.inner.action_space.sample()))}`."

    def listed(self) -> list[str]:
        """All actions of several discrete parts as JSON, where they are few."""
        return [json.dumps(action) for action in gymnasium_words.listed_actions(self.inner.action_space)]

    def options(self) -> dict[str, int]:
        """Names of discrete actions → the actions; empty for other spaces."""
        import gymnasium

        space = self.inner.action_space
        if not isinstance(space, gymnasium.spaces.Discrete):
            return {}
        first, count = int(space.start), int(space.n)
        words = toy_text.ACTIONS.get(self.world, ()) or gymnasium_words.action_names(
            self.inner.unwrapped, count
        )
        return {(words[n] if len(words) == count else str(first + n)): first + n for n in range(count)}

    def read(self, reply: str) -> Any:
        """The action that a reply names, or None."""
        import gymnasium

        space = self.inner.action_space
        if options := self.options():
            numbers = {str(value): value for value in options.values()}
            return world_helpers.choose(reply, {**numbers, **options})
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
        if method := self.of.text_of(self.inner):
            told = (
                {name: part for name, part in seen.items() if isinstance(part, str)}
                if isinstance(seen, dict)
                else {}
            )
            pose = toy_text.pose(self.inner.unwrapped)
            drawn = str(getattr(self.inner.unwrapped, method)())
            return "\n".join([*([show(told)] if told else []), drawn, *([pose] if pose else [])])
        text = show(seen, self.of.number_names())
        # Small models hardly know a number or a letter at the beginning of a message; after a word they do.
        lone = plain(seen)
        is_word = isinstance(lone, str) and _WORD.fullmatch(lone)
        return f"{SEEN}{text}" if is_word or isinstance(lone, int | float) else text

    def _reset(self, begin: int, luck: int) -> Any:
        self.luck.seed(begin)
        with self.luck.scope():
            if self.inner is None:
                self.inner = self.of.open_world()
            seen, _ = self.inner.reset(seed=begin)
        self.luck.seed(luck)
        self.inner.action_space.seed(luck)
        from gymnasium.utils import seeding

        self.inner.unwrapped.np_random = seeding.np_random(luck)[0]
        return seen

    def _step(self, action: Any) -> Any:
        # What the package drew from the shared generators at its reset or in its first steps, it draws from later, too.
        self.of.draws_globally = self.of.draws_globally or self.luck.used
        is_watched = self.turns <= WATCHED and not self.is_quick
        if not self.of.draws_globally and not is_watched:
            return self.inner.step(action)
        with self.luck.scope():
            return self.inner.step(action)

    @property
    def is_quick(self) -> bool:
        return self.inner is not None and type(self.inner.unwrapped).__module__.startswith(_QUICK)

    async def _call(self, function: Any, *arguments: Any) -> Any:
        """In a thread where a step may take long: other episodes wait for nothing."""
        with world_helpers.faults(self.of.name):
            if self.is_quick:
                return function(*arguments)
            return await asyncio.to_thread(function, *arguments)


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
