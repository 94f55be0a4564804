"""A policy whose weights are held by MLX; its interface is that of the torch ``Policy``."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import torch
from torch import nn

from clawback.errors import ModelError, UsageError
from clawback.extensions.mlx import scorer as scoring
from clawback.extensions.mlx.body import MlxBody, take
from clawback.models import ModelInfo
from clawback.policy import DTYPES, Policy
from clawback.sampling import DrawSettings, Sampled, until_speaker
from clawback.scoring import Scorer
from clawback.templates import Pixels


class MlxPolicy(Policy):
    """``model`` is the torch model's shell: the adapter's weights, the LM head, and the shapes of the rest."""

    engine = "mlx"

    def __init__(self, model: nn.Module, tokenizer: object, info: ModelInfo, body: MlxBody) -> None:
        super().__init__(model, tokenizer, info)
        self.body = body

    @property
    def scorer(self) -> Scorer:
        if self._scorer is None:
            self._scorer = scoring.MlxScorer(self.model, self.body, temperature=self.sampling.scale)
        return self._scorer

    def attach(self, *, rank: int, alpha: int, seed: int) -> None:
        super().attach(rank=rank, alpha=alpha, seed=seed)
        self.body.carry(scoring.carriers(self.model))

    def put(self, folder: Path | None) -> None:
        try:
            super().put(folder)
        finally:
            self.body.carry(scoring.carriers(self.model) if self.has_adapter else {})

    def checkpoint_layers(self) -> None:
        """Nothing of a layer is kept for the way back anyway."""

    def sample(
        self,
        prompts: Sequence[Sequence[int]],
        settings: DrawSettings,
        *,
        pixels: Sequence[Pixels | None] | None = None,  # noqa: ARG002  nothing is seen there
        merge: bool = False,  # noqa: ARG002  MLX adds the adapter as it goes
    ) -> list[list[Sampled]]:
        from clawback.extensions.mlx.sampling import sample

        self.body.use(scoring.arrays(self.model))
        groups = sample(self.body, prompts, self.completed(settings))
        speaker = self.speaker_of(settings)
        return [until_speaker(speaker, group) for group in groups]

    def embedding(self, ids: Sequence[int]) -> list[float]:
        row = np.array([list(ids)], dtype=np.int32)
        states = torch.from_numpy(self.body.states(row, np.arange(row.shape[1]), [], on=False))
        unit: list[float] = torch.nn.functional.normalize(states.mean(0), dim=0).tolist()
        return unit


def load(
    base: str,
    *,
    revision: str | None = None,
    adapter: Path | None = None,
    dtype: str = "auto",
    load_in_4bit: bool | None = None,
) -> Policy:
    """See ``clawback.engine.load``."""
    from clawback.models import load_base, look
    from clawback.policy import memory

    if dtype not in DTYPES:
        raise UsageError(f"dtype must be one of {', '.join(DTYPES)}, not {dtype!r}.")
    if load_in_4bit:
        raise UsageError("The MLX engine holds weights in 32 or 16 bits. Leave load_in_4bit out.")
    device = torch.device("cpu")
    found = look(base, revision)
    if found.info.kind == "moe":
        raise ModelError("The MLX engine trains dense models only. Use the torch engine.")
    model, tokenizer, info = load_base(
        found, bits=memory.holds(found.info, device, dtype, False), device=device
    )
    policy = MlxPolicy(model, tokenizer, info, take(model))
    if adapter is not None:
        policy.put(adapter)
    return policy
