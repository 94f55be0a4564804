"""What every worker machine has: the learner's base, and the adapter that a unit of work names."""

from __future__ import annotations

import os
import socket
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import torch

Weights = Mapping[str, torch.Tensor]


class ModelWorker:
    """Holds a base and one adapter at a time. Subclasses have ``work``: the same request gets the same answer."""

    def __init__(self, about: dict[str, Any], threads: int) -> None:
        """``about``: from ``parallel.description_of``. Raises ``ModelError`` where this machine has another model under that name."""
        from clawback.learning import load_described

        torch.set_num_threads(max(1, threads))
        self.policy = load_described(about)
        self.adapter = ""

    def ready(self) -> str:
        return f"{socket.gethostname()}:{os.getpid()}"

    @contextmanager
    def under(self, name: str, weights: Weights | None) -> Iterator[str]:
        """With that adapter (None: without any): the name of what is really in use."""
        if weights is None:
            with self.policy.base():
                yield ""
            return
        if name != self.adapter:
            self._take(weights)
            self.adapter = name
        yield self.adapter

    @torch.no_grad()
    def _take(self, weights: Weights) -> None:
        self.adapter = ""  # half of it is none
        own = {name: p for name, p in self.policy.model.named_parameters() if "lora_" in name}
        if own.keys() != weights.keys():
            raise ValueError("an adapter of another shape")
        for name, parameter in own.items():
            parameter.copy_(weights[name])
