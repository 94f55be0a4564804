"""``python -m clawback.extensions.scale.process_worker``: a further process of a run, started by the first (``process_group.py``)."""

from __future__ import annotations

import os
import sys
from typing import Any

import torch
import torch.distributed as dist

from clawback.errors import ClawbackError, ModelError
from clawback.extensions.scale import process_group, sharding
from clawback.models import Sampling
from clawback.policy import Policy, load
from clawback.rl import algorithms
from clawback.trainer import Shared


def main() -> int:
    """Serve gradients until the first process says that it is over, or is gone."""
    rank, world = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    torch.set_num_threads(int(os.environ.get("OMP_NUM_THREADS", "1")))
    process_group.join_group(rank, world, os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"]))
    policy: Policy | None = None
    while True:
        try:
            told = process_group.receive()
        except (RuntimeError, ValueError):
            return 1  # the first process is gone, and with it the run
        if told["do"] == "end":
            dist.destroy_process_group()
            return 0
        if told["do"] == "begin":
            policy = begun(told["policy"], rank, world)
        elif told["do"] == "follow" and policy is not None:
            sharding.idle(policy, backward=False)
        elif policy is not None:
            step(policy, told, rank)


def begun(about: dict[str, Any], rank: int, world: int) -> Policy:
    """The policy of this process; its part of it where the base is shared out."""
    if not about["sharded"]:
        return load_described(about)
    held: list[Policy] = []

    def load_and_shard() -> None:
        held.append(load_described(about))
        sharding.shard(held[0])

    sharding.in_turn(rank, world, load_and_shard)
    return held[0]


def load_described(about: dict[str, Any]) -> Policy:
    """The first process's policy, as it described it. Raises ``ModelError`` where this machine has another under that name."""
    if about["device"] == "cuda":
        torch.cuda.set_device(int(os.environ.get("LOCAL_RANK", "0")))
    policy = load(about["base"], revision=about["revision"], dtype=about["dtype"], device=about["device"])
    if not policy.info.names & set(about["identity"]):
        raise ModelError(f"{about['base']} differs from the model on the machine where the run was begun.")
    policy.sampling = Sampling(about["temperature"])
    policy.attach(rank=about["rank"], alpha=about["alpha"], seed=about["seed"])
    if about["checkpointing"]:
        policy.checkpoint_layers()
    policy.scorer.micro_tokens = about["micro_tokens"]
    return policy


def step(policy: Policy, message: dict[str, Any], rank: int) -> None:
    """This process's share of one step."""
    adapter = [p for _, p in sorted((n, p) for n, p in policy.model.named_parameters() if p.requires_grad)]
    with torch.no_grad():
        for weight, value in zip(adapter, message["weights"], strict=True):
            weight.copy_(value)
            weight.grad = None
    samples, tokens, cover, entropy, mismatch, scale = message["shared"]
    shared = Shared(samples, tokens, cover, entropy, None, mismatch, scale)
    name, settings = message["algorithm"]
    examples = [process_group.from_plain(plain) for plain in message["parts"][rank]]
    passes = int(message.get("passes", 0))
    policy.scorer.micro_tokens = int(message.get("micro_tokens", policy.scorer.micro_tokens))
    figures = process_group.backward(policy, algorithm_of(name, settings), examples, shared, passes)
    dist.reduce(process_group.flattened(adapter), 0)
    process_group.send(figures, to=0)


def algorithm_of(name: str, settings: dict[str, Any]) -> Any:
    """The algorithm as the first process has it; ``rpo`` is one that no recipe names."""
    if name == "rpo":
        from clawback.rl.algorithms.rpo import Rpo

        return Rpo(**settings)
    return algorithms.find(name)(**settings)


if __name__ == "__main__":
    try:
        code = main()
    except ClawbackError as error:
        print(f"clawback: {error}", file=sys.stderr)
        code = 1
    sys.stderr.flush()
    os._exit(code)  # gloo's threads may outlive the interpreter's end, which then aborts
