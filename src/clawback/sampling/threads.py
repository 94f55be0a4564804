"""Runs short computations on one thread, where waking a second one would take longer than the work."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch


@contextmanager
def alone(brief: bool = True) -> Iterator[None]:
    """The calling thread's products and loops are its own, where ``brief``."""
    before = torch.get_num_threads()
    if not brief or before == 1:
        yield
        return
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)
