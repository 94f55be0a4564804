"""What accelerate's file says is done, and what its launcher did not do is said."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from clawback import devices
from clawback.errors import UsageError
from clawback.jobs import seams
from clawback.paths import Home


def test_a_launcher_that_started_one_process_of_two_is_noticed() -> None:
    command = ["python", "accelerate", "launch", "--cpu", "--num_processes", "2", "clawback", "train"]
    said = seams.launched({"ACCELERATE_USE_CPU": "True"}, command)
    assert "asked for 2 processes and started one" in said
    assert "clawback train --processes 2" in said
    assert seams.launched({"ACCELERATE_USE_CPU": "True"}, ["accelerate", "launch", "--num_processes=1"]) == ""
    assert seams.launched({}, command) == ""


@pytest.mark.parametrize("named", [True, False])
def test_processes_that_the_launchers_own_file_asks_for_count_too(named: bool, tmp_path: Path) -> None:
    file = tmp_path / ("my.yaml" if named else "accelerate/default_config.yaml")
    file.parent.mkdir(exist_ok=True)
    file.write_text("compute_environment: LOCAL_MACHINE\ndistributed_type: MULTI_CPU\nnum_processes: 3\n")
    environment = {"ACCELERATE_USE_CPU": "true", "HF_HOME": str(tmp_path)}
    words = ["--config_file", str(file)] if named else []
    command = ["python", "accelerate", "launch", *words, "-m", "clawback", "train"]
    assert "asked for 3 processes" in seams.launched(environment, command)
    assert seams.launched(environment, [*command[:3], "--num_processes", "1", *command[3:]]) == ""
    file.write_text("[")
    assert seams.launched(environment, command) == ""


@pytest.mark.slow
def test_accelerate_itself_is_caught(rated: Home) -> None:
    """The real launcher, which starts one process of two and says nothing of it."""
    program = Path(sys.executable).with_name("accelerate")
    command = [
        str(program),
        "launch",
        "--cpu",
        "--num_processes",
        "2",
        "-m",
        "clawback",
        "train",
        "--algorithm",
        "no-such",
    ]
    done = subprocess.run(command, capture_output=True, text=True, timeout=240)
    assert "asked for 2 processes and started one" in done.stderr
    assert "clawback train --processes 2" in done.stderr


def test_copies_of_one_command_are_refused() -> None:
    with pytest.raises(UsageError, match="started 4 times"):
        seams.launched({"WORLD_SIZE": "4"}, [])


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
    found = seams.from_accelerate(path)
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
    found = seams.from_accelerate(path)
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


def test_what_accelerate_writes_has_no_key_that_is_unknown(tmp_path: Path) -> None:
    """Accelerate's own class, with everything off that can be off."""
    from accelerate.commands.config.config_args import ClusterConfig

    path = tmp_path / "accelerate.yaml"
    made = ClusterConfig(
        compute_environment="LOCAL_MACHINE",
        distributed_type="MULTI_CPU",
        mixed_precision="no",
        use_cpu=True,
        debug=False,
        num_processes=2,
    )
    made.to_yaml_file(str(path))
    found = seams.from_accelerate(path)
    assert (found.processes, found.answers) == (2, ())
    off = dict.fromkeys(vars(made)) | yaml.safe_load(path.read_text())
    path.write_text(yaml.safe_dump(off))
    assert seams.from_accelerate(path).answers == ()
    on = off | {"parallelism_config": {"tp_size": 2}, "fp8_config": {"backend": "TE"}, "gpu_ids": "0,1"}
    path.write_text(yaml.safe_dump(on))
    said = seams.from_accelerate(path).answers
    assert {line.split()[0] for line in said} == {"parallelism_config", "fp8_config", "gpu_ids"}
    assert not [line for line in said if "no key that is known" in line]


def test_a_gpu_that_a_file_would_leave_alone_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(devices, "there", lambda kind: kind in ("cuda", "cpu"))
    path = tmp_path / "accelerate.yaml"
    path.write_text("distributed_type: MULTI_CPU\nnum_processes: 2\nuse_cpu: true\n")
    [said] = seams.from_accelerate(path).answers
    assert "use_cpu: true is not taken over" in said
    assert "cuda" in said


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
        seams.from_accelerate(path)
