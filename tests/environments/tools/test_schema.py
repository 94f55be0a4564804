"""Type hints and docstrings become JSON schemas that a validator accepts."""

from __future__ import annotations

import enum
from collections.abc import Callable
from dataclasses import dataclass
from typing import Annotated, Any, Literal, TypedDict

import jsonschema
import pytest

from clawback.environments.tools import function_schema
from clawback.errors import UsageError


class Size(enum.Enum):
    SMALL = "s"
    LARGE = "l"


@dataclass
class Place:
    x: float
    label: str = ""


class Box(TypedDict, total=False):
    width: int


def everything(
    a: int,
    b: float | None,
    c: Literal["x", "y"],
    d: list[str],
    e: dict[str, int],
    f: Place,
    g: Size,
    h: tuple[int, str],
    i: Annotated[str, "a note"],
    j: Box,
    k: list[Place | str],
    m: Any = None,
    n: bool = True,
) -> None:
    """Do everything.

    And more of it.

    Args:
        a (int): how many,
            over two lines
        b: a number: with a colon
        unknown: nobody has it

    Returns:
        c: nothing
    """


def test_every_kind_of_parameter_is_described() -> None:
    made = function_schema.definition(everything)["function"]
    assert made["name"] == "everything"
    assert made["description"] == "Do everything.\n\nAnd more of it."
    properties = made["parameters"]["properties"]
    assert properties["a"] == {"type": "integer", "description": "how many, over two lines"}
    assert properties["b"] == {"type": ["number", "null"], "description": "a number: with a colon"}
    assert properties["c"] == {"enum": ["x", "y"], "type": "string"}
    assert properties["f"]["required"] == ["x"]
    assert properties["g"] == {"enum": ["s", "l"]}
    assert properties["i"] == {"type": "string", "description": "a note"}
    assert properties["n"] == {"type": "boolean", "default": True}
    assert made["parameters"]["required"] == list("abcdefghijk")
    jsonschema.Draft202012Validator.check_schema(made["parameters"])


@pytest.mark.parametrize(
    ("field", "value", "fits"),
    [
        ("a", 1, True), ("a", 1.5, False), ("a", "1", False), ("b", None, True), ("c", "z", False), ("d", ["x", 1], False),
        ("e", {"k": 1}, True), ("e", {"k": "v"}, False), ("f", {"x": 1}, True), ("f", {"y": 1}, False), ("h", [1, "a"], True),
        ("h", [1], False), ("j", {}, True), ("j", {"depth": 1}, False), ("k", ["s", {"x": 2}], True), ("k", [3], False), ("m", object, True),
    ],
)  # fmt: skip
def test_what_fits_a_hint_fits_its_schema(field: str, value: object, fits: bool) -> None:
    properties = function_schema.definition(everything)["function"]["parameters"]["properties"]
    validator = jsonschema.Draft202012Validator(properties[field])
    assert validator.is_valid(value) is fits


def test_sphinx_docstrings_and_bare_functions() -> None:
    def bare(x, y=2):  # type: ignore[no-untyped-def]
        """Short.

        :param int x: the first
        :param y: the second
        """

    made = function_schema.definition(bare, "other")["function"]
    assert made["name"] == "other"
    assert made["description"] == "Short."
    assert made["parameters"]["properties"] == {
        "x": {"description": "the first"},
        "y": {"description": "the second", "default": 2},
    }


def _many(*values: int) -> None: ...


def _odd(file: Callable[[], None]) -> None: ...


@pytest.mark.parametrize("function", [_many, _odd, lambda x, /: x])
def test_what_a_call_cannot_carry_is_refused(function: Callable[..., Any]) -> None:
    with pytest.raises(UsageError, match="cannot"):
        function_schema.definition(function)
