"""Kill -9 anywhere in the loop. The benchmark does it a hundred times; here a dozen keep it honest."""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks import crash
from clawback.paths import Home


@pytest.mark.slow
def test_a_loop_killed_at_random_instants_loses_nothing_and_goes_on(tmp_path: Path) -> None:
    seen = crash.run(Home(tmp_path / "home"), kills=12, seed=1)
    assert seen["acknowledged_feedback"] > 12
    assert seen["last_run"] == "done"
