"""The plugin that holds the quick tests to their promise, in a pytest of its own; and their list."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from tests import quick

ROOT = Path(__file__).parent.parent
TESTS = """
import subprocess, sys

def test_computes():
    assert 1 + 1 == 2

def test_imports():
    try:
        import torch
    except Exception:
        pass

def test_starts():
    subprocess.run(["true"])
"""


def test_the_list_is_of_files_that_are_there() -> None:
    files = quick.files()
    assert files == sorted(set(files))
    assert [file for file in files if not (ROOT / file).is_file()] == []
    assert len(files) >= 70


def test_torch_and_processes_fail(tmp_path: Path) -> None:
    (tmp_path / "test_it.py").write_text(TESTS)
    (tmp_path / "torch.py").write_text("")
    (tmp_path / "pytest.ini").write_text("[pytest]\n")
    run = subprocess.run(
        [sys.executable, "-m", "pytest", "-p", "tests.quick", "-q", tmp_path],
        cwd=ROOT,
        env={"PATH": "/usr/bin:/bin", "PYTHONPATH": f"{tmp_path}:{ROOT}", "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"},
        capture_output=True,
        text=True,
    )  # fmt: skip
    assert "2 failed, 1 passed" in run.stdout
    assert "A quick test imports torch: " in run.stdout
    assert "A quick test starts a process (subprocess.Popen): " in run.stdout
