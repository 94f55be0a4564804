"""What every worker machine has: the learner's base, and the adapter that a unit of work names."""

from __future__ import annotations

import os
import socket
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import torch

from clawback.models import Sampling
from clawback.sampling import Chance, DrawSettings

Weights = Mapping[str, torch.Tensor]


class ModelWorker:
    """Holds a base and one adapter at a time. Subclasses have ``work``: the same request gets the same answer."""

    def __init__(self, about: dict[str, Any], threads: int) -> None:
        """``about``: from ``process_group.description_of``. Raises ``ModelError`` where this machine has another model under that name."""
        from clawback.extensions.scale.process_worker import load_described

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


class DrawingWorker(ModelWorker):
    """A unit contains everything that decides its answers."""

    def work(self, work: Mapping[str, Any], weights: Weights | None) -> dict[str, Any]:
        """Answers to some prompts, and the name of the adapter that they were drawn with ("": the base alone)."""
        self.policy.sampling = Sampling(**work["sampling"])
        chance = Chance(*work["chance"])
        _, samples, tokens = chance.first.shape
        with self.under(work["adapter"], weights) as adapter:
            groups = self.policy.sample(
                work["prompts"],
                DrawSettings(samples=samples, max_tokens=tokens, seed=chance, stop=work["stop"]),
                merge=work["merge"],
            )
        answers = [[(one.ids, one.logprobs, one.finished) for one in group] for group in groups]
        return {"by": self.ready(), "adapter": adapter, "answers": answers}
