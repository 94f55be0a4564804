"""The stand-in on loopback, and a small real model behind it."""

from __future__ import annotations

import socket
import threading
import time
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
import uvicorn

from clawback.extensions.hosted.request_journal import RequestJournal
from clawback.extensions.hosted.tinker import TinkerTrainer
from clawback.extensions.hosted.trainer_http import Wire
from clawback.extensions.trainer_server import around, tinker_app
from clawback.extensions.trainer_server.lora_weights import StandInLearner
from clawback.extensions.trainer_server.request_service import Service
from clawback.policy import load
from clawback.policy.policy import Policy

torch.set_num_threads(1)
KEY = "a-key-that-is-long-enough-for-anybody"


class Running:
    """A stand-in on a port of its own."""

    def __init__(
        self, policy: Policy, folder: Path, faults: around.Faults | None = None, alpha: int = 32
    ) -> None:
        self.service = Service(StandInLearner(policy, alpha=alpha), policy.info.base, folder)
        listening = socket.socket()
        listening.bind(("127.0.0.1", 0))
        self.url = f"http://127.0.0.1:{listening.getsockname()[1]}"
        self.app = tinker_app.make(self.service, KEY, faults)
        self.server = uvicorn.Server(uvicorn.Config(self.app, log_level="critical", access_log=False))
        self.thread = threading.Thread(target=self.server.run, kwargs={"sockets": [listening]}, daemon=True)
        self.thread.start()
        while not self.server.started:
            time.sleep(0.01)

    def close(self) -> None:
        self.server.should_exit = True
        self.thread.join(30)
        self.service.close()

    def bill(self) -> dict[str, int]:
        import json

        request = urllib.request.Request(self.url + "/stand_in/bill", headers={"x-api-key": KEY})
        found: dict[str, int] = json.load(urllib.request.urlopen(request))
        return found


Start = Callable[..., Running]


@pytest.fixture(scope="session")
def base() -> Path:
    from clawback import embedded

    return embedded.path()


@pytest.fixture(scope="session")
def loaded(base: Path) -> list[Policy]:
    return [load(str(base), device="cpu", dtype="float32") for _ in range(2)]


@pytest.fixture
def policy(loaded: list[Policy]) -> Policy:
    """The base model, for a server."""
    loaded[0].put(None)
    return loaded[0]


@pytest.fixture
def other(loaded: list[Policy]) -> Policy:
    """The same once more."""
    loaded[1].put(None)
    return loaded[1]


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Start]:
    running: list[Running] = []

    def begin(policy: Policy, **how: Any) -> Running:
        running.append(Running(policy, tmp_path / f"service{len(running)}", **how))
        return running[-1]

    yield begin
    for one in running:
        one.close()


@pytest.fixture
def trainer(start: Start, policy: Policy, tmp_path: Path) -> TinkerTrainer:
    server = start(policy)
    return connect(server, tmp_path / "journal.json")


def connect(server: Running, journal: Path, rank: int = 4, seed: int = 3) -> TinkerTrainer:
    wire = Wire(server.url, KEY, timeout=60.0, pause=0.001)
    return TinkerTrainer(wire, RequestJournal(journal, "test"), server.service.base, rank=rank, seed=seed)
