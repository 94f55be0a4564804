"""Episodes drawn over HTTP by what behaves like vLLM, its traps included: names, room, log-probs."""

from __future__ import annotations

import dataclasses
import socket
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
import uvicorn

from clawback import engine
from clawback.engine.torch.models.policy import Policy
from clawback.engine.torch.sampling.conversations import Conversations, Turn
from clawback.engine.types import Sampling
from clawback.environments.collecting import Collector, Dealing
from clawback.environments.rollouts import Play, Rollouts
from clawback.errors import TrainingError
from clawback.hosted.stand_in import vllm_app
from clawback.hosted.types import HostedError
from clawback.hosted.vllm import VllmConversations
from tests.environments.worlds import Worlds

Serve = Callable[..., tuple[vllm_app.Engine, str]]


@pytest.fixture
def serve(other: Policy) -> Iterator[Serve]:
    servers = []

    def begin(**how: Any) -> tuple[vllm_app.Engine, str]:
        made = vllm_app.Engine(other, "the-base", **how)
        listening = socket.socket()
        listening.bind(("127.0.0.1", 0))
        server = uvicorn.Server(uvicorn.Config(vllm_app.make(made), log_level="critical", access_log=False))
        thread = threading.Thread(target=server.run, kwargs={"sockets": [listening]}, daemon=True)
        thread.start()
        while not server.started:
            time.sleep(0.01)
        servers.append((server, thread))
        return made, f"http://127.0.0.1:{listening.getsockname()[1]}"

    yield begin
    for server, thread in servers:
        server.should_exit = True
        thread.join(30)


PLAIN = Sampling()
TURNS = [Turn(i, (5, 9, 40, 41 + i), seed=i, max_tokens=6) for i in range(4)]


def drawer(policy: Policy, url: str, folder: Path, **how: Any) -> VllmConversations:
    return VllmConversations(policy, url, folder, sampling=PLAIN, pause=0.001, timeout=30.0, **how)


def nudge(policy: Policy, seed: int) -> None:
    """Other weights."""
    if not policy.has_adapter:
        policy.attach(rank=2, alpha=4, seed=0)
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for name, p in sorted(policy.model.named_parameters()):
            if "lora_B" in name:
                p.copy_(torch.randn(p.shape, generator=generator) * 0.3)
    policy._scorer = None


def learner(policy: Policy, turns: list[Turn], drawn: list[Any]) -> list[float]:
    """Log-probs of what was drawn under the weights here."""
    from clawback.engine.torch.models.chat import Encoded

    policy.sampling = PLAIN
    with torch.no_grad():
        found = policy.scorer([Encoded(tuple(t.ids), d.ids) for t, d in zip(turns, drawn, strict=True)])
    return found.logprobs.tolist()


def test_each_version_is_drawn_under_its_own_weights_and_name(
    policy: Policy, serve: Serve, tmp_path: Path
) -> None:
    there, url = serve()
    drawing = drawer(policy, url, tmp_path)
    names = []
    for seed in (None, 1, 2, 1):
        if seed is not None:
            nudge(policy, seed)
            drawing.refresh()
        drawn = drawing.draw(TURNS)
        said = [value for one in drawn for value in one.logprobs]
        assert said == pytest.approx(learner(policy, TURNS, drawn), abs=1e-3)
        names.append(there.answered[-1][0])
    assert names[0] == "the-base"
    assert names[1] == names[3] != names[2]  # the same weights have the same name
    assert not there.inplace
    assert drawing.draw(TURNS) == drawing.draw(TURNS)
    assert set(there.known) == {names[3]}  # older ones are unloaded
    drawing.close()
    assert not there.known
    assert not tmp_path.exists()


def test_conversations_with_pictures_are_refused(policy: Policy, serve: Serve, tmp_path: Path) -> None:
    from clawback.engine.torch.models.vision import Pixels
    from clawback.hosted.types import HostedError

    there, url = serve()
    drawing = drawer(policy, url, tmp_path)
    seen = dataclasses.replace(TURNS[0], pixels=Pixels({}, ()))
    with pytest.raises(HostedError, match="have pictures"):
        drawing.draw([TURNS[0], seen])
    assert not there.answered
    drawing.close()


def test_what_was_dropped_to_make_room_is_loaded_again(policy: Policy, serve: Serve, tmp_path: Path) -> None:
    there, url = serve(max_cpu_loras=1)
    nudge(policy, 1)
    drawing = drawer(policy, url, tmp_path / "ours")
    want = drawing.draw(TURNS)
    policy_folder = tmp_path / "somebody"
    policy_folder.mkdir()
    policy.save(policy_folder)
    there.load("somebody-elses", policy_folder, False)
    assert drawing.name not in there.known
    assert drawing.draw(TURNS[:1]) == want[:1]
    assert (drawing.reloads, there.dropped) == (1, 2)


def test_an_older_adapter_is_kept_while_it_is_drawn_under(
    policy: Policy, serve: Serve, tmp_path: Path
) -> None:
    there, url = serve()
    nudge(policy, 1)
    drawing = drawer(policy, url, tmp_path)
    first = drawing._lease()
    nudge(policy, 2)
    drawing.refresh()
    drawing.draw(TURNS[:1])
    assert first in there.known
    drawing._release(first)
    assert first not in there.known


@pytest.mark.parametrize(
    ("how", "says"),
    [({"version": "0.24.0"}, "another adapter"), ({"runtime_updates": False}, "does not load adapters")],
)
def test_a_server_that_cannot_be_trusted_is_refused(
    how: dict[str, Any], says: str, policy: Policy, serve: Serve, tmp_path: Path
) -> None:
    _, url = serve(**how)
    nudge(policy, 1)
    with pytest.raises(HostedError, match=says):
        drawer(policy, url, tmp_path).draw(TURNS)
    with pytest.raises(HostedError):
        drawer(policy, url, tmp_path, model="another")


def train(policy: Policy, url: str, folder: Path, *, temperature: float = 1.0, rounds: int = 2) -> Any:
    """A few rounds of a small game."""
    policy.sampling = Sampling(temperature)
    made = engine.episode_recipe(policy.info, rounds=rounds, max_gap=0.05, round_steps=1)
    drawing = (
        VllmConversations(policy, url, folder / "adapters", sampling=policy.sampling, pause=0.001)
        if url
        else None
    )
    worlds = Worlds()
    with Rollouts(policy, worlds, Play(together=4, max_turns=1, max_tokens=6), drawer=drawing) as rollouts:
        dealing = Dealing(list(worlds.tasks("train")), 0, 4, 1)
        collector = Collector(rollouts, dealing)
        return engine.train_episodes(policy, collector, made, seed=0, out=folder / "run", about={})


def test_a_run_learns_from_episodes_that_were_drawn_there(
    policy: Policy, serve: Serve, tmp_path: Path
) -> None:
    there, url = serve()
    done = train(policy, url, tmp_path)
    assert done.steps == 2
    assert max(row["gap"] for row in done.history) < 1e-3
    drawn_by = [name for name, _ in there.answered]
    assert len(set(drawn_by)) == 2  # the base's round, and that of the first step's adapter
    assert done.metrics["gap"] < 1e-3


def test_log_probs_of_another_temperature_stop_the_run(policy: Policy, serve: Serve, tmp_path: Path) -> None:
    """A vLLM that was started without processed_logprobs says those at temperature 1."""
    _, url = serve(logprobs="raw")
    with pytest.raises(TrainingError, match="sampled policy is not the trained one"):
        train(policy, url, tmp_path, temperature=0.5)


def test_an_adapter_that_is_not_applied_stops_the_run(policy: Policy, serve: Serve, tmp_path: Path) -> None:
    there, url = serve()
    nudge(policy, 5)
    there.policy = Unmoved(there.policy)  # type: ignore[assignment]
    with pytest.raises(TrainingError, match="sampled policy is not the trained one"):
        train(policy, url, tmp_path)


class Unmoved:
    """Says that it put an adapter on."""

    def __init__(self, policy: Policy) -> None:
        self._policy = policy

    def put(self, folder: Path | None) -> None:
        self._policy.put(None)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._policy, name)


def test_with_and_without_the_server_the_log_probs_are_of_one_policy(
    policy: Policy, serve: Serve, tmp_path: Path
) -> None:
    """Greedy answers are the same from either."""
    _, url = serve()
    nudge(policy, 3)
    greedy = Sampling(0.0)
    there = VllmConversations(policy, url, tmp_path, sampling=greedy, pause=0.001).draw(TURNS)
    here = Conversations(policy, sampling=greedy).draw(TURNS)
    assert [one.ids for one in there] == [one.ids for one in here]
