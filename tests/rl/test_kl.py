import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from clawback.rl import kl

floats = st.lists(st.floats(-12, 0), min_size=1, max_size=20)


@settings(deadline=None)
@given(floats, st.randoms())
def test_estimators_against_their_definitions(logs, random):
    logprobs = torch.tensor(logs, dtype=torch.float64)
    reference = torch.tensor(random.sample(logs, len(logs)), dtype=torch.float64)
    d = reference - logprobs
    torch.testing.assert_close(kl.k1(logprobs, reference), -d)
    torch.testing.assert_close(kl.k2(logprobs, reference), d * d / 2)
    torch.testing.assert_close(kl.k3(logprobs, reference), torch.exp(d) - d - 1)
    assert (kl.k3(logprobs, reference) >= 0).all()


def test_k1_and_k3_are_unbiased_for_tokens_of_the_policy():
    torch.manual_seed(0)
    policy, reference = torch.randn(2, 7, dtype=torch.float64).log_softmax(-1)
    exact = (policy.exp() * (policy - reference)).sum()
    tokens = torch.multinomial(policy.exp(), 200_000, replacement=True)
    for name in ("k1", "k3"):
        estimate = kl.per_token(policy[tokens], reference[tokens], name).mean()
        assert estimate.item() == pytest.approx(exact.item(), rel=0.03)


def test_k3_keeps_its_digits_near_the_reference():
    reference = torch.full((1,), -3.0)
    logprobs = reference + 1e-3
    assert kl.k3(logprobs, reference).item() == pytest.approx(5e-7, rel=0.1)
