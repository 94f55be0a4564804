"""vLLM draws in place of a run's own process: fresh answers of runs on ratings, replies of episodes."""

from __future__ import annotations

from typing import TYPE_CHECKING

from clawback.jobs.seams import OWN_VLLM

if TYPE_CHECKING:
    from collections.abc import Callable

    from clawback.config import Config
    from clawback.extensions.vllm.vllm_process import Serving
    from clawback.extensions.vllm.vllm_sampler import VllmSampler
    from clawback.extensions.vllm.vllm_server import VllmServer
    from clawback.jobs.seams import Rollout
    from clawback.paths import Home
    from clawback.policy import Policy
    from clawback.progress import OnProgress
    from clawback.rollouts.concurrent import Drawer
    from clawback.trainer import Recipe


def check(draw: str, settings: Config) -> None:
    """Raises ``UsageError`` where there is no vLLM to start, ``HostedError`` where nothing answers at the address."""
    if draw == OWN_VLLM:
        from clawback.extensions.vllm.vllm_process import find

        find(settings.vllm.command)
    else:
        from clawback.extensions.vllm.vllm_conversations import present

        present(draw)


def server(
    home: Home, settings: Config, draw: str, serving: Callable[[], Serving], tell: OnProgress
) -> VllmServer:
    """The server that ``draw`` names. ``serving``: what a server of our own is to hold."""
    from clawback.extensions.vllm.vllm_server import OwnVllm, RemoteVllm

    return RemoteVllm(draw) if draw != OWN_VLLM else OwnVllm(home, settings.vllm, serving(), tell)


def sampler(
    home: Home, settings: Config, policy: Policy, recipe: Recipe, draw: str, tell: OnProgress
) -> VllmSampler:
    """What draws the fresh answers of a run on ratings. Such runs come one at a time: so does the folder."""
    from clawback.extensions.vllm.vllm_process import serving_of
    from clawback.extensions.vllm.vllm_sampler import VllmSampler

    drawing = server(home, settings, draw, lambda: serving_of(policy, recipe.rank), tell)
    return VllmSampler(drawing, home.root / "vllm" / "run", tell)


def drawer(home: Home, settings: Config, rollout: Rollout) -> Drawer:
    """What draws the replies of a run's episodes."""
    from clawback.extensions.vllm.vllm_conversations import VllmConversations
    from clawback.extensions.vllm.vllm_process import serving_of

    policy, wish = rollout.policy, rollout.wish
    rank = rollout.recipe.rank if rollout.recipe is not None else 0
    drawing = server(
        home, settings, wish.draw, lambda: serving_of(policy, rank, wish.reply_tokens), rollout.tell
    )
    return VllmConversations(policy, drawing, home.root / "vllm" / rollout.name, sampling=policy.sampling)
