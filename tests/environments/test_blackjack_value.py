"""The exact value of a way of playing Blackjack, by which the benchmark of games judges a policy."""

from __future__ import annotations

import math

import pytest
import torch

from benchmarks import _blackjack
from clawback.extensions.llamagym.agent_worlds import AgentWorlds


class Plays:
    """A policy of replies: ``likely(what it sees, the reply, how many turns before)`` → probability."""

    def __init__(self, likely):
        self.likely = likely

    def logprobs(self, asked, replies):
        return [
            torch.tensor([math.log(max(1e-30, self.likely(messages[-1]["content"], reply, len(messages) // 2)))])
            for messages, reply in zip(asked, replies, strict=True)
        ]  # fmt: skip


def own(seen, reply, hit):
    """The reply names the hand that it sees."""
    return float(reply.startswith(f"{seen} ")) * (hit if reply.endswith("hit") else 1 - hit)


def test_what_a_model_is_worth_is_what_its_way_of_playing_is_worth():
    def below_17(seen):
        return float(int(seen.split()[1]) < 17)

    stands = _blackjack.of_model(Plays(lambda seen, reply, _: own(seen, reply, 0.0)))
    assert stands == pytest.approx(_blackjack.value(lambda *_: 0.0), abs=1e-9)
    hits = _blackjack.of_model(Plays(lambda seen, reply, _: own(seen, reply, below_17(seen))))
    assert hits == pytest.approx(_blackjack.value(lambda total, *_: float(total < 17)), abs=0.004)


def test_a_reply_may_name_another_hand_and_what_came_before_may_count():
    wrong = _blackjack.of_model(Plays(lambda _, reply, __: float(reply == "soft 12 hit") * 0.3 + float(reply == "hard 4 stand") * 0.7))  # fmt: skip
    assert wrong == pytest.approx(_blackjack.value(lambda *_: 0.3), abs=0.004)
    once = _blackjack.of_model(Plays(lambda seen, reply, turns: own(seen, reply, 1.0 if turns == 0 else 0.0)))
    assert once < _blackjack.of_model(Plays(lambda seen, reply, _: own(seen, reply, 0.0)))


def test_an_agents_world_has_more_hands_than_a_run_plays():
    """A task decides every card: a policy would learn a thousand of them by heart."""
    worlds = AgentWorlds("hands", None, lambda: None)
    train, test = worlds.tasks("train"), worlds.tasks("test")
    assert len({task.id for task in train}) == 100_000
    assert not {task.data["seed"] for task in train} & {task.data["seed"] for task in test}
