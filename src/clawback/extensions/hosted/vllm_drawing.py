"""vLLM draws in place of a run's own process: fresh answers of runs on ratings, replies of episodes."""

from __future__ import annotations

from typing import TYPE_CHECKING

from clawback.jobs.drawing_engine import OWN_VLLM

if TYPE_CHECKING:
    from clawback.config import Config
    from clawback.environments.rollouts import Drawer
    from clawback.extensions.hosted.vllm_sampler import VllmSampler
    from clawback.extensions.hosted.vllm_server import VllmServer
    from clawback.jobs.drawing import Wish
    from clawback.learning import Recipe
    from clawback.paths import Home
    from clawback.policy import Policy
    from clawback.progress import OnProgress


def check(draw: str, settings: Config) -> None:
    """Raises ``UsageError`` where there is no vLLM to start, ``HostedError`` where nothing answers at the address."""
    if draw == OWN_VLLM:
        from clawback.extensions.hosted.vllm_process import find

        find(settings.vllm.command)
    else:
        from clawback.extensions.hosted.vllm_conversations import present

        present(draw)


def server(
    home: Home,
    settings: Config,
    policy: Policy,
    draw: str,
    tell: OnProgress,
    *,
    rank: int = 0,
    reply_tokens: int = 0,
) -> VllmServer:
    """The server that ``draw`` names. ``rank``, ``reply_tokens``: as ``vllm_process.serving_of`` takes them."""
    from clawback.extensions.hosted.vllm_process import serving_of
    from clawback.extensions.hosted.vllm_server import OwnVllm, RemoteVllm

    if draw != OWN_VLLM:
        return RemoteVllm(draw)
    return OwnVllm(home, settings.vllm, serving_of(policy, rank, reply_tokens), tell)


def sampler(
    home: Home, settings: Config, policy: Policy, recipe: Recipe, draw: str, tell: OnProgress
) -> VllmSampler:
    """What draws the fresh answers of a run on ratings. Such runs come one at a time: so does the folder."""
    from clawback.extensions.hosted.vllm_sampler import VllmSampler

    drawing = server(home, settings, policy, draw, tell, rank=recipe.rank)
    return VllmSampler(drawing, home.root / "vllm" / "run", tell)


def drawer(
    home: Home, settings: Config, policy: Policy, wish: Wish, name: str, tell: OnProgress, rank: int
) -> Drawer:
    """What draws the replies of a run's episodes."""
    from clawback.extensions.hosted.vllm_conversations import VllmConversations

    drawing = server(home, settings, policy, wish.draw, tell, rank=rank, reply_tokens=wish.reply_tokens)
    return VllmConversations(policy, drawing, home.root / "vllm" / name, sampling=policy.sampling)
