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
    found = launching.from_accelerate(path)
    assert (found.processes, found.variables, found.shard, found.answers) == (count, variables, False, ())


WHOLE = """
compute_environment: LOCAL_MACHINE
debug: false
distributed_type: FSDP
downcast_bf16: 'no'
enable_cpu_affinity: false
fsdp_config:
  fsdp_activation_checkpointing: true
  fsdp_auto_wrap_policy: TRANSFORMER_BASED_WRAP
  fsdp_cpu_ram_efficient_loading: true
  fsdp_offload_params: true
  fsdp_reshard_after_forward: FULL_SHARD
  fsdp_state_dict_type: SHARDED_STATE_DICT
  fsdp_transformer_layer_cls_to_wrap: Qwen3DecoderLayer
  fsdp_version: 2
  fsdp_made_up: 1
machine_rank: 0
main_training_function: main
mixed_precision: bf16
num_machines: 1
num_processes: 2
rdzv_backend: static
same_network: true
tpu_env: []
tpu_use_cluster: false
tpu_use_sudo: false
use_cpu: true
dynamo_config: {dynamo_backend: INDUCTOR}
shoe_size: 43
"""


def test_every_key_that_is_not_done_as_it_stands_is_answered_for(tmp_path: Path) -> None:
    path = tmp_path / "accelerate.yaml"
    path.write_text(WHOLE)
    found = launching.from_accelerate(path)
    assert (found.processes, found.shard) == (2, True)
    said = {line.split()[0].rstrip(":") for line in found.answers}
    assert said == {
        "mixed_precision",
        "fsdp_activation_checkpointing",
        "fsdp_offload_params",
        "fsdp_state_dict_type",
        "fsdp_made_up",
        "dynamo_config",
        "shoe_size",
    }


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("distributed_type: DEEPSPEED\nnum_processes: 2", "DEEPSPEED"),
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
