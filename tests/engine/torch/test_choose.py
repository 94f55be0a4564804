"""Tokens against the distribution that they are said to come from: tempered, then top-k, then top-p, as the library does it."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from clawback.errors import UsageError
from clawback.models.types import GREEDY, Sampling
from clawback.sampling.choose import draw

transformers = pytest.importorskip("transformers")


def warped(logits, sampling):
    """[vocabulary] probabilities as the library's own warpers leave them."""
    steps = [transformers.TemperatureLogitsWarper(sampling.temperature)] if sampling.temperature != 1 else []
    steps += [transformers.TopKLogitsWarper(sampling.top_k)] if sampling.top_k else []
    steps += [transformers.TopPLogitsWarper(sampling.top_p)] if sampling.top_p < 1 else []
    for step in steps:
        logits = step(None, logits)
    return logits.softmax(-1)


@pytest.mark.parametrize(
    "sampling",
    [
        Sampling(),
        Sampling(0.6),
        Sampling(0.6, 0.95),
        Sampling(1.3, 0.5),
        Sampling(1.0, 1.0, 7),
        Sampling(0.8, 0.7, 12),
    ],
)
@pytest.mark.parametrize("size", [60, 64, 61])
def test_tokens_come_in_their_proportions(sampling, size):
    count, generator = 40_000, torch.Generator().manual_seed(0)
    logits = 2 * torch.randn(1, size, generator=generator)
    chance, again = torch.rand(2, count, generator=generator)
    tokens, _ = draw(logits.expand(count, -1), chance, again, sampling)
    counts, expected = torch.bincount(tokens, minlength=size), count * warped(logits, sampling)[0]
    assert not counts[expected == 0].any()
    kept = expected > 5
    assert float((((counts - expected) ** 2) / expected)[kept].sum()) < 1.9 * int(kept.sum()) + 20


@given(st.data())
@settings(max_examples=60, deadline=None)
def test_no_token_is_drawn_that_was_cut_off(data):
    seed = data.draw(st.integers(0, 2**31))
    sampling = Sampling(
        data.draw(st.floats(0.1, 3.0)), data.draw(st.floats(0.05, 1.0)), data.draw(st.integers(0, 70))
    )
    generator = torch.Generator().manual_seed(seed)
    logits = 3 * torch.randn(5, 64, generator=generator)
    edges = torch.tensor([0.0, 1 - 2**-24, 0.5, 0.25, 0.999])
    tokens, logprobs = draw(logits, edges, edges.flip(0), sampling)
    log_p = (logits / sampling.temperature).log_softmax(-1)
    torch.testing.assert_close(logprobs, log_p.gather(1, tokens[:, None])[:, 0], atol=1e-5, rtol=1e-4)
    ordered, places = log_p.exp().sort(dim=-1, descending=True)
    rank = (places == tokens[:, None]).int().argmax(1)
    assert (rank < (sampling.top_k or 64)).all()
    share = ordered[:, : sampling.top_k or 64].sum(1)
    before = (ordered.cumsum(1) - ordered).gather(1, rank[:, None])[:, 0] / share
    assert (before < sampling.top_p + 1e-5).all()


def test_log_probs_are_tempered_and_whole():
    logits, kept = torch.randn(3, 20, generator=torch.Generator().manual_seed(0)), torch.zeros(3)
    before = logits.clone()
    tokens, logprobs = draw(logits, kept, kept, Sampling(0.6, 0.5, 3))
    torch.testing.assert_close(logprobs, (logits / 0.6).log_softmax(-1).gather(1, tokens[:, None])[:, 0])
    tokens, logprobs = draw(logits, kept, None, GREEDY)
    assert tokens.tolist() == logits.argmax(-1).tolist()
    torch.testing.assert_close(logprobs, logits.log_softmax(-1).amax(-1))
    assert torch.equal(logits, before)


@pytest.mark.parametrize(
    "wrong", [{"temperature": -1.0}, {"temperature": float("nan")}, {"top_p": 0.0}, {"top_k": -1}]
)
def test_what_cannot_be_is_refused(wrong):
    with pytest.raises(UsageError):
        Sampling(**wrong)
