"""Rows that join and leave at any time: the lean decoder and the model's own forward say the same of all of them."""

import random

import pytest
import torch

from clawback import engine
from clawback.extensions.people.shared_rows import SharedRows
from clawback.extensions.people.shelf import Shelf
from clawback.models.linear import wide
from clawback.sampling import batched_sampler, decoder_choice, scheduler
from clawback.sampling.choose import SamplingRequest
from clawback.sampling.padded import Padded
from clawback.sampling.prefix_tree import PrefixCache
from clawback.sampling.scheduler import Lean, closed_ranks


def requests(prompts):
    return [SamplingRequest(prompt, 1) for prompt in prompts]


def read(some, prompts):
    """Their logits, and how much of each was known."""
    asked = requests(prompts)
    return some.read(asked), [request.cached for request in asked]


@pytest.fixture(scope="module")
def policy():
    return engine.load("embedded")


@torch.no_grad()
@pytest.mark.parametrize("seed", range(4))
def test_both_ways_say_the_same_whoever_comes_and_goes(policy, seed):
    rng = random.Random(seed)
    lean, plain = Lean(policy.model, 16), Padded(lambda: policy.model)
    rows = 0
    for _ in range(14):
        move = rng.choice(["read", "step", "step", "keep"])
        if move == "read" or not rows:
            prompts = [
                [rng.randrange(300) for _ in range(rng.randint(1, 40))] for _ in range(rng.randint(1, 6))
            ]
            a, b = lean.read(requests(prompts)), plain.read(requests(prompts))
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
    whole = Lean(policy.model, 16).read(requests(prompts))
    monkeypatch.setattr(scheduler, "READ_TOKENS", 40)
    assert torch.allclose(Lean(policy.model, 16).read(requests(prompts)), whole, atol=1e-3)


def test_a_model_of_the_kind_is_answered_from_by_the_lean_decoder(policy):
    assert isinstance(
        batched_sampler.rows_of(lambda: policy.model, decoder_choice.lean(policy), expected=2), Lean
    )


@torch.no_grad()
def test_prompts_of_every_length_are_read_in_few_widths(policy, monkeypatch):
    """For each new one oneDNN compiles its products, and keeps them: megabytes and a third of a second."""
    for tokens in range(1, 5000):
        assert tokens <= wide(tokens) <= max(tokens + 7, 1.25 * tokens + 1)
    assert len({wide(tokens) for tokens in range(1, 2049)}) <= 36
    widths: list[int] = []
    plain = scheduler.Decoder.read
    monkeypatch.setattr(
        scheduler.Decoder, "read", lambda *arguments: (widths.append(arguments[4]), plain(*arguments))[1]
    )
    shelf = Shelf(policy.model, policy.info, torch.float32)
    for tokens in (65, 70, 79):
        SharedRows(policy.model, shelf, 16).read(requests([[5] * tokens]))
    assert widths == [80, 80, 80]


@torch.no_grad()
def test_a_text_of_a_width_that_is_padded_has_the_same_vector(policy):
    ids = [(7 * i) % 300 for i in range(67)]
    states = policy.model.model(input_ids=torch.tensor([ids])).last_hidden_state[0]
    wanted = torch.nn.functional.normalize(states.mean(0), dim=0)
    assert torch.allclose(torch.tensor(policy.embedding(ids)), wanted, atol=1e-5)


@torch.no_grad()
def test_the_next_turn_of_a_conversation_is_read_from_where_it_differs(policy):
    lean, plain = Lean(policy.model, 16), Padded(lambda: policy.model)
    first = [(7 * i) % 300 for i in range(50)]
    for some in (lean, plain):
        assert read(some, [first])[1] == [0]
        some.step([5])
        some.keep([])
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
        (a, cached), (b, _) = read(lean, turns), read(plain, turns)
        assert cached == known
        for token in (17, 18):
            assert torch.allclose(a.log_softmax(-1), b.log_softmax(-1), atol=1e-3)
            a, b = (some.step([token] * len(turns)) for some in (lean, plain))
        lean.keep([])
        plain.keep([])


@torch.no_grad()
def test_a_row_under_way_gives_others_its_beginning(policy):
    lean, plain = Lean(policy.model, 16), Padded(lambda: policy.model)
    prompt = [(11 * i) % 300 for i in range(60)]
    for some in (lean, plain):
        read(some, [prompt])
        some.step([9])
    (a, known), (b, _) = (read(some, [[*prompt, 9, 4], [*prompt[:50], 2]]) for some in (lean, plain))
    assert known == [61, 50]
    assert torch.allclose(a.log_softmax(-1), b.log_softmax(-1), atol=1e-3)
    a, b = (some.step([1, 2, 3]) for some in (lean, plain))
    assert torch.allclose(a.log_softmax(-1), b.log_softmax(-1), atol=1e-3)


@torch.no_grad()
def test_what_failed_leaves_nothing_behind(policy, monkeypatch):
    lean = Lean(policy.model, 16)
    prompt = [5] * 40
    read(lean, [prompt])
    with monkeypatch.context() as broken:
        broken.setattr(lean.decoder, "logits", lambda *_: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            read(lean, [[6] * 40])
    assert len(lean.step([5])) == 1  # the row that was there goes on
    lean.drop()
    assert lean.memory is not None
    assert not len(lean.memory)


@torch.no_grad()
def test_what_was_used_longest_ago_makes_room(policy):
    lean = Lean(policy.model, 16)
    prompts = [[i] * 40 for i in range(3)]
    read(lean, [prompts[0]])
    lean.keep([])
    assert lean.memory is not None
    one = lean.memory.bytes
    lean.memory = PrefixCache(2 * one)
    for prompt in prompts[:2]:
        read(lean, [prompt])
        lean.keep([])
    assert lean.memory.longest([*prompts[0], 7])[0] == 40
    read(lean, [prompts[2]])
    lean.keep([])
    assert lean.memory.bytes == 2 * one
    assert [lean.memory.longest(prompt)[0] for prompt in prompts] == [40, 0, 40]
    read(lean, [[*prompts[0], 7]])
    lean.keep([])
    assert len(lean.memory) == 1  # it needs more than a half, and takes the place of its own beginning
    read(lean, [prompts[0]])
    lean.keep([])
    assert len(lean.memory) == 1  # a part of what is there
    read(lean, [[8] * 100])
    lean.keep([])
    assert lean.memory.longest([8] * 100)[0] == 0  # too much for all of it
