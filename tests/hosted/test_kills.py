"""SIGKILL to `clawback train` while its trainer is another process: the same bits, the same bill, by typing the command again."""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks import hosted_kills


@pytest.mark.slow
def test_a_learner_killed_at_three_instants_gives_the_same_adapter_at_the_same_price(tmp_path: Path) -> None:
    seen = hosted_kills.run(tmp_path, lose_trainer=False)
    assert len(seen["killed"]) == 3
    whole, killed = seen["undisturbed"], seen["learner_killed"]
    assert (whole["run"], killed["run"]) == ("done", "done")
    assert killed["adapter"] == whole["adapter"]
    assert killed["computed"] == whole["computed"]
    assert killed["account_tokens"] == whole["account_tokens"] == sum(whole["computed"].values()) > 0
