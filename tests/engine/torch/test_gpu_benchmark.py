"""``python -m benchmarks gpu`` goes through where there is no GPU, and its table has a row for each phase."""

import json

import pytest

pytest.importorskip("peft")

from benchmarks import gpu


@pytest.mark.slow
def test_every_phase_is_measured_on_a_cpu_too(tmp_path, capsys):
    out = tmp_path / "gpu.json"
    assert gpu.main(["--quick", "--device", "cpu", "--output", str(out)]) == 0
    result = json.loads(out.read_text("utf-8"))
    phases = {row["phase"]: row for row in result["phases"]}
    assert list(phases) == ["load", "draw", "score", "training steps", "a whole run", "gate"]
    assert all(row["seconds"] > 0 and row["peak_bytes"] > 0 for row in phases.values())
    for name in ("draw", "score", "training steps"):
        assert phases[name]["tokens_per_second"] > 0
        assert 0 < phases[name]["mfu"] < 1
    shown = capsys.readouterr().out
    assert all(f"| {name} |" in shown for name in phases)
