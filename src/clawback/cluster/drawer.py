"""The sampler on a worker machine: the same base, the adapter that a unit names, and the random numbers that come with it."""

from __future__ import annotations

import os
import socket
from collections.abc import Mapping
from typing import Any

import torch

from clawback.engine.torch.sampling.generate import Chance
from clawback.engine.types import Sampling

Answers = list[list[tuple[tuple[int, ...], tuple[float, ...], bool]]]


class Drawer:
    """Holds a base and one adapter at a time. The same request gets the same answer: a unit contains everything that decides its answers."""

    def __init__(self, about: dict[str, Any], threads: int) -> None:
        """``about``: from ``parallel.described``. Raises ``ModelError`` where this machine has another model under that name."""
        from clawback.engine.torch.loop.worker import loaded

        torch.set_num_threads(max(1, threads))
        self.policy = loaded(about)
        self.adapter = ""

    def ready(self) -> str:
        return f"{socket.gethostname()}:{os.getpid()}"

    def draw(self, work: Mapping[str, Any], weights: Mapping[str, torch.Tensor] | None) -> dict[str, Any]:
        """Answers to some prompts, and the name of the adapter that they were drawn with ("": the base alone)."""
        policy = self.policy
        policy.sampling = Sampling(**work["sampling"])
        if weights is not None and work["adapter"] != self.adapter:
            self._take(weights)
            self.adapter = work["adapter"]
        chance = Chance(*work["chance"])
        _, samples, tokens = chance.first.shape

        def drawn() -> Answers:
            groups = policy.sample(
                work["prompts"],
                samples=samples,
                max_tokens=tokens,
                seed=chance,
                stop=work["stop"],
                merge=work["merge"],
            )
            return [[(one.ids, one.logprobs, one.finished) for one in group] for group in groups]

        if weights is None:
            with policy.base():
                return {"by": self.ready(), "adapter": "", "answers": drawn()}
        return {"by": self.ready(), "adapter": self.adapter, "answers": drawn()}

    @torch.no_grad()
    def _take(self, weights: Mapping[str, torch.Tensor]) -> None:
        self.adapter = ""  # half of it is none
        own = {name: p for name, p in self.policy.model.named_parameters() if "lora_" in name}
        if own.keys() != weights.keys():
            raise ValueError("an adapter of another shape")
        for name, parameter in own.items():
            parameter.copy_(weights[name])
