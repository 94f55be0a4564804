"""Starts ``vllm serve`` as a process of its own, and ends it: the program, its command line and environment, its log.

The process is on a leash (``leash.py``): it ends when the process that started it ends, however that ends.
"""

from __future__ import annotations

import math
import os
import secrets
import shutil
import signal
import socket
import subprocess
import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from clawback.errors import UsageError
from clawback.extensions.vllm import leash
from clawback.runs.trigger import environment

if TYPE_CHECKING:
    from clawback.config import VllmSection
    from clawback.paths import Home
    from clawback.policy import Policy

RANKS = (8, 16, 32, 64, 128, 256, 320, 512)
"""What vLLM takes as ``--max-lora-rank``."""
BASE = "base"
"""Name of the base model over there."""
KEY = "VLLM_API_KEY"
TOLERATED_PREFIXES = ("VLLM_", "CUDA_", "NCCL_", "HIP_", "TRITON_")
"""Variables with these beginnings reach vLLM, beside those of every process of ours."""
SEQUENCES = 8
"""Longest conversations that the cache of keys and values holds at once on a CPU."""
END_SECONDS = 2 * leash.GRACE_SECONDS
LAST_BYTES = 20_000
"""Of the log, in which the reason of a failure is looked for."""


@dataclass(frozen=True, slots=True)
class Serving:
    """What a vLLM is to serve."""

    folder: Path
    """Of the base model."""
    dtype: str
    longest: int
    """Tokens of the longest conversation, its answer included."""
    rank: int
    """Highest rank of an adapter."""
    cuda: bool
    weight_bytes: int
    token_bytes: int
    """Of the keys and values of a token."""
    threads: int
    """On a CPU."""

    @property
    def cache_gib(self) -> int:
        """GiB for keys and values on a CPU."""
        return max(1, math.ceil(SEQUENCES * self.longest * self.token_bytes / 2**30))


def serving_of(policy: Policy, rank: int, reply_tokens: int = 0) -> Serving:
    """What draws as the policy does. ``rank``: of the adapter that a run puts on it; ``reply_tokens``: of the longest answer, where that is known."""
    import torch

    from clawback.models import look

    revision = policy.info.revision
    weights = next(policy.model.parameters())
    peft = getattr(policy.model, "peft_config", {})
    ranks = [rank, *(max([one.r, *(one.rank_pattern or {}).values()]) for one in peft.values())]
    longest = policy.max_prompt + max(policy.max_response, reply_tokens)
    return Serving(
        look(policy.info.base, None if revision.startswith("sha256:") else revision).folder,
        str(weights.dtype).removeprefix("torch."),
        min(longest, policy.info.context),
        max(ranks),
        policy.device.type == "cuda",
        policy.info.total_parameters * weights.element_size(),
        cache_bytes(policy.config, weights.element_size()),
        torch.get_num_threads(),
    )


def cache_bytes(config: Mapping[str, object], width: int) -> int:
    """Of the keys and values of a token, by ``config.json``."""
    text = config.get("text_config")
    values = text if isinstance(text, Mapping) else config

    def number(*names: str) -> int:
        return next((value for name in names if isinstance(value := values.get(name), int)), 0)

    heads = number("num_attention_heads", "n_head") or 1
    hidden = number("hidden_size", "n_embd", "d_model")
    head = number("head_dim") or hidden // heads
    layers = number("num_hidden_layers", "n_layer", "num_layers")
    return 2 * layers * (number("num_key_value_heads") or heads) * head * width


def find(command: str) -> Path:
    """The program. Raises ``UsageError`` where there is none."""
    if command:
        path = Path(command).expanduser()
        candidates = [path / "bin" / "vllm", path]
    else:
        candidates = [Path(sys.executable).parent / "vllm"]
    for path in candidates:
        if path.is_file() and os.access(path, os.X_OK):
            return path.absolute()
    if on_path := shutil.which(command or "vllm"):
        return Path(on_path)
    looked_at = (
        f"{command} is neither the program vllm nor an environment with it"
        if command
        else "There is no vLLM here"
    )
    raise UsageError(
        f"{looked_at}. Install it into an environment of its own (docs/vllm.md) and name that: "
        "`clawback config set vllm.command FOLDER`."
    )


CPU_BATCH_TOKENS = 4096
"""Tokens of a step on a CPU, where prompts are read whole."""


def command_line(
    program: Path, serving: Serving, port: int, settings: VllmSection, gpu_memory: float = 0.0
) -> list[str]:
    """``gpu_memory``: share of a GPU's memory, where it runs on one."""
    rank = next((rank for rank in RANKS if rank >= serving.rank), 0)
    if not rank:
        raise UsageError(f"vLLM takes adapters of rank {RANKS[-1]} at most, and this one has {serving.rank}.")
    options: dict[str, object] = {
        "served-model-name": BASE,
        "host": "127.0.0.1",
        "port": port,
        "dtype": serving.dtype,
        "max-model-len": serving.longest,
        "max-lora-rank": rank,
        "logprobs-mode": "processed_logprobs",
        "generation-config": "vllm",
    }
    flags = ["--enable-lora", "--disable-uvicorn-access-log"]
    if serving.cuda:
        options["gpu-memory-utilization"] = f"{gpu_memory:.3f}"
        flags.append("--enable-sleep-mode")
    else:
        # On a CPU vLLM 0.32 ends where it reads a part of a prompt whose request has a seed: a generator of the CPU has no offset.
        options["max-num-batched-tokens"] = max(serving.longest, CPU_BATCH_TOKENS)
        flags += ["--enforce-eager", "--no-enable-chunked-prefill"]
    named = [text for name, value in options.items() for text in (f"--{name}", str(value))]
    return [str(program), "serve", str(serving.folder), *named, *flags, *settings.arguments]


def variables(home: Home, serving: Serving, key: str) -> dict[str, str]:
    """The environment of the process: nothing that holds a key of the person's."""
    known = environment(home)
    for name in ("PYTHONPATH", "VIRTUAL_ENV", "CLAWBACK_HOME"):  # of our environment, and not of its own
        known.pop(name, None)
    known |= {name: value for name, value in os.environ.items() if name.startswith(TOLERATED_PREFIXES)}
    known |= {
        "VLLM_ALLOW_RUNTIME_LORA_UPDATING": "1",
        "VLLM_NO_USAGE_STATS": "1",
        "HF_HUB_OFFLINE": "1",
    }
    if serving.cuda:
        known["VLLM_SERVER_DEV_MODE"] = "1"  # without it there are no routes for the sleep
    else:
        known.setdefault("VLLM_CPU_KVCACHE_SPACE", str(serving.cache_gib))
        # It would bind its threads to the cores that it chooses, and leave others idle.
        known.setdefault("VLLM_CPU_OMP_THREADS_BIND", "nobind")
        known["OMP_NUM_THREADS"] = str(serving.threads)
    if key:
        known[KEY] = key
    return known


class VllmProcess:
    """One ``vllm serve`` from its start to its end."""

    def __init__(self, command: Sequence[str], environment: Mapping[str, str], log: Path) -> None:
        log.parent.mkdir(parents=True, exist_ok=True)
        self.log = log
        descriptor = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        try:
            self._leash = subprocess.Popen(
                [sys.executable, "-I", "-S", leash.__file__, *command],
                stdin=subprocess.PIPE,
                stdout=descriptor,
                stderr=descriptor,
                env=dict(environment),
                start_new_session=True,
            )
        finally:
            os.close(descriptor)

    @property
    def group(self) -> int:
        """Number of its session and process group."""
        return self._leash.pid

    @property
    def alive(self) -> bool:
        return self._leash.poll() is None

    @property
    def exit_status(self) -> int | None:
        return self._leash.poll()

    def end(self) -> None:
        """End it and everything that it started. Once is enough, twice does no harm."""
        if self._leash.stdin is not None:
            with suppress(OSError):
                self._leash.stdin.close()
        with suppress(subprocess.TimeoutExpired):
            self._leash.wait(END_SECONDS)
        status = self._leash.poll()
        if status is None or status < 0:  # it could not do its work
            with suppress(ProcessLookupError, PermissionError):
                os.killpg(self.group, signal.SIGKILL)
            self._leash.wait()

    def reason(self) -> str:
        """The last error of the log, in one line."""
        with suppress(OSError):
            with self.log.open("rb") as file:
                file.seek(max(0, self.log.stat().st_size - LAST_BYTES))
                lines = [line.strip() for line in file.read().decode("utf-8", "replace").splitlines()]
            errors = [line for line in lines if "Error" in line and "Traceback" not in line]
            return " ".join((errors or [line for line in lines if line] or [""])[-1].split())[-300:]
        return ""


def free_port() -> int:
    """A port of this machine that nobody listens on now."""
    with socket.socket() as listening:
        listening.bind(("127.0.0.1", 0))
        return int(listening.getsockname()[1])


def fresh_key() -> str:
    return secrets.token_urlsafe(24)
