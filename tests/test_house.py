"""The source keeps to its budgets (tests/house.toml); those over their targets only fall."""

from __future__ import annotations

from pathlib import Path

from tests import house

FILE = """
from typing import Any
from clawback.store import _rows, base

class Row:
    made: int
    other: Any

def begin(said, b, c, d, e, f, *, given=1) -> Any:
    return base._write(said)
"""


def test_the_source_keeps_to_its_budgets() -> None:
    assert list(house.exceeded(house.measure())) == []


def test_every_figure_has_a_target() -> None:
    limits = house.budgets()
    assert set(limits["figures"]) == set(limits["targets"]) - {"room_lines"}
    assert all(most > limits["targets"]["room_lines"] for most in limits["rooms"].values())


def test_what_counts(tmp_path: Path) -> None:
    for room in ("one", "two"):
        (tmp_path / room).mkdir()
        (tmp_path / room / "file.py").write_text(FILE)
    (tmp_path / "long.py").write_text("def f():\n" + "    x = 1\n" * 460)
    measures = house.measure(tmp_path)
    assert dict(measures.rooms) == {"top": 461, "one": 10, "two": 10}
    assert (measures.core_lines, measures.count("core_lines")) == (481, 500)
    assert {name: len(places) for name, places in measures.places.items() if places} == {
        "files_under_40_lines": 2,
        "files_over_450_lines": 1,
        "functions_over_60_lines": 1,
        "functions_over_6_parameters": 2,
        "class_names_defined_again": 1,
        "private_names_of_other_modules": 4,
        "lines_with_any": 4,
        "names_that_are_no_nouns": 6,
        "file_names_in_several_rooms": 1,
    }
