"""Rounds over Flower: what is put into the folder, and a real SuperLink with two SuperNodes on loopback (`make test-flower`)."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import load_file

from clawback.cli import main
from clawback.errors import MissingExtra, UsageError
from clawback.extensions.federated import exchange, federating, flower, rounds
from clawback.extensions.federated.aggregate import followed, vector
from clawback.paths import Home
from tests.conftest import rate_some
from tests.federated.team import Team, put_signed

PYTHON = os.environ.get("CLAWBACK_FLOWER", "")
"""The Python of an environment that has Flower."""


class Replies:
    """What Flower hands over: messages with arrays and records, as far as they are read."""

    def __init__(self, node: int, arrays: Any, signed: Any, error: str = "") -> None:
        self.metadata, self.error = SimpleNamespace(src_node_id=node), SimpleNamespace(reason=error)
        packed = {name: SimpleNamespace(numpy=lambda value=value: value) for name, value in arrays.items()}
        self.content = {"arrays": packed, "signed": signed}

    def has_error(self) -> bool:
        return bool(self.error.reason)


def test_a_node_learns_by_the_command_and_its_own_home(tmp_path: Path) -> None:
    """The command sees the terms, the members and what the federation has changed so far; what it signs is what is sent, and what the server
    stores under the name of who signed it."""
    team = Team(tmp_path, ["anna", "ben"])
    for name in team.names:
        team.put(name, 1.0)
    team.combine()
    seen: dict[str, Any] = {}

    def run(command: list[str], *, env: dict[str, str], **_: Any) -> Any:
        folder = Path(command[command.index("contribute") + 1])
        federation = exchange.load_federation(folder)
        state = rounds.latest(federation)
        seen.update(command=command, home=env["CLAWBACK_HOME"], terms=federation.terms, round=state.round + 1)
        path = put_signed(federation, state, "ben", team.signers["ben"], team.change(2.0), 7)
        return SimpleNamespace(returncode=0, stderr="", stdout=json.dumps({"path": str(path)}))

    texts = flower.pack(team.folder, team.state)
    arrays, signed = flower.contribute(
        texts, team.state.arrays, home=tmp_path, command=["my", "clawback"], run=run
    )
    assert seen["command"][:4] == ["my", "clawback", "federated", "contribute"]
    assert (seen["home"], seen["terms"], seen["round"]) == (str(tmp_path), team.terms, 2)
    evil = dict(signed) | {"statement": signed["statement"].replace("ben", "anna")}
    replies = [
        Replies(1, {}, {}, error="lost"),
        Replies(2, arrays, signed),
        Replies(3, arrays, evil),
        Replies(4, {n: v + 1 for n, v in arrays.items()}, signed),
        Replies(5, arrays, {"statement": "[" * 100_000, "signature": "no"}),
        Replies(6, arrays, {}),
    ]
    flower._store_replies(team.federation, team.state, replies)
    found = [path.stem for path in exchange.round_folder(team.folder, 2).glob("*.safetensors")]
    assert found == ["ben"]
    assert exchange.read_update(team.federation, team.state, "ben")[1] == 7

    def fail(*_: Any, **__: Any) -> Any:
        return SimpleNamespace(returncode=1, stderr="There are no ratings.")

    with pytest.raises(UsageError, match="no ratings"):
        flower.contribute(texts, team.state.arrays, home=tmp_path, command=["clawback"], run=fail)


def test_the_app_says_where_the_folder_is(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    team = Team(tmp_path, ["anna"])
    asked = [
        "federated",
        "flower",
        str(team.folder),
        "--output",
        str(tmp_path / "app"),
        "--people",
        "3",
    ]
    assert main(asked) == 0
    import tomllib

    project = tomllib.loads((tmp_path / "app" / "pyproject.toml").read_text())
    settings = project["tool"]["flwr"]["app"]["config"]
    assert settings == {"folder": str(team.folder.resolve()), "rounds": 1, "people": 3, "homes": "[]"}
    compile((tmp_path / "app" / "federation.py").read_text(), "federation.py", "exec")
    assert main(asked) == 2
    assert "not empty" in capsys.readouterr().err


def test_a_node_learns_from_the_home_it_names_and_from_no_other(tmp_path: Path) -> None:
    """An app says where homes are for a simulation alone, whose nodes have a number and no setting of their own."""
    run = {"homes": json.dumps(["/somewhere/else"])}
    assert flower.home_of({"home": "/mine", "partition-id": 0}, run) == Path("/mine")
    assert flower.home_of({"partition-id": 0}, run) == Path("/somewhere/else")
    for node, said in (({}, run), ({"partition-id": 0}, {"homes": "[]"})):
        with pytest.raises(UsageError, match="names no home"):
            flower.home_of(node, said)


def test_without_flower_it_says_what_to_install() -> None:
    pytest.importorskip("torch")
    try:
        import flwr  # noqa: F401
    except ImportError:
        with pytest.raises(MissingExtra, match=r"\[flower\]"):
            flower.server_app()


def invite(team: Path, homes: list[Home]) -> None:
    """The second home joins; the first founded."""
    federating.join(homes[1], team)
    federating.invite(homes[0], team, homes[1].root.name, federating.signer(homes[1]).public)


def port() -> int:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return int(found.getsockname()[1])


@contextmanager
def running(command: list[str], log: Path, env: dict[str, str]) -> Iterator[subprocess.Popen[bytes]]:
    with log.open("wb") as out, subprocess.Popen(command, stdout=out, stderr=out, env=env) as process:
        try:
            yield process
        finally:
            process.terminate()
            try:
                process.wait(30)
            except subprocess.TimeoutExpired:
                process.kill()


@pytest.mark.slow
@pytest.mark.skipif(not PYTHON, reason="Flower is not installed: make test-flower brings it")
def test_a_superlink_and_two_supernodes_play_a_round(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    homes = [Home(tmp_path / name) for name in ("anna", "ben")]
    for home in homes:
        rate_some(home)
    monkeypatch.setenv("CLAWBACK_HOME", str(homes[0].root))
    team, app = tmp_path / "team", tmp_path / "app"
    assert main(["federated", "begin", str(team), "--rank", "2", "--step", "2", "--name", "anna"]) == 0
    invite(team, homes)
    assert main(["federated", "flower", str(team), "--output", str(app), "--rounds", "2"]) == 0

    source, bin_ = Path(flower.__file__).parents[3], Path(PYTHON).absolute().parent
    at, flwr_home = port(), tmp_path / "flwr"
    flwr_home.mkdir()
    (flwr_home / "config.toml").write_text(
        f'[superlink]\ndefault = "here"\n\n[superlink.here]\naddress = "127.0.0.1:{at}"\ninsecure = true\n'
    )
    env = {**os.environ, **flower.QUIET, "PYTHONPATH": str(source), "FLWR_HOME": str(flwr_home), "PATH": f"{bin_}:{os.environ['PATH']}", "HOME": str(tmp_path)}  # fmt: skip
    link = [str(bin_ / "flower-superlink"), "--insecure", "--port", str(at), "--disable-runtime-dependency-installation"]  # fmt: skip
    command = f"{sys.executable} -m clawback"
    nodes = [
        [str(bin_ / "flower-supernode"), "--insecure", "--superlink", f"127.0.0.1:{at}", "--port", str(port()),
         "--node-config", f'home="{home.root}" command="{command}"']
        for home in homes
    ]  # fmt: skip
    logs = [tmp_path / f"{name}.log" for name in ("link", "anna", "ben")]
    with (
        running(link, logs[0], env) as one,
        running(nodes[0], logs[1], env) as two,
        running(nodes[1], logs[2], env) as three,
    ):
        until = time.monotonic() + 1500

        def alive() -> bool:
            return all(process.poll() is None for process in (one, two, three))

        run: Any = None
        while run is None or run.returncode:  # until the SuperLink listens
            assert alive(), _said(logs)
            assert time.monotonic() < until, _said(logs)
            run = subprocess.run([str(bin_ / "flwr"), "run", str(app)], env=env, capture_output=True, text=True, check=False)  # fmt: skip
            time.sleep(1)
        while last_round(team) < 2:
            assert alive(), _said(logs)
            assert time.monotonic() < until, _said(logs) + run.stdout
            time.sleep(1)
    for number, factor in ((1, "lora_B"), (2, "lora_A")):
        here = exchange.round_folder(team, number)
        note = json.loads((here / "combined.json").read_text())
        assert note["people"] == ["anna", "ben"]
        assert len(set(note["weights"])) == 1
        files = {f.stem: load_file(f) for f in here.glob("*.safetensors")}
        made = files.pop("combined")
        one, two = files.values()
        assert all(factor in name for name in one)
        usual = float(np.median([np.linalg.norm(vector(change)) for change in (one, two)]))
        wanted = followed({n: (one[n] + two[n]) / 2 for n in one}, 2.0, usual)
        assert all(np.allclose(made[n], wanted[n], atol=1e-6) for n in wanted)
        assert any(np.abs(made[n]).max() > 0 for n in wanted)
    assert exchange.read_terms(team).step == 2


@pytest.mark.slow
@pytest.mark.skipif(not PYTHON, reason="Flower is not installed: make test-flower brings it")
def test_flowers_simulation_plays_a_round(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    homes = [Home(tmp_path / name) for name in ("anna", "ben")]
    for home in homes:
        rate_some(home)
    monkeypatch.setenv("CLAWBACK_HOME", str(homes[0].root))
    team, app = tmp_path / "team", tmp_path / "app"
    people = [word for home in homes for word in ("--home", str(home.root))]
    assert main(["federated", "begin", str(team), "--rank", "2", "--name", "anna"]) == 0
    invite(team, homes)
    assert main(["federated", "flower", str(team), "--output", str(app), *people]) == 0
    bin_, at, flwr_home, log = (
        Path(PYTHON).absolute().parent,
        port(),
        tmp_path / "flwr",
        tmp_path / "link.log",
    )
    flwr_home.mkdir()
    (flwr_home / "config.toml").write_text(
        f'[superlink]\ndefault = "here"\n\n[superlink.here]\naddress = "127.0.0.1:{at}"\ninsecure = true\n'
    )
    path = os.pathsep.join([str(bin_), str(Path(sys.executable).parent), os.environ["PATH"]])
    env = {**os.environ, **flower.QUIET, "RAY_USAGE_STATS_ENABLED": "0", "PYTHONPATH": str(Path(flower.__file__).parents[3]), "FLWR_HOME": str(flwr_home), "PATH": path, "HOME": str(tmp_path)}  # fmt: skip
    link = [str(bin_ / "flower-superlink"), "--insecure", "--simulation", "--port", str(at), "--disable-runtime-dependency-installation"]  # fmt: skip
    with running(link, log, env) as server:
        until, run = time.monotonic() + 1500, None
        while last_round(team) < 1:
            assert server.poll() is None, _said([log])
            assert time.monotonic() < until, _said([log])
            if run is None or run.returncode:  # until the SuperLink listens
                run = subprocess.run([str(bin_ / "flwr"), "run", str(app)], env=env, capture_output=True, text=True, check=False)  # fmt: skip
            time.sleep(1)
    note = json.loads((exchange.round_folder(team, 1) / "combined.json").read_text())
    assert len(note["people"]) == 2
    assert note["norm"] > 0


def last_round(team: Path) -> int:
    return rounds.latest(exchange.load_federation(team)).round


def _said(logs: list[Path]) -> str:
    return "\n".join(f"{log.name}: {log.read_text('utf-8', 'replace')[-1500:]}" for log in logs)
