"""Agreement against scikit-learn, scipy, the `krippendorff` package and a slow loop."""

from __future__ import annotations

import math
import random
from collections.abc import Iterator

import krippendorff
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats
from sklearn.metrics import cohen_kappa_score

from clawback import feedback, store
from clawback.feedback import calibrate
from clawback.feedback.calibrate import AttributedRating, weight
from clawback.feedback.rater_statistics import raters
from clawback.paths import Home
from clawback.records import Feedback, Turn
from clawback.store import Store

LEVELS = st.sampled_from([-1.0, -1 / 9, 0.0, 1 / 9, 1.0])


@given(
    st.lists(st.tuples(LEVELS, LEVELS), min_size=2, max_size=40),
    st.sampled_from([None, "linear", "quadratic"]),
)
def test_kappa_is_scikit_learns(pairs: list[tuple[float, float]], weights: str | None) -> None:
    ours, theirs = [a for a, _ in pairs], [b for _, b in pairs]
    labels = sorted({*ours, *theirs})
    found = calibrate.cohen_kappa(ours, theirs, weights)  # type: ignore[arg-type]
    if len(labels) < 2:
        assert found is None
        return
    index = {v: i for i, v in enumerate(labels)}
    reference = cohen_kappa_score([index[v] for v in ours], [index[v] for v in theirs], weights=weights)
    assert found == pytest.approx(reference, abs=1e-12)


def test_kappa_needs_something_in_common() -> None:
    assert calibrate.cohen_kappa([], []) is None
    with pytest.raises(ValueError, match="same things"):
        calibrate.cohen_kappa([1], [])


@given(st.data(), st.sampled_from(["nominal", "ordinal", "interval"]))
def test_alpha_is_that_of_the_reference(data: st.DataObject, metric: str) -> None:
    things = data.draw(st.integers(1, 12))
    cell = st.one_of(st.none(), st.sampled_from([-1.0, 0.0, 0.5, 1.0]))
    table = data.draw(st.lists(st.lists(cell, min_size=things, max_size=things), min_size=2, max_size=4))
    found = calibrate.krippendorff_alpha(table, metric)  # type: ignore[arg-type]
    doubly = [[v for v in column if v is not None] for column in zip(*table, strict=True)]
    paired = {v for column in doubly if len(column) > 1 for v in column}
    if len(paired) < 2:
        assert found is None
        return
    numbers = np.array([[math.nan if v is None else v for v in row] for row in table])
    domain = sorted({v for row in table for v in row if v is not None})
    reference = krippendorff.alpha(numbers, level_of_measurement=metric, value_domain=domain)
    assert found == pytest.approx(reference, abs=1e-9)


def test_alpha_by_a_slow_loop() -> None:
    """Observed over expected disagreement, pair by pair, as the definition has it."""
    rng = random.Random(5)
    table = [[rng.choice([None, 1.0, 2.0, 3.0, 5.0]) for _ in range(30)] for _ in range(4)]
    units = [[v for v in column if v is not None] for column in zip(*table, strict=True)]
    units = [u for u in units if len(u) > 1]
    values = [v for u in units for v in u]
    observed = sum((a - b) ** 2 / (len(u) - 1) for u in units for a in u for b in u) / len(values)
    expected = sum((a - b) ** 2 for a in values for b in values) / (len(values) * (len(values) - 1))
    assert calibrate.krippendorff_alpha(table, "interval") == pytest.approx(1 - observed / expected)


@given(st.lists(LEVELS, min_size=3, max_size=60))
def test_drift_is_kendalls_tau_with_time(values: list[float]) -> None:
    found = calibrate.drift(values)
    if len(set(values)) == 1:
        assert (found.tau, found.p) == (0.0, 1.0)
        return
    reference = stats.kendalltau(range(len(values)), values, method="asymptotic")
    assert found.tau == pytest.approx(reference.statistic, abs=1e-9)
    assert found.p == pytest.approx(reference.pvalue, abs=1e-9)


def test_a_rater_who_becomes_stricter_is_seen_and_a_steady_one_is_not() -> None:
    rng = random.Random(0)
    strict = [1.0 if rng.random() > i / 80 else -1.0 for i in range(80)]
    assert calibrate.drift(strict).tau < 0
    assert calibrate.drift(strict).p < 0.001
    steady = [calibrate.drift([rng.choice([-1.0, 1.0]) for _ in range(80)]).p for _ in range(200)]
    assert sum(p < 0.05 for p in steady) == pytest.approx(10, abs=9)  # five in a hundred, by chance


def test_outliers_are_beyond_two_sigma_of_what_others_said() -> None:
    others = [0.0] * 20
    ours = [0.1, -0.1] * 9 + [0.1, -1.0]
    assert calibrate.outliers(ours, others) == [19]
    assert calibrate.outliers(ours, ours) == []
    assert calibrate.outliers([0, 0, 0, 1], [0] * 4) == []


def test_the_same_answer_rated_both_ways() -> None:
    text = "The otter sleeps on its back and holds hands with its friends while it floats along."
    pairs = calibrate.contradictions(
        [
            AttributedRating(1, "Tell me", text, 1.0),
            AttributedRating(2, "tell me!", text.upper() + "!!", -1.0),
            AttributedRating(3, "Something else entirely", text, -1.0),
            AttributedRating(4, "Tell me", text + " They are among the few mammals that use tools.", -1.0),
            AttributedRating(5, "Tell me", text, 0.0),
            AttributedRating(6, "Tell me", text, 0.5),
        ]
    )
    assert pairs == [(1, 2), (6, 2)]


@pytest.fixture
def db(home: Home) -> Iterator[Store]:
    with store.connect(home.database) as opened:
        for number in range(40):
            asked = ({"role": "user", "content": f"question {number} of many about otters"},)
            opened.add_turn(Turn("s", asked, f"answer {number}"))
        yield opened


def test_the_table_of_raters(db: Store) -> None:
    rng = random.Random(1)
    for turn in range(1, 41):
        value = 1 if turn % 2 else -1
        feedback.rate(db, turn, value, source="cli")
        if turn <= 30:
            feedback.rate(db, turn, value if turn != 7 else -value, source="slack:U1")
            feedback.rate(db, turn, rng.choice([-1, 1]), source="telegram:7")
        db.add_feedback(Feedback(turn, "judge", 1.0, source="judge:flatterer"))
    copy = db.add_turn(Turn("s", db.turn(1).messages, db.turn(1).response))
    feedback.rate(db, copy.id, -1, source="cli")
    found = raters(db)
    by = {r.source: r for r in found.raters}
    assert [r.source for r in found.raters] == ["owner", "slack:U1", "telegram:7", "judge:flatterer"]
    assert (by["owner"].count, by["slack:U1"].count) == (41, 30)
    assert by["slack:U1"].good == 14 / 30
    assert by["slack:U1"].weight > by["telegram:7"].weight
    assert by["slack:U1"].kappa is not None
    assert by["slack:U1"].kappa > (by["telegram:7"].kappa or 0) + 0.2
    assert (by["judge:flatterer"].weight, by["judge:flatterer"].good) == (0, 1)
    assert by["owner"].contradictions == ((1, copy.id),)
    table = [
        [{f.turn_id: f.value for f in db.feedback() if f.source == s}.get(t) for t in range(1, 42)]
        for s in ("cli", "slack:U1", "telegram:7")
    ]
    numbers = np.array(table, dtype=float)
    assert found.alpha == pytest.approx(krippendorff.alpha(numbers, level_of_measurement="interval"))


def test_of_one_rater_there_is_no_agreement_to_tell(db: Store) -> None:
    assert raters(db).raters == ()
    feedback.rate(db, 1, 1)
    feedback.rate(db, 1, -1)
    [only] = raters(db).raters
    assert (only.count, only.good, only.kappa, only.common, only.weight) == (1, 0, None, 0, 1.0)
    assert raters(db).alpha is None


def test_the_weight_of_a_rater_by_hand() -> None:
    assert weight(1.0, 100) == 1
    assert weight(0.0, 10) == 0.5
    assert weight(-1.0, 30) == 0
