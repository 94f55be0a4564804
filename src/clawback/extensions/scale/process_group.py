"""Data parallelism: one step's gradient is computed by several processes; everything else stays in the first one.

The first process owns the run: it samples, plans, steps, guards and writes checkpoints. For each step it
hands out examples and the adapter's weights; every process computes forward and backward passes for its
share; gradients and figures add up in the first (the losses of the parts of a step add up to the loss of the
step, ``rl/batch.py``). Only the adapter and its gradient travel, never the base. Workers keep no state, so
nothing is lost when one dies.

Messages are tensors and plain values in torch's own format, read without running code; the transport is
``gloo``, which has no authentication: across machines, use a private network.
"""

from __future__ import annotations

import dataclasses
import io
import os
import socket
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from datetime import timedelta
from typing import TYPE_CHECKING, Any

import torch
import torch.distributed as dist
from torch import Tensor

from clawback.errors import Interrupted, UsageError
from clawback.extensions.scale import sharding
from clawback.runs.run_options import environment_number, machine_count, machine_number
from clawback.templates import Encoded, Pixels
from clawback.trainer import Shared, TrainingExample, gradients, together

if TYPE_CHECKING:
    from clawback.policy import Policy
    from clawback.rl.algorithms import Algorithm
    from clawback.trainer import Recipe

WAIT = timedelta(minutes=10)
"""For a worker to load the base and do its share."""
PATIENCE = timedelta(days=2)
"""For the first process, which may draw answers for hours. Where it dies, the connection says so at once."""
MOST = 64


@dataclass
class ProcessGroup:
    """The first process's end."""

    world: int
    workers: list[subprocess.Popen[bytes]] = field(default_factory=list)
    broken: bool = False
    """Somebody has gone: nothing more is said to the others."""
    sharded: bool = False
    """The base is in parts (``sharding.py``): every pass takes all processes."""
    sharing: bool = False
    """A step is under way, in which every process knows of every pass."""

    def gradient(
        self,
        policy: Policy,
        algorithm: Algorithm,
        adapter: Sequence[Tensor],
        examples: Sequence[TrainingExample],
        shared: Shared,
    ) -> dict[str, float]:
        """Gradients of the whole step in ``adapter``'s ``grad``, and the step's figures. Raises ``Interrupted`` where a process has died."""
        unit = together(algorithm)
        parts = shares(examples, self.world, unit)
        settings: dict[str, Any] = {
            "do": "step",
            "weights": [weight.detach().cpu() for weight in adapter],
            "algorithm": [algorithm.name, dataclasses.asdict(algorithm)],  # type: ignore[call-overload]
            "shared": [
                shared.samples,
                shared.tokens,
                shared.cover,
                shared.entropy,
                shared.mismatch_kl,
                shared.kl_scale,
            ],
            "parts": [[to_plain(examples[i]) for i in part] for part in parts],
        }
        passes = 0
        if self.sharded:
            passes = sharding.rounds(policy, [[examples[i].encoded for i in p] for p in parts], unit)
            settings |= {"passes": passes, "micro_tokens": policy.scorer.micro_tokens}
        self.sharing = True
        try:
            send(settings)
            figures = backward(policy, algorithm, [examples[i] for i in parts[0]], shared, passes)
            flat = flattened(adapter)
            dist.reduce(flat, 0)
            for number in range(1, self.world):
                for name, value in receive(number).items():
                    figures[name] = figures.get(name, 0.0) + float(value)
        except (RuntimeError, ValueError) as error:
            self.broken = True
            raise Interrupted(
                f"{self.dead() or 'A process of this run failed'} ({str(error).splitlines()[0]})."
            ) from error
        finally:
            self.sharing = False
        unflatten(flat, adapter)
        return figures

    def announce(self) -> None:
        """Before a pass of the first process alone: the others go along with it."""
        if not self.sharing:
            send({"do": "follow"})

    def dead(self) -> str:
        """Which of the workers has ended, in words; "" for none."""
        ended = [i for i, one in enumerate(self.workers, start=1) if one.poll() is not None]
        return f"Process {ended[0] + 1} of {self.world} has ended" if ended else ""


@contextmanager
def group(policy: Policy, recipe: Recipe) -> Iterator[ProcessGroup]:
    """The workers of a run of two processes and more, ended with it. Where the recipe shards the base, it is in parts from here on, and the policy of no
    use afterwards but to be saved. Raises ``Interrupted``, ``UsageError``."""
    count, shard = recipe.conditions.processes, recipe.conditions.shard
    if shard:
        sharding.check(policy)
    if not 1 <= count <= MOST or machine_number() != 0:
        raise UsageError(
            f"--processes is 1 to {MOST}, and the run is begun on the machine whose NODE_RANK is 0."
        )
    world = count * machine_count()
    address = os.environ.get("MASTER_ADDR", "127.0.0.1")
    port = environment_number("MASTER_PORT", 0) or _free_port()
    threads = torch.get_num_threads()
    torch.set_num_threads(max(1, threads // count))
    workers = [_start(rank, world, count, address, port, torch.get_num_threads()) for rank in range(1, count)]
    group = ProcessGroup(world, workers, sharded=shard)
    try:
        try:
            join_group(0, world, address, port)
            send({"do": "begin", "policy": {**description_of(policy, recipe), "sharded": shard}})
            if shard:
                sharding.in_turn(0, world, lambda: sharding.shard(policy))
                sharding.announce(policy, group.announce)
        except RuntimeError as error:
            group.broken = True
            raise Interrupted(
                f"{world} processes did not find each other at {address}:{port}: {group.dead() or str(error).splitlines()[0]}."
            ) from error
        yield group
    finally:
        if group.broken:
            for one in workers:
                one.kill()
        else:
            with suppress(RuntimeError, ValueError):
                send({"do": "end"})
        with suppress(RuntimeError, ValueError):
            dist.destroy_process_group()
        for one in workers:
            _end(one)
        torch.set_num_threads(threads)


def workers_of_a_node(count: int) -> int:
    """All processes of a machine that is not the first, until the run is over. Raises ``UsageError``."""
    machines, place = machine_count(), machine_number()
    address, port = os.environ["MASTER_ADDR"], environment_number("MASTER_PORT", 0)
    threads = max(1, torch.get_num_threads() // count)
    started = [
        _start(place * count + i, machines * count, count, address, port, threads) for i in range(count)
    ]
    try:
        return max(one.wait() for one in started)
    finally:
        for one in started:
            one.kill()


def description_of(policy: Policy, recipe: Recipe) -> dict[str, Any]:
    """What a worker needs to load the same policy."""
    dtype = str(next(policy.model.parameters()).dtype).removeprefix("torch.")
    config: Any = next(iter(policy.model.peft_config.values())) if policy.has_adapter else None  # type: ignore[operator]
    revision = policy.info.revision
    return {
        "base": policy.info.base,
        "revision": None if revision.startswith("sha256:") else revision,
        "identity": sorted(policy.info.names),
        "dtype": dtype if dtype in ("float32", "bfloat16") else "auto",
        "device": policy.device.type,
        "temperature": policy.sampling.scale,
        "rank": int(config.r) if config else recipe.rank,
        "alpha": int(config.lora_alpha) if config else recipe.alpha,
        "micro_tokens": policy.scorer.micro_tokens,
        "checkpointing": bool(policy.model.training),
        "seed": 0,
        "algorithm": recipe.algorithm,
    }


# ------------------------------------------------------------------------------------------------- a step


def shares(examples: Sequence[TrainingExample], count: int, together: int = 1) -> list[list[int]]:
    """Places of the examples for each process: units of ``together`` stay whole, the longest go to whoever has least. In order within each."""
    sizes = [len(e.encoded.prompt) + len(e.encoded.response) for e in examples]
    units = [list(range(i, min(i + together, len(sizes)))) for i in range(0, len(sizes), together)]
    parts: list[list[int]] = [[] for _ in range(count)]
    held = [0] * count
    for unit in sorted(units, key=lambda u: (-sum(sizes[i] for i in u), u)):
        least = min(range(count), key=lambda r: (held[r], r))
        parts[least] += unit
        held[least] += sum(sizes[i] for i in unit)
    return [sorted(part) for part in parts]


def backward(
    policy: Policy, algorithm: Algorithm, examples: Sequence[TrainingExample], shared: Shared, passes: int = 0
) -> dict[str, float]:
    """One process's share: gradients are added to the weights, figures come back. None of them: no figures. ``passes``: how many all make
    where the base is in parts."""
    figures = gradients(policy.scorer, algorithm, examples, shared, every_piece=passes > 0)
    pieces = policy.scorer.pieces([example.encoded for example in examples], together(algorithm))
    for _ in range(passes - len(pieces)):
        sharding.idle(policy, backward=True)
    return figures


def flattened(adapter: Sequence[Tensor]) -> Tensor:
    """[all] float32 on the CPU: the gradients end to end, 0 where there is none."""
    return torch.cat(
        [
            (w.grad if w.grad is not None else torch.zeros_like(w)).detach().float().cpu().flatten()
            for w in adapter
        ]
    )


def unflatten(flat: Tensor, adapter: Sequence[Tensor]) -> None:
    for weight, part in zip(adapter, flat.split([w.numel() for w in adapter]), strict=True):
        weight.grad = part.view_as(weight).to(weight.device, weight.dtype)


# ------------------------------------------------------------------------------------------------- messages


def send(message: Mapping[str, object], to: int | None = None) -> None:
    """To everybody, or to one."""
    file = io.BytesIO()
    torch.save(dict(message), file)
    raw = torch.frombuffer(bytearray(file.getvalue()), dtype=torch.uint8)
    size = torch.tensor([raw.numel()])
    for part in (size, raw):
        if to is None:
            dist.broadcast(part, 0)
        else:
            dist.send(part, to)


def receive(of: int | None = None) -> dict[str, Any]:
    """What the first process sent to everybody, or one sent to us."""
    size = torch.zeros(1, dtype=torch.int64)
    dist.broadcast(size, 0) if of is None else dist.recv(size, of)
    raw = torch.empty(int(size), dtype=torch.uint8)
    dist.broadcast(raw, 0) if of is None else dist.recv(raw, of)
    message = torch.load(io.BytesIO(raw.numpy().tobytes()), weights_only=True)
    if not isinstance(message, dict):
        raise ValueError("a message of another form")
    return message


def to_plain(example: TrainingExample) -> dict[str, Any]:
    """An example as tensors, numbers and lists."""
    plain: dict[str, Any] = {}
    for one in dataclasses.fields(example):
        value = getattr(example, one.name)
        if isinstance(value, Encoded):
            pixels = value.pixels.plain() if value.pixels else []
            value = ["encoded", list(value.prompt), list(value.response), value.thought, pixels]
        elif isinstance(value, tuple):
            value = list(value)
        plain[one.name] = value
    return plain


def from_plain(plain: Mapping[str, Any]) -> TrainingExample:
    """Raises ``TypeError`` or ``ValueError`` for what is none."""
    values = dict(plain)
    for name in ("encoded", "mismatched"):
        if values[name] is not None:
            _, prompt, response, thought, seen = values[name]
            values[name] = Encoded(tuple(prompt), tuple(response), int(thought), Pixels.of(seen))
    if values["teacher_top"] is not None:
        values["teacher_top"] = tuple(values["teacher_top"])
    return TrainingExample(**values)


# ------------------------------------------------------------------------------------------------- processes


def _start(
    rank: int, world: int, count: int, address: str, port: int, threads: int
) -> subprocess.Popen[bytes]:
    variables = {
        "RANK": str(rank),
        "LOCAL_RANK": str(rank % count),
        "WORLD_SIZE": str(world),
        "MASTER_ADDR": address,
        "MASTER_PORT": str(port),
        "OMP_NUM_THREADS": str(threads),
        "OMP_WAIT_POLICY": "PASSIVE",
    }
    return subprocess.Popen(
        [sys.executable, "-m", "clawback.extensions.scale.process_worker"],
        env={**os.environ, **variables},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
    )


def join_group(rank: int, world: int, address: str, port: int) -> None:
    # A proxy or a name service must not decide how processes of one machine find each other.
    if address in ("127.0.0.1", "localhost"):
        os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo" if sys.platform == "linux" else "lo0")
    # Some builds of torch have no libuv (Debian's), and a store of so few processes needs none.
    os.environ.setdefault("USE_LIBUV", "0")
    dist.init_process_group(
        "gloo",
        init_method=f"tcp://{address}:{port}",
        rank=rank,
        world_size=world,
        timeout=PATIENCE if rank else WAIT,
    )


def _end(process: subprocess.Popen[bytes]) -> None:
    try:
        process.wait(20)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


def _free_port() -> int:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return int(listener.getsockname()[1])
