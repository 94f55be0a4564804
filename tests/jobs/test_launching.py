"""What accelerate's file says is done, and what its launcher did not do is said."""

from __future__ import annotations

from pathlib import Path

import pytest

from clawback.errors import UsageError
from clawback.jobs import launching


def test_a_launcher_that_started_one_process_of_two_is_noticed() -> None:
    command = ["python", "accelerate", "launch", "--cpu", "--num_processes", "2", "clawback", "train"]
    said = launching.launched({"ACCELERATE_USE_CPU": "True"}, command)
    assert "asked for 2 processes and started one" in said
    assert "clawback train --processes 2" in said
    assert (
        launching.launched({"ACCELERATE_USE_CPU": "True"}, ["accelerate", "launch", "--num_processes=1"])
        == ""
    )
    assert launching.launched({}, command) == ""


def test_copies_of_one_command_are_refused() -> None:
    with pytest.raises(UsageError, match="started 4 times"):
        launching.launched({"WORLD_SIZE": "4"}, [])


@pytest.mark.parametrize(
    ("text", "count", "variables"),
    [
        ("distributed_type: MULTI_CPU\nnum_processes: 4\n", 4, {"NNODES": "1", "NODE_RANK": "0"}),
        (
            "distributed_type: MULTI_GPU\nnum_machines: 2\nnum_processes: 8\nmachine_rank: 1\n"
            "main_process_ip: 10.0.0.1\nmain_process_port: 29500\n",
            4,
            {"NNODES": "2", "NODE_RANK": "1", "MASTER_ADDR": "10.0.0.1", "MASTER_PORT": "29500"},
        ),
    ],
)
def test_accelerates_file_is_read(text: str, count: int, variables: dict[str, str], tmp_path: Path) -> None:
    path = tmp_path / "accelerate.yaml"
    path.write_text(text)
    assert launching.from_accelerate(path) == (count, variables)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("distributed_type: FSDP\nnum_processes: 2", "FSDP"),
        ("num_processes: many", "whole number"),
        ("num_machines: 2\nnum_processes: 3", "shared out"),
        ("num_machines: 2\nnum_processes: 4", "main_process_ip"),
        ("[1, 2]", "no file"),
        ("a: [", "cannot be read"),
    ],
)
def test_what_cannot_be_done_is_said(text: str, says: str, tmp_path: Path) -> None:
    path = tmp_path / "accelerate.yaml"
    path.write_text(text)
    with pytest.raises(UsageError, match=says):
        launching.from_accelerate(path)
