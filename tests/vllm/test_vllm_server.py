"""A vLLM of a run's own, with a small program in its place: started, waited for, started again, put to sleep, ended whatever happens."""

from __future__ import annotations

import dataclasses
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from clawback.config import VllmSection
from clawback.errors import Stopped, UsageError
from clawback.extensions.hosted.trainer_records import HostedError
from clawback.extensions.vllm import vllm_process, vllm_server
from clawback.extensions.vllm.vllm_process import Serving
from clawback.extensions.vllm.vllm_server import OwnVllm, VllmEnded
from clawback.paths import Home
from clawback.processes import is_alive

SERVING = Serving(Path("/models/small"), "float32", 2048, 16, False, 1 << 20, 1 << 10, 2)
SECONDS = 20.0


class Program:
    """The program in the place of ``vllm``, and what it has written down."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir()
        self.folder = folder
        self.servers: list[OwnVllm] = []
        self.path = folder / "vllm"
        shutil.copy(Path(__file__).with_name("fake_vllm.py"), self.path)
        self.path.write_text(self.path.read_text().replace("/usr/bin/env python3", f"{sys.executable} -SE"))
        self.path.chmod(0o755)

    def notes(self) -> list[dict[str, Any]]:
        file = self.folder / "notes.jsonl"
        return [json.loads(line) for line in file.read_text().splitlines()] if file.exists() else []

    def starts(self) -> list[dict[str, Any]]:
        return [note for note in self.notes() if "started" in note]


@pytest.fixture
def program(tmp_path: Path) -> Iterator[Program]:
    program = Program(tmp_path / "bin")
    yield program
    for server in program.servers:
        server.close()
    assert await_end([pid for note in program.starts() for pid in (note["started"], note["engine"])])


@pytest.fixture(autouse=True)
def quickly(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(vllm_server, "POLL_SECONDS", 0.01)


def await_end(pids: list[int]) -> bool:
    deadline = time.monotonic() + SECONDS
    while time.monotonic() < deadline and any(map(is_alive, pids)):
        time.sleep(0.02)
    return not any(map(is_alive, pids))


def own(
    home: Home, program: Program, tell: Callable[[Any], None] = lambda _: None, **serving: Any
) -> OwnVllm:
    settings = VllmSection(command=str(program.path))
    program.servers.append(OwnVllm(home, settings, dataclasses.replace(SERVING, **serving), tell))
    return program.servers[-1]


def test_it_is_started_once_waited_for_and_ended_with_all_its_processes(home: Home, program: Program) -> None:
    phases: list[str] = []
    server = own(home, program, lambda progress: phases.append(progress["phase"]))
    wire = server.connect()
    assert server.connect() is wire
    wire.get("/version")
    [started] = program.starts()
    assert set(phases) == {"starting vLLM"}
    assert program.notes()[-1] == {"path": "/version", "key": f"Bearer {server.key}"}
    assert started["environment"]["VLLM_API_KEY"] == server.key
    assert started["arguments"][:2] == ["serve", "/models/small"]
    server.close()
    server.close()
    assert await_end([started["started"], started["engine"]])


def test_one_that_does_not_end_when_asked_is_killed(
    home: Home, program: Program, monkeypatch: pytest.MonkeyPatch
) -> None:
    (program.folder / "hangs").touch()
    text = Path(vllm_process.leash.__file__).read_text().replace("GRACE_SECONDS = 8.0", "GRACE_SECONDS = 0.1")
    hasty = program.folder / "leash.py"
    hasty.write_text(text)
    monkeypatch.setattr(vllm_process.leash, "__file__", str(hasty))
    server = own(home, program)
    server.connect()
    server.close()
    assert await_end([program.starts()[0]["started"]])


@pytest.mark.parametrize("victim", ["started", "engine", "leash"])
def test_where_it_ends_by_itself_it_is_started_again(victim: str, home: Home, program: Program) -> None:
    alerts: list[str] = []
    server = own(home, program, lambda progress: alerts.append(progress.get("text", "")))
    wire = server.connect()
    assert server.process is not None
    [first] = program.starts()
    os.kill(server.process.group if victim == "leash" else first[victim], signal.SIGKILL)
    if victim == "engine":  # as vLLM does: its server ends when its engine is gone
        os.kill(first["started"], signal.SIGTERM)
    server.process._leash.wait(SECONDS)
    if victim != "leash":
        with pytest.raises(VllmEnded, match="ended while the run used it"):
            wire.get("/version")
    again = server.connect()
    assert await_end([first["started"], first["engine"]])
    assert again is not wire
    again.get("/version")
    assert len(program.starts()) == 2
    assert any("started again" in text for text in alerts)
    server.close()


def test_a_start_that_fails_says_why(home: Home, program: Program) -> None:
    (program.folder / "broken").touch()
    with pytest.raises(
        HostedError, match=r"while it was starting \(ValueError: the model is no model\)"
    ) as error:
        own(home, program).connect()
    assert str(home.logs / "vllm.log") in str(error.value)
    assert (home.logs / "vllm.log").stat().st_mode & 0o777 == 0o600


def test_a_stop_while_it_starts_leaves_nothing(home: Home, program: Program) -> None:
    def stop_once_started(_: Any) -> None:
        if server.process is not None:
            raise Stopped("Somebody wants the run to stop.")

    server = own(home, program, stop_once_started)
    with pytest.raises(Stopped):
        server.connect()
    assert server.process is None


RUN = """
import sys, time
from pathlib import Path
from clawback.config import VllmSection
from clawback.extensions.vllm.vllm_process import Serving
from clawback.extensions.vllm.vllm_server import OwnVllm
from clawback.paths import Home
serving = Serving(Path("/models/small"), "float32", 2048, 16, False, 1, 1, 1)
OwnVllm(Home(Path(sys.argv[1])), VllmSection(command=sys.argv[2]), serving).connect()
print("ready", flush=True)
time.sleep(600)
"""


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGINT])
def test_it_ends_with_a_run_that_is_killed(number: signal.Signals, home: Home, program: Program) -> None:
    run = subprocess.Popen(
        [sys.executable, "-c", RUN, str(home.root), str(program.path)],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
    )
    assert run.stdout is not None
    assert run.stdout.readline() == b"ready\n"
    run.send_signal(number)
    run.wait(SECONDS)
    run.stdout.close()
    [started] = program.starts()
    assert await_end([started["started"], started["engine"]])


def test_on_a_gpu_it_sleeps_while_the_learner_steps(
    home: Home, program: Program, monkeypatch: pytest.MonkeyPatch
) -> None:
    import torch

    monkeypatch.setattr(torch.cuda, "mem_get_info", lambda: (60 << 30, 80 << 30))
    server = own(home, program, cuda=True)
    server.connect()
    server.rest()
    server.rest()
    server.connect()
    server.connect()
    server.close()
    [started, *requests] = program.notes()
    assert [note["path"] for note in requests] == ["/sleep?level=1", "/wake_up"]
    arguments = started["arguments"]
    assert "--enable-sleep-mode" in arguments
    assert "--enforce-eager" not in arguments
    assert float(arguments[arguments.index("--gpu-memory-utilization") + 1]) == pytest.approx(
        0.85 * 60 / 80, abs=1e-3
    )
    assert started["environment"]["VLLM_SERVER_DEV_MODE"] == "1"


def test_on_a_cpu_it_stays_awake(home: Home, program: Program) -> None:
    server = own(home, program)
    server.connect()
    server.rest()
    server.connect()
    server.close()
    [started] = program.notes()
    assert "--enforce-eager" in started["arguments"]
    assert "--no-enable-chunked-prefill" in started["arguments"], (
        "a seed and a part of a prompt end it on a CPU"
    )
    assert "VLLM_SERVER_DEV_MODE" not in started["environment"]


@pytest.mark.parametrize("cuda", [False, True])
def test_what_has_no_room_beside_the_learner_is_not_started(
    cuda: bool, home: Home, program: Program, monkeypatch: pytest.MonkeyPatch
) -> None:
    import torch

    monkeypatch.setattr(torch.cuda, "mem_get_info", lambda: (6 << 30, 80 << 30))
    with pytest.raises(HostedError, match=r"needs 1\d+\.\d GB .* --draw here"):
        own(home, program, cuda=cuda, weight_bytes=10**11).connect()
    assert not program.starts()


@pytest.mark.parametrize(("rank", "listed"), [(1, 8), (8, 8), (9, 16), (24, 32), (300, 320)])
def test_the_rank_is_the_next_that_vllm_takes(rank: int, listed: int) -> None:
    serving = dataclasses.replace(SERVING, rank=rank)
    arguments = vllm_process.command_line(Path("vllm"), serving, 8000, VllmSection(arguments=["--more", "x"]))
    assert arguments[arguments.index("--max-lora-rank") + 1] == str(listed)
    assert arguments[-2:] == ["--more", "x"]
    with pytest.raises(UsageError, match="rank 512 at most"):
        vllm_process.command_line(Path("vllm"), dataclasses.replace(SERVING, rank=513), 8000, VllmSection())


def test_the_program_is_found_by_its_path_its_environment_or_its_name(
    program: Program, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(program.folder))
    for command in (str(program.path), str(tmp_path), "vllm", ""):
        assert vllm_process.find(command) == program.path
    monkeypatch.setenv("PATH", "/nowhere")
    for command in ("", "/nowhere/else"):
        with pytest.raises(UsageError, match=r"vllm\.command"):
            vllm_process.find(command)


def test_its_environment_holds_no_key_of_the_person_and_nothing_of_ours(
    home: Home, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("OPENAI_API_KEY", "PYTHONPATH", "VLLM_LOGGING_LEVEL", "VLLM_CPU_KVCACHE_SPACE"):
        monkeypatch.setenv(name, "7")
    variables = vllm_process.variables(home, SERVING, "secret")
    assert not {"OPENAI_API_KEY", "PYTHONPATH", "CLAWBACK_HOME"} & variables.keys()
    assert (variables["VLLM_LOGGING_LEVEL"], variables["VLLM_CPU_KVCACHE_SPACE"]) == ("7", "7")
    assert (variables["VLLM_API_KEY"], variables["VLLM_NO_USAGE_STATS"]) == ("secret", "1")


def test_keys_and_values_are_counted_by_the_configuration() -> None:
    plain = {"num_hidden_layers": 30, "hidden_size": 576, "num_attention_heads": 9, "num_key_value_heads": 3}
    assert vllm_process.cache_bytes(plain, 2) == 2 * 30 * 3 * 64 * 2
    assert vllm_process.cache_bytes({"text_config": plain | {"head_dim": 128}}, 4) == 2 * 30 * 3 * 128 * 4
    assert vllm_process.cache_bytes({"n_layer": 12, "n_embd": 768, "n_head": 12}, 4) == 2 * 12 * 768 * 4
