"""On which device a small model computes: the one on which it is faster here, measured once and kept.

A large model is bound by arithmetic, and an accelerator is always faster. A model of a few million parameters is bound by
starting kernels: a GPU then waits for Python, and two cores of a CPU may be faster.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from clawback.engine import throughput
from clawback.engine.throughput import Speed

if TYPE_CHECKING:
    import torch

    from clawback.engine.torch.models.policy import Policy

log = logging.getLogger("clawback.engine")

MEASURED = 300_000_000
"""Parameters up to which it is measured; larger models go to the accelerator."""
_LIMIT = 10.0
"""Seconds that it may take on each device."""
_PROMPT = tuple(range(1, 17))


def quickest(
    load_on: Callable[[torch.device], Policy], devices: Sequence[torch.device], key: str, file: Path | None
) -> Policy:
    """The model on the fastest of the devices.

    Args:
        load_on: loads it.
        devices: the first is taken where all are equally fast, the last where nothing can be computed on the others.
        key: the model's name in ``file``, where the choice is kept.
    """
    names = ", ".join(map(throughput.device_name, devices))
    key = f"{key}: where it computes, {names}"
    before = throughput.stored_figures(file, key)
    known = next((one for one in devices if one.type == before.get("device")), None)
    if known is not None:
        policy = load_on(known)
        policy.placement = str(before.get("why", ""))
        return policy
    best: tuple[float, Policy] | None = None
    rates: dict[str, float] = {}
    for device in devices:
        try:
            policy = load_on(device)
            rate = tokens_per_second(throughput.measure(policy, [_PROMPT], limit=_LIMIT))
        except RuntimeError as error:
            if device == devices[-1]:
                raise
            log.warning("The model cannot be used on %s here (%s).", device.type, str(error).splitlines()[0])
            continue
        rates[device.type] = rate
        if best is None or rate > best[0]:
            best = (rate, policy)
    assert best is not None
    policy = best[1]
    policy.placement = reason(policy.device.type, rates)
    throughput.keep(
        file, key, {"device": policy.device.type, "why": policy.placement, "tokens_per_second": rates}
    )
    return policy


def tokens_per_second(speed: Speed) -> float:
    """Of a run, which draws and trains on about as many tokens, and reads twice as many."""
    return 4 / (1 / speed.draw + 2 / speed.read + 1 / speed.train)


def reason(chosen: str, rates: dict[str, float]) -> str:
    """Why the model is there, for whoever reads the estimate."""
    others = [f"{rate:,.0f} on {kind}" for kind, rate in rates.items() if kind != chosen]
    if not others:
        return ""
    return f"measured: {rates[chosen]:,.0f} tokens/s, {', '.join(others)}"
