"""Client libraries of others through the proxy and against our engine: answers right, recorded once, ratable (docs/clients.md).

They are installed in environments of their own, whose Pythons ``CLAWBACK_LIBRARIES`` names, separated as in ``PATH``; what is in
none of them is skipped. docs/clients.md says how.
"""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from . import library_table
from .library_calls import LIBRARIES

pytestmark = pytest.mark.slow
PYTHONS = [name for name in os.environ.get("CLAWBACK_LIBRARIES", "").split(os.pathsep) if name]


@pytest.mark.parametrize("library", LIBRARIES)
def test_a_library_gets_its_answers_and_each_is_recorded_once(tmp_path: Path, library: str) -> None:
    if not PYTHONS:
        pytest.skip("CLAWBACK_LIBRARIES names no Python with client libraries")
    python = library_table.python_with(library, PYTHONS)
    if not python:
        pytest.skip(f"{library} is not installed there")
    cells = library_table.run(library, python, tmp_path, tmp_path)
    failures = {(side, case): cell for side in ("proxy", "engine") for case, cell in cells[side].items() if cell.startswith("FAILS")}  # fmt: skip
    assert failures == {}
