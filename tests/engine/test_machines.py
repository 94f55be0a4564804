"""How several machines know of each other: what is not enough is said before anybody waits."""

from __future__ import annotations

import pytest

from clawback.errors import UsageError
from clawback.runs import run_options

WHOLE = {"MASTER_ADDR": "10.0.0.1", "MASTER_PORT": "29500", "NNODES": "2", "NODE_RANK": "1"}


@pytest.fixture(autouse=True)
def bare(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in run_options.MACHINE_VARIABLES:
        monkeypatch.delenv(name, raising=False)


def test_one_machine_needs_nothing_set(monkeypatch: pytest.MonkeyPatch) -> None:
    assert (run_options.machine_count(), run_options.machine_number()) == (1, 0)
    for name, value in (("NNODES", "1"), ("NODE_RANK", "0"), ("MASTER_ADDR", "localhost")):
        monkeypatch.setenv(name, value)
    assert (run_options.machine_count(), run_options.machine_number()) == (1, 0)


def test_each_has_its_place(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in WHOLE.items():
        monkeypatch.setenv(name, value)
    assert (run_options.machine_count(), run_options.machine_number()) == (2, 1)


@pytest.mark.parametrize(
    "wrong",
    [
        {"MASTER_ADDR": ""},
        {"MASTER_PORT": ""},
        {"NODE_RANK": "2"},
        {"NNODES": "1"},
        {"NNODES": "two"},
        {"NODE_RANK": "-1"},
    ],
)
def test_what_is_not_enough_is_said(wrong: dict[str, str], monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in (WHOLE | wrong).items():
        monkeypatch.setenv(name, value)
    with pytest.raises(UsageError, match=r"NNODES|NODE_RANK"):
        run_options.machine_number()
