"""The rung of container engines: what only it has to keep. (The hostile programs run on it as on the others: test_hostile.py.)"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path

import pytest

from clawback.errors import SandboxError, SandboxRefused
from clawback.extensions.sandbox import (
    Limits,
    choose,
    choose_for_image,
    container,
    find_image,
    ladder,
    open_sandbox,
)
from clawback.extensions.sandbox.limits import BoxCommand
from clawback.extensions.sandbox.rungs import BoxFolder, BoxLayout
from tests.sandbox.conftest import SMALL, opened
from tests.sandbox.image import ENGINES, NAME, NO_ENGINE, image, root

needs_engine = pytest.mark.skipif(not ENGINES, reason=NO_ENGINE)
engine = pytest.mark.parametrize(
    "engine", ENGINES or [pytest.param("podman", marks=pytest.mark.skip(NO_ENGINE))]
)


def _left(engine: str, box: object) -> list[str]:
    """The containers of a box: other programs on this machine may have theirs."""
    words = [engine, "ps", "--all", "--quiet", "--filter", f"label={container.LABEL}={box}"]
    return subprocess.check_output(words, text=True).split()


# ---- what the engines are told (whether or not they are there)


@pytest.mark.parametrize("engine", ["podman", "docker"])
def test_each_wall_and_limit_is_asked_for(engine: str, tmp_path: Path) -> None:
    (tmp_path / "system").mkdir()
    folders = (BoxFolder(tmp_path / "work", "/app", True), BoxFolder(Path("/opt/tests"), "/tests", False))
    layout = BoxLayout(folders, (), tmp_path / "system", 1234)
    limits = Limits(memory=64 << 20, processes=10, disk=1 << 20, open_files=32, cpus=2)

    told = container.plan(
        engine, "some/image:1", layout, BoxCommand(["echo", "$(hi)"], {"A": "b c"}, "/app"), limits
    )  # type: ignore[arg-type]

    words = told["argv"]
    assert words[0] == engine
    pairs = set(pairwise(words))
    asked = {
        ("--network", "none"), ("--cap-drop", "ALL"), ("--security-opt", "no-new-privileges"), ("--user", "1234:1234"), ("--pull", "never"),
        ("--memory", str(64 << 20)), ("--memory-swap", str(64 << 20)), ("--pids-limit", "15"), ("--cpus", "2"), ("--workdir", "/app"),
        ("--ulimit", "fsize=1048576:1048576"), ("--ulimit", "nofile=32:32"), ("--ulimit", "core=0:0"), ("--log-driver", "none"),
        ("--security-opt", f"seccomp={tmp_path}/system/seccomp.json"), ("--label", f"clawback.box={tmp_path}"), ("--env", "A=b c"),
        ("--volume", f"{tmp_path}/work:/app:rw,Z"), ("--volume", "/opt/tests:/tests:ro"), ("--ipc", "private"),
    }  # fmt: skip
    assert asked <= pairs
    assert "--read-only" in words
    assert "--privileged" not in words
    assert words[-2:] == ["echo", "$(hi)"]  # as words, not as a line of a shell
    assert words.index("some/image:1") > words.index("--entrypoint")
    assert ("--http-proxy=false" in words) == (engine == "podman")  # docker knows no such word
    assert told["env"].get("DOCKER_CONFIG") == (None if engine == "podman" else "/nonexistent")
    assert not {"OPENAI_API_KEY", "PYTHONPATH"} & set(told["env"])


@pytest.mark.parametrize("name", ["--privileged", "-v/:/host", "a b", "", "x;y"])
def test_a_name_that_is_no_image_is_no_option_either(name: str) -> None:
    with pytest.raises(SandboxRefused, match="no name of an image"):
        find_image(name)


def test_without_an_engine_it_is_said_in_a_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("shutil.which", lambda name: None)
    with pytest.raises(
        SandboxRefused,
        match=r"but podman is not installed and docker is not installed.*`podman pull some/image`",
    ):
        open_sandbox(image="some/image")
    with pytest.raises(SandboxRefused, match="but docker is not installed"):
        open_sandbox(image="some/image", rung="docker")


def test_the_rungs_of_images_are_for_images() -> None:
    with pytest.raises(SandboxRefused, match="runs images"):
        choose("podman")
    with pytest.raises(SandboxRefused, match="runs images"):
        open_sandbox(rung="docker")


@engine
def test_an_image_that_is_not_here_is_not_fetched(engine: str) -> None:
    with pytest.raises(SandboxRefused, match=f"not on this machine.*`{engine} pull example.invalid/none:1`"):
        open_sandbox(image="example.invalid/none:1", rung=engine)


@engine
def test_volumes_that_nothing_limits_are_refused(engine: str) -> None:
    name = "localhost/clawback-test:volumes"
    done = subprocess.run(
        [engine, "import", "--change", "VOLUME /data", "-", name],
        input=root(),
        capture_output=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    try:
        with pytest.raises(SandboxRefused, match="/data"):
            choose_for_image(name, engine)
    finally:
        subprocess.run([engine, "rmi", name], capture_output=True, check=True)


# ---- the proof: an engine that does not do as it is told is not used


def _without(*gone: str) -> Callable[[list[str]], list[str]]:
    def less(words: list[str]) -> list[str]:
        for start in range(len(words)):
            if tuple(words[start : start + len(gone)]) == gone or (
                len(gone) == 1 and words[start] == gone[0]
            ):
                return (
                    words[:start]
                    + words[
                        start
                        + max(len(gone), 2 if gone[0] in ("--memory", "--pids-limit", "--cpus") else 1) :
                    ]
                )
        raise AssertionError(gone)

    return less


@engine
@pytest.mark.parametrize(
    ("part", "gone", "why"),
    [
        ("_limits", ("--pids-limit",), "limit of processes"),
        ("_limits", ("--cpus",), "limit of cores"),
        ("_walls", ("--read-only",), "the image can be written"),
        ("_walls", ("--cap-drop", "ALL"), "it closes no more than"),
        ("_walls", ("--security-opt", "no-new-privileges"), "it closes no more than"),
    ],
)
def test_a_wall_that_is_not_there_is_noticed(engine: str, part: str, gone: tuple[str, ...], why: str, monkeypatch: pytest.MonkeyPatch) -> None:  # fmt: skip
    image(engine)
    whole = getattr(container, part)
    monkeypatch.setattr(container, part, lambda *given: _without(*gone)(whole(*given)))
    ladder._prove.cache_clear()
    with pytest.raises(SandboxRefused, match=why):
        choose_for_image(NAME, engine, cpus=1)
    monkeypatch.undo()
    assert choose_for_image(NAME, engine, cpus=1).engine == engine


@engine
def test_a_folder_that_the_engine_adds_is_noticed(
    engine: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As a person's own settings of the engine may: their home, say."""
    image(engine)
    whole = container._walls
    monkeypatch.setattr(
        container, "_walls", lambda *given: [*whole(*given), "--volume", f"{tmp_path}:/added:ro"]
    )
    ladder._prove.cache_clear()
    with pytest.raises(SandboxRefused, match="the engine adds /added"):
        choose_for_image(NAME, engine, cpus=1)


# ---- files last, processes do not


@engine
def test_a_box_begins_with_what_the_image_has(engine: str) -> None:
    with open_sandbox(SMALL, engine, work="/app", image=image(engine)) as box:
        assert box.exec(["ls"]).stdout == ""
        box.fill()
        assert box.read("from-the-image.txt") == b"here from the start\n"
        assert box.exec(["sh", "-c", "pwd; echo mine >> from-the-image.txt"]).stdout == "/app\n"
        assert not box.exec(["sh", "-c", "echo x > /root/x || echo x > /etc/x || echo x > /x"]).ok
    with open_sandbox(SMALL, engine, work="/app", image=image(engine)) as box:
        box.fill()
        assert box.read("from-the-image.txt") == b"here from the start\n"


@engine
def test_the_codes_of_the_engine_are_not_the_programs(engine: str) -> None:
    with opened(engine) as box:
        for code in (0, 1, 125, 126, 127, 255):
            assert box.exec(["sh", "-c", f"exit {code}"]).exit_code == code
        assert box.exec(["sh", "-c", "cat <<'EOF'\nEOF\necho 'a\nb' \"c\""]).stdout == "a\nb c\n"


@engine
def test_a_command_that_is_out_of_time_runs_no_longer(engine: str) -> None:
    with opened(engine) as box:
        result = box.exec(["sh", "-c", "(sleep 30; echo late > late) & sleep 30"], timeout=0.5)
        assert result.timed_out
        assert _left(engine, box._root) == []


@engine
def test_a_command_that_takes_too_much_memory_is_told_so(engine: str) -> None:
    with opened(engine) as box:
        code = "import os\nfor _ in range(12):\n    if os.fork() == 0: x = b'x' * (60 << 20); os.read(0, 1); os._exit(0)\nwhile True: os.wait()"
        assert box.exec(["python3", "-I", "-S", "-c", code]).ended == "memory"


# ---- what is left behind

_OPEN = (
    "import sys, time\nfrom clawback.extensions.sandbox import open_sandbox\n"
    "box = open_sandbox(rung=sys.argv[1], image=sys.argv[2])\n"
    "p = box.start(['sh', '-c', 'echo up; sleep 1000'])\n"
    "while 'up' not in p.view()[0]: time.sleep(.01)\n"
    "print(p._keeper.pid, box._root, flush=True)\ntime.sleep(1000)"
)


@engine
def test_what_a_machine_that_died_left_is_removed_and_nothing_else(engine: str) -> None:
    it = subprocess.Popen(
        [sys.executable, "-c", _OPEN, engine, image(engine)], stdout=subprocess.PIPE, text=True
    )
    assert it.stdout is not None
    keeper, theirs = it.stdout.readline().split()
    with opened(engine) as box:
        mine = box.start(["sh", "-c", "echo up; sleep 1000"])
        until = time.monotonic() + 120
        while "up" not in mine.view()[0] and time.monotonic() < until:
            time.sleep(0.01)
        container.reap(engine)  # type: ignore[arg-type]
        assert len(_left(engine, theirs)) == len(_left(engine, box._root)) == 1
        os.kill(
            int(keeper), signal.SIGKILL
        )  # both at once, as when the power fails: nobody is left to tidy up
        it.kill()
        it.wait()
        it.stdout.close()
        assert len(_left(engine, theirs)) == 1
        container.reap(engine)  # type: ignore[arg-type]
        assert _left(engine, theirs) == []
        assert len(_left(engine, box._root)) == 1
        assert mine.running
    assert _left(engine, box._root) == []


@engine
def test_a_container_whose_keeper_died_ends_with_its_box(engine: str) -> None:
    with opened(engine) as box:
        program = box.start(["sh", "-c", "echo up; sleep 1000"])
        until = time.monotonic() + 120
        while "up" not in program.view()[0] and time.monotonic() < until:
            time.sleep(0.01)
        os.kill(program._keeper.pid, signal.SIGKILL)
        with pytest.raises(SandboxError, match="keeper died"):
            program.wait()
    assert _left(engine, box._root) == []
