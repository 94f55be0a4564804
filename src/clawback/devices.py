"""Where a model runs: which devices there are, how much memory is free on them, and which products a CPU computes fast."""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING

from clawback.errors import UsageError

if TYPE_CHECKING:
    import torch

KINDS = ("cuda", "mps", "cpu")
"""Best first."""
_BFLOAT16 = ("avx512_bf16", "amx_bf16", "bf16", "sve_bf16")
"""Names of the instructions, as PyTorch reports them."""


def choose(name: str | None = None) -> torch.device:
    """The device of this name; None takes the best there is: CUDA, an Apple GPU (``mps``), the CPU.

    Raises ``UsageError`` for a name that PyTorch does not know or a device that is not there.
    """
    import torch

    if name is None:
        return torch.device(next(kind for kind in KINDS if there(kind)))
    try:
        device = torch.device(name)
    except RuntimeError as error:
        raise UsageError(f"device must be one of {', '.join(KINDS)}, not {name!r}.") from error
    if device.type in KINDS and not there(device.type):
        raise UsageError(
            f"There is no device {name} that PyTorch can use here. Leave device out to take the best."
        )
    return device


def there(kind: str) -> bool:
    """Whether PyTorch can compute on this kind of device here."""
    import torch

    if kind == "cuda":
        return torch.cuda.is_available()
    if kind == "mps":
        return torch.backends.mps.is_available()
    return kind == "cpu"


def free_bytes(device: torch.device) -> int:
    """Memory that a new model could take on a device."""
    import psutil

    available = int(psutil.virtual_memory().available)
    if device.type == "cuda":
        import torch

        cached = torch.cuda.memory_reserved(device) - torch.cuda.memory_allocated(device)
        return int(torch.cuda.mem_get_info(device)[0]) + cached
    if device.type == "mps":  # shared with everything else that runs
        import torch

        return min(available, torch.mps.recommended_max_memory() - torch.mps.driver_allocated_memory())
    return available


def total_bytes(device: torch.device) -> int:
    """Memory that a device has in all."""
    import psutil

    if device.type == "cuda":
        import torch

        return int(torch.cuda.get_device_properties(device).total_memory)
    return int(psutil.virtual_memory().total)


def peak_bytes(device: torch.device) -> int:
    """The most memory that this process has held at once: on the device, or at all where that is the CPU. On ``mps``: what it holds now."""
    import torch

    if device.type == "cuda":
        return int(torch.cuda.max_memory_allocated(device))
    if device.type == "mps":
        return int(torch.mps.driver_allocated_memory())
    import resource
    import sys

    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (1 if sys.platform == "darwin" else 1024)


def wait(device: torch.device) -> None:
    """Until the device has done what it was given: for measurements."""
    import torch

    if device.type == "cuda":
        torch.cuda.synchronize(device)
    elif device.type == "mps":
        torch.mps.synchronize()


@cache
def multiplies_bfloat16() -> bool:
    """Whether this CPU has instructions for bfloat16 products. Without them every product converts, and float32 is faster."""
    import torch

    found = torch.cpu.get_capabilities() if hasattr(torch.cpu, "get_capabilities") else {}
    return any(found.get(name) for name in _BFLOAT16)


@cache
def has_bitsandbytes() -> bool:
    """Whether weights can be held in 8 and 4 bits on CUDA (the extra ``cuda``)."""
    from importlib.util import find_spec

    return find_spec("bitsandbytes") is not None
