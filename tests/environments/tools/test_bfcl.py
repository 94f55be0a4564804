"""BFCL's rows: read from their data, scored as their checker does. Rows of our own in their form; theirs where the wheel is unpacked."""

from __future__ import annotations

import asyncio
import json
import os
from pathlib import Path
from typing import Any

import jsonschema
import pytest

from clawback.environments import play, policies, registry
from clawback.environments.tools.calls import Call, message
from clawback.environments.validate import validate
from clawback.errors import NotFound
from clawback.extensions.worlds import bfcl
from tests.environments.playing import walk

PARAMETERS = {
    "type": "dict",
    "properties": {
        "city": {"type": "string"},
        "days": {"type": "integer"},
        "limit": {"type": "float"},
        "tags": {"type": "array", "items": {"type": "string"}},
        "where": {"type": "dict", "properties": {"lat": {"type": "float"}, "type": {"type": "any"}}},
    },
    "required": ["city"],
}
FUNCTION = {"name": "weather.get", "description": "Weather.", "parameters": PARAMETERS}


@pytest.fixture
def data(tmp_path: Path) -> Path:
    def write(category: str, rows: list[Any], answers: list[Any] | None) -> None:
        (tmp_path / f"BFCL_v4_{category}.json").write_text("\n".join(map(json.dumps, rows)))
        if answers is not None:
            (tmp_path / "possible_answer").mkdir(exist_ok=True)
            (tmp_path / "possible_answer" / f"BFCL_v4_{category}.json").write_text(
                "\n".join(map(json.dumps, answers))
            )

    def row(name: str) -> dict[str, Any]:
        return {"id": name, "question": [[{"role": "user", "content": "Weather?"}]], "function": [FUNCTION]}

    accepted = {
        "city": ["New York", "NYC"],
        "days": [3],
        "limit": [1.5, ""],
        "tags": [["a", "b"], ""],
        "where": [{"lat": [1.0, 2.0], "type": ["x", ""]}, ""],
    }
    write("simple_python", [row("s0")], [{"id": "s0", "ground_truth": [{"weather.get": accepted}]}])
    two = [{"weather.get": {"city": ["Rome"]}}, {"weather.get": {"city": ["Oslo"]}}]
    write("parallel", [row("p0")], [{"id": "p0", "ground_truth": two}])
    write("irrelevance", [row("i0")], None)
    write("live_relevance", [row("r0")], None)
    return tmp_path


def score(data: Path, category: str, *made: Any) -> float | None:
    found = registry.find(f"bfcl:{category}?data={data}")
    [task] = found.tasks("test")
    _, [step] = asyncio.run(
        walk(found, task, [made[0] if isinstance(made[0], str) else message([Call(n, a) for n, a in made])])
    )
    assert step.done
    return step.reward


@pytest.mark.parametrize(
    ("arguments", "reward"),
    [
        ({"city": "New York", "days": 3}, 1.0),
        ({"city": "new-york", "days": 3}, 1.0),
        ({"city": "nyc", "days": 3, "limit": 1.5, "tags": ["A", "b"]}, 1.0),
        ({"city": "NYC", "days": 3, "where": {"lat": 2}}, 1.0),
        ({"city": "NYC", "days": 3, "where": {"lat": 2, "type": "y"}}, 0.0),
        ({"city": "NYC", "days": 3.0}, 0.0),
        ({"city": "NYC", "days": True}, 0.0),
        ({"city": "NYC"}, 0.0),
        ({"city": "Boston", "days": 3}, 0.0),
        ({"city": "NYC", "days": 3, "tags": ["b", "a"]}, 0.0),
        ({"city": "NYC", "days": 3, "wind": 1}, 0.0),
    ],
)
def test_arguments_are_right_where_they_are_accepted(
    data: Path, arguments: dict[str, Any], reward: float
) -> None:
    assert score(data, "simple_python", ("weather_get", arguments)) == reward


def test_calls_in_any_order_none_missing_none_too_many(data: Path) -> None:
    rome, oslo = ("weather_get", {"city": "Rome"}), ("weather_get", {"city": "Oslo"})
    assert score(data, "parallel", oslo, rome) == 1.0
    assert score(data, "parallel", rome) == 0.0
    assert score(data, "parallel", rome, rome) == 0.0
    assert score(data, "parallel", rome, oslo, oslo) == 0.0
    assert score(data, "parallel", "[weather_get(city='Rome'), weather_get(city='Oslo')]") == 1.0


def test_rows_that_want_no_call_and_rows_that_want_any(data: Path) -> None:
    assert score(data, "irrelevance", "I cannot.") == 1.0
    assert score(data, "irrelevance", ("weather_get", {"city": "Rome"})) == 0.0
    assert score(data, "live_relevance", ("weather_get", {"city": "Rome"})) == 1.0
    assert score(data, "live_relevance", "I cannot.") == 0.0


def test_their_types_become_json_schemas() -> None:
    made = bfcl.tool(FUNCTION)["function"]
    assert made["name"] == "weather_get"
    assert made["parameters"]["type"] == "object"
    where = made["parameters"]["properties"]["where"]
    assert where == {"type": "object", "properties": {"lat": {"type": "number"}, "type": {}}}
    jsonschema.Draft202012Validator.check_schema(made["parameters"])


def test_solutions_are_made_of_accepted_values(data: Path) -> None:
    for category in ("simple_python", "parallel"):
        found = registry.find(f"bfcl:{category}?data={data}")
        tasks = found.tasks("test")
        assert [(c.solved, c.problem) for c in asyncio.run(validate(found, tasks))] == [(True, "")]


def test_what_is_not_there_is_said(data: Path, tmp_path: Path) -> None:
    with pytest.raises(NotFound, match="bfcl:simple_python"):
        registry.find(f"bfcl:simple_pyton?data={data}")
    with pytest.raises(NotFound, match="holds no BFCL rows"):
        registry.find(f"bfcl:multiple?data={tmp_path.parent}")
    with pytest.raises(NotFound, match="no file"):
        registry.find(f"bfcl:multiple?data={data}")


WHEEL = os.environ.get("BFCL_DATA", "")


@pytest.mark.skipif(not WHEEL, reason="BFCL_DATA names no unpacked wheel's data folder")
@pytest.mark.parametrize("category", bfcl.CATEGORIES)
def test_their_own_rows_accept_their_own_answers(category: str) -> None:
    found = registry.find(f"bfcl:{category}?data={WHEEL}")
    tasks = [*found.tasks("train"), *found.tasks("test")]
    assert len(tasks) > 10
    if category.endswith("live_relevance"):
        return
    wrong = 0
    for task in tasks:
        try:
            solution = found.solution(task)  # type: ignore[attr-defined]
        except NotFound:
            wrong += 1
            continue
        wrong += asyncio.run(play.episode(found, task, policies.Solution(solution))).reward != 1.0
    assert wrong <= 2
