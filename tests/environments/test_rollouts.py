"""Many episodes at once: what each says is its own, what breaks is nobody's reward, and what is recorded is what the learner says."""

from __future__ import annotations

import asyncio
import dataclasses
import gc
import threading

import pytest
import torch

from clawback.environments import registry
from clawback.environments.core import EnvironmentFailure, Task
from clawback.environments.episode_loop import Order
from clawback.environments.tools.calls import in_words
from clawback.environments.validate import validate
from clawback.errors import MissingExtra, TrainingError
from clawback.learning import episode_examples as learning
from clawback.learning.episode_examples import (
    Episodes,
    EpisodeSettings,
    flat,
    sequences,
    states_before,
)
from clawback.records import Episode
from clawback.rollouts.concurrent import Play, Rollouts
from clawback.sampling.batched_sampler import Sampled
from tests.environments.worlds import Worlds

SHORT = Play(together=4, max_tokens=5, patience=5.0)


def orders(count, size=1):
    return [Order(i, Task(f"t{i // size}"), i // size, 7, i // size) for i in range(count)]


def played(policy, worlds, how=SHORT, count=6, **options):
    with Rollouts(policy, worlds, how, **options) as rollouts:
        return rollouts.play(orders(count)), rollouts


def test_an_episode_is_the_same_alone_and_among_others(policy):
    alone, _ = played(policy, Worlds(), dataclasses.replace(SHORT, together=1))
    among, rollouts = played(policy, Worlds(turns=lambda seed: 3), dataclasses.replace(SHORT, together=6))
    tokens = [[[b.ids for b in e.branches] for e in some] for some in (alone, among)]
    assert tokens[0] == tokens[1]
    assert [e.number for e in among] == list(range(6))
    assert rollouts.conversations.reused > rollouts.conversations.read  # most of each turn had been read


def test_the_same_seed_plays_the_same_bit_for_bit(policy):
    plain = [dataclasses.replace(e, created_at=0.0) for e in played(policy, Worlds())[0]]
    assert plain == [dataclasses.replace(e, created_at=0.0) for e in played(policy, Worlds())[0]]


def test_steps_lie_where_they_say_and_rewards_add_up(policy):
    episodes, _ = played(policy, Worlds(turns=lambda seed: 1 + seed % 3))
    for e in episodes:
        assert e.status == "completed"
        assert len(e.steps) == 1 + e.seed % 3
        assert e.total == sum(s.reward for s in e.steps)
        written = [i for b in e.branches for i, wrote in enumerate(b.mask) if wrote]
        spans = [i for s in e.steps for i in range(s.start, s.end)]
        assert written == spans
        for step, message in zip(e.steps, (m for m in e.messages if m["role"] == "assistant"), strict=True):
            ids = e.branches[step.branch].ids[step.start : step.end]
            assert policy.tokenizer.decode(ids, skip_special_tokens=True) == message["content"]


def test_slow_worlds_are_waited_for_or_join_later(policy):
    how = dataclasses.replace(SHORT, patience=0.0)
    slow, _ = played(policy, Worlds(slow=True), how)
    quick, _ = played(policy, Worlds())
    assert [[b.ids for b in e.branches] for e in slow] == [[b.ids for b in e.branches] for e in quick]


def test_a_world_that_breaks_is_tried_again_and_then_left_out(policy):
    broken = set()

    def once(world, row):
        if row == 2 and world.seed == 1 and world.seed not in broken:
            broken.add(world.seed)
            return True
        return world.seed == 3

    worlds = Worlds(breaks=once)
    told = []
    episodes, rollouts = played(policy, worlds, on_episodes=told.extend)
    assert [e.status for e in episodes] == ["completed"] * 3 + ["failed"] + ["completed"] * 2
    assert episodes[3].stop_reason == "the server is gone"
    assert episodes[3].steps == ()
    assert rollouts.broken == 1 + 3
    assert sorted(e.number for e in told) == list(range(6))
    assert worlds.closed == len(worlds.resets)
    assert [[b.ids for b in episodes[1].branches]] == [
        [b.ids for b in played(policy, Worlds())[0][1].branches]
    ]


def test_when_most_worlds_break_playing_stops_and_says_so(policy):
    with pytest.raises(EnvironmentFailure, match="environment failed, not the policy"):
        played(policy, Worlds(breaks=lambda w, row: True))


def test_what_is_not_installed_is_said_once_and_not_tried_again(policy):
    def lacking(world, row):
        raise MissingExtra("There is no Chromium on this machine.")

    worlds = Worlds(breaks=lacking)
    with pytest.raises(MissingExtra, match="no Chromium"):
        played(policy, worlds)
    assert len(worlds.resets) <= 6
    with pytest.raises(MissingExtra, match="no Chromium"):
        asyncio.run(validate(Worlds(breaks=lacking), worlds.tasks("train")))


def test_a_world_that_does_not_answer_is_broken(policy):
    how = dataclasses.replace(SHORT, timeout=0.0005, retries=0)
    worlds = Worlds(slow=True)
    episodes, _ = played(policy, worlds, how, count=3)
    assert any(e.status == "failed" and "did not answer" in e.stop_reason for e in episodes)


def test_what_is_cancelled_before_the_world_was_asked_leaves_no_coroutine_unawaited(policy, recwarn):
    rollouts, held = Rollouts(policy, Worlds(turns=2), SHORT), threading.Event()
    rollouts._loops._shared._loop.call_soon_threadsafe(
        held.wait
    )  # worlds are asked once the loop comes to it
    rollouts.start(orders(4))
    rollouts._admit()
    for live in rollouts._live:
        live.answer.cancel()
    held.set()
    rollouts.close()
    gc.collect()
    assert [str(w.message) for w in recwarn if "never awaited" in str(w.message)] == []


def test_an_endless_episode_is_truncated(policy):
    [e], _ = played(policy, Worlds(turns=99), dataclasses.replace(SHORT, max_turns=2), count=1)
    assert (e.status, e.stop_reason, len(e.steps)) == ("truncated", "2 turns", 2)


def test_unparsable_replies_stay_cost_and_are_counted(policy):
    episodes, _ = played(policy, Worlds(unread=lambda said: True), count=2)
    for e in episodes:
        assert e.unparsable == len(e.steps) == 3
        assert all(s.penalty == -0.5 for s in e.steps)
        assert e.total == sum(s.reward for s in e.steps)  # the penalty is no part of the return
    rewards, _, _ = flat(episodes)
    assert float(rewards.sum()) == pytest.approx(sum(e.total for e in episodes) - 0.5 * 6)


def source(policy, episodes, **settings):
    return Episodes(policy, lambda _: episodes, EpisodeSettings(**settings), 0)


def test_what_is_trained_is_what_was_sampled(policy):
    episodes, _ = played(policy, Worlds())
    policy.attach(rank=4, alpha=4, seed=0)
    one = source(policy, episodes)
    examples = one.examples(0)
    assert one.figures["gap"] < 1e-4
    every = [e for step in range(4) for e in one.examples(step)]
    assert len(every) == 6
    for part, whole in zip(sequences(episodes), (b for e in episodes for b in e.branches), strict=True):
        assert (
            part.encoded.prompt + part.encoded.response
            == whole.ids[: len(part.encoded.prompt + part.encoded.response)]
        )
        written = [t for t, w in zip(part.encoded.response, part.mask.tolist(), strict=True) if w]
        assert written == [t for t, w in zip(whole.ids, whole.mask, strict=True) if w]
    example = examples[0]
    assert torch.all(example.token_advantages[~example.mask] == 0)
    torch.testing.assert_close(example.old[example.mask], example.ref[example.mask], atol=1e-4, rtol=1e-4)


def test_a_run_with_a_gap_stops_in_words(policy):
    episodes, _ = played(policy, Worlds())

    def wrong(episode: Episode) -> Episode:
        branches = tuple(
            dataclasses.replace(b, logprobs=tuple(p - 1.0 for p in b.logprobs)) for b in episode.branches
        )
        return dataclasses.replace(episode, branches=branches)

    policy.attach(rank=4, alpha=4, seed=0)
    with pytest.raises(TrainingError, match="The sampled policy is not the trained one"):
        source(policy, [wrong(e) for e in episodes]).examples(0)
    # Of older weights nothing of the kind is asked.
    old = [
        dataclasses.replace(wrong(e), steps=tuple(dataclasses.replace(s, update=-1) for s in e.steps))
        for e in episodes
    ]
    assert "gap" not in (lambda s: (s.examples(0), s.figures)[1])(source(policy, old))


def test_a_sample_of_the_tokens_is_enough_to_notice_the_wrong_policy(policy, monkeypatch):
    """Each round compares other sequences, and a policy that is wrong is wrong in all of them."""
    episodes, _ = played(policy, Worlds(turns=lambda seed: 3))
    policy.attach(rank=4, alpha=4, seed=0)
    read = []
    score = type(policy.scorer).__call__
    monkeypatch.setattr(
        type(policy.scorer),
        "__call__",
        lambda self, some, **how: (read.append(some), score(self, some, **how))[1],
    )
    monkeypatch.setattr(learning, "CHECKED", 20)
    one = source(policy, episodes)
    parts = sequences(episodes)
    for number in range(4):
        with torch.no_grad():
            _, entropy = one._check(parts, [True] * 18, number)
        assert 0 < entropy < 6
    assert all(len(some) < 6 for some in read)
    assert len({some[0] for some in read}) > 1
    for part in parts:
        part.old.sub_(1.0)
    with pytest.raises(TrainingError, match=r"differ from the learner's by 1\.00 nats"):
        one._check(parts, [True] * 18, 0)


def test_states_before_each_step_are_those_of_the_whole_sequence(policy):
    """Read up to the last step, and once where several begin alike."""
    episodes, _ = played(policy, Worlds(turns=lambda seed: 1 + seed % 3))
    parts = sequences([*episodes, *episodes])
    with torch.no_grad():
        whole = [policy.scorer.hidden([one.encoded]) for one in parts]
    expected = torch.cat([state[[a for a, _ in one.spans]] for one, state in zip(parts, whole, strict=True)])
    with torch.no_grad():
        found = states_before(policy.scorer, parts)
    torch.testing.assert_close(found, expected.float(), atol=1e-5, rtol=1e-5)


def test_its_state_goes_on_where_it_was(policy):
    episodes, _ = played(policy, Worlds())
    policy.attach(rank=4, alpha=4, seed=0)
    first = source(policy, episodes)
    first.examples(0)
    second = source(policy, None)
    second.restore(first.state())
    for a, b in zip(first.examples(1), second.examples(1), strict=True):
        assert a.encoded == b.encoded
        for name in ("old", "ref", "mask", "token_advantages"):
            torch.testing.assert_close(getattr(a, name), getattr(b, name))


def test_tools_are_told_in_words_and_what_is_called_in_words_is_called(policy, monkeypatch):
    """A policy whose template knows no tools reads them, and their results, as text: the known solution, said token by token, is worth 1."""
    shop = registry.find("tools:shop")
    task = shop.tasks("train")[0]
    solution = iter([message["content"] for message in in_words(shop.solution(task), ())])

    def draw(turns):
        if not turns:
            return []
        ids = policy.tokenizer.encode(next(solution), add_special_tokens=False)
        return [Sampled((*ids, policy.chat.end_id), (0.0,) * (len(ids) + 1), True) for _ in turns]

    with Rollouts(policy, shop, SHORT) as rollouts:
        monkeypatch.setattr(rollouts.conversations, "draw", draw)
        [episode] = rollouts.play([Order(0, task, 1, 7)])
    told, *_ = episode.messages
    assert told["role"] == "system"
    assert "cancel_order" in told["content"]
    heard = [m["content"] for m in episode.messages if m["role"] == "user"]
    assert any(text.startswith("<tool_response>") for text in heard)
    assert (episode.status, episode.total) == ("completed", 1.0)
