"""TextArena's games, for one player or against an opponent.

The games draw from Python's global ``random`` (and some from numpy's): each episode has a random state of its
own, which is installed during a call and saved after it, so that many concurrent episodes remain reproducible
by seed.
"""

from __future__ import annotations

import random
import sys
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, cast

from clawback.environments import world_helpers
from clawback.environments.core import Observation, Split, Step, Task
from clawback.errors import UsageError
from clawback.records import Message

PACKAGE = "textarena"
OURS = ("tasks", "held_out", "opponent", "players", "turns")
TURNS = 100
_DRAWING = threading.Lock()


def names() -> list[str]:
    arena = world_helpers.needed(PACKAGE, "TextArena")
    return [str(name) for name in arena.envs.registration.ENV_REGISTRY]


def make(rest: str, settings: Mapping[str, Any]) -> TextArenaSet:
    known = world_helpers.member("textarena", rest, names())
    own = {key: value for key, value in settings.items() if key not in OURS}
    opponent = world_helpers.load_object(settings["opponent"]) if "opponent" in settings else None
    players = int(settings.get("players", 2 if opponent else 1))
    found = TextArenaSet(known, own, settings, players, opponent)
    try:
        found.new_game(0)
    except Exception as error:  # what a game raises that wants other players, or data that is not there
        raise UsageError(
            f"TextArena cannot open {rest} for {players} player{'s' * (players > 1)}: {type(error).__name__}: {error}. Games for two "
            "need an opponent: textarena:NAME?opponent=module:function (text in, text out)."
        ) from error
    return found


class TextArenaSet:
    """One game; its tasks are seeds."""

    def __init__(
        self,
        game: str,
        world_options: Mapping[str, Any],
        set_options: Mapping[str, Any],
        players: int = 1,
        opponent: Callable[[str], str] | None = None,
    ) -> None:
        self.game, self.world_options, self.set_options, self.players, self.opponent = (
            game,
            dict(world_options),
            dict(set_options),
            players,
            opponent,
        )
        self.name = world_helpers.full_name("textarena", game, self.world_options)

    def tasks(self, split: Split) -> Sequence[Task]:
        given = (
            self.set_options.get("tasks", world_helpers.TRAIN_TASKS),
            self.set_options.get("held_out", world_helpers.TEST_TASKS),
        )
        return world_helpers.seeded_tasks(self.name, split, *given)

    def make(self) -> TextArena:
        return TextArena(self)

    def new_game(self, seed: int) -> Any:
        """An opened game, which tells each player what is new since their last turn."""
        import textarena

        with _own_luck(Luck(seed)):
            game = _without_history(
                textarena.make(self.game, **self.world_options), textarena.ObservationWrapper
            )
            game.reset(num_players=self.players, seed=seed)
            return game


class Luck:
    """A state of the random generators, kept for an episode between its calls."""

    def __init__(self, seed: int) -> None:
        self.python: Any = random.Random(seed).getstate()
        self.numpy: Any = None
        self.seed = seed


@contextmanager
def _own_luck(luck: Luck) -> Iterator[None]:
    """Python's and numpy's global generators are this episode's, within. One episode at a time, and no await in between."""
    numpy = sys.modules.get("numpy")
    with _DRAWING:
        before, before_numpy = random.getstate(), numpy.random.get_state() if numpy else None
        random.setstate(luck.python)
        if numpy:
            if luck.numpy is None:
                numpy.random.seed(luck.seed)
            else:
                numpy.random.set_state(luck.numpy)
        try:
            yield
        finally:
            luck.python = random.getstate()
            random.setstate(before)
            if numpy:
                luck.numpy = numpy.random.get_state()
                numpy.random.set_state(before_numpy)


class TextArena:
    """One game, played as player 0."""

    def __init__(self, of: TextArenaSet) -> None:
        self.of = of
        self.game: Any = None
        self.luck = Luck(0)
        self.turns = 0

    async def reset(self, task: Task, seed: int) -> Observation:
        await self.close()
        self.turns = 0
        with world_helpers.faults(self.of.name):
            self.game = self.of.new_game(int(task.data["seed"]))
            self.luck = Luck(world_helpers.mixed(task.id, seed))
            with _own_luck(self.luck):
                over, seen = self._to_us()
        if over:
            raise UsageError(f"{task.id} is over before our first move.")
        return Observation(({"role": "user", "content": seen},))

    async def step(self, message: Message) -> Step:
        self.turns += 1
        with world_helpers.faults(self.of.name), _own_luck(self.luck):
            errors = getattr(self.game.state, "error_count", 0)
            over, _ = self.game.step(world_helpers.text(message))
            refused = getattr(self.game.state, "error_count", 0) > errors
            over, seen = (True, "") if over else self._to_us()
            late = not over and self.turns >= int(self.of.set_options.get("turns", TURNS))
            if not over and not late:
                return Step(
                    ({"role": "user", "content": seen},), None, False, {"unparsable": True} if refused else {}
                )
            rewards, told = self.game.close()
        own = (told or {}).get(0) or {}
        info = {
            "truncated": late,
            "unparsable": bool(own.get("invalid_move")),
            "reason": str(own.get("reason", "")),
        }
        return Step(
            (),
            float((rewards or {}).get(0, 0.0)),
            True,
            {name: value for name, value in info.items() if value},
        )

    async def close(self) -> None:
        self.game = None

    def _to_us(self) -> tuple[bool, str]:
        """Let the others play until it is our turn: whether the game is over by then, and what we see."""
        while True:
            player, seen = self.game.get_observation()
            if player == 0:
                return False, _text(seen)
            over, _ = self.game.step(cast(Callable[[str], str], self.of.opponent)(_text(seen, player)))
            if over:
                return True, ""


def _without_history(game: Any, history: type) -> Any:
    """Without the wrappers that repeat all that was said before: it stands in the conversation already."""
    while isinstance(game, history):
        game = game.env  # type: ignore[attr-defined]
    node = game
    while (inner := vars(node).get("env")) is not None:
        while isinstance(inner, history):
            inner = inner.env  # type: ignore[attr-defined]
        node.env = inner
        node = inner
    return game


def _text(seen: Any, player: int = 0) -> str:
    """What is new: what the game and others said; our own moves stand in our replies."""
    if isinstance(seen, str):
        return seen
    told = [
        (f"[Player {sender}] " if sender >= 0 else "") + str(said)
        for sender, said, _ in seen
        if sender != player
    ]
    return "\n".join(told).strip()
