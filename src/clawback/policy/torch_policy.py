"""Loads a policy by torch: how its weights are held, and on which device.

A large model is bound by arithmetic, and an accelerator is always faster. A model of a few million parameters is bound by
starting kernels: a GPU then waits for Python, and two cores of a CPU may be faster. So the device of a small model is measured once and kept.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from pathlib import Path

import torch

from clawback import devices, paths
from clawback.errors import UsageError
from clawback.models import load_base, look
from clawback.policy import memory, throughput
from clawback.policy.policy import Policy
from clawback.policy.throughput import Speed

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


DTYPES = ("auto", "float32", "bfloat16")


def load(
    base: str,
    *,
    revision: str | None = None,
    adapter: Path | None = None,
    dtype: str = "auto",
    load_in_4bit: bool | None = None,
    device: str | None = None,
) -> Policy:
    """See ``clawback.policy.load``. Raises what that says."""
    if dtype not in DTYPES:
        raise UsageError(f"dtype must be one of {', '.join(DTYPES)}, not {dtype!r}.")
    where = devices.choose(device)
    found = look(base, revision)

    def load_on(where: torch.device) -> Policy:
        bits = memory.holds(found.info, where, dtype, load_in_4bit)
        model, tokenizer, info = load_base(found, bits=bits, device=where)
        if not found.sees:
            return Policy(model, tokenizer, info)
        from clawback.templates import Vision

        return Policy(model, tokenizer, info, Vision(found.source, found.options))

    either = device is None and where.type != "cpu" and not load_in_4bit
    if either and found.info.total_parameters <= MEASURED:
        key = f"{found.info.base} {found.info.revision} {dtype}"
        cpu = torch.device("cpu")
        policy = quickest(load_on, (where, cpu), key, paths.home().speeds)
    else:
        policy = load_on(where)
    if adapter is not None:
        policy.put(adapter)
    return policy
