"""One loop plays every episode: its rules by themselves, and the same episode for each of those who play with it."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from clawback.environments import play
from clawback.environments.core import EnvironmentFailure, Observation, Step, Task
from clawback.environments.episode_loop import (
    AskOpening,
    AskReply,
    AskStep,
    Ending,
    EpisodeLimits,
    Order,
    advance,
    episode_loop,
)
from clawback.environments.world_loops import Hanging
from clawback.errors import MissingExtra
from clawback.rollouts.concurrent import Play, Rollouts
from clawback.sampling.batched_sampler import Sampled
from tests.environments.worlds import Worlds

OPEN = Observation(({"role": "user", "content": "?"},))
REPLY = {"role": "assistant", "content": "!"}


class Heard:
    """A record of what the loop told it."""

    def __init__(self) -> None:
        self.events: list[str] = []

    def begin(self) -> None:
        self.events.append("begin")

    def open(self, observation: Observation) -> None:
        self.events.append("open")

    def hear(self, step: Step) -> None:
        self.events.append("hear")


def ran(answers: list[Any], limits: EpisodeLimits) -> tuple[Ending, list[type], list[str]]:
    """The end of a loop that is answered with these (an exception: its environment failed), what it asked for, and what was recorded."""
    record = Heard()
    loop = episode_loop(record, limits)
    asks, asked = advance(loop), []
    for answer in answers:
        assert not isinstance(asks, Ending)
        asked.append(type(asks))
        asks = advance(loop, failure=answer) if isinstance(answer, Exception) else advance(loop, answer)
    assert isinstance(asks, Ending)
    return asks, asked, record.events


def test_an_episode_ends_where_its_environment_ends_it() -> None:
    ending, asked, events = ran([OPEN, REPLY, Step(), REPLY, Step(done=True)], EpisodeLimits(9, 0))
    assert ending == Ending("completed", "done")
    assert asked == [AskOpening, AskReply, AskStep, AskReply, AskStep]
    assert events == ["begin", "open", "hear", "hear"]
    cut, *_ = ran([OPEN, REPLY, Step(done=True, info={"truncated": True})], EpisodeLimits(9, 0))
    assert cut == Ending("truncated", "the environment's limit")


def test_the_limit_of_turns_ends_it_but_not_one_that_a_program_leads() -> None:
    ending, *_ = ran([OPEN, REPLY, Step(), REPLY, Step()], EpisodeLimits(2, 0))
    assert ending == Ending("truncated", "2 turns", at_limit=True)
    led = Step(request=object())  # type: ignore[arg-type]
    ending, *_ = ran([OPEN, REPLY, led, REPLY, Step(done=True)], EpisodeLimits(1, 0))
    assert ending == Ending("completed", "done")


@pytest.mark.parametrize(
    ("limits", "failure", "openings"),
    [
        (EpisodeLimits(9, 2), EnvironmentFailure("gone"), 3),
        (EpisodeLimits(9, 2), ConnectionError("gone"), 3),
        (EpisodeLimits(9, 2), Hanging("gone"), 3),
        (EpisodeLimits(9, 2, retry_hanging=False), Hanging("gone"), 1),
        (EpisodeLimits(9, 0), EnvironmentFailure("gone"), 1),
    ],
)
def test_a_failed_environment_is_replaced_a_few_times(
    limits: EpisodeLimits, failure: Exception, openings: int
) -> None:
    ending, asked, events = ran([failure] * openings, limits)
    assert ending.status == "failed"
    assert ending.reason in ("gone", "ConnectionError: gone")
    assert asked == [AskOpening] * openings
    assert events == ["begin"] * openings


def test_what_is_no_answer_is_a_failure_and_the_next_try_begins_anew() -> None:
    ending, asked, events = ran(
        [OPEN, REPLY, Step(reward=float("nan")), OPEN, REPLY, Step(done=True)], EpisodeLimits(9, 1)
    )
    assert ending.status == "completed"
    assert asked.count(AskOpening) == 2
    assert events == ["begin", "open", "begin", "open", "hear"]


def test_what_is_not_installed_ends_everything() -> None:
    with pytest.raises(MissingExtra):
        ran([MissingExtra("no Chromium")], EpisodeLimits(9, 5))


def test_a_measured_episode_and_a_recorded_one_are_the_same(policy: Any) -> None:
    """``play`` and ``Rollouts`` with the same replies: the same messages, rewards and statuses, failures and limits included."""
    words = ["left", "up up", "no"]

    def worlds() -> Worlds:
        return Worlds(
            turns=lambda seed: 1 + seed,
            pay=lambda said, world: float(len(said)),
            breaks=lambda world, row: world.seed == 1 and row == 1,
            unread=lambda said: said == "no",
        )

    tasks = [Task(f"t{n}") for n in range(5)]

    class Words:
        turns: dict[Any, int] = {}

        def draw(self, turns: Any) -> list[Sampled]:
            drawn = []
            for turn in turns:
                number = self.turns[turn.key] = self.turns.get(turn.key, -1) + 1
                ids = policy.tokenizer.encode(words[number % 3], add_special_tokens=False)
                drawn.append(Sampled((*ids, policy.chat.end_id), (0.0,) * (len(ids) + 1), True))
            return drawn

        def refresh(self) -> None: ...

        def forget(self, key: Any) -> None:
            self.turns.pop(key, None)

    with Rollouts(policy, worlds(), Play(max_turns=3, max_tokens=5, retries=1), drawer=Words()) as rollouts:
        recorded = rollouts.play([Order(n, task, n, 0, n) for n, task in enumerate(tasks)])

    async def player(view: play.View) -> Any:
        return {"role": "assistant", "content": words[view.turn % 3]}

    measured = [asyncio.run(play.episode(worlds(), t, player, n, 3)) for n, t in enumerate(tasks)]
    assert [e.status for e in recorded] == ["completed", "failed", "completed", "truncated", "truncated"]
    stops = {"done": "completed", "turns": "truncated", "truncated": "truncated", "failed": "failed"}
    for mine, other in zip(recorded, measured, strict=True):
        assert mine.status == stops[other.stop]
        if mine.status != "failed":
            assert mine.messages == other.messages
            assert (mine.total, len(mine.steps), mine.unparsable) == (
                other.reward,
                other.turns,
                other.unparsable,
            )
