"""Episodes and ratings in one run: each optimizer step has a share of both.

Ratings take part as they do in a run of their own (``plan.py``): a reward ensemble is fitted on them, and
grades fresh answers of the policy to the person's own prompts. So both halves of a step are the policy's
current answers, one graded by an environment and one by what the person rated, and neither is unlearned for
the other without a loss of reward. The KL term of the fresh answers has the weight that it has in a run on
ratings (``exact_kl``), but on the sampled tokens instead of the whole vocabulary, because an environment's
replies have a KL term of their own.
"""

from __future__ import annotations

import dataclasses
from typing import Any

import torch
from torch import nn

from clawback.learning.examples import TrainingExample
from clawback.learning.sources.episode_examples import Episodes
from clawback.learning.sources.fresh_answers import RolloutSource


class EpisodesBeside:
    """A source of examples: a round of episodes and a round of graded answers, distributed over the same steps."""

    fresh = True
    critic: nn.Module | None = None

    def __init__(self, episodes: Episodes, rated: RolloutSource, kl: float) -> None:
        """``kl``: the weight that the algorithm gives to the KL of all tokens."""
        self.episodes, self.rated, self.kl = episodes, rated, kl
        self.steps = episodes.steps

    @property
    def figures(self) -> dict[str, float]:
        graded = [one.reward for one in self.rated.round]
        return {**self.episodes.figures, "rated": sum(graded) / max(1, len(graded))}

    def examples(self, step: int) -> list[TrainingExample]:
        played = self.episodes.examples(step)
        return [*played, *map(self._as_episode, self.rated.examples(step))]

    def _as_episode(self, example: TrainingExample) -> TrainingExample:
        """A graded answer in the form of an episode's reply: an advantage for each token, and a KL that is estimated on the tokens."""
        share = self.rated.settings.exact_kl / max(self.kl, 1e-9)
        weight = example.kl_weight if example.kl_weight is not None else torch.ones_like(example.old)
        return dataclasses.replace(
            example,
            base=None,
            kl_weight=weight * share,
            token_advantages=torch.full_like(example.old, example.advantage),
        )

    def state(self) -> dict[str, Any]:
        return {"episodes": self.episodes.state(), "rated": self.rated.state()}

    def restore(self, state: dict[str, Any]) -> None:
        self.episodes.restore(state["episodes"])
        self.rated.restore(state["rated"])
