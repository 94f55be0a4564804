"""``@clawback.rollout``: a function with a client of its own is played, learned from and resumed as any environment."""

from __future__ import annotations

import asyncio
import http.client
import json
import threading
import urllib.request

import pytest

import clawback
from clawback import store
from clawback.environments.core import EnvironmentSet
from clawback.environments.episode_loop import Ending, Order
from clawback.episode_jobs import playing
from clawback.episode_jobs.episode_runs import Wish
from clawback.errors import UsageError
from clawback.learning.episode_examples import sequences
from clawback.rollouts.concurrent import Play, Rollouts
from clawback.rollouts.token_record import TokenRecord
from clawback.sampling import Sampled
from tests.environments.conftest import policy  # noqa: F401

ROWS = [{"id": f"q{n}", "question": f"What is {name}?", "split": "train" if n < 6 else "test"}
        for n, name in enumerate(["Paris", "a fox", "rice", "Rome", "a cat", "bread", "Oslo", "a dog"])]  # fmt: skip


def ask(model, text):
    body = json.dumps({"model": model.name, "messages": [{"role": "user", "content": text}], "max_tokens": 3})
    headers = {"Authorization": f"Bearer {model.api_key}", "Content-Type": "application/json"}
    request = urllib.request.Request(f"{model.base_url}/chat/completions", body.encode(), headers)
    with urllib.request.urlopen(request) as response:
        return json.load(response)["choices"][0]["message"]["content"]


@clawback.rollout(tasks=ROWS)
def starts_with_s(task, model):
    return float(ask(model, task["question"]).startswith("S"))


@clawback.rollout(tasks=ROWS)
async def twice(task, model):
    replies = await asyncio.gather(*(asyncio.to_thread(ask, model, task["question"]) for _ in range(2)))
    return sum(map(len, replies)), {"lengths": [len(reply) for reply in replies]}


def play(policy, environments, count=2):  # noqa: F811
    tasks = environments.tasks("train")
    with Rollouts(policy, environments, Play(max_tokens=8, retries=0)) as rollouts:
        return rollouts.play([Order(n, tasks[n % len(tasks)], n, 7, n) for n in range(count)])


def test_a_function_is_an_environment_set_with_tasks_in_both_splits():
    assert isinstance(starts_with_s, EnvironmentSet)
    assert [task.id for task in starts_with_s.tasks("test")] == ["starts_with_s/q6", "starts_with_s/q7"]
    with pytest.raises(UsageError, match="needs its tasks"):
        clawback.rollout(lambda task, model: 0.0)


def test_its_return_is_the_reward_and_parallel_requests_are_all_recorded(policy):  # noqa: F811
    for episode in play(policy, twice):
        assert (episode.status, len(episode.steps), len(episode.branches)) == ("completed", 2, 2)
        replies = [m["content"] for m in episode.messages if m["role"] == "assistant"]
        assert episode.total == sum(map(len, replies))


def test_a_reply_whose_program_has_left_is_not_learned_from(policy):  # noqa: F811
    left = threading.Event()

    @clawback.rollout(tasks=ROWS)
    def impatient(task, model):
        body = json.dumps({"messages": [{"role": "user", "content": "What is a fox?"}], "max_tokens": 3})
        connection = http.client.HTTPConnection(model.base_url.split("/")[2])
        connection.request("POST", "/v1/chat/completions", body, {"Authorization": f"Bearer {model.api_key}"})
        assert left.wait(30)
        connection.close()
        return float(bool(ask(model, task["question"])))

    async def record() -> TokenRecord:
        world, record = impatient.make(), TokenRecord(policy, 8, 0.0)
        record.open(await world.reset(impatient.tasks("train")[0], 0))
        left.set()
        await asyncio.wait([world._question.answer], timeout=30)
        for ids in ([5, 6], [7, 8]):
            record.turn("k", 0)
            step = await world.step(record.write(Sampled(ids, [-0.5, -0.5], True), 0))
            record.hear(step)
        assert step.done
        await world.close()
        return record

    made = asyncio.run(record())
    episode = made.episode("e", Order(0, impatient.tasks("train")[0], 0, 0), Ending("completed", ""))
    [step] = episode.steps
    assert (step.reward, episode.total, len(episode.replies)) == (1.0, 1.0, 1)
    assert episode.branches[step.branch].ids[step.start : step.end] == (7, 8)
    assert sum(map(sum, (branch.mask for branch in episode.branches))) == 2
    assert [int(part.mask.sum()) for part in sequences([episode])] == [2]


@pytest.mark.parametrize("returned", ["yes", None, float("nan"), RuntimeError("my own")])
def test_what_is_no_reward_is_a_failure_of_that_episode(policy, returned):  # noqa: F811
    @clawback.rollout(tasks=ROWS)
    def odd(task, model):
        ask(model, task["question"])
        if isinstance(returned, Exception):
            raise returned
        return returned

    [episode] = play(policy, odd, 1)
    assert episode.status == "failed"
    assert (
        "my own" in episode.stop_reason
        or "no reward" in episode.stop_reason
        or "return a number" in episode.stop_reason
    )


def test_a_strange_key_is_refused(policy):  # noqa: F811
    @clawback.rollout(tasks=ROWS)
    def curious(task, model):
        stranger = type(model)(model.base_url, "guess")
        with pytest.raises(urllib.error.HTTPError, match="401"):
            ask(stranger, "?")
        return float(len(ask(model, task["question"])) > 0)

    [episode] = play(policy, curious, 1)
    assert (episode.status, episode.total) == ("completed", 1.0)


class Killed(BaseException):
    """As kill -9: nothing tidies up after it."""


def test_a_run_learns_is_killed_loses_nothing_and_then_answers_otherwise(home, monkeypatch):
    home.config.write_text("[training]\nbackground = false\n")
    wish = Wish("starts_with_s", episodes=96, groups=32, held_out=8, max_tokens=3)
    real, waves = Rollouts.wave, [0]

    def dying(self):
        waves[0] += 1
        if waves[0] == 3:
            raise Killed
        return real(self)

    monkeypatch.setattr(Rollouts, "wave", dying)
    with pytest.raises(Killed):
        playing.learn(home, wish, seed=1, worlds=starts_with_s)
    with store.connect(home.database) as db:
        first = {e.number: e.id for e in db.episodes(1000)}
    assert first
    monkeypatch.setattr(Rollouts, "wave", real)
    done = playing.learn(home, wish, seed=1, worlds=starts_with_s)
    assert done.counts == {"completed": 96 + 2 * 8}
    with store.connect(home.database) as db:
        episodes = {e.number: db.episode(e.id) for e in db.episodes(1000)}
        gaps = [step["gap"] for step in db.steps(done.run.id) if "gap" in step]
    assert first.items() <= {(number, e.id) for number, e in episodes.items()}
    assert max(gaps) < 1e-4
    before, after = (
        [e.branches for n, e in sorted(episodes.items()) if start <= n < start + 8]
        for start in (playing.BEFORE, playing.AFTER)
    )
    assert before != after
    assert done.verdict.mean_after >= done.verdict.mean_before
