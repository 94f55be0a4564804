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
from clawback.errors import TrainingError
from clawback.extensions.hosted.trainer_records import HostedError
from clawback.extensions.vllm.vllm_conversations import VllmConversations
from clawback.extensions.vllm.vllm_server import STARTS, RemoteVllm, VllmEnded
from clawback.models.types import Sampling
from clawback.policy.policy import Policy
from clawback.rollouts.concurrent import Play, Rollouts
from clawback.rollouts.rounds import Collector, Dealing
from clawback.sampling.conversations import TurnRequest
from clawback.trainer import TrainingRun
from tests.environments.worlds import Worlds
from tests.vllm import vllm_imitation

Serve = Callable[..., tuple[vllm_imitation.Engine, str]]


@pytest.fixture
def serve(other: Policy) -> Iterator[Serve]:
    servers = []

    def begin(**how: Any) -> tuple[vllm_imitation.Engine, str]:
        made = vllm_imitation.Engine(other, "the-base", **how)
        listening = socket.socket()
        listening.bind(("127.0.0.1", 0))
        server = uvicorn.Server(
            uvicorn.Config(vllm_imitation.make(made), log_level="critical", access_log=False)
        )
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
TURNS = [TurnRequest(i, (5, 9, 40, 41 + i), seed=i, max_tokens=6) for i in range(4)]


def drawer(policy: Policy, url: str, folder: Path, **how: Any) -> VllmConversations:
    server = RemoteVllm(url, timeout=30.0, pause=0.001)
    return VllmConversations(policy, server, folder, sampling=PLAIN, **how)


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


def learner(policy: Policy, turns: list[TurnRequest], drawn: list[Any]) -> list[float]:
    """Log-probs of what was drawn under the weights here."""
    from clawback.templates.chat_tokens import Encoded

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
    assert drawing.draw(TURNS) == drawing.draw(TURNS)
    assert set(there.known) == {names[3]}  # older ones are unloaded
    drawing.close()
    assert not there.known
    assert not tmp_path.exists()


def test_conversations_with_pictures_are_refused(policy: Policy, serve: Serve, tmp_path: Path) -> None:
    from clawback.extensions.hosted.trainer_records import HostedError
    from clawback.templates.vision import Pixels

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
    there.load("somebody-elses", policy_folder)
    assert drawing.name not in there.known
    assert drawing.draw(TURNS[:1]) == want[:1]
    assert (drawing.reloads, there.dropped) == (1, 2)


def test_requests_that_find_no_adapter_at_once_load_it_once(
    policy: Policy, serve: Serve, tmp_path: Path
) -> None:
    """Each that unloaded it to load it again would take it away from the others."""
    there, url = serve()
    nudge(policy, 1)
    drawing = drawer(policy, url, tmp_path)
    want = drawing.draw(TURNS)
    there.unload(drawing.name)
    assert drawing.draw(TURNS) == want
    assert drawing.reloads == 1


def test_an_older_adapter_is_kept_while_it_is_drawn_under(
    policy: Policy, serve: Serve, tmp_path: Path
) -> None:
    there, url = serve()
    nudge(policy, 1)
    drawing = drawer(policy, url, tmp_path)
    wire = drawing.server.connect()
    first = drawing._lease(wire)
    nudge(policy, 2)
    drawing.refresh()
    drawing.draw(TURNS[:1])
    assert first in there.known
    drawing._release(wire, first)
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
        VllmConversations(policy, RemoteVllm(url, pause=0.001), folder / "adapters", sampling=policy.sampling)
        if url
        else None
    )
    worlds = Worlds()
    with Rollouts(policy, worlds, Play(together=4, max_turns=1, max_tokens=6), drawer=drawing) as rollouts:
        dealing = Dealing(list(worlds.tasks("train")), 0, 4, 1)
        collector = Collector(rollouts, dealing)
        return engine.train_episodes(TrainingRun(policy, (), made, out=folder / "run"), collector, about={})


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


def test_a_server_that_was_started_again_gets_the_adapter_again(
    policy: Policy, serve: Serve, tmp_path: Path
) -> None:
    """A vLLM of the run itself that ends in the midst of a draw: the same answers come from the next one."""
    first, second = serve(), serve()

    class Restarting(RemoteVllm):
        shared = False

        def __init__(self) -> None:
            super().__init__(first[1])
            self.rested = 0

        def connect(self) -> Any:
            return self.wire

        def fail_once(self, *_: Any) -> Any:
            self.wire = RemoteVllm(second[1]).wire
            raise VllmEnded("vLLM ended while the run used it.")

        def rest(self) -> None:
            self.rested += 1

    nudge(policy, 1)
    server = Restarting()
    drawing = VllmConversations(policy, server, tmp_path, sampling=PLAIN)
    want = drawing.draw(TURNS)
    server.wire.post = server.fail_once  # type: ignore[method-assign]
    assert drawing.draw(TURNS) == want
    assert list(second[0].known) == [drawing.name] == list(first[0].known)
    drawing.rest()
    assert server.rested == 1
    drawing.close()


def test_one_that_ends_again_and_again_ends_the_run(policy: Policy, serve: Serve, tmp_path: Path) -> None:
    class Ending(RemoteVllm):
        connected = 0

        def connect(self) -> Any:
            self.connected += 1
            return super().connect()

    def ended(*_: Any) -> Any:
        raise VllmEnded("vLLM ended while the run used it.")

    server = Ending(serve()[1])
    drawing = VllmConversations(policy, server, tmp_path, sampling=PLAIN)
    server.wire.post = ended  # type: ignore[method-assign]
    with pytest.raises(VllmEnded):
        drawing.draw(TURNS)
    assert server.connected == 1 + STARTS
