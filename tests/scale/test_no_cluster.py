"""Where no cluster answers, a run says so before it loads anything."""

from __future__ import annotations

import socket
import sys
from types import SimpleNamespace
from typing import Any

import pytest

from clawback import jobs, store
from clawback.errors import UsageError
from clawback.jobs import beginning
from clawback.paths import Home
from clawback.runs.run_options import RunOptions
from tests.conftest import rate_some


def no_cluster(**_: Any) -> None:
    raise ConnectionError("Could not find any running Ray instance.")


@pytest.mark.parametrize("address", ["auto", "127.0.0.1:{port}", "ray://127.0.0.1:{port}"])
def test_a_run_is_refused_before_it_loads_anything(
    home: Home, monkeypatch: pytest.MonkeyPatch, address: str
) -> None:
    # Ray is an extra: what is tried here is what happens around it.
    monkeypatch.setitem(sys.modules, "ray", SimpleNamespace(init=no_cluster))
    monkeypatch.setattr(beginning, "policy", lambda *_: pytest.fail("the model was loaded"))
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        address = address.format(port=unused.getsockname()[1])
        rate_some(home)
        with pytest.raises(UsageError, match=f"No Ray cluster answers at {address}"):
            jobs.train_once(home, options=RunOptions(algorithm="rollouts", ray=(address, 0)))
        with store.connect(home.database) as db:
            assert db.runs() == []
