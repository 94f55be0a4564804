"""A run is as large as its budget allows, and what does not fit is refused before it starts."""

import contextlib
import dataclasses

import pytest
from hypothesis import given
from hypothesis import strategies as st

from clawback import engine
from clawback.errors import TrainingError
from clawback.learning import run_budget
from clawback.policy import throughput
from clawback.records import Sample
from clawback.trainer import TrainingRun

LENGTHS = run_budget.Lengths(prompt=40, answer=110, liked=60, rated=32, prompts=160)


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
    speed = run_budget.Speed(draw=100, read=1000, train=400)
    seconds = [
        sum(one.seconds(speed) for one in run_budget.phases(recipe(policy, size), LENGTHS, follows=follows))
        for size in run_budget.SIZES
    ]
    assert seconds == sorted(seconds, reverse=True)
    assert seconds[-1] < 0.5 * seconds[0]


def test_trials_are_counted_as_they_are_made():
    from clawback.sources.distilled import DistilSettings

    # 7 sentences on 8 prompts, 3 on the next 16, 1 on the last 8
    assert DistilSettings(sentences=7, first=8, most=32).trials == 7 * 8 + 3 * 16 + 1 * 8
    assert DistilSettings(sentences=0).trials == 0


def test_the_largest_size_that_fits_is_taken_and_entered_in_the_recipe(policy, monkeypatch):
    monkeypatch.setattr(
        throughput, "measure", lambda *_: run_budget.Speed(draw=1000, read=10_000, train=4000)
    )
    full, all_of_it = run_budget.fit(TrainingRun(policy, rated(), recipe(policy)), run_budget.Allowed(1e9))
    assert (full.size, all_of_it.size) == (1.0, 1.0)
    less, forecast = run_budget.fit(
        TrainingRun(policy, rated(), recipe(policy)), run_budget.Allowed(0.8 * all_of_it.seconds)
    )
    assert less.size == forecast.size < 1
    assert forecast.seconds <= 0.8 * all_of_it.seconds
    assert "to fit the budget" in str(forecast)


def test_what_does_not_fit_is_refused_with_what_would(policy, monkeypatch):
    monkeypatch.setattr(throughput, "measure", lambda *_: run_budget.Speed(draw=0.1, read=1.0, train=0.4))
    with pytest.raises(TrainingError, match=r"even at its smallest.*budget.*smaller model.*8h"):
        run_budget.fit(TrainingRun(policy, rated(), recipe(policy)), run_budget.Allowed(1200))


def test_measuring_leaves_the_policy_as_it_was(policy):
    before = [parameter.detach().clone() for parameter in policy.model.parameters()]
    speed = throughput.measure(policy, [(1, 2, 3), (4, 5)])
    assert min(speed.draw, speed.read, speed.train) > 0
    assert all((a == b).all() for a, b in zip(before, policy.model.parameters(), strict=True))
    assert not policy.has_adapter


def test_a_live_version_is_drawn_from_as_well(policy):
    alone, beside = (
        run_budget.gate_phase(dataclasses.replace(LENGTHS, versions=count), recipe(policy))
        for count in (2, 3)
    )
    assert beside.drawn_tokens == alone.drawn_tokens * 3 // 2
    assert beside.read_tokens > alone.read_tokens


@pytest.mark.parametrize("own", [0.0, 80.0])
def test_a_run_is_sized_by_the_models_own_answers_and_not_by_anothers(policy, own):
    """Other models' answers are rated; the model's own are drawn. Where those are not known, rated ones are taken up to the room there is."""
    long = dataclasses.replace(rated(1)[0], response="An otter swims. " * 60)
    encoded = [policy.encode(one) for one in (long, long)]
    lengths = run_budget.lengths_of((long, long), encoded, 128, own)
    assert lengths.answer == (own or 128)
    assert lengths.liked == pytest.approx(min(128, 1.5 * lengths.answer))


def test_one_long_rated_answer_makes_no_fresh_one_longer(policy):
    usual = [[0] * length for length in range(100, 131)]
    room = policy.room(usual)
    assert policy.room([*usual, [0] * 440]) <= 1.05 * room
    assert policy.room([*usual[:7], [0] * 440]) == 2 * 207  # twice twice the median
    # Where one of five is long, and not one alone, long ones are ordinary.
    assert policy.room([*[[0] * 5] * 24, *[[0] * 200] * 6]) == 400


@given(st.lists(st.integers(0, 500), min_size=1, max_size=40))
def test_nine_of_ten_rated_answers_have_room(lengths):
    from clawback.policy.policy import longest_ordinary

    longest = longest_ordinary(lengths)
    assert longest in range(max(lengths) + 1)
    assert sum(length <= longest for length in lengths) >= 0.9 * len(lengths) - 1


@pytest.mark.parametrize("most", [8, 70, 10_000])
def test_the_setting_limits_the_answers_of_a_run(most):
    from clawback.config import GenerationSection

    policy = engine.load("embedded")
    policy.configure(GenerationSection(max_tokens=most))
    assert policy.room([[0] * 100]) == min(most, 200, policy.max_response)


def test_a_busy_machine_is_told_of_and_changes_no_size(policy, monkeypatch):
    monkeypatch.setattr(
        throughput, "measure", lambda *_: run_budget.Speed(draw=1000, read=10_000, train=4000)
    )
    texts = []
    for load in (1.0, 40.0):
        monkeypatch.setattr(throughput, "load", lambda device, load=load: load)
        sized, forecast = run_budget.fit(
            TrainingRun(policy, rated(), recipe(policy)), run_budget.Allowed(1e9)
        )
        texts.append(str(forecast))
        assert sized.size == 1.0
    assert "busy" not in texts[0]
    assert run_budget.slower(forecast.seconds, 40.0) in texts[1]
    assert "on cpu" in texts[0]


@pytest.mark.parametrize(
    ("text", "seconds"), [("90s", 90), ("20m", 1200), ("8h", 28800), ("45", 45), (" 1D ", 86400)]
)
def test_times_are_read(text, seconds):
    assert run_budget.parse(text) == seconds


@given(st.text(max_size=8))
def test_any_other_text_is_refused_or_a_positive_time(text):
    with contextlib.suppress(ValueError):
        assert 0 < run_budget.parse(text) < float("inf")


def test_a_run_that_may_learn_other_models_answers_is_estimated_without_a_search_for_a_sentence(policy):
    speed = run_budget.Speed(draw=100, read=1000, train=400)

    def seconds(**counts):
        lengths = dataclasses.replace(LENGTHS, **counts)
        return {p.name: p.seconds(speed) for p in run_budget.phases(recipe(policy), lengths, follows=True)}

    usual, named = seconds(), seconds(others=40)
    assert named["choose"] == 0
    assert sum(named.values()) < 0.7 * sum(usual.values())
    assert seconds(others=31) == usual, "too few to take the place of drawn answers"
    assert seconds(targets=8)["train"] > usual["train"]


def test_how_long_answers_take_follows_from_the_policys_own(policy, monkeypatch):
    seen = []

    def measured(policy, asked, room, *_):
        seen.append(room)
        return run_budget.Speed(draw=1000, read=10_000, train=4000)

    monkeypatch.setattr(throughput, "speed_of", measured)
    long = [dataclasses.replace(one, response="An otter swims. " * 60, model="strong-1") for one in rated(4)]
    for samples in (rated(), [*rated(2), *long], long):
        run_budget.fit(TrainingRun(policy, samples, recipe(policy)), run_budget.Allowed(1e9))
    own, mixed, foreign = seen
    assert own == mixed < foreign
