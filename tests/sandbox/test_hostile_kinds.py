"""A second hundred of hostile programs, by kinds: pairs of sockets, corners of the kernel, the system's own programs, and ways to
hold a disk or memory that no folder shows."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest

from clawback.extensions.sandbox import Sandbox, disk, tree
from clawback.extensions.sandbox.tree import remove
from tests.sandbox import escapes_by_kind, holders
from tests.sandbox.conftest import RUNGS, SECRET, SMALL, Outside, opened
from tests.sandbox.image import ENGINES

QUICK = {
    "pair: datagrams sent to a path", "pair: raw pairs, which are datagrams", "pair: datagrams under high bits", "pair: pairs of other families",
    "kernel: remount of the disk larger", "program: unshare", "unlinked: mapped, shared", "unlinked: in flight in a stream",
    "unlinked: open in threads of their own table", "named: folders without end", "named: emptied and filled again",
}  # fmt: skip
SMALLER_RUNGS = [*RUNGS, *ENGINES]


def test_there_are_a_hundred_more() -> None:
    names = {*escapes_by_kind.ALL, *holders.ALL}
    assert len(names) >= 100
    assert names >= QUICK


def _each(programs: dict[str, object]) -> Iterator[object]:
    for rung in SMALLER_RUNGS:
        for name in programs:
            often = name in QUICK and rung in RUNGS
            yield pytest.param(rung, name, id=f"{rung}-{name}", marks=[] if often else [pytest.mark.slow])


@pytest.mark.parametrize(("box", "name"), list(_each({**escapes_by_kind.ALL})), indirect=["box"])
def test_no_way_out(name: str, box: Sandbox, outside: Outside) -> None:
    argv = ["python3", "-I", "-S", "-c", escapes_by_kind.ALL[name], outside.given("/nonexistent")]

    result = box.exec(argv, env={"MARK": outside.mark})

    output = result.stdout + result.stderr
    assert "OUT" not in output, output
    assert SECRET not in output, output
    assert "SyntaxError" not in output, output
    outside.unharmed()
    assert outside.survivors() == []


@pytest.mark.parametrize(("box", "name"), list(_each({**holders.ALL})), indirect=["box"])
def test_nothing_is_held_beyond_the_limits(name: str, box: Sandbox, outside: Outside) -> None:
    code, ends = holders.ALL[name]

    result = box.exec(["python3", "-I", "-S", "-c", code], env={"MARK": outside.mark}, timeout=6)

    assert "OUT" not in result.stdout, result
    assert result.ended in ends, result
    assert "SyntaxError" not in result.stderr, result.stderr
    assert outside.survivors() == []
    outside.unharmed()
    root = box._root
    box.close()
    assert not root.exists()


@pytest.mark.parametrize("rung", RUNGS)
@pytest.mark.parametrize("name", ["unlinked: mapped, shared", "unlinked: in flight in a stream", "named: folders without end"])  # fmt: skip
def test_where_nothing_can_be_mounted_the_keeper_counts(rung: str, name: str, outside: Outside) -> None:
    code, ends = holders.ALL[name]
    with Sandbox(rung, SMALL, sized=False) as box:  # type: ignore[arg-type]
        slowly = code.replace(
            "held += size", "held += size; time.sleep(size / (16 << 20))"
        )  # between two looks
        result = box.exec(["python3", "-I", "-S", "-c", slowly])
    assert "OUT" not in result.stdout
    assert result.ended in ends


@pytest.mark.skipif(bool(disk.usable()), reason="no file system can be mounted here")
@pytest.mark.parametrize("rung", RUNGS)
def test_the_disk_is_a_file_system_of_its_limit(rung: str) -> None:
    count = "import os; s = os.statvfs('.'); print(s.f_blocks * s.f_frsize, s.f_files)"
    with opened(rung) as box:
        size, files = map(int, box.exec(["python3", "-I", "-S", "-c", count]).stdout.split())
        assert size == SMALL.disk
        assert SMALL.files <= files < SMALL.files + 16
        filled = box.exec(["sh", "-c", "head -c 20000000 /dev/zero > big; rm big; echo done > small"])
        assert filled.ended == ""
        assert box.read("small") == b"done\n"


@pytest.mark.skipif(bool(disk.usable()), reason="no file system can be mounted here")
def test_a_full_box_is_gone_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its folders are not removed one by one: the file system goes with its descriptors."""
    with opened(RUNGS[0]) as box:
        box.exec(["python3", "-I", "-S", "-c", "import os\nfor n in range(490): os.mkdir(str(n))"])
        assert box._disk
        descriptors = box._disk.descriptors
        removed = []
        monkeypatch.setattr(tree, "remove", lambda root: (removed.extend(root.rglob("*")), remove(root)))
    assert len(removed) < 20
    assert not box._root.exists()
    for descriptor in descriptors:
        with pytest.raises(OSError, match="Bad file"):
            os.fstat(descriptor)
