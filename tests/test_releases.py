"""What builds and checks releases works from wherever its parts are run."""

from __future__ import annotations

import subprocess
from pathlib import Path

ROOT = Path(__file__).parent.parent


def test_tools_beside_the_environment_are_found_from_any_folder() -> None:
    """`build` unpacks the sdist elsewhere and makes the wheel there: a relative PYTHONPATH leads nowhere."""
    said = subprocess.run(["make", "--dry-run", "dist"], cwd=ROOT, capture_output=True, text=True, check=True)
    paths = [word.partition("=")[2] for word in said.stdout.split() if word.startswith("PYTHONPATH=")]
    assert len(paths) == 2
    assert all(Path(path).is_absolute() for path in paths)
