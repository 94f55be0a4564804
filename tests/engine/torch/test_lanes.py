"""Rows that join and leave at any time: the lean decoder and the model's own forward say the same of all of them."""

import random

import pytest
import torch

from clawback import engine
from clawback.engine.torch.sampling import lanes
from clawback.engine.torch.sampling.continuous import closed_ranks
from clawback.engine.torch.sampling.prefix_cache import PrefixCache


@pytest.fixture(scope="module")
def policy():
    return engine.load("embedded")


@torch.no_grad()
@pytest.mark.parametrize("seed", range(4))
def test_both_ways_say_the_same_whoever_comes_and_goes(policy, seed):
    rng = random.Random(seed)
    lean, plain = lanes.Lean(policy), lanes.Padded(lambda: policy.model, policy.device)
    rows = 0
    for _ in range(14):
        move = rng.choice(["read", "step", "step", "keep"])
        if move == "read" or not rows:
            prompts = [
                [rng.randrange(300) for _ in range(rng.randint(1, 40))] for _ in range(rng.randint(1, 6))
            ]
            a, b = lean.read(prompts), plain.read(prompts)
            rows += len(prompts)
        elif move == "step":
            last = [rng.randrange(300) for _ in range(rows)]
            a, b = lean.step(last), plain.step(last)
        else:
            kept = closed_ranks([rng.random() < 0.4 for _ in range(rows)])
            lean.keep(kept)
            plain.keep(kept)
            rows = len(kept)
            continue
        assert a.shape == b.shape
        assert torch.allclose(a.log_softmax(-1), b.log_softmax(-1), atol=1e-3)


@torch.no_grad()
def test_many_long_prompts_are_read_a_few_at_a_time(policy, monkeypatch):
    prompts = [[(i * 7 + j) % 300 for j in range(10 + i)] for i in range(9)]
    whole = lanes.Lean(policy).read(prompts)
    monkeypatch.setattr(lanes, "READ_TOKENS", 40)
    assert torch.allclose(lanes.Lean(policy).read(prompts), whole, atol=1e-3)


def test_a_model_of_the_kind_is_answered_from_by_the_lean_decoder(policy):
    assert isinstance(lanes.rows_of(policy), lanes.Lean)


@torch.no_grad()
def test_prompts_of_every_length_are_read_in_few_widths(policy, monkeypatch):
    """For each new one oneDNN compiles its products, and keeps them: megabytes and a third of a second."""
    for tokens in range(1, 5000):
        assert tokens <= lanes.wide(tokens) <= max(tokens + 7, 1.25 * tokens + 1)
    assert len({lanes.wide(tokens) for tokens in range(1, 2049)}) <= 36
    asked: list[int] = []
    plain = lanes.Decoder.read
    monkeypatch.setattr(lanes.Decoder, "read", lambda *given: (asked.append(given[4]), plain(*given))[1])
    for tokens in (65, 70, 79):
        lanes.Lean(policy).read([[5] * tokens])
    assert asked == [80, 80, 80]


@torch.no_grad()
def test_a_text_of_a_width_that_is_padded_has_the_same_vector(policy):
    ids = [(7 * i) % 300 for i in range(67)]
    states = policy.model.model(input_ids=torch.tensor([ids])).last_hidden_state[0]
    wanted = torch.nn.functional.normalize(states.mean(0), dim=0)
    assert torch.allclose(torch.tensor(policy.embedding(ids)), wanted, atol=1e-5)


@torch.no_grad()
def test_the_next_turn_of_a_conversation_is_read_from_where_it_differs(policy):
    lean, plain = lanes.Lean(policy), lanes.Padded(lambda: policy.model, policy.device)
    first = [(7 * i) % 300 for i in range(50)]
    for rows in (lean, plain):
        rows.read([first])
        rows.step([5])
        rows.keep([])
    assert lean.known == [0]
    said = [*first, 5]
    for turns, known in (
        ([[*said, 8, 9, 10]], [len(said)]),  # goes on
        ([[*first[:40], 1, 2, 3]], [40]),  # as it began
        ([first], [len(first) - 1]),  # once more: its last token says what follows
        ([[3, *said]], [0]),
        (
            [[*said, 11], [4] * 40, [*[4] * 39, 6]],
            [len(said), 0, 39],
        ),  # beside two that begin alike, unknown so far
        ([[*said, 8, 9]], [len(said) + 1]),
    ):
        a, b = lean.read(turns), plain.read(turns)
        assert lean.known == known
        for token in (17, 18):
            assert torch.allclose(a.log_softmax(-1), b.log_softmax(-1), atol=1e-3)
            a, b = (rows.step([token] * len(turns)) for rows in (lean, plain))
        lean.keep([])
        plain.keep([])


@torch.no_grad()
def test_a_row_under_way_gives_others_its_beginning(policy):
    lean, plain = lanes.Lean(policy), lanes.Padded(lambda: policy.model, policy.device)
    prompt = [(11 * i) % 300 for i in range(60)]
    for rows in (lean, plain):
        rows.read([prompt])
        rows.step([9])
    a, b = (rows.read([[*prompt, 9, 4], [*prompt[:50], 2]]) for rows in (lean, plain))
    assert lean.known == [61, 50]
    assert torch.allclose(a.log_softmax(-1), b.log_softmax(-1), atol=1e-3)
    a, b = (rows.step([1, 2, 3]) for rows in (lean, plain))
    assert torch.allclose(a.log_softmax(-1), b.log_softmax(-1), atol=1e-3)


@torch.no_grad()
def test_what_failed_leaves_nothing_behind(policy, monkeypatch):
    lean = lanes.Lean(policy)
    prompt = [5] * 40
    lean.read([prompt])
    with monkeypatch.context() as broken:
        broken.setattr(lean.decoder, "read", lambda *_: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            lean.read([[6] * 40])
    assert len(lean.step([5])) == 1  # the row that was there goes on
    lean.drop()
    assert lean.kept is not None
    assert not len(lean.kept)


@torch.no_grad()
def test_what_was_used_longest_ago_makes_room(policy):
    lean = lanes.Lean(policy)
    prompts = [[i] * 40 for i in range(3)]
    lean.read([prompts[0]])
    lean.keep([])
    assert lean.kept is not None
    one = lean.kept.bytes
    lean.kept = PrefixCache(2 * one)
    for prompt in prompts[:2]:
        lean.read([prompt])
        lean.keep([])
    assert lean.kept.longest([*prompts[0], 7])[0] == 40
    lean.read([prompts[2]])
    lean.keep([])
    assert lean.kept.bytes == 2 * one
    assert [lean.kept.longest(prompt)[0] for prompt in prompts] == [40, 0, 40]
    lean.read([[*prompts[0], 7]])
    lean.keep([])
    assert len(lean.kept) == 1  # it needs more than a half, and takes the place of its own beginning
    lean.read([prompts[0]])
    lean.keep([])
    assert len(lean.kept) == 1  # a part of what is there
    lean.read([[8] * 100])
    lean.keep([])
    assert lean.kept.longest([8] * 100)[0] == 0  # too much for all of it
