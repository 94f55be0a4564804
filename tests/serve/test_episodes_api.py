"""What was played, as the page reads it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from clawback import store
from clawback.paths import Home
from clawback.records import Branch, Episode, EpisodeStep
from clawback.serve import app as serving

from .conftest import Running
from .test_api import Api


def played(number: int, reward: float, **more: Any) -> Episode:
    return Episode(
        environment="lake", task=f"lake/{number}", seed=number, number=number,
        messages=({"role": "user", "content": "a1"}, {"role": "assistant", "content": "a1 down"}),
        branches=(Branch((1, 2, 3), (False, True, True), (0.0, -1.0, -2.0)),),
        steps=(EpisodeStep(0, 1, 3, reward=reward),), status="completed", stop_reason="done", **more,
    )  # fmt: skip


@pytest.fixture
def api(trained: Home, running: Callable[[Any], Running]) -> Api:
    with store.connect(trained.database) as db:
        db.add_episodes([played(1, 0.0), played(2, 1.0), played(3, 0.5, split="test")])
    return Api(running(serving.make(trained)).url, trained)


def test_episodes_are_listed_and_shown_with_what_each_reply_brought(api: Api) -> None:
    rows = api.get("/episodes")
    assert [(r["task"], r["return"], r["split"]) for r in rows] == [
        ("lake/3", 0.5, "test"), ("lake/2", 1.0, "train"), ("lake/1", 0.0, "train"),
    ]  # fmt: skip
    assert [r["task"] for r in api.get("/episodes?split=test")] == ["lake/3"]
    assert len(api.get("/episodes?limit=1")) == 1
    one = api.get(f"/episodes/{rows[1]['id']}")
    assert one["messages"][1] == {"role": "assistant", "text": "a1 down"}
    assert one["steps"][0]["reward"] == 1.0
    assert one["replies"] == [1]
    assert "branches" not in one
    api.get("/episodes/99", status=404)
    assert "numbers" in api.get("/episodes?limit=many", status=400)["error"]
    assert "/api/episodes/{id}" in api.get("/openapi.json")["paths"]
