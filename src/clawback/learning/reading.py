"""What a causal model makes of answers, for reward models: hidden states averaged over the response, and its tokens."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from clawback.features.state_features import Looks
    from clawback.policy import Policy

AT_ONCE = 32
LONGEST_PROMPT = 128
"""Tokens of the prompt that are read: the response is what is graded."""
DEPTH = 2 / 3
"""Of its layers, after which a model is read: what an answer is like is in the middle ones, the next token in the last
(research/benchmarks/2026-11-27-reward-model.md; Skean et al. 2025, "Layer by Layer")."""
SHALLOW = 8
"""Layers under which it is read after the last one: the embedded model is."""


class BaseModelReader:
    """Reads (prompt, response) pairs with the base model of that name, loaded when something is to be read."""

    def __init__(self, base: str, *, revision: str | None = None, max_length: int = 512) -> None:
        self.base, self.revision, self.max_length = base, revision, max_length

    @cached_property
    def identities(self) -> list[str]:
        """What its weights are called, the best name first. Raises ``ModelError`` where there are none."""
        from clawback.models import names_of

        return names_of(self.base, self.revision)

    @property
    def identity(self) -> str:
        """Which weights these are."""
        return self.identities[0]

    @cached_property
    def policy(self) -> Policy:
        from clawback.policy import load

        return load(self.base, revision=self.revision)

    def __call__(self, pairs: Sequence[tuple[str, str]]) -> Looks:
        """States ``[n, hidden]`` and token ids; an answer without tokens has zeros."""
        import numpy as np

        from clawback.features.state_features import Looks, shape

        encode = self.policy.chat.encode
        asked = [
            encode(
                [{"role": "user", "content": prompt}],
                response,
                None,
                limits=(LONGEST_PROMPT, self.max_length),
            )
            for prompt, response in pairs
        ]
        # Batches of like length, so that little is padded.
        order = sorted(range(len(asked)), key=lambda i: len(asked[i].prompt) + len(asked[i].response))
        rows: dict[int, Any] = {}
        for start in range(0, len(order), AT_ONCE):
            chosen = order[start : start + AT_ONCE]
            for i, row in zip(chosen, self._states([asked[i] for i in chosen]), strict=True):
                rows[i] = row
        shapes = np.array([shape(*pair) for pair in pairs])
        return Looks(np.array([rows[i] for i in range(len(asked))]), [one.response for one in asked], shapes)

    def _states(self, batch: Sequence[Any]) -> Any:
        """``[n, hidden]`` float64 of one batch."""
        import torch

        lengths = [len(one.prompt) + len(one.response) for one in batch]
        ids = torch.zeros(len(batch), max(lengths), dtype=torch.long)
        there, answer = torch.zeros_like(ids), torch.zeros(ids.shape)
        for row, one in enumerate(batch):
            ids[row, : lengths[row]] = torch.tensor([*one.prompt, *one.response])
            there[row, : lengths[row]] = 1
            answer[row, len(one.prompt) : lengths[row]] = 1
        device = self.policy.device
        inner: Any = self.policy.model
        with torch.no_grad(), self.policy.base():
            hidden = inner.base_model(
                input_ids=ids.to(device),
                attention_mask=there.to(device),
                output_hidden_states=True,
                use_cache=False,
            ).hidden_states
        layers = len(hidden) - 1  # the first are the embeddings
        layer = hidden[-1 if layers < SHALLOW else round(DEPTH * layers)]
        weights = (answer / answer.sum(1, keepdim=True).clamp(min=1))[:, None]  # [n, 1, time]
        return (weights @ layer.float().cpu())[:, 0].double().numpy()
