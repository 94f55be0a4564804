"""Rows of SWE-bench and of data sets with its columns (SWE-Gym, R2E): a repository, a problem, the deciding tests."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from clawback.errors import NotFound, UsageError


@dataclass(frozen=True, slots=True)
class Row:
    """One instance. Hints are left out: they were written after the fix."""

    id: str
    repo: str
    base_commit: str
    problem: str
    patch: str
    test_patch: str
    fail_to_pass: tuple[str, ...]
    pass_to_pass: tuple[str, ...]
    split: str = ""


def load(path: Path) -> list[Row]:
    """Rows of a JSON-lines file (or of a JSON list)."""
    try:
        text = path.read_text(encoding="utf-8")
    except FileNotFoundError as error:
        raise NotFound(f"There is no file {path} with rows of SWE-bench.") from error
    try:
        rows = (
            json.loads(text)
            if text.lstrip().startswith("[")
            else [json.loads(line) for line in text.splitlines() if line.strip()]
        )
    except ValueError as error:
        raise UsageError(f"{path} is no JSON lines: {error}.") from error
    return [read(row) for row in rows]


def read(told: Mapping[str, Any]) -> Row:
    """One row. Lists of tests may be JSON in a string, as the data sets have them."""
    try:
        return Row(
            id=str(told["instance_id"]), repo=str(told["repo"]), base_commit=str(told["base_commit"]),
            problem=str(told["problem_statement"]), patch=str(told.get("patch") or ""), test_patch=str(told.get("test_patch") or ""),
            fail_to_pass=_names(told["FAIL_TO_PASS"]), pass_to_pass=_names(told.get("PASS_TO_PASS") or []), split=str(told.get("split") or ""),
        )  # fmt: skip
    except KeyError as error:
        raise UsageError(f"The row {told.get('instance_id', '(without a name)')} has no {error}.") from error


def _names(told: Any) -> tuple[str, ...]:
    if isinstance(told, str):
        told = json.loads(told)
    return tuple(str(name) for name in told)
