"""A run is as large as its budget allows, and what does not fit is refused before it starts."""

import contextlib
import dataclasses
from types import SimpleNamespace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from clawback import engine
from clawback.engine import budget
from clawback.errors import TrainingError
from clawback.records import Sample

LENGTHS = budget.Lengths(prompt=40, answer=110, liked=60, rated=32, prompts=160)


@pytest.fixture(scope="module")
def policy():
    return engine.load("embedded")


def rated(count=8):
    ask = ({"role": "user", "content": "Tell me about the otter."},)
    return [Sample(turn_id=n, messages=ask, response="- An otter swims.", reward=1.0) for n in range(count)]


def recipe(policy, size=1.0, **changes):
    return dataclasses.replace(engine.recipe(policy.info), size=size, **changes)


@pytest.mark.parametrize("follows", [True, False])
def test_a_smaller_size_takes_less_of_everything(policy, follows):
    speed = budget.Speed(draw=100, read=1000, train=400)
    seconds = [
        sum(one.seconds(speed) for one in budget.phases(recipe(policy, size), LENGTHS, follows=follows))
        for size in budget.SIZES
    ]
    assert seconds == sorted(seconds, reverse=True)
    assert seconds[-1] < 0.5 * seconds[0]


def test_trials_are_counted_as_they_are_made():
    from clawback.engine.torch.sources.distilled import DistilSettings

    # 7 sentences on 8 prompts, 3 on the next 16, 1 on the last 8
    assert DistilSettings(sentences=7, first=8, most=32).trials == 7 * 8 + 3 * 16 + 1 * 8
    assert DistilSettings(sentences=0).trials == 0


def test_the_largest_size_that_fits_is_taken_and_entered_in_the_recipe(policy, monkeypatch):
    monkeypatch.setattr(budget, "measure", lambda *_: budget.Speed(draw=1000, read=10_000, train=4000))
    full, all_of_it = budget.fit(policy, recipe(policy), rated(), (), 1e9)
    assert (full.size, all_of_it.size) == (1.0, 1.0)
    less, forecast = budget.fit(policy, recipe(policy), rated(), (), 0.8 * all_of_it.seconds)
    assert less.size == forecast.size < 1
    assert forecast.seconds <= 0.8 * all_of_it.seconds
    assert "to fit the budget" in str(forecast)


def test_what_does_not_fit_is_refused_with_what_would(policy, monkeypatch):
    monkeypatch.setattr(budget, "measure", lambda *_: budget.Speed(draw=0.1, read=1.0, train=0.4))
    with pytest.raises(TrainingError, match=r"even at its smallest.*budget.*smaller model.*8h"):
        budget.fit(policy, recipe(policy), rated(), (), 1200)


def test_measuring_leaves_the_policy_as_it_was(policy):
    before = [parameter.detach().clone() for parameter in policy.model.parameters()]
    speed = budget.measure(policy, [(1, 2, 3), (4, 5)])
    assert min(speed.draw, speed.read, speed.train) > 0
    assert all((a == b).all() for a, b in zip(before, policy.model.parameters(), strict=True))
    assert not policy.has_adapter


def test_a_live_version_is_drawn_from_as_well(policy):
    alone, beside = (
        budget.gate_phase(dataclasses.replace(LENGTHS, versions=count), recipe(policy)) for count in (2, 3)
    )
    assert beside.drawn == alone.drawn * 3 // 2
    assert beside.read > alone.read


class Clockwork:
    """A policy whose work takes so long by a clock of its own; the first time of each kind takes a minute more."""

    info = SimpleNamespace(context=2048)

    def __init__(self):
        self.now, self.begun = 0.0, set()

    def _takes(self, kind, seconds):
        self.now += seconds + 60 * (kind not in self.begun)
        self.begun.add(kind)

    def sample(self, prompts, *, max_tokens, rows, stop):
        self._takes("draw", sum(map(len, prompts)) / 400 + rows * max_tokens / 200)

    def scorer(self, texts):
        known = len({one.prompt for one in texts}) * len(
            texts[0].prompt
        )  # a prompt that many share is read once
        self._takes("read", (known + sum(len(one.response) for one in texts)) / 500)


def test_what_only_the_first_time_takes_is_no_part_of_a_speed(monkeypatch):
    made = Clockwork()
    monkeypatch.setattr(budget.time, "perf_counter", lambda: made.now)
    speed = budget.measure(made, [(1, 2, 3), (4, 5)])
    assert speed.draw == pytest.approx(200)
    assert speed.read == pytest.approx(500)


@pytest.mark.parametrize(
    ("text", "seconds"), [("90s", 90), ("20m", 1200), ("8h", 28800), ("45", 45), (" 1D ", 86400)]
)
def test_times_are_read(text, seconds):
    assert budget.parse(text) == seconds


@given(st.text(max_size=8))
def test_any_other_text_is_refused_or_a_positive_time(text):
    with contextlib.suppress(ValueError):
        assert 0 < budget.parse(text) < float("inf")
