"""What draws the fresh answers of a run and the replies of episodes: the run itself, a vLLM that it starts, or a vLLM elsewhere."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from clawback.config import Config
    from clawback.engine.recipe import Recipe
    from clawback.engine.torch.models.policy import Policy
    from clawback.hosted.vllm_sampler import VllmSampler
    from clawback.hosted.vllm_server import VllmServer
    from clawback.paths import Home
    from clawback.progress import OnProgress

HERE, OWN_VLLM = "here", "vllm"
"""Beside the address of a vLLM, what ``--draw`` and ``[training] draw`` may say: this process, or a vLLM that the run starts."""
DRAW = "draw"
"""Name in a recipe's ``extra`` of what draws the run's fresh answers, where it is not the run itself."""


def chosen(draw: str, settings: Config) -> str:
    """What draws: ``vllm``, an address, or "" for this process. Raises ``UsageError``, and ``HostedError`` where nothing answers at the address."""
    draw = draw or settings.training.draw
    if draw in ("", HERE):
        return ""
    if draw == OWN_VLLM:
        from clawback.hosted.vllm_process import find

        find(settings.vllm.command)
    else:
        from clawback.hosted.vllm import present

        present(draw)
    return draw


def vllm_server(
    home: Home,
    settings: Config,
    policy: Policy,
    draw: str,
    tell: OnProgress,
    *,
    rank: int = 0,
    reply_tokens: int = 0,
) -> VllmServer:
    """What ``chosen`` named. ``rank``, ``reply_tokens``: as ``vllm_process.serving_of`` takes them."""
    from clawback.hosted.vllm_process import serving_of
    from clawback.hosted.vllm_server import OwnVllm, RemoteVllm

    if draw != OWN_VLLM:
        return RemoteVllm(draw)
    return OwnVllm(home, settings.vllm, serving_of(policy, rank, reply_tokens), tell)


def vllm_sampler(
    home: Home, settings: Config, policy: Policy, recipe: Recipe, draw: str, tell: OnProgress
) -> VllmSampler:
    """What draws the fresh answers of a run on ratings, where ``chosen`` named a vLLM. Runs on ratings come one at a time: so does its folder."""
    from clawback.hosted.vllm_sampler import VllmSampler

    server = vllm_server(home, settings, policy, draw, tell, rank=recipe.rank)
    return VllmSampler(server, home.root / "vllm" / "run", tell)
