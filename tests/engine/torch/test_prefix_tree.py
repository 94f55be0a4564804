"""Prompts that begin alike, read once: against each read by itself."""

from __future__ import annotations

import itertools

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from clawback import engine
from clawback.sampling import prefix_tree
from clawback.sampling.decoder import Cache, Decoder
from clawback.sampling.prefix_tree import PrefixTree, by_family, common, read

PROMPTS = st.lists(st.lists(st.integers(0, 2), min_size=1, max_size=12), min_size=1, max_size=8)


def alone(made, prompts):
    """Logits, keys and values of each prompt in a cache of its own."""
    for prompt in prompts:
        cache = Cache(made, 1, len(prompt))
        logits = made.read([prompt], cache, torch.tensor([0]))[0]
        yield logits, [x[:, 0, :, : len(prompt)] for x in cache.layers]


@pytest.mark.parametrize("family", ["llama", "qwen3"])
@pytest.mark.parametrize(("piece", "columns"), [(2, 100), (32, 2**17)])
@torch.no_grad()
def test_they_are_read_as_each_by_itself(folders, family, piece, columns, monkeypatch):
    monkeypatch.setattr(prefix_tree, "PIECE", piece)
    monkeypatch.setattr(prefix_tree, "COLUMNS", columns)
    made = Decoder(engine.load(str(folders(family))).model)
    ids = torch.randint(3, 384, (30,), generator=torch.Generator().manual_seed(0)).tolist()
    prompts = [ids[:9], ids[:9], ids[:12], [*ids[:5], *ids[20:30]], ids[15:17], [ids[15]], ids]
    slots = [3, 0, 1, 6, 2, 5, 7]
    cache = Cache(made, 8, 4)  # which has to grow
    logits, fresh = read(made, prompts, [0] * len(prompts), cache, torch.tensor(slots))
    assert fresh == [9, 0, 3, 10, 2, 0, 30]
    for got, slot, prompt, (wanted, kept) in zip(logits, slots, prompts, alone(made, prompts), strict=True):
        torch.testing.assert_close(got, wanted, atol=1e-4, rtol=1e-4)
        for ours, theirs in zip(cache.layers, kept, strict=True):
            torch.testing.assert_close(ours[:, slot, :, : len(prompt)], theirs, atol=1e-4, rtol=1e-4)


@torch.no_grad()
def test_long_prompts_with_little_in_common_are_read_as_wholes(folders, monkeypatch):
    monkeypatch.setattr(prefix_tree, "LONG", 8)
    made = Decoder(engine.load(str(folders("llama"))).model)
    whole = []
    plain = Decoder.read
    monkeypatch.setattr(Decoder, "read", lambda *given: (whole.append(len(given[1])), plain(*given))[1])
    for prompts in ([[3] * 9, [4] * 9], [[3] * 9, [*[3] * 8, 4]], [[5] * 4, [6] * 4]):
        read(made, prompts, [0, 0], Cache(made, 2, 9), torch.tensor([0, 1]))
    assert whole == [2]


@settings(deadline=None)
@given(PROMPTS)
def test_a_tree_has_each_prompt_and_no_token_twice_in_what_neighbours_share(prompts):
    tree = PrefixTree.of(prompts, [0] * len(prompts))
    assert [[tree.tokens[i] for i in row] for row in tree.index] == prompts
    assert [[tree.positions[i] for i in row] for row in tree.index] == [[*range(len(p))] for p in prompts]
    shared = sum(common(a, b) for a, b in itertools.pairwise(prompts))
    assert len(tree.tokens) == sum(map(len, prompts)) - shared
    owners = [divmod(place, tree.size) for place in tree.places]
    stands = [(tree.pieces[piece][0], tree.pieces[piece][1] + i) for piece, i in owners]
    assert len(set(stands)) == len(stands)
    assert all(tree.index[row][column] == i for i, (row, column) in enumerate(stands))


@given(PROMPTS)
def test_families_are_an_order_of_all_prompts(prompts):
    assert sorted(by_family(prompts)) == [*range(len(prompts))]


def test_wordings_of_one_question_follow_each_other_and_short_questions_come_first():
    system = [1, 2, 3]
    prompts = [[*system, *[q] * n, w] for w in (91, 92) for q, n in ((7, 5), (5, 9), (8, 2))]
    assert [prompts[i][3] for i in by_family(prompts)] == [8, 8, 7, 7, 5, 5]
