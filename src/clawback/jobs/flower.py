"""Federated rounds over Flower instead of a shared folder: the combining side runs a SuperLink, everybody else a SuperNode.

Nothing is decided here. The server's state is the folder of ``exchange.py``; an update that arrives over the
network is put into it as if its sender had put it there, and ``federating.combine`` checks, clips, combines
and records. A node writes what it receives into a temporary folder of its own and calls ``clawback federated
contribute`` on it, with its own home. So an app cannot ask a node for anything but a change of weights, and
the environment that Flower runs in needs neither torch nor the node's settings.
"""

from __future__ import annotations

import dataclasses
import json
import logging
import os
import shlex
import subprocess
import tempfile
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from clawback.errors import ClawbackError, MissingExtra, UsageError
from clawback.federated import exchange
from clawback.federated.aggregate import Array
from clawback.federated.exchange import Terms
from clawback.jobs import federating

log = logging.getLogger("flwr")
QUIET = {"FLWR_TELEMETRY_ENABLED": "0", "FLWR_DISABLE_UPDATE_CHECK": "1"}
"""Both are on unless they are switched off, before anything of Flower is imported."""
SECONDS = 3600.0
"""How long a round waits for answers, and a node for its own run."""
_APP = '''"""A federation of Clawback's, as a Flower app. `flwr run` sends it to the SuperLink and its SuperNodes."""

from clawback.jobs.flower import client_app, server_app

server = server_app()
client = client_app()
'''
_PROJECT = """[build-system]
requires = ["hatchling"]
build-backend = "hatchling.build"

[project]
name = "clawback-federation"
version = "1.0.0"
description = "Rounds of clawback federated over Flower"
license = "MIT"
dependencies = []

[tool.flwr.app]
publisher = "clawback"

[tool.flwr.app.components]
serverapp = "federation:server"
clientapp = "federation:client"

[tool.flwr.app.config]
folder = {folder}
rounds = {rounds}
people = {people}
homes = {homes}
"""


def write_app(folder: Path, out: Path, *, rounds: int, people: int, homes: Sequence[Path] = ()) -> Path:
    """A Flower app for the federation in ``folder``: that path is read where the SuperLink runs. ``homes``: of this machine, for a simulation.
    Raises ``UsageError`` where ``out`` is not empty."""
    exchange.read_terms(folder)
    if out.exists() and any(out.iterdir()):
        raise UsageError(f"{out} is not empty: name a new folder.")
    out.mkdir(parents=True, exist_ok=True)
    (out / "federation.py").write_text(_APP, "utf-8")
    simulated = json.dumps(json.dumps([str(home.resolve()) for home in homes]))
    project = _PROJECT.format(
        folder=json.dumps(str(folder.resolve())), rounds=rounds, people=people, homes=simulated
    )
    (out / "pyproject.toml").write_text(project, "utf-8")
    return out


# --------------------------------------------------------------------------------------------------- the server


def server_app() -> Any:
    """A ``ServerApp`` that plays rounds on the folder that its run's settings name."""
    _quiet()
    from flwr.serverapp import ServerApp

    app = ServerApp()

    @app.main()  # type: ignore[untyped-decorator]
    def main(grid: Any, context: Any) -> None:
        settings = context.run_config
        play(grid, Path(str(settings["folder"])), rounds=int(settings["rounds"]), people=int(settings["people"]))  # fmt: skip

    return app


def play(grid: Any, folder: Path, *, rounds: int, people: int, seconds: float = SECONDS) -> None:
    """Rounds: ask all nodes, put what comes back into the folder, combine. Fewer usable answers than ``people`` end the run with an error."""
    from flwr.app import ConfigRecord, Message, RecordDict

    terms = exchange.read_terms(folder)
    for _ in range(rounds):
        number = exchange.rounds(folder) + 1
        said = {"terms": json.dumps(dataclasses.asdict(terms)), "round": number}
        content = {"arrays": _record(federating.so_far(folder)), "config": ConfigRecord(said)}
        nodes = _nodes(grid, people, seconds)
        asked = [Message(content=RecordDict(content), dst_node_id=node, message_type="train") for node in nodes]  # fmt: skip
        _keep(folder, number, terms, grid.send_and_receive(asked, timeout=seconds))
        done = federating.combine(folder, least=people)
        log.info(
            f"round {done.round}: {len(done.people)} updates, norm {done.norm:.3f}, refused {len(done.refused)}"
        )


def _keep(folder: Path, number: int, terms: Terms, replies: Iterable[Any]) -> None:
    """What the nodes sent, as files of the round. A node is named by the number that the SuperLink knows it by, whatever it calls itself."""
    for reply in replies:
        node = reply.metadata.src_node_id
        if reply.has_error():
            log.info(f"node {node} has not contributed: {reply.error.reason}")
            continue
        try:
            arrays = _arrays(reply.content["arrays"])
            ratings = int(reply.content["metrics"]["ratings"])
            exchange.put(
                folder, number, f"node-{node}", arrays, {"ratings": str(ratings), "base": terms.base_revision}
            )
        except (KeyError, ValueError, TypeError, ClawbackError) as error:
            log.info(f"node {node} sent nothing that can be used: {error}")


def _nodes(grid: Any, people: int, seconds: float) -> list[int]:
    """All that are connected, once there are enough."""
    import time

    until = time.monotonic() + seconds
    while len(found := list(grid.get_node_ids())) < people:
        if time.monotonic() > until:
            raise UsageError(f"{len(found)} SuperNodes are connected, and {people} are wanted.")
        time.sleep(1)
    return sorted(found)


# ---------------------------------------------------------------------------------------------------- the nodes


def client_app() -> Any:
    """A ``ClientApp`` that learns from the home its node is configured with (``--node-config 'home="/home/anna/.clawback"'``)."""
    _quiet()
    from flwr.app import Message, MetricRecord, RecordDict
    from flwr.clientapp import ClientApp

    app = ClientApp()

    @app.train()  # type: ignore[untyped-decorator]
    def train(message: Any, context: Any) -> Any:
        said = message.content["config"]
        arrays, ratings = contribute(
            Terms(**json.loads(str(said["terms"]))),
            int(said["round"]),
            _arrays(message.content["arrays"]),
            home=home_of(context.node_config, context.run_config),
            command=shlex.split(str(context.node_config.get("command", "clawback"))),
        )
        content = {"arrays": _record(arrays), "metrics": MetricRecord({"ratings": ratings})}
        return Message(content=RecordDict(content), reply_to=message)

    return app


def home_of(node: Mapping[str, Any], run: Mapping[str, Any]) -> Path:
    """Whose ratings a node learns from: its own setting says so. Nodes of a simulation have none, and a number in its place."""
    homes = json.loads(str(run.get("homes", "[]")))
    if "home" not in node and homes and "partition-id" in node:
        return Path(homes[int(node["partition-id"])])
    if "home" not in node:
        raise UsageError("This SuperNode names no home: start it with --node-config 'home=\"/path\"'.")
    return Path(str(node["home"]))


def contribute(
    terms: Terms,
    number: int,
    so_far: dict[str, Array],
    *,
    home: Path,
    command: list[str],
    run: Callable[..., Any] = subprocess.run,
) -> tuple[dict[str, Array], int]:
    """The change that this home's ratings make in a round, and how many ratings it comes from. Raises ``UsageError`` where the command fails."""
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place) / "federation"
        exchange.begin(folder, terms)
        if so_far:
            exchange.put(folder, number - 1, exchange.COMBINED, so_far, {"base": terms.base_revision})
        done = run(
            [*command, "federated", "contribute", str(folder), "--name", "me", "--json"],
            env={**os.environ, "CLAWBACK_HOME": str(home)},
            capture_output=True,
            text=True,
            timeout=SECONDS,
            check=False,
        )
        if done.returncode:
            raise UsageError(f"`clawback federated contribute` failed: {done.stderr.strip()[-300:]}")
        path = exchange.place(folder, exchange.rounds(folder) + 1) / "me.safetensors"
        arrays, said = exchange.get(path, federating.own_shapes(path))
    return arrays, int(said["ratings"])


# ----------------------------------------------------------------------------------------------------- the wire


def _record(arrays: dict[str, Array]) -> Any:
    from flwr.app import Array as Packed
    from flwr.app import ArrayRecord

    return ArrayRecord({name: Packed(np.asarray(v, dtype=np.float32)) for name, v in arrays.items()})


def _arrays(record: Any) -> dict[str, Array]:
    """Flower reads them with NumPy's own format, pickles refused."""
    return {str(name): np.asarray(packed.numpy(), dtype=np.float64) for name, packed in record.items()}


def _quiet() -> None:
    os.environ.update(QUIET)
    try:
        import flwr  # noqa: F401
    except ImportError as error:
        raise MissingExtra("Flower is not installed. Run: pip install 'clawback[flower]'") from error
