"""How far something is, in words, and how long it still takes."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from clawback.progress import BLOCKS, Pace, curve, describe, duration, kl_of, sparkline


def test_the_time_that_is_left_follows_from_the_pace_of_the_phase() -> None:
    now = [100.0]
    pace = Pace(clock=lambda: now[0])
    assert "seconds_left" not in pace({"phase": "draw", "step": 0, "steps": 10})
    now[0] = 106.0
    assert pace({"phase": "draw", "step": 3, "steps": 10})["seconds_left"] == pytest.approx(14.0)
    told = pace({"phase": "train", "step": 5, "steps": 10})
    assert "seconds_left" not in told, "a new phase, that a resumed run takes up in the middle"
    now[0] = 110.0
    assert pace({"phase": "train", "step": 7, "steps": 10})["seconds_left"] == pytest.approx(6.0)
    assert pace({"phase": "train", "step": 8, "steps": 10, "seconds_left": 1.5})["seconds_left"] == 1.5
    assert pace({"phase": "load"}) == {"phase": "load"}
    assert pace({"phase": "plan", "steps": 9, "step": 1}) == {"phase": "plan", "steps": 9, "step": 1}


@pytest.mark.parametrize(
    ("progress", "text"),
    [
        ({}, "starting"),
        ({"phase": "load"}, "loading the model"),
        ({"phase": "load", "model": "smollm2"}, "loading smollm2"),
        ({"phase": "measure", "step": 1, "steps": 3}, "measuring the speed 1 of 3"),
        ({"phase": "train", "step": 12, "steps": 40}, "train 12 of 40"),
        ({"phase": "train", "step": 1, "steps": 2, "round": 3, "rounds": 6}, "train 1 of 2, round 3 of 6"),
        ({"phase": "draw", "step": 1, "steps": 9, "seconds_left": 90}, "draw 1 of 9, about 2 min left"),
    ],
)
def test_described(progress: dict[str, object], text: str) -> None:
    assert describe(progress) == text


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0, "about 1 s"),
        (89, "about 89 s"),
        (180, "about 3 min"),
        (5400, "about 1 h 30 min"),
        (7200, "about 2 h"),
    ],
)
def test_durations(seconds: float, text: str) -> None:
    assert duration(seconds) == text


def test_which_figures_make_a_curve() -> None:
    step = {
        "phase": "train",
        "step": 1,
        "steps": 4,
        "loss": 1,
        "drift": 0.5,
        "note": "x",
        "seconds_left": 9.0,
    }
    assert curve(step) == {"loss": 1.0, "drift": 0.5}
    assert curve({"phase": "gate", "step": 1, "steps": 4}) == {}
    assert curve({"phase": "estimate", "seconds": 3.0, "step": 1, "loss": 1.0}) == {}
    assert kl_of({"drift": 0.5, "kl_loss": 1.0}) == 0.5
    assert kl_of({"loss": 1.0}) is None


@given(st.lists(st.floats(-1e6, 1e6), max_size=200), st.integers(1, 60))
def test_a_sparkline_fits_and_reaches_from_the_lowest_to_the_highest(values: list[float], width: int) -> None:
    line = sparkline(values, width)
    assert len(line) == min(width, len(values))
    assert set(line) <= set(BLOCKS)
    if len(set(values)) > 1 and len(values) <= width:
        assert {BLOCKS[0], BLOCKS[-1]} <= set(line)
