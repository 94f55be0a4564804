"""A real page seen as a picture by a model in this process: what it replied to can be learned from."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path

import pytest
import torch

pytest.importorskip("playwright")
pytest.importorskip("PIL")

from clawback import engine
from clawback.environments import registry
from clawback.environments.episode_loop import Order
from clawback.extensions.browser import chromium
from clawback.learning.episode_examples import look_again, sequences
from clawback.models.types import Sampling
from clawback.rollouts.concurrent import Play, Rollouts
from tests.engine.torch.test_vision import folder  # noqa: F401 — a fixture

pytestmark = pytest.mark.skipif(
    not chromium.program() or not find_spec("miniwob"), reason="Chromium or the miniwob wheel is not here"
)


@pytest.mark.slow
def test_replies_to_screenshots_are_scored_as_they_were_drawn(folder: Path) -> None:  # noqa: F811
    policy = engine.load(str(folder))
    policy.sampling = Sampling(1.0)
    worlds = registry.find("miniwob:click-test?observe=screenshot&actions=coord&turns=2")
    orders = [Order(i, task, 0, 7, i) for i, task in enumerate(worlds.tasks("train")[:2])]
    with Rollouts(policy, worlds, Play(together=2, max_turns=2, max_tokens=4)) as rollouts:
        episodes = rollouts.play(orders)
    assert all(len(one.pictures) == 1 + place for e in episodes for place, one in enumerate(e.branches))
    assert episodes[0].branches[0].pictures != episodes[1].branches[0].pictures
    whole, seen = look_again(policy.chat, episodes)
    assert whole == episodes
    parts = sequences(whole, seen)
    assert len(parts) == sum(len(e.steps) for e in episodes)
    with torch.no_grad():
        now = policy.scorer([one.encoded for one in parts]).split()
    for one, values in zip(parts, now, strict=True):
        assert torch.allclose(values, one.old, atol=1e-4)
