"""Loads a policy by torch: how its weights are held, and on which device."""

from __future__ import annotations

from pathlib import Path

import torch

from clawback import devices, paths
from clawback.errors import UsageError
from clawback.models import Vision, load_base, look
from clawback.policy import memory, placement
from clawback.policy.policy import Policy

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
        return Policy(model, tokenizer, info, Vision(found.source, found.options) if found.sees else None)

    either = device is None and where.type != "cpu" and not load_in_4bit
    if either and found.info.total_parameters <= placement.MEASURED:
        key = f"{found.info.base} {found.info.revision} {dtype}"
        cpu = torch.device("cpu")
        policy = placement.quickest(load_on, (where, cpu), key, paths.home().speeds)
    else:
        policy = load_on(where)
    if adapter is not None:
        policy.put(adapter)
    return policy
