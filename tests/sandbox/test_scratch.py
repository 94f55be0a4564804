"""Folders in the temporary one: gone at the end, and gone at the next start where a process was killed."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile

import pytest

from clawback.extensions.sandbox import scratch

HOLDS = """
import sys, time
from clawback.extensions.sandbox import scratch
root = scratch.make("box")
(root / "work" / "deep").mkdir(parents=True)
(root / "work" / "deep" / "file").write_text("left")
print(root, flush=True)
time.sleep(600)
"""


@pytest.fixture(autouse=True)
def there(tmp_path, monkeypatch):
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    scratch._reap_once.cache_clear()
    yield tmp_path
    scratch._reap_once.cache_clear()


def other(tmp_path):
    """A process that holds a folder, and the folder."""
    env = {**os.environ, "TMPDIR": str(tmp_path)}
    process = subprocess.Popen([sys.executable, "-c", HOLDS], stdout=subprocess.PIPE, text=True, env=env)
    return process, tmp_path / process.stdout.readline().strip().rpartition("/")[2]


def test_what_a_killed_process_left_goes_at_the_next_start_and_what_a_living_one_holds_stays(there):
    killed, left = other(there)
    living, held = other(there)
    try:
        killed.send_signal(signal.SIGKILL)
        killed.wait()
        assert (left / "work" / "deep" / "file").exists()
        mine = scratch.make("box")
        assert not left.exists()
        assert held.exists()
        assert mine.exists()
        scratch.let_go(mine)
        scratch.let_go(mine)
        assert not mine.exists()
    finally:
        living.kill()
        living.wait()
    assert scratch.reap(there) == 1
    assert not held.exists()


def test_what_is_not_ours_is_left_alone(there):
    (there / "clawback-box-young").mkdir()  # no lock yet
    target = there / "elsewhere"
    target.mkdir()
    (target / scratch.LOCK).touch()
    (there / "clawback-box-link").symlink_to(target)
    (there / "clawback-box-odd").mkdir()
    (there / "clawback-box-odd" / scratch.LOCK).symlink_to(target / scratch.LOCK)
    assert scratch.reap(there) == 0
    assert sorted(p.name for p in there.iterdir()) == [
        "clawback-box-link", "clawback-box-odd", "clawback-box-young", "elsewhere",
    ]  # fmt: skip
