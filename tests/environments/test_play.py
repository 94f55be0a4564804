"""A policy plays: what counts, what does not, and how many at once."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Sequence
from typing import Any

import pytest

from clawback.environments import play
from clawback.environments.core import EnvironmentFailure, Observation, Split, Step, Task
from clawback.environments.validate import validate
from clawback.errors import ClawbackError, NotFound, UsageError
from clawback.records import Message


class Counting:
    """Counts to ``to`` in turns; its faults are the tests'."""

    name = "counting"

    def __init__(self, **faults: Any) -> None:
        self.faults = faults
        self.open = self.most = self.made = self.ended = 0

    def tasks(self, split: Split) -> Sequence[Task]:
        return [Task(f"counting/{split}/{n}", {"to": n + 1}, split) for n in range(6)]

    def make(self) -> Any:
        self.made += 1
        return World(self)

    async def aclose(self) -> None:
        self.ended += 1


class Solved(Counting):
    def solution(self, task: Task) -> Sequence[Message]:
        if task.data["to"] == 6:
            raise NotFound("nobody knows")
        said = [{"role": "assistant", "content": str(n + 1)} for n in range(task.data["to"])]
        return said[:-1] if self.faults.get("short") else said


class World:
    def __init__(self, of: Counting) -> None:
        self.of, self.at, self.to, self.is_open = of, 0, 0, False

    async def reset(self, task: Task, seed: int) -> Observation:
        self.of.open += 1
        self.is_open = True
        self.of.most = max(self.of.most, self.of.open)
        self.to = task.data["to"]
        if task.data["to"] in self.of.faults.get("away", ()) or (
            self.of.faults.get("once") and self.of.made == 1
        ):
            raise EnvironmentFailure("the server is away")
        await asyncio.sleep(0)
        dice = random.random() if self.of.faults.get("dice") else seed
        return Observation(({"role": "user", "content": f"Count to {self.to} ({dice})."},))

    async def step(self, message: Message) -> Step:
        said = message["content"]
        if self.of.faults.get("crash"):
            raise RuntimeError("bug")
        if said != str(self.at + 1):
            return Step(
                ({"role": "user", "content": "No."},),
                None,
                bool(self.of.faults.get("free")),
                {"unparsable": True},
            )
        self.at += 1
        done = self.at == self.to
        again = () if done else ({"role": "user", "content": "Go on."},)
        return Step(
            again, 1 / self.to, done, {"truncated": True} if self.of.faults.get("cut") and done else {}
        )

    async def close(self) -> None:
        self.of.open -= self.is_open
        self.is_open = False


async def counter(view: play.View) -> Message:
    return {"role": "assistant", "content": str(view.turn + 1)}


def run(of: Counting, player: play.Player = counter, **how: Any) -> list[play.PlayedEpisode]:
    return asyncio.run(play.play(of, of.tasks("train"), player, play.PlaySettings(**how)))


def test_rewards_add_up_and_come_in_the_order_of_the_tasks() -> None:
    of = Counting()
    played = run(of, together=3)
    assert [p.task.data["to"] for p in played] == [1, 2, 3, 4, 5, 6]
    assert [round(p.reward or 0, 9) for p in played] == [1.0] * 6
    assert [p.turns for p in played] == [1, 2, 3, 4, 5, 6]
    assert all(p.solved and p.stop == "done" for p in played)
    assert of.most <= 3
    assert (of.open, of.ended) == (0, 1)


def test_a_broken_world_is_tried_again_and_then_in_no_mean() -> None:
    played = run(Counting(away=(2, 3)))
    assert [p.stop for p in played] == ["done", "failed", "failed", "done", "done", "done"]
    figures = play.summary(played)
    assert (figures["episodes"], figures["failed"], figures["reward"], figures["solved"]) == (6, 2, 1.0, 1.0)
    assert [p.stop for p in run(Counting(once=True), together=1)] == ["done"] * 6


def test_turns_have_an_end_and_unreadable_replies_are_counted() -> None:
    async def mute(view: play.View) -> Message:
        return {"role": "assistant", "content": ""}

    played = run(Counting(), mute, turns=3)
    assert {(p.stop, p.turns, p.unparsable, p.reward) for p in played} == {("turns", 3, 3, 0.0)}
    figures = play.summary(played)
    assert (figures["unparsable"], figures["truncated"], figures["solved"]) == (1.0, 6, 0.0)
    assert {p.stop for p in run(Counting(cut=True))} == {"truncated"}


def test_tries_differ_in_their_seed_and_reliability_is_all_of_them() -> None:
    async def moody(view: play.View) -> Message:
        return {"role": "assistant", "content": str(view.turn + 1) if view.seed != 8 else "?"}

    played = run(Counting(), moody, each=3, seed=7, turns=8)
    assert [p.seed for p in played[:3]] == [7, 8, 9]
    figures = play.summary(played)
    assert figures["solved"] == pytest.approx(2 / 3)
    assert figures["all_solved"] == 0.0


def test_a_policy_that_fails_ends_it_all_and_every_world_is_closed() -> None:
    async def gone(view: play.View) -> Message:
        if view.turn == 1:
            raise ClawbackError("The server is not there.")
        return await counter(view)

    of = Counting()
    with pytest.raises(ClawbackError, match="not there"):
        run(of, gone)
    assert (of.open, of.ended) == (0, 1)
    with pytest.raises(UsageError):
        run(of, together=0)


@pytest.mark.parametrize(("hits", "count"), [(8, 10), (0, 20), (20, 20), (1, 3), (450, 1000)])
def test_wilsons_interval_is_scipys(hits: int, count: int) -> None:
    from scipy.stats import binomtest

    wanted = binomtest(hits, count).proportion_ci(0.95, method="wilson")
    assert play.wilson(hits, count) == pytest.approx((wanted.low, wanted.high), abs=1e-4)
    assert play.wilson(0, 0) == (None, None)


def checks(of: Counting) -> list[tuple[bool | None, str]]:
    return [(c.solved, c.problem) for c in asyncio.run(validate(of, of.tasks("train")))]


def test_a_sound_environment_is_found_sound() -> None:
    assert checks(Solved()) == [(True, "")] * 5 + [(None, "")]
    assert checks(Counting()) == [(None, "")] * 6


@pytest.mark.parametrize(
    ("made", "says"),
    [
        (Solved(short=True), "its solution scores"),
        (Solved(away=(1, 2, 3, 4, 5, 6)), "the world broke"),
        (Solved(dice=True), "gave another episode"),
        (Counting(dice=True), "opened differently"),
        (Counting(crash=True), "RuntimeError: bug"),
        (Solved(cut=True), "does not end the episode"),
    ],
)
def test_an_unsound_one_is_found_out(made: Counting, says: str) -> None:
    found = checks(made)
    assert all(says in problem for _, problem in found[1:-1])


def test_a_world_that_pays_for_silence_is_found_out() -> None:
    class Generous(Solved):
        def make(self) -> Any:
            world = World(self)
            plain = world.step

            async def step(message: Message) -> Step:
                return Step((), 1.0, True) if message["content"] == "" else await plain(message)

            world.step = step  # type: ignore[method-assign]
            return world

    assert all("saying nothing scores 1" in problem for _, problem in checks(Generous())[:-1])
