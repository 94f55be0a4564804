"""Sharding of the base over the processes of a run, by PyTorch's ``fully_shard`` (FSDP2), for a base that does not fit into one of them.

Each process keeps its part of every layer of the decoder and gathers a layer when it computes it, forward and
backward. Embeddings, LM head and adapter are whole in every process; ``process_group.py`` adds up the adapter's
gradients as always. So an adapter is never in pieces, and nothing has to be put together to save it.

Gathering takes all processes at once. A process without examples for a pass takes part with one token that
counts for nothing (``idle``), and passes that the first process makes on its own (scoring before the first
step, guards) are announced to the others, which do the same.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import torch
import torch.distributed as dist
from torch import nn

from clawback.errors import UsageError

if TYPE_CHECKING:
    from torch.distributed.device_mesh import DeviceMesh

    from clawback.policy import Policy
    from clawback.templates import Encoded


def check(policy: Policy) -> None:
    """Raises ``UsageError`` for what cannot be trained with the base in parts."""
    if policy.device.type != "cpu":
        raise UsageError(
            "--shard has been built and tried on CPUs alone. On a GPU leave it out (each process holds the base), or train elsewhere "
            "(docs/hosted.md)."
        )
    if not policy.scorer.fused_head:
        raise UsageError(
            f"{policy.info.architecture} has an LM head of its own kind, which --shard does not know. Leave --shard out."
        )
    if not list(_layers(policy)):
        raise UsageError(f"{policy.info.architecture} has no layers that could be shared out.")


def shard(policy: Policy) -> None:
    """Keep this process's part of each layer. Collective in what follows, not in itself; the policy can draw no answers afterwards."""
    from torch.distributed.fsdp import fully_shard

    mesh = _mesh()
    whole = {p for name, p in policy.model.named_parameters() if "lora_" in name}
    for layer in _layers(policy):
        fully_shard(layer, mesh=mesh, ignored_params=whole)
    body = _body(policy)
    # Nothing of its own is shared out: it is there so that one layer is gathered while another computes.
    inside = {p for layer in _layers(policy) for p in layer.parameters()}
    fully_shard(body, mesh=mesh, ignored_params=whole | (set(body.parameters()) - inside))


def in_turn(rank: int, world: int, do: Callable[[], None]) -> None:
    """One process after the other: a machine need not hold several whole bases at once."""
    for turn in range(world):
        if turn == rank:
            do()
        dist.barrier()


def announce(policy: Policy, tell: Callable[[], None]) -> None:
    """Call ``tell`` before every pass through the body, from now on."""
    _body(policy).register_forward_pre_hook(lambda *_: tell(), prepend=True)


def idle(policy: Policy, *, backward: bool) -> None:
    """Go along with a pass of the others. Gradients of 0 are added."""
    token = torch.zeros(1, 1, dtype=torch.int64, device=policy.device)
    with torch.set_grad_enabled(backward):
        states = _body(policy)(input_ids=token, use_cache=False)[0]
        if backward:
            (states.sum() * 0.0).backward()


def rounds(policy: Policy, parts: Sequence[Sequence[Encoded]], together: int) -> int:
    """Passes that whoever has most of them needs for its part. Room is made for the longest unit, so that none takes two."""
    scorer = policy.scorer
    longest = max((len(e.prompt) + len(e.response) for part in parts for e in part), default=1)
    scorer.micro_tokens = max(scorer.micro_tokens, together * longest)
    return max(len(scorer.pieces(part, together)) if part else 0 for part in parts)


def held(policy: Policy) -> tuple[int, int]:
    """Values of the base that this process holds, and that there are."""
    from torch.distributed.tensor import DTensor

    own = everything = 0
    for name, p in policy.model.named_parameters():
        if "lora_" in name:
            continue
        everything += p.numel()
        own += p.to_local().numel() if isinstance(p, DTensor) else p.numel()
    return own, everything


def _mesh() -> DeviceMesh:
    from torch.distributed.device_mesh import init_device_mesh

    return init_device_mesh("cpu", (dist.get_world_size(),))


def _body(policy: Policy) -> Any:
    inner: Any = policy.model
    causal = inner.get_base_model() if hasattr(inner, "get_base_model") else inner
    return getattr(causal, causal.base_model_prefix)


def _layers(policy: Policy) -> Sequence[nn.Module]:
    """The decoder's numbered layers."""
    body = _body(policy)
    lists = [part for part in body.modules() if isinstance(part, nn.ModuleList)]
    most = max(lists, key=len, default=None)
    return [] if most is None else list(most)
