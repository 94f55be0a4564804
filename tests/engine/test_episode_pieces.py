"""How much of a round of episodes goes through a model at once."""

from __future__ import annotations

import dataclasses

from clawback import engine
from clawback.learning import episode_run
from clawback.policy.memory import CPU_MICRO_TOKENS, need


def test_tiny_models_take_more_at_once_and_no_model_less_or_more_than_its_memory():
    info = engine.load("embedded").info
    tiny = dataclasses.replace(info, hidden=64, intermediate=160, layers=2)
    large = dataclasses.replace(info, hidden=2048, intermediate=8192, layers=16)
    assert (
        CPU_MICRO_TOKENS < episode_run.at_once(info) < episode_run.at_once(tiny) <= episode_run.MOST_AT_ONCE
    )
    assert episode_run.at_once(large) == CPU_MICRO_TOKENS
    for one in (info, tiny):
        count = episode_run.at_once(one)
        with_, without = (need(one, bits=32, rank=8, micro_tokens=n, checkpointing=False) for n in (count, 0))
        assert with_ - without <= episode_run.ACTIVATIONS
