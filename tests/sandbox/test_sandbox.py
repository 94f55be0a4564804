"""What a box promises to who uses it."""

from __future__ import annotations

import os
import threading
import time
from pathlib import Path

import pytest

from clawback.errors import NotFound, SandboxError, SandboxRefused, UsageError
from clawback.extensions.sandbox import Extra, Limits, Sandbox, choose, open_sandbox, probe, tree
from clawback.extensions.sandbox.ladder import Rung
from tests.sandbox.conftest import RUNGS, SMALL
from tests.sandbox.image import ENGINES, image


def test_input_output_and_code(box: Sandbox) -> None:
    result = box.exec(["sh", "-c", "cat; echo oops >&2; exit 3"], input=b"hello " * 40_000)
    assert (result.exit_code, result.stderr, result.ended, result.ok) == (3, "oops\n", "", False)
    assert result.stdout == ("hello " * 40_000)[: SMALL.output]
    assert result.truncated


def test_signals_and_missing_programs(box: Sandbox) -> None:
    assert box.exec(["sh", "-c", "kill -9 $$"]).exit_code == 137
    assert box.exec(["no-such-program"]).exit_code == 127


def test_a_time_limit(box: Sandbox) -> None:
    result = box.exec(["sh", "-c", "echo begun; sleep 30"], timeout=0.5)
    assert result.timed_out
    assert result.stdout == "begun\n"
    assert result.seconds < 20


def test_files_last_and_are_the_boxes_own(box: Sandbox) -> None:
    box.write("in/side.txt", b"from here")
    assert box.exec(["sh", "-c", "cat in/side.txt; echo there > in/other.txt"]).stdout == "from here"
    assert box.read("in/other.txt") == b"there\n"
    assert (
        box.exec(["sh", "-c", "echo more >> in/side.txt && cat $HOME/in/side.txt"]).stdout
        == "from heremore\n"
    )


def test_only_what_is_named_is_set(box: Sandbox, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SOME_TOKEN", "x")
    lines = box.exec(["env"], env={"MINE": "1"}).stdout.splitlines()
    names = {line.split("=")[0] for line in lines}
    assert "MINE" in names
    assert "SOME_TOKEN" not in names
    of_engines = {"HOSTNAME", "PATH", "container"} if box.image else set()
    assert names <= {*box.environment(), "MINE", "PWD", "SHLVL", "_", "OLDPWD"} | of_engines


def test_reading_follows_no_link(box: Sandbox, tmp_path: Path) -> None:
    (tmp_path / "secret").write_text("s")
    box.exec(["sh", "-c", f"ln -s {tmp_path}/secret l; ln -s {tmp_path} d; mkfifo p; mkdir f"])
    for path in ("l", "d/secret", "p", "f", "../x", f"{tmp_path}/secret", "/etc/passwd"):
        with pytest.raises((SandboxError, UsageError)):
            box.read(path)
    with pytest.raises(NotFound):
        box.read("none")


def test_writing_follows_no_link(box: Sandbox, tmp_path: Path) -> None:
    (tmp_path / "secret").write_text("s")
    box.exec(["sh", "-c", f"ln -s {tmp_path}/secret l; ln -s {tmp_path} d"])
    box.write("l", b"mine")
    with pytest.raises(SandboxRefused):
        box.write("d/secret", b"mine")
    assert (tmp_path / "secret").read_text() == "s"
    assert box.read("l") == b"mine"


def test_folders_to_read_cannot_be_written(tmp_path: Path) -> None:
    (tmp_path / "note").write_text("text")
    for rung in (*RUNGS, *ENGINES):
        extra = [Extra("/given", tmp_path), Extra("/results", write=True)]
        with open_sandbox(SMALL, rung, extra=extra, image=image(rung) if rung in ENGINES else None) as box:
            given, results = box.path("/given"), box.path("/results")
            done = box.exec(
                [
                    "sh",
                    "-c",
                    f"cat {given}/note; echo x > {given}/note; echo y > {given}/new; echo z > {results}/r",
                ]
            )
            assert done.stdout == "text"
            assert box.read("/given/note") == b"text"
            assert box.read("/results/r") == b"z\n"
            with pytest.raises(NotFound):
                box.read("/given/new")


def test_a_program_to_speak_with(box: Sandbox) -> None:
    program = box.start(["sh", "-c", "while read line; do echo got $line; done"])
    program.write(b"one\n")
    seen = ""
    until = time.monotonic() + 20
    while "got one" not in seen and time.monotonic() < until:
        seen += program.view()[0]
        time.sleep(0.01)
    assert seen == "got one\n"
    assert program.running
    program.stop()
    assert program.wait().ended == "stopped"


def test_many_at_once() -> None:
    """Boxes know nothing of each other, and each ends by itself."""
    said: list[str] = []

    def one(number: int) -> None:
        with open_sandbox(SMALL) as box:
            box.write("n", str(number).encode())
            said.append(box.exec(["cat", "n"]).stdout)

    threads = [threading.Thread(target=one, args=(number,)) for number in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(said) == [str(number) for number in range(6)]


def test_nothing_weaker_is_ever_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    def rungs() -> tuple[Rung, ...]:
        return (
            Rung("bubblewrap", False, "", "bwrap is not installed"),
            Rung("landlock", False, "", "no Landlock"),
            Rung("none", True, ""),
        )

    monkeypatch.setattr("clawback.extensions.sandbox.ladder.probe", rungs)
    with pytest.raises(SandboxRefused, match="rung=none"):
        choose()
    with pytest.raises(SandboxRefused, match="bwrap is not installed"):
        choose("bubblewrap")
    with pytest.raises(SandboxRefused, match="There is no sandbox"):
        choose("chroot")
    assert choose("none") == "none"


def test_a_box_whose_walls_fail_runs_nothing(box: Sandbox, monkeypatch: pytest.MonkeyPatch) -> None:
    """A filter that the kernel refuses: the command is not run, rather than run without it."""
    monkeypatch.setattr("clawback.extensions.sandbox.rungs._filter", lambda closed: "00" * 8)
    monkeypatch.setattr(
        "clawback.extensions.sandbox.seccomp.profile", lambda machine: {"defaultAction": "SCMP_ACT_WISH"}
    )
    try:
        assert not box.exec(["sh", "-c", "echo x > ran"]).ok
    except SandboxError as error:
        assert "nothing was run" in str(error)
    monkeypatch.undo()
    (box._root / "system" / "seccomp.json").unlink(missing_ok=True)
    assert box.exec(["ls"]).stdout == ""


def test_the_ladder_is_told_in_order() -> None:
    names = [rung.name for rung in probe()]
    assert names == ["bubblewrap", "landlock", "seatbelt", "none"]
    assert all(rung.why for rung in probe() if not rung.usable)


def test_limits_are_above_zero() -> None:
    with pytest.raises(UsageError, match="memory"):
        Limits(memory=0)


def test_a_deep_tree_is_removed(tmp_path: Path) -> None:
    root = tmp_path / "root"
    root.mkdir()
    before = Path.cwd()
    os.chdir(root)
    try:
        for _ in range(1500):
            os.mkdir("d")  # noqa: PTH102
            os.chdir("d")
    finally:
        os.chdir(before)
    tree.remove(root)
    assert not root.exists()


def test_a_closed_box_runs_nothing() -> None:
    box = open_sandbox(SMALL)
    box.close()
    box.close()
    with pytest.raises(SandboxError, match="closed"):
        box.exec(["true"])
