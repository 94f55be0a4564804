"""A real vLLM on SmolLM2-135M-Instruct, started and ended by our own code: `make test-vllm` (some minutes on two cores).

vLLM on a CPU draws some ten tokens a second, so that all here is small: what is shown is that it is used rightly.
"""

from __future__ import annotations

import dataclasses
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, ClassVar

import psutil
import pytest
import torch

from clawback import engine, feedback, store
from clawback.config import VllmSection
from clawback.extensions.hosted.trainer_records import Forgotten
from clawback.extensions.publishers.vllm import Vllm as VllmPublisher
from clawback.extensions.vllm.vllm_conversations import VllmConversations
from clawback.extensions.vllm.vllm_process import serving_of
from clawback.extensions.vllm.vllm_server import OwnVllm
from clawback.models.loading import resolve
from clawback.models.types import GREEDY, Sampling
from clawback.paths import Home
from clawback.policy.policy import Policy
from clawback.processes import is_alive
from clawback.records import Run
from clawback.records import Turn as RatedTurn
from clawback.release.publishers import Publication, Target, probe
from clawback.sampling.batched_sampler import Sampled
from clawback.sampling.conversations import Conversations, TurnRequest
from clawback.templates.chat_tokens import Encoded

COMMAND = os.environ.get("CLAWBACK_VLLM", "")
pytestmark = [
    pytest.mark.vllm,
    pytest.mark.skipif(not COMMAND, reason="needs a real vLLM, in an environment of its own: make test-vllm"),
]
MEAN_GAP, LARGEST_GAP = 1e-3, 0.02
"""Nats a token between log-probs of vLLM and the learner's, both in float32."""
QUESTIONS = (
    "What is a good way to learn to swim?",
    "Why is the sky blue?",
    "How do I keep bread fresh?",
    "What should I know about Vienna?",
)


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """SmolLM2's converted folder."""
    if os.environ.get("CLAWBACK_VLLM_BASE"):
        return Path(os.environ["CLAWBACK_VLLM_BASE"])
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("CLAWBACK_HOME", str(tmp_path_factory.mktemp("models")))
        return Path(resolve("smollm2")[0])


@pytest.fixture(scope="module")
def policy(base: Path) -> Policy:
    """The same with an adapter."""
    policy = engine.load(str(base), dtype="float32", device="cpu")
    policy.attach(rank=8, alpha=16, seed=0)
    return policy


@pytest.fixture(scope="module")
def server(policy: Policy, tmp_path_factory: pytest.TempPathFactory) -> Iterator[OwnVllm]:
    """One vLLM for all tests that leave it as it was."""
    serving = dataclasses.replace(serving_of(policy, 8), longest=512)
    server = OwnVllm(Home(tmp_path_factory.mktemp("vllm")), VllmSection(command=COMMAND), serving, key="")
    server.connect()
    processes = processes_of(server)
    yield server
    server.close()
    assert not living(processes)


@pytest.fixture
def client(
    policy: Policy, server: OwnVllm, tmp_path: Path
) -> Iterator[Callable[[Sampling], VllmConversations]]:
    """Makes clients that leave the server running."""
    clients: list[VllmConversations] = []

    def make(sampling: Sampling) -> VllmConversations:
        policy.sampling = sampling
        clients.append(VllmConversations(policy, server, tmp_path / str(len(clients)), sampling=sampling))
        return clients[-1]

    yield make
    for one in clients:
        one.refresh()
        one._unload(server.connect())


def processes_of(server: OwnVllm) -> list[psutil.Process]:
    assert server.process is not None
    leash = psutil.Process(server.process.group)
    return [leash, *leash.children(recursive=True)]


def living(processes: Sequence[psutil.Process]) -> list[psutil.Process]:
    """Without those that have ended and were not waited for."""
    return [one for one in processes if one.is_running() and is_alive(one.pid)]


def change(policy: Policy, seed: int, scale: float = 0.02) -> None:
    """Other weights of the adapter; 0: none that do anything."""
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for name, weights in sorted(policy.model.named_parameters()):
            if "lora_B" in name:
                weights.copy_(torch.randn(weights.shape, generator=generator) * (scale if seed else 0.0))
    policy._scorer = None


def turns(policy: Policy, tokens: int, count: int = len(QUESTIONS)) -> list[TurnRequest]:
    asked = [({"role": "user", "content": question},) for question in QUESTIONS[:count]]
    return [TurnRequest(i, policy.chat.prompt(messages, 256), i, tokens) for i, messages in enumerate(asked)]


def gaps(policy: Policy, prompts: Sequence[TurnRequest], answers: Sequence[Sampled]) -> torch.Tensor:
    """Distance of each token's log-prob from the learner's."""
    encoded = [Encoded(tuple(one.ids), answer.ids) for one, answer in zip(prompts, answers, strict=True)]
    with torch.no_grad():
        values = policy.scorer(encoded).logprobs
    return (values - torch.tensor([value for answer in answers for value in answer.logprobs])).abs()


def loaded(client: VllmConversations) -> set[str]:
    rows = client.server.connect().get("/v1/models").json()["data"]
    return {str(row["id"]) for row in rows if row.get("parent")}


def test_log_probs_are_those_of_the_learner_and_answers_follow_each_adapter(
    policy: Policy, client: Callable[[Sampling], VllmConversations], capsys: pytest.CaptureFixture[str]
) -> None:
    """Loaded, swapped, unloaded; and again the same for the same weights."""
    there = client(Sampling(0.8))
    prompts, drawn, names = turns(policy, 24), {}, {}
    for round_, seed in enumerate((0, 1, 2, 1)):
        change(policy, seed)
        there.refresh()
        drawn[round_] = there.draw(prompts)
        names[round_] = there.name
        found = gaps(policy, prompts, drawn[round_])
        with capsys.disabled():
            kind = f"adapter {seed}" if seed else "base"
            print(
                f"\n{kind}: {len(found)} tokens, gap {found.mean():.1e} on average, {found.max():.1e} at most"
            )
        assert float(found.mean()) < MEAN_GAP
        assert float(found.max()) < LARGEST_GAP
        assert loaded(there) == {there.name} - {there.base}
    assert names[0] == there.base
    assert names[1] == names[3] != names[2]
    texts = [[one.ids for one in answers] for answers in drawn.values()]
    assert texts[0] != texts[1] != texts[2]


def test_log_probs_of_a_truncated_distribution_are_those_of_what_is_left_of_it(
    policy: Policy, client: Callable[[Sampling], VllmConversations]
) -> None:
    change(policy, 1)
    there = client(Sampling(0.7, top_p=0.8))
    prompts = turns(policy, 12, 2)
    answers = there.draw(prompts)
    encoded = [Encoded(tuple(one.ids), answer.ids) for one, answer in zip(prompts, answers, strict=True)]
    with torch.no_grad():
        whole = policy.scorer(encoded).logprobs
    left = torch.tensor([value for answer in answers for value in answer.logprobs])
    assert bool((left > whole - LARGEST_GAP).all())
    assert float((left - whole).max()) > 0.05


def test_greedy_answers_are_those_of_our_own_engine(
    policy: Policy, client: Callable[[Sampling], VllmConversations]
) -> None:
    change(policy, 2)
    prompts = turns(policy, 16, 2)
    there = client(GREEDY).draw(prompts)
    here = Conversations(policy, sampling=GREEDY).draw(prompts)
    assert [one.ids for one in there] == [one.ids for one in here]


def test_an_adapter_that_it_does_not_know_is_answered_with_404_and_loaded_again(
    policy: Policy, client: Callable[[Sampling], VllmConversations]
) -> None:
    change(policy, 1)
    there = client(GREEDY)
    prompts = turns(policy, 8, 2)
    answers = there.draw(prompts)
    wire = there.server.connect()
    wire.post("/v1/unload_lora_adapter", {"lora_name": there.name})
    with pytest.raises(Forgotten, match="does not exist"):
        wire.post("/v1/completions", {"model": there.name, "prompt": [1, 2], "max_tokens": 1})
    again = there.draw(prompts)
    assert [one.ids for one in again] == [one.ids for one in answers]
    # Which requests share a batch follows from when they come in, and the last bits of a log-prob from that.
    for one, other in zip(again, answers, strict=True):
        assert one.logprobs == pytest.approx(other.logprobs, abs=MEAN_GAP)
    assert there.reloads == 1


def test_a_version_is_published_and_answers_as_itself(
    policy: Policy, server: OwnVllm, tmp_path: Path
) -> None:
    change(policy, 1)
    policy.sampling = GREEDY
    folder = tmp_path / "0003"
    folder.mkdir()
    policy.save(folder)
    wire = server.connect()
    info = policy.info
    publication = Publication(3, folder, info.base, info.revision, probe(policy), policy.config)
    publisher = VllmPublisher(Target("vllm", url=wire.url))
    publisher.publish(publication)
    assert "answers as the new version does" in publisher.verify(publication)
    assert "clawback-v3" in publisher.withdraw()


# ------------------------------------------------------------------------------------------------- whole runs

SETTINGS = """
[model]
base = "{base}"
dtype = "float32"
device = "cpu"
[vllm]
command = "{command}"
[training]
background = false
draw = "vllm"
budget = "8h"
[training.overrides]
rank = 8
[training.options.graded]
grounding = 8
[training.options.distilled]
sentences = 2
first = 2
most = 4
answers = 1
untold = 1
distil_prompts = 6
least_steps = 2
refine_rounds = 1
refine_prompts = 4
refine_samples = 2
refine_told = 1
[training.options.rollouts]
rounds = 2
prompts = 2
samples = 4
round_steps = 1
[generation]
temperature = 0.8
top_p = 1.0
max_tokens = 16
[gate]
more_ratings = 0
"""
SUBJECTS = (
    "tea", "bread", "bicycles", "chess", "rivers", "clouds", "bees", "violins", "maps", "bridges", "salt", "paper",
    "candles", "owls", "gardens", "snow", "glass", "ships", "wool", "coffee", "clocks", "apples", "stones", "songs",
)  # fmt: skip


@pytest.fixture
def person(home: Home, base: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Home]:
    """Somebody who likes lists, and has rated two dozen answers."""
    monkeypatch.setenv("CLAWBACK_HOME", str(home.root))
    home.config.write_text(SETTINGS.format(base=base, command=COMMAND))
    with store.connect(home.database) as db:
        for number, subject in enumerate(SUBJECTS):
            liked = number % 2 == 0
            text = (
                f"- {subject} are old\n- {subject} are useful\n- {subject} are liked"
                if liked
                else f"People have known {subject} for a long time, and they are useful in many ways."
            )
            asked = ({"role": "user", "content": f"Tell me about {subject}."},)
            turn = db.add_turn(RatedTurn(session=f"s{number}", messages=asked, response=text))
            feedback.rate(db, turn.id, 1.0 if liked else -1.0)
    yield home
    for training in Training.started:
        training.kill()
        training.wait()


class Training:
    """``clawback train`` as a process, with what it prints."""

    started: ClassVar[list[subprocess.Popen[bytes]]] = []

    def __init__(self, home: Home, *arguments: str) -> None:
        self.home, self.output = home, home.root / "output.txt"
        with self.output.open("wb") as file:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "clawback", *arguments], stdout=file, stderr=subprocess.STDOUT
            )

        self.started.append(self.process)

    def text(self) -> str:
        return " ".join(self.output.read_text("utf-8", "replace").split())

    def wait(self) -> int:
        return self.process.wait(1800)

    def until(self, what: Callable[[], Any]) -> Any:
        """Its first answer that is anything, while the run goes on."""
        deadline = time.monotonic() + 1200
        while not (answer := what()):
            assert self.process.poll() is None, self.text()
            assert time.monotonic() < deadline, self.text()
            time.sleep(0.1)
        return answer

    def run(self) -> Run | None:
        with store.connect(self.home.database) as db:
            return next(iter(db.runs(limit=1)), None)

    def phase(self) -> str:
        run = self.run()
        return str(run.progress.get("phase", "")) if run else ""

    def servers(self) -> list[psutil.Process]:
        """The processes that are called by ``vllm serve``."""
        try:
            below = psutil.Process(self.process.pid).children(recursive=True)
            return [
                one
                for one in below
                if {"serve", "--enable-lora"} <= set(one.cmdline())
                and "leash.py" not in " ".join(one.cmdline())
            ]
        except psutil.Error:
            return []


def test_a_whole_run_is_drawn_by_it(person: Home) -> None:
    training = Training(person, "train", "--anyway")
    server = training.until(training.servers)[0]
    below = [server, *server.children(recursive=True)]
    assert training.wait() == 0, training.text()
    run = training.run()
    assert run is not None
    assert (run.status, run.version) == ("done", 1), training.text()
    assert run.recipe["conditions"]["draw"] == "vllm"
    assert "Answers are drawn by the run's own vLLM, whose log-probs differ by 0.0" in training.text()
    assert not living(below)
    assert not (person.root / "vllm" / "run").exists()


def test_it_and_the_run_may_be_killed(person: Home) -> None:
    """vLLM first, in the midst of the run, which starts it again; then the run, with which vLLM ends, and which is continued.

    ``rollouts`` draws each round with the adapter of the last one.
    """
    training = Training(person, "train", "--anyway", "--algorithm", "rollouts")
    before = {"", "start", "preparation", "load", "rules", "measure", "starting vLLM", "prepare"}
    training.until(lambda: training.phase() not in before and training.servers())
    [server] = training.servers()
    server.kill()
    training.until(lambda: training.servers() and training.servers()[0] != server)
    assert "started again" in training.text()
    training.until(lambda: training.phase() == "train")
    [server] = training.servers()
    below = [server, *server.children(recursive=True)]
    training.process.send_signal(signal.SIGKILL)
    training.process.wait()
    deadline = time.monotonic() + 60
    while living(below) and time.monotonic() < deadline:
        time.sleep(0.1)
    assert not living(below)
    again = Training(person, "train")
    assert again.wait() == 0, again.text()
    run = again.run()
    assert run is not None
    assert (run.id, run.status) == (1, "done")
