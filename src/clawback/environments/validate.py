"""Checks whether an environment is sound, without a model.

Where solutions are known: the solution scores 1, with the same result twice, and an empty reply scores less.
Otherwise: an episode opens, takes replies and closes (twice), and the same task and seed open and answer
alike.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from clawback.environments.core import EnvironmentFailure, EnvironmentSet, Observation, Solvable, Step, Task
from clawback.environments.play import SOLVED, Player, View, episode, let_go
from clawback.environments.policies import Solution
from clawback.environments.world_loops import BoundedWorld, checked
from clawback.errors import MissingExtra, NotFound
from clawback.records import Message

REPLIES = ("", "What can I do here?", "Action: 1")
"""What a task without a known solution is answered with: nothing, something odd, and something plain."""


@dataclass(frozen=True, slots=True)
class TaskCheck:
    """What came of one task. ``problem`` is "" where it is sound."""

    task: str
    solved: bool | None
    """None: no solution is known."""
    problem: str = ""


async def validate(
    environments: EnvironmentSet,
    tasks: Sequence[Task],
    *,
    seed: int = 0,
    seconds: float | None = None,
    on_check: Callable[[TaskCheck, int, int], None] | None = None,
) -> list[TaskCheck]:
    """One check a task, in order. Whatever an environment raises is a problem of the task's, and stops nothing; but for what is not
    installed, which is said once (``MissingExtra``)."""
    made: list[TaskCheck] = []
    try:
        for number, task in enumerate(tasks, 1):
            try:
                check = await _check(environments, task, seed, seconds)
            except MissingExtra:
                raise
            except EnvironmentFailure as error:
                check = TaskCheck(task.id, None, f"the world broke: {error}")
            except NotImplementedError as error:
                check = TaskCheck(task.id, None, f"not implemented: {error}")
            except Exception as error:
                check = TaskCheck(task.id, None, f"{type(error).__name__}: {error}")
            made.append(check)
            if on_check:
                on_check(check, number, len(tasks))
    finally:
        await let_go(environments)
    return made


async def _check(environments: EnvironmentSet, task: Task, seed: int, seconds: float | None) -> TaskCheck:
    if isinstance(environments, Solvable):
        try:
            solution = environments.solution(task)
        except NotFound:
            pass
        else:
            return await _solved(environments, task, seed, solution, seconds)
    return await _opened(environments, task, seed, seconds)


async def _solved(
    environments: EnvironmentSet, task: Task, seed: int, solution: Sequence[Message], seconds: float | None
) -> TaskCheck:
    first = await episode(environments, task, Solution(solution), seed, len(solution), seconds)
    if first.reward is None:
        return TaskCheck(task.id, False, f"the world broke: {first.error}")
    if first.reward < SOLVED or first.reward > 2 - SOLVED:
        return TaskCheck(task.id, False, f"its solution scores {first.reward:g}, not 1")
    if first.stop != "done":
        return TaskCheck(task.id, False, f"its solution does not end the episode ({first.stop})")
    again = await episode(environments, task, Solution(solution), seed, len(solution), seconds)
    if again.messages != first.messages or again.reward != first.reward:
        return TaskCheck(task.id, True, "the same task, seed and replies gave another episode")
    nothing: Player = _silent
    idle = await episode(environments, task, nothing, seed, 4, seconds)
    if idle.reward is not None and idle.reward >= SOLVED:
        return TaskCheck(task.id, True, "saying nothing scores 1 as well")
    return TaskCheck(task.id, True)


async def _silent(view: View) -> Message:  # noqa: ARG001
    return {"role": "assistant", "content": ""}


async def _opened(environments: EnvironmentSet, task: Task, seed: int, seconds: float | None) -> TaskCheck:
    first = await _walk(environments, task, seed, seconds)
    again = await _walk(environments, task, seed, seconds)
    if not first[0].messages:
        return TaskCheck(task.id, None, "it opens with no message")
    if first != again:
        where = next((n for n, (a, b) in enumerate(zip(first, again, strict=False)) if a != b), len(first))
        what = "opened differently" if where == 0 else f"answered reply {where} differently"
        return TaskCheck(task.id, None, f"the same task and seed {what}")
    return TaskCheck(task.id, None)


async def _walk(environments: EnvironmentSet, task: Task, seed: int, seconds: float | None) -> list[Any]:
    world = BoundedWorld(environments, seconds)
    try:
        seen: list[Observation | Step] = [checked(await world.reset(task, seed), Observation)]
        for said in REPLIES:
            step = checked(await world.step({"role": "assistant", "content": said}), Step)
            seen.append(step)
            if step.done:
                break
        return seen
    finally:
        await world.close()
        await world.close()
        world.leave()
