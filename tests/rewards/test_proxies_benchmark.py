"""The parts of ``python -m benchmarks proxies``: the best of more answers is better, and the guard is told what it is to be told."""

import pytest

from benchmarks import proxies


@pytest.mark.slow
def test_the_best_of_more_answers_pleases_more_and_is_promised_more() -> None:
    rows = {row["way"]: row for row in proxies.run("bullets, no apology", 0, ["best of 4", "best of 16"])}
    assert list(rows) == ["base", "best of 4", "best of 16"]
    assert rows["base"]["gap"] == 0.0
    for key in ("true", "score", "kl"):
        assert rows["base"][key] < rows["best of 4"][key] < rows["best of 16"][key]
    for row in rows.values():
        # Wrong taps draw what is said towards the middle: 0.1 + 0.8 of what is true, on average.
        assert abs(row["said"] - (0.1 + 0.8 * row["true"])) < 4 * (0.09 / proxies.ANSWERS) ** 0.5


def rows_of(**seen: tuple[float, float]) -> list[dict[str, object]]:
    return [
        {
            "way": way.replace("_", " ").replace("guards", ", guards").replace(" ,", ","),
            "taste": "t",
            "seed": 0,
            "watched": {"proxy": proxy, "human": human, "count": 32, "spread": 0.3},
        }
        for way, (proxy, human) in seen.items()
    ]


def test_the_guard_compares_with_the_best_that_people_have_seen() -> None:
    rows = rows_of(base=(0.3, 0.3), graded_by_it=(0.7, 0.75), graded_guards_off=(0.95, 0.5))
    assert [row["way"] for row in rows] == ["base", "graded by it", "graded, guards off"]
    assert [proxies.opened(row, rows) for row in rows] == [False, False, True]
    # Without the run in between, people have gained themselves: the rule does not stop that.
    rows[1]["watched"] = rows[0]["watched"]
    assert not proxies.opened(rows[2], rows)
