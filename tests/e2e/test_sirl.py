"""The walk-through of docs/coming-from/sirl.md, block by block, without a network."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from clawback import feedback, store
from clawback.paths import Home

PAGE = Path(__file__).parents[2] / "docs/coming-from/sirl.md"
BLOCKS = re.findall(r"```bash run\n(.*?)```", PAGE.read_text("utf-8"), re.DOTALL)
TOPICS = ["rain", "snow", "oak", "tea", "bread", "salt", "iron", "wind", "sleep", "chess", "maps", "paper"]


@pytest.mark.slow
def test_the_walk_through(tmp_path: Path) -> None:
    home = Home(tmp_path / "home")
    home.create()
    home.config.write_text("[training]\nbackground = false\n[training.overrides]\nsteps = 4\n")
    (tmp_path / "prompts.txt").write_text("".join(f"Tell me about {t}.\n" for t in TOPICS))
    environment = os.environ | {
        "CLAWBACK_HOME": str(home.root),
        "MODEL": "embedded",
        "ENCODER": "embedded",
        "TEACHER": "--api local",
        "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
    }

    def run(block: str) -> None:
        done = subprocess.run(
            ["bash", "-euc", block],
            cwd=tmp_path,
            env=environment,
            capture_output=True,
            text=True,
            timeout=1500,
        )
        assert done.returncode == 0, f"{block}\n{done.stdout}\n{done.stderr}"

    run(BLOCKS[0])
    baseline = json.loads((tmp_path / "baseline.json").read_text())
    assert len(baseline) == len(TOPICS)
    assert set(baseline["prompt_1"]) == {"prompt", "response", "model", "timestamp"}
    with store.connect(home.database) as db:
        for number, turn in enumerate(db.turns(limit=100)):
            feedback.score(db, turn.id, 9 if number % 2 else 2)
    run(BLOCKS[1])
    [base, made, own] = json.loads((tmp_path / "registry.json").read_text())
    assert (base["number"], made["number"]) == (0, 1)
    assert (Path(made["path"]) / "adapter_model.safetensors").is_file()
    assert "consent: not asked" in (Path(made["path"]) / "DATA.md").read_text()
    provenance = json.loads((Path(made["path"]) / "provenance.json").read_text())
    assert provenance["algorithm"] == "ppo"
    assert (own["number"], own["parent"]) == (2, 0)
    assert len((tmp_path / "scored.jsonl").read_text().splitlines()) == len(TOPICS)
    assert "<svg" in (tmp_path / "report.html").read_text()
    assert list((home.root / "logs").rglob("events.out.tfevents*"))
