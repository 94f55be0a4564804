"""Federated rounds over Flower instead of a shared folder: the combining side runs a SuperLink, everybody else a SuperNode.

Nothing is decided here. The server's state is the folder of ``exchange.py``; an update that arrives over the
network is put into it under the name of the member who signed it, and ``federating.combine`` checks, clips, combines
and records. A node writes what it receives into a temporary folder of its own and calls ``clawback lab federated
contribute`` on it, with its own home, which signs. So an app cannot ask a node for anything but a change of weights
for a federation that the home has joined, and the environment that Flower runs in needs neither torch nor the node's
settings. The combining side has the founder's home: nodes see no updates of others, so they take no other's word.
"""

from __future__ import annotations

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

from clawback import installed
from clawback.errors import ClawbackError, MissingExtra, UsageError
from clawback.extensions.federated import exchange, federating
from clawback.extensions.federated import rounds as federated_rounds
from clawback.extensions.federated.aggregate import Array
from clawback.extensions.federated.exchange import Federation, FederationState
from clawback.extensions.federated.federation_terms import read_terms
from clawback.extensions.federated.member_keys import parse_object
from clawback.files import replace
from clawback.paths import Home
from clawback.paths import home as current_home

log = logging.getLogger("flwr")
QUIET = {"FLWR_TELEMETRY_ENABLED": "0", "FLWR_DISABLE_UPDATE_CHECK": "1"}
"""Both are on unless they are switched off, before anything of Flower is imported."""
SECONDS = 3600.0
"""How long a round waits for answers, and a node for its own run."""
_APP = '''"""A federation of Clawback's, as a Flower app. `flwr run` sends it to the SuperLink and its SuperNodes."""

from clawback.extensions.federated.flower import client_app, server_app

server = server_app()
client = client_app()
'''
_PROJECT = """[build-system]
requires = ["hatchling"]
build-backend = "hatchling.build"

[project]
name = "clawback-federation"
version = "1.0.0"
description = "Rounds of clawback lab federated over Flower"
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
    exchange.load_federation(folder)
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


def server_app() -> object:
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

    home = current_home()
    for _ in range(rounds):
        federation = federating.load(home, folder)
        _check_founder(home, federation)
        state = federated_rounds.latest(federation)
        content = {"arrays": _record(state.arrays), "config": ConfigRecord(dict(pack(folder, state)))}
        nodes = _nodes(grid, people, seconds)
        requests = [Message(content=RecordDict(content), dst_node_id=node, message_type="train") for node in nodes]  # fmt: skip
        _store_replies(federation, state, grid.send_and_receive(requests, timeout=seconds))
        done = federating.combine(home, folder, least=people)
        log.info(
            f"round {done.round}: {len(done.people)} updates, norm {done.norm:.3f}, refused {len(done.refused)}"
        )


def pack(folder: Path, state: FederationState) -> dict[str, str]:
    """The signed texts of a federation that a node needs beside the arrays; ``unpack`` makes a folder of them."""
    texts = {name: (folder / name).read_text("utf-8") for name in (exchange.TERMS, exchange.MEMBERS)}
    note = exchange.round_folder(folder, state.round) / f"{exchange.COMBINED}.json"
    return texts | ({"note": note.read_text("utf-8")} if state.round else {})


def unpack(folder: Path, texts: Mapping[str, str], arrays: Mapping[str, Array]) -> None:
    """A shared folder as a node sees it. Whether it is signed is checked by whoever reads it."""
    for name in (exchange.TERMS, exchange.MEMBERS):
        replace(folder / name, str(texts[name]).encode())
    if "note" in texts:
        number = parse_object(str(texts["note"]).encode(), Path("the server's note")).get("round")
        if type(number) is not int:
            raise UsageError("The server's note names no round.")
        here = exchange.round_folder(folder, number)
        exchange.write_arrays(here / f"{exchange.COMBINED}.safetensors", arrays, {})
        replace(here / f"{exchange.COMBINED}.json", str(texts["note"]).encode())


def _check_founder(home: Home, federation: Federation) -> None:
    if federating.signer(home).public != federation.terms.founder:
        raise UsageError(
            f"The SuperLink's side needs the home that founded {federation.folder}: set CLAWBACK_HOME to it."
        )


def _store_replies(federation: Federation, state: FederationState, replies: Iterable[Any]) -> None:
    """What the nodes sent, as files of the round: each under the name of the member who signed it, if it can be used."""
    for reply in replies:
        node = reply.metadata.src_node_id
        if reply.has_error():
            log.info(f"node {node} has not contributed: {reply.error.reason}")
            continue
        try:
            arrays = _arrays(reply.content["arrays"])
            signed = {name: str(reply.content["signed"][name]) for name in ("statement", "signature")}
            member = parse_object(signed["statement"].encode(), Path(f"what node {node} sent")).get("member")
            if member not in federation.roster.members:
                raise UsageError("it is signed by no member")
            exchange.check_update(federation, state, str(member), arrays, signed)
            exchange.write_update(
                federation, state, str(member), arrays, signed["statement"], signed["signature"]
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


def client_app() -> object:
    """A ``ClientApp`` that learns from the home its node is configured with (``--node-config 'home="/home/anna/.clawback"'``)."""
    _quiet()
    from flwr.app import ConfigRecord, Message, RecordDict
    from flwr.clientapp import ClientApp

    app = ClientApp()

    @app.train()  # type: ignore[untyped-decorator]
    def train(message: Any, context: Any) -> Any:
        arrays, signed = contribute(
            {name: str(text) for name, text in message.content["config"].items()},
            _arrays(message.content["arrays"]),
            home=home_of(context.node_config, context.run_config),
            command=shlex.split(str(context.node_config.get("command", "clawback"))),
        )
        content = {"arrays": _record(arrays), "signed": ConfigRecord(dict(signed))}
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
    texts: Mapping[str, str],
    so_far: Mapping[str, Array],
    *,
    home: Path,
    command: list[str],
    run: Callable[..., Any] = subprocess.run,
) -> tuple[dict[str, Array], dict[str, str]]:
    """The change that this home's ratings make in a round, with its statement and signature. Raises ``UsageError`` where the command fails."""
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary) / "federation"
        unpack(folder, texts, so_far)
        done = run(
            [*command, "federated", "contribute", str(folder), "--json"],
            env={**os.environ, "CLAWBACK_HOME": str(home)},
            capture_output=True,
            text=True,
            timeout=SECONDS,
            check=False,
        )
        if done.returncode:
            raise UsageError(f"`clawback lab federated contribute` failed: {done.stderr.strip()[-300:]}")
        path = Path(json.loads(done.stdout)["path"])
        return exchange.read_arrays(
            path, read_terms(folder).shapes_of(exchange.factor(int(path.parent.name[6:])))
        )


# ----------------------------------------------------------------------------------------------------- the wire


def _record(arrays: Mapping[str, Array]) -> object:
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
        raise MissingExtra(f"Flower is not installed. Run: {installed.add('flower')}") from error
