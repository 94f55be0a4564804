"""What draws the fresh answers of a run and the replies of episodes: the run itself, a vLLM that it starts, or a vLLM elsewhere."""

from __future__ import annotations

from typing import TYPE_CHECKING

from clawback.jobs import seams

if TYPE_CHECKING:
    from clawback.config import Config
    from clawback.jobs.seams import ServedSampler
    from clawback.learning import Recipe
    from clawback.paths import Home
    from clawback.policy import Policy
    from clawback.progress import OnProgress

HERE, OWN_VLLM = "here", "vllm"
"""Beside the address of a vLLM, what ``--draw`` and ``[training] draw`` may say: this process, or a vLLM that the run starts."""


def chosen(draw: str, settings: Config) -> str:
    """What draws: ``vllm``, an address, or "" for this process. Raises ``UsageError``, and ``HostedError`` where nothing answers at the address."""
    draw = draw or settings.training.draw
    if draw in ("", HERE):
        return ""
    seams.vllm().check(draw, settings)
    return draw


def vllm_sampler(
    home: Home, settings: Config, policy: Policy, recipe: Recipe, draw: str, tell: OnProgress
) -> ServedSampler:
    """What draws the fresh answers of a run on ratings, where ``chosen`` named a vLLM."""
    return seams.vllm().sampler(home, settings, policy, recipe, draw, tell)
