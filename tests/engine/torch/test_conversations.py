"""Conversations drawn together, with what was read kept, against the model read anew."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from clawback import engine
from clawback.models.types import GREEDY, Sampling
from clawback.sampling.conversations import Conversations, TurnRequest
from clawback.templates.chat_tokens import Encoded


@pytest.fixture(scope="module")
def tiny(folders):
    return engine.load(str(folders("llama")))


def talk(policy, many, *, keep=True, sampling=None, rounds=3, together=True):
    """Each conversation some turns long, of lengths of their own; what each said."""
    drawer = Conversations(policy, sampling=sampling or Sampling(1.0), keep=keep)
    ids = [list(range(5 + i, 9 + 2 * i)) for i in range(many)]
    said = [[] for _ in range(many)]
    for turn in range(rounds):
        # Some sit a turn out; the order changes from turn to turn.
        who = [i for i in range(many) if (i + turn) % 4 or turn == 0][:: 1 if turn % 2 else -1]
        asked = [TurnRequest(i, ids[i], 1000 * turn + i, 3 + i % 4) for i in who]
        answers = drawer.draw(asked) if together else [drawer.draw([one])[0] for one in asked]
        for i, one in zip(who, answers, strict=True):
            said[i].append((list(ids[i]), one))
            ids[i] = [*ids[i], *one.ids, 50 + turn, 60 + i]
    return said, drawer


@pytest.mark.parametrize("family", ["llama", "qwen3"])
def test_what_is_recorded_is_what_the_scorer_says(folders, family):
    policy = engine.load(str(folders(family)))
    policy.sampling = Sampling(1.0)
    policy.attach(rank=4, alpha=4, seed=0)
    torch.manual_seed(1)
    for name, parameter in policy.model.named_parameters():
        if "lora_B" in name:
            parameter.data = torch.randn_like(parameter) * 0.05
    said, drawer = talk(policy, 7)
    assert drawer.reused > 0
    for rows in said:
        for prompt, one in rows:
            [values] = policy.scorer([Encoded(tuple(prompt), one.ids)]).split()
            torch.testing.assert_close(torch.tensor(one.logprobs), values.detach(), atol=1e-3, rtol=1e-3)


@pytest.mark.parametrize("sampling", [Sampling(1.0), Sampling(0.7, 0.9), GREEDY])
def test_neighbours_and_a_kept_cache_change_nothing(folders, sampling):
    policy = engine.load(str(folders("llama")))
    kept, _ = talk(policy, 6, sampling=sampling)
    anew, drawer = talk(policy, 6, sampling=sampling, keep=False)
    alone, _ = talk(policy, 6, sampling=sampling, together=False)
    assert drawer.reused == 0
    ids = [[[one.ids for _, one in rows] for rows in said] for said in (kept, anew, alone)]
    assert ids[0] == ids[1] == ids[2]


def test_the_same_seed_gives_the_same_bits(folders):
    policy = engine.load(str(folders("llama")))
    assert talk(policy, 5)[0] == talk(policy, 5)[0]


def test_new_weights_are_drawn_from_after_a_refresh(folders):
    policy = engine.load(str(folders("llama")))
    policy.sampling = Sampling(1.0)
    policy.attach(rank=4, alpha=4, seed=0)
    drawer = Conversations(policy, sampling=Sampling(1.0))
    turn = TurnRequest("a", [5, 6, 7], 3, 6)
    before = drawer.draw([turn])
    with torch.no_grad():
        for name, parameter in policy.model.named_parameters():
            if "lora_B" in name:
                parameter.add_(0.1)
    drawer.refresh()
    after = drawer.draw([turn])
    assert after != before
    [values] = policy.scorer([Encoded((5, 6, 7), after[0].ids)]).split()
    torch.testing.assert_close(torch.tensor(after[0].logprobs), values.detach(), atol=1e-3, rtol=1e-3)


def test_models_that_the_decoder_does_not_know_are_drawn_from_all_the_same(folders):
    policy = engine.load(str(folders("gpt2")))
    policy.sampling = Sampling(1.0)
    said, drawer = talk(policy, 3, rounds=2)
    assert drawer.reused == 0
    for prompt, one in said[1]:
        [values] = policy.scorer([Encoded(tuple(prompt), one.ids)]).split()
        torch.testing.assert_close(torch.tensor(one.logprobs), values.detach(), atol=1e-3, rtol=1e-3)


def test_what_new_conversations_begin_with_alike_is_read_once(folders):
    policy = engine.load(str(folders("llama")))
    rules = list(range(5, 45))
    turns = [TurnRequest(i, [*rules, 60 + i], i, 4) for i in range(6)]
    drawer = Conversations(policy, sampling=Sampling(1.0))
    together = drawer.draw(turns)
    assert (drawer.read, drawer.reused) == (40 + 6, 5 * 40)
    alone = [Conversations(policy, sampling=Sampling(1.0)).draw([one])[0] for one in turns]
    assert [one.ids for one in together] == [one.ids for one in alone]
    # One that begins while others are under way takes it over from them.
    late = TurnRequest("late", [*rules, 99], 7, 4)
    goes_on = TurnRequest(0, [*turns[0].ids, *together[0].ids, 70], 8, 4)
    [_, drawn] = drawer.draw([goes_on, late])
    assert drawer.read - 46 <= 3
    assert drawn.ids == Conversations(policy, sampling=Sampling(1.0)).draw([late])[0].ids


@settings(max_examples=25, deadline=None)
@given(
    st.lists(st.lists(st.sampled_from([9, 20]), min_size=1, max_size=3), min_size=2, max_size=8),
    st.integers(0, 3),
)
def test_tries_at_one_task_read_it_once(tiny, paths, late):
    """Ids that branch at each element of a path, some of them the beginning of others, some the same; the last ones begin while the others are under way."""
    rules = list(range(5, 20))
    ids = [
        [*rules, *(100 * depth + step + i for depth, step in enumerate(path) for i in range(12))]
        for path in paths
    ]
    turns = [TurnRequest(i, one, i, 3) for i, one in enumerate(ids)]
    drawer = Conversations(tiny, sampling=Sampling(1.0))
    split = max(1, len(turns) - late)
    said = [*drawer.draw(turns[:split]), *(drawer.draw(turns[split:]) if late else [])]
    alone = [Conversations(tiny, sampling=Sampling(1.0), keep=False).draw([one])[0] for one in turns]
    assert [one.ids for one in said] == [one.ids for one in alone]
    if not late:
        assert drawer.read == len({tuple(one[:end]) for one in ids for end in range(1, len(one) + 1)})
    assert drawer.read + drawer.reused == sum(map(len, ids))
