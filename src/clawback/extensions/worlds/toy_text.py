"""Gymnasium's toy-text environments: what their numbers mean in words, and the shortest solution where the map is known."""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Callable
from typing import Any

ACTIONS: dict[str, tuple[str, ...]] = {
    "FrozenLake": ("left", "down", "right", "up"),
    "CliffWalking": ("up", "right", "down", "left"),
    "Taxi": ("south", "north", "east", "west", "pickup", "dropoff"),
    "Blackjack": ("stick", "hit"),
    "CartPole": ("left", "right"),
    "MountainCar": ("left", "nothing", "right"),
    "Acrobot": ("left", "nothing", "right"),
}
"""World (its id without the version) → its discrete actions in words, in order."""

NUMBERS: dict[str, tuple[str, ...]] = {
    "CartPole": ("cart position", "cart speed", "pole angle in radians", "pole speed"),
    "MountainCar": ("position", "speed"),
    "MountainCarContinuous": ("position", "speed"),
    "Pendulum": ("cosine of the angle", "sine of the angle", "speed"),
    "Acrobot": (
        "cosine of the first angle", "sine of the first angle", "cosine of the second angle", "sine of the second angle",
        "first speed", "second speed",
    ),
    "LunarLander": (
        "horizontal position", "height", "horizontal speed", "vertical speed", "angle", "turning speed", "left leg on the ground",
        "right leg on the ground",
    ),
}  # fmt: skip
"""World → what the numbers of its observations are."""
TEXT_METHODS = ("pprint_grid",)
"""Methods of environments that say in text what is there (MiniGrid's)."""

GOALS: dict[str, str] = {
    "FrozenLake": "You walk on a frozen lake, from S to G. F is frozen, H is a hole: whoever steps into it has lost.",
    "CliffWalking": "You walk on a grid from the bottom left corner to the bottom right one. The cells between them in the bottom row "
    "are a cliff: whoever steps there goes back to the start. Each step costs 1, the cliff 100.",
    "Taxi": "You drive a taxi. Fetch the passenger and bring them to their destination. A step costs 1, a wrong pickup or dropoff "
    "10; the right dropoff earns 20.",
    "Blackjack": "You play Blackjack against a dealer. Come as near to 21 as you can without going over it.",
    "CartPole": "Keep the pole on the cart upright.",
}
_FACING = ("right", "down", "left", "up")
_PLACES = ("Red", "Green", "Yellow", "Blue")


def world(name: str) -> str:
    """``FrozenLake8x8-v1`` → ``FrozenLake``."""
    bare = name.rpartition("/")[2].partition("-v")[0]
    return re.sub(r"\d+x\d+$", "", bare)


def _frozen_lake(seen: Any, inner: Any) -> str:
    rows = [[cell.decode() for cell in row] for row in inner.desc]
    row, column = divmod(int(seen), len(rows[0]))
    rows[row][column] = f"[{rows[row][column]}]"
    drawn = "\n".join("".join(f"{cell:^3}" for cell in line).rstrip() for line in rows)
    return f"You are at row {row}, column {column}, marked [ ]:\n{drawn}"


def _cliff(seen: Any, inner: Any) -> str:
    row, column = divmod(int(seen), inner.shape[1])
    return f"You are at row {row}, column {column} of {inner.shape[0]} rows and {inner.shape[1]} columns, counted from the top left."


def _taxi(seen: Any, inner: Any) -> str:
    row, column, passenger, goal = inner.decode(int(seen))
    where = (
        "in the taxi"
        if passenger == len(_PLACES)
        else f"at {_PLACES[passenger]} {_at(inner.locs[passenger])}"
    )
    drawn = "\n".join("".join(cell.decode() for cell in line) for line in inner.desc)
    return (
        f"{drawn}\nThe taxi is at row {row}, column {column}. The passenger is {where}. "
        f"The destination is {_PLACES[goal]} {_at(inner.locs[goal])}."
    )


def _at(position: Any) -> str:
    return f"(row {position[0]}, column {position[1]})"


def _blackjack(seen: Any, inner: Any) -> str:  # noqa: ARG001
    own, dealer, ace = (int(part) for part in seen)
    return f"Your cards add up to {own}{', with an ace that counts 11' if ace else ''}. The dealer shows {dealer if dealer > 1 else 'an ace'}."


IN_WORDS: dict[str, Callable[[Any, Any], str]] = {
    "FrozenLake": _frozen_lake,
    "CliffWalking": _cliff,
    "Taxi": _taxi,
    "Blackjack": _blackjack,
}


def pose(inner: object) -> str:
    """Where the agent of a MiniGrid stands and what it faces, which its drawing has in characters that small models hardly know; "" elsewhere."""
    at, facing = getattr(inner, "agent_pos", None), getattr(inner, "agent_dir", None)
    if at is None or facing is None:
        return ""
    return f"You are at row {int(at[1])} column {int(at[0])} and face {_FACING[int(facing)]}."


def way(transitions: Any, start: int, actions: int) -> list[int] | None:
    """The fewest actions from ``start`` to an end that pays, in a table without chance; None where there is none such.

    ``transitions[state][action]`` is a list of ``(probability, next state, reward, ended)``, as Gymnasium's tables are.
    """
    came: dict[int, tuple[int, int] | None] = {start: None}
    waiting = deque([start])
    while waiting:
        state = waiting.popleft()
        for action in range(actions):
            outcomes = transitions[state][action]
            if len(outcomes) != 1:
                return None  # chance decides
            _, after, reward, ended = outcomes[0]
            if ended and reward > 0:
                steps = [action]
                while came[state] is not None:
                    state, action = came[state]  # type: ignore[misc]
                    steps.append(action)
                return steps[::-1]
            if after not in came and not ended:
                came[after] = (state, action)
                waiting.append(after)
    return None
