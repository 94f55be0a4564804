"""Environments that draw from Python's or NumPy's shared generator: each episode gets a state of it of its own, so that its seed decides it."""

from __future__ import annotations

import random
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

_LOCK = threading.RLock()
"""The generators are the process's: one episode at a time may draw."""


class GlobalRandom:
    """The shared generators' state of one episode."""

    def __init__(self) -> None:
        self.used = False
        """Whether anything was drawn."""
        self._states: tuple[Any, Any] | None = None

    def seed(self, seed: int) -> None:
        import numpy

        # Their states, without touching the process's generators.
        self._states = random.Random(seed).getstate(), numpy.random.RandomState(seed % 2**32).get_state()

    @contextmanager
    def scope(self) -> Iterator[None]:
        """What is drawn within comes from this episode's state; afterwards the process's own is back."""
        import numpy

        assert self._states is not None
        with _LOCK:
            outer = random.getstate(), numpy.random.get_state()
            random.setstate(self._states[0])
            numpy.random.set_state(self._states[1])
            try:
                yield
            finally:
                after = random.getstate(), numpy.random.get_state()
                self.used = self.used or _differ(self._states, after)
                self._states = after
                random.setstate(outer[0])
                numpy.random.set_state(outer[1])


def _differ(first: tuple[Any, Any], after: tuple[Any, Any]) -> bool:
    if first[0] != after[0]:
        return True
    return bool(first[1][2] != after[1][2] or (first[1][1] != after[1][1]).any())
