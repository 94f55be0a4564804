"""Who is asked about what: enough in common for everybody, and as much work for each."""

from __future__ import annotations

import random
import statistics
from collections import Counter
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from sklearn.metrics import cohen_kappa_score

from clawback import store
from clawback.cli import main
from clawback.errors import UsageError
from clawback.feedback import assignment
from clawback.paths import Home
from clawback.records import Turn


@given(people=st.integers(1, 6), turns=st.integers(1, 40), overlap=st.integers(1, 4), shared=st.floats(0, 1))
def test_each_turn_has_its_raters_and_each_rater_as_much_to_do(
    people: int, turns: int, overlap: int, shared: float
) -> None:
    names = [f"r{n}" for n in range(people)]
    if overlap > people:
        with pytest.raises(UsageError):
            assignment.plan(range(turns), names, overlap, shared)
        return
    made = assignment.plan(range(turns), names, overlap, shared)
    assert len(set(made)) == len(made)
    of = Counter(turn for _, turn in made)
    assert set(of) == set(range(turns))
    assert set(of.values()) <= {1, overlap}
    assert abs(sum(n == overlap for n in of.values()) - shared * turns) <= 1 or overlap == 1
    load = Counter(name for name, _ in made)
    assert max(load[n] for n in names) - min(load[n] for n in names) <= 1


@pytest.mark.parametrize(("people", "overlap"), [(3, 2), (4, 2), (5, 3)])
def test_every_pair_has_about_as_many_turns_in_common(people: int, overlap: int) -> None:
    names = [f"r{n}" for n in range(people)]
    has: dict[int, set[str]] = {}
    for name, turn in assignment.plan(range(60), names, overlap):
        has.setdefault(turn, set()).add(name)
    counts = assignment.in_common(has, names).values()
    expected = 60 * overlap * (overlap - 1) / (people * (people - 1))
    assert min(counts) >= 0.8 * expected


def test_who_has_a_turn_already_is_counted() -> None:
    made = assignment.plan([1, 2], ["a", "b", "c"], 2, assigned={1: ["a"], 9: ["a", "b"]})
    assert [who for who, turn in made if turn == 1] == ["c"]
    assert assignment.plan([1], ["a", "b"], 2, assigned={1: ["a", "b"]}) == []


def test_the_error_of_kappa_is_that_of_simulated_raters() -> None:
    rng = random.Random(0)
    found = []
    for _ in range(400):
        ours = [rng.random() < 0.5 for _ in range(50)]
        theirs = [a if rng.random() < 0.8 else not a for a in ours]  # κ of 0.6
        found.append(cohen_kappa_score(ours, theirs))
    assert assignment.kappa_error(50) == pytest.approx(1.96 * statistics.stdev(found), rel=0.15)
    assert assignment.kappa_error(0) is None


def test_as_it_is_typed(home: Home, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:  # fmt: skip
    monkeypatch.setenv("CLAWBACK_HOME", str(home.root))
    with store.connect(home.database) as db:
        for n in range(12):
            db.add_turn(Turn("s", ({"role": "user", "content": f"Question {n}?"},), f"Answer {n}."))
    assert main(["raters", "assign", "--overlap", "2"]) == 2
    assert "raters invite NAME" in capsys.readouterr().err
    for name in ("anna", "ben", "cleo"):
        assert main(["raters", "invite", name]) == 0
    assert capsys.readouterr().out.count("/#token=cbr_") == 3
    assert main(["raters", "invite", "anna"]) == 2
    assert main(["raters", "invite", "Not a name"]) == 2
    assert main(["raters", "invite", "vera", "--role", "viewer"]) == 0
    assert main(["raters", "assign", "--to", "vera", "--overlap", "1"]) == 2
    assert main(["raters", "assign", "--count", "12", "--overlap", "2"]) == 0
    said = capsys.readouterr().out
    assert "12 turns go to anna (8), ben (8), cleo (8)." in said
    assert "at least 4 turns in common" in said
    assert main(["raters", "list"]) == 0
    assert main(["raters", "remove", "ben"]) == 0
    assert main(["raters", "remove", "ben"]) == 2
    assert main(["raters"]) == 0
    with store.connect(home.database) as db:
        assert {a.rater for a in db.assigned()} == {"anna", "cleo"}
