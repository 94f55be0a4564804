"""A hundred programs that mean harm: none gets out, none stops the run, nothing of them stays."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator

import pytest

from clawback.extensions.sandbox import Sandbox, open_sandbox, tree
from tests.sandbox import escapes, gluttons
from tests.sandbox.conftest import RUNGS, SECRET, SMALL, Outside
from tests.sandbox.image import ENGINES, image

# One of each kind runs by default; the rest take seconds each, until a limit ends them.
QUICK = {"memory: one block", "memory: /dev", "memory: the root", "disk: one file", "disk: many empty files", "disk: odd names", "disk: a sparse giant",
         "disk: a closed folder", "processes: fork bomb", "processes: a daemon that holds the output", "processes: a daemon without pipes",
         "processes: open files", "output: a flood", "output: yes"}  # fmt: skip
QUICK_IN_CONTAINERS = {
    "memory: many children",
    "disk: many empty files",
    "processes: a daemon without pipes",
    "output: a flood",
}


def test_there_are_a_hundred() -> None:
    assert len(escapes.ALL) + len(gluttons.ALL) >= 100
    assert set(gluttons.ALL) >= QUICK


@pytest.fixture(scope="module")
def neighbour() -> Iterator[Sandbox]:
    with open_sandbox(SMALL) as box:
        box.write("secret", SECRET.encode())
        yield box


def _emptied(box: Sandbox) -> None:
    for folder in box._layout.folders:
        for path in list(folder.files.iterdir()):
            path.unlink() if path.is_symlink() or not path.is_dir() else tree.remove(path)


def _escapes() -> Iterator[object]:
    """All on the weakest rung of this machine; on the stronger ones every eighth by default, and fewer in containers, which
    take longer to start; the others when asked for."""
    for rung in (*RUNGS, *ENGINES):
        for number, name in enumerate(escapes.ALL):
            often = rung == RUNGS[-1] or number % (32 if rung in ENGINES else 8) == 0
            yield pytest.param(rung, name, id=f"{rung}-{name}", marks=[] if often else [pytest.mark.slow])


@pytest.mark.parametrize(("shared_box", "name"), list(_escapes()), indirect=["shared_box"])
def test_no_way_out(
    name: str, shared_box: Sandbox, neighbour: Sandbox, outside: Outside, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", SECRET)
    # by the descriptor of its disk in this process, the only name that it has outside
    inside = str(neighbour._layout.folders[0].files / "secret").replace("/self/", f"/{os.getpid()}/")
    argv = ["python3", "-I", "-S", "-c", escapes.ALL[name], outside.given(inside)]

    result = shared_box.exec(argv, env={"MARK": outside.mark})

    said = result.stdout + result.stderr
    assert "OUT" not in said, said
    assert SECRET not in said, said
    assert "SyntaxError" not in said, said
    outside.unharmed()
    assert outside.survivors() == []
    assert neighbour.read("secret") == SECRET.encode()
    _emptied(shared_box)


def _gluttons() -> Iterator[object]:
    for rung in (*RUNGS, *ENGINES):
        for name in gluttons.ALL:
            often = name in (QUICK_IN_CONTAINERS if rung in ENGINES else QUICK)
            yield pytest.param(rung, name, id=f"{rung}-{name}", marks=[] if often else [pytest.mark.slow])


@pytest.mark.parametrize(("box", "name"), list(_gluttons()), indirect=["box"])
def test_no_more_than_its_share(name: str, box: Sandbox, outside: Outside) -> None:
    code, allowed = gluttons.ALL[name]
    argv = ["python3", "-I", "-S", "-c", code]
    timeout = 1.5 if "time" in allowed and "processes" not in allowed else None

    result = box.exec(argv, env={"MARK": outside.mark}, timeout=timeout)

    assert result.ended in allowed, result
    assert result.timed_out == (result.ended == "time")
    assert "OUT" not in result.stdout
    assert len(result.stdout) <= SMALL.output
    assert "SyntaxError" not in result.stderr, result.stderr
    assert outside.survivors() == []
    outside.unharmed()
    if result.ended != "disk" and "disk" not in name:
        assert box.exec(["echo", "still here"]).stdout == "still here\n"
    root = box._root
    box.close()
    assert not root.exists()


@pytest.mark.slow
@pytest.mark.parametrize("rung", [*RUNGS, *ENGINES])
def test_a_box_ends_with_us(rung: str, outside: Outside) -> None:
    """kill -9 of the process that opened the box: what ran in it ends."""
    import subprocess
    import sys

    code = (
        "import sys\nfrom clawback.extensions.sandbox import open_sandbox\n"
        "box = open_sandbox(rung=sys.argv[1], image=sys.argv[3] or None)\n"
        "p = box.start(['sh', '-c', 'sleep 1000 & echo up; sleep 1000'], env={'MARK': sys.argv[2]})\n"
        "import time\n"
        "while 'up' not in p.view()[0]: time.sleep(.01)\n"
        "print('up', flush=True)\ntime.sleep(1000)"
    )
    name = image(rung) if rung in ENGINES else ""
    it = subprocess.Popen([sys.executable, "-c", code, rung, outside.mark, name], stdout=subprocess.PIPE)
    assert it.stdout is not None
    assert it.stdout.readline() == b"up\n"
    assert outside.survivors()
    it.kill()
    it.wait()
    it.stdout.close()
    until = time.monotonic() + 10
    while outside.survivors() and time.monotonic() < until:
        time.sleep(0.05)
    assert outside.survivors() == []
