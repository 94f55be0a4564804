"""Rows of SWE-bench and of data sets with its columns (SWE-Gym, R2E): a repository, a problem, the deciding tests."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from clawback.errors import NotFound, UsageError


@dataclass(frozen=True, slots=True)
class InstanceRow:
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


def load(path: Path) -> list[InstanceRow]:
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


def read(fields: Mapping[str, object]) -> InstanceRow:
    """One row. Lists of tests may be JSON in a string, as the data sets have them."""
    try:
        return InstanceRow(
            id=str(fields["instance_id"]), repo=str(fields["repo"]), base_commit=str(fields["base_commit"]),
            problem=str(fields["problem_statement"]), patch=str(fields.get("patch") or ""), test_patch=str(fields.get("test_patch") or ""),
            fail_to_pass=_names(fields["FAIL_TO_PASS"]), pass_to_pass=_names(fields.get("PASS_TO_PASS") or []), split=str(fields.get("split") or ""),
        )  # fmt: skip
    except KeyError as error:
        raise UsageError(
            f"The row {fields.get('instance_id', '(without a name)')} has no {error}."
        ) from error


def _names(value: Any) -> tuple[str, ...]:
    if isinstance(value, str):
        value = json.loads(value)
    return tuple(str(name) for name in value)
