"""The sampler on a worker machine: answers to prompts, by the random numbers that come with them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from clawback.extensions.cluster.model_worker import ModelWorker, Weights
from clawback.models import Sampling
from clawback.sampling import Chance


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
                samples=samples,
                max_tokens=tokens,
                seed=chance,
                stop=work["stop"],
                merge=work["merge"],
            )
        answers = [[(one.ids, one.logprobs, one.finished) for one in group] for group in groups]
        return {"by": self.ready(), "adapter": adapter, "answers": answers}
