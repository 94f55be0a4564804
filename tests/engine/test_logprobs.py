"""The fast ways against the slow one: a full forward of one sequence at a time, all logits, log-softmax."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from clawback import engine
from clawback.models.types import GREEDY, Sampling
from clawback.scoring.attention import Layout, grain_of
from clawback.scoring.logprobs import Scorer, _agree
from clawback.templates.chat_tokens import Encoded

FAMILIES = ("llama", "qwen3", "qwen3_moe", "mixtral", "gemma2", "granite", "cohere", "gpt2", "mamba")


def sequences(count=6, seed=0):
    generator = torch.Generator().manual_seed(seed)
    result = []
    for _ in range(count):
        prompt, response = torch.randint(1, 24, (2,), generator=generator).tolist()
        ids = torch.randint(3, 384, (prompt + response,), generator=generator).tolist()
        result.append(Encoded(tuple(ids[:prompt]), tuple(ids[prompt:])))
    return result


def naive(model, encoded, temperature=1.0):
    parts, spreads = [], []
    for one in encoded:
        ids = torch.tensor([[*one.prompt, *one.response]])
        logits = (model(input_ids=ids, use_cache=False).logits[0].float() / temperature).log_softmax(-1)
        rows = logits[len(one.prompt) - 1 : -1]
        parts.append(rows.gather(1, torch.tensor(one.response)[:, None])[:, 0])
        spreads.append(-(rows.exp() * rows).sum(-1))
    return torch.cat(parts), torch.cat(spreads)


def stirred(folder, rank=4):
    """A policy whose adapter does something."""
    policy = engine.load(str(folder))
    policy.attach(rank=rank, alpha=rank, seed=1)
    torch.manual_seed(5)
    for name, parameter in policy.model.named_parameters():
        if "lora_B" in name:
            parameter.data = torch.randn_like(parameter) * 0.05
    return policy


@pytest.mark.parametrize("temperature", [1.0, 0.6])
@pytest.mark.parametrize("family", FAMILIES)
def test_logprobs_entropy_and_gradients_equal_the_full_forward(folders, family, temperature):
    policy = stirred(folders(family))
    policy.sampling = Sampling(temperature, top_p=0.9, top_k=5)
    encoded = sequences()
    lora = [p for p in policy.model.parameters() if p.requires_grad]
    scorer = policy.scorer
    assert scorer.packed == (family != "mamba")
    scored = scorer(encoded, entropy=True)
    expected, spread = naive(policy.model, encoded, temperature)
    torch.testing.assert_close(scored.logprobs, expected, atol=1e-5, rtol=1e-5)
    torch.testing.assert_close(scored.entropy, spread.detach(), atol=1e-4, rtol=1e-4)
    weight = torch.randn(len(expected), generator=torch.Generator().manual_seed(2))
    ours = torch.autograd.grad((scored.logprobs * weight).sum(), lora)
    theirs = torch.autograd.grad((expected * weight).sum(), lora)
    scale = max(float(g.abs().max()) for g in theirs)
    for mine, other in zip(ours, theirs, strict=True):
        torch.testing.assert_close(mine, other, atol=1e-5 * max(1.0, scale), rtol=1e-4)


@pytest.mark.parametrize("family", ["llama", "gemma2"])
@pytest.mark.parametrize(("packed", "fused"), [(True, True), (False, True), (False, False)])
def test_every_way_and_every_size_of_piece_gives_the_same(folders, family, packed, fused):
    policy = stirred(folders(family))
    encoded = sequences(9, seed=3)
    expected, _ = naive(policy.model, encoded, 0.7)
    for micro in (1, 60, 10_000):
        scorer = Scorer(policy.model, temperature=0.7, micro_tokens=micro)
        scorer.packed, scorer.fused_head = packed, fused
        pieces = scorer.pieces(encoded)
        assert sorted(i for piece in pieces for i in piece) == list(range(9))
        with torch.no_grad():
            torch.testing.assert_close(scorer(encoded).logprobs, expected.detach(), atol=1e-5, rtol=1e-5)


def kin(seed=0):
    """Three answers to one long prompt, two that begin like one of them, one of an other prompt with the same system message, and a stranger."""
    generator = torch.Generator().manual_seed(seed)

    def some(count):
        return tuple(torch.randint(3, 384, (count,), generator=generator).tolist())

    system, answer = some(40), some(70)
    prompt = system + some(33)
    made = [Encoded(prompt, some(n)) for n in (5, 1, 40)]
    made += [Encoded(prompt, answer), Encoded(prompt, answer[:66] + some(9)), Encoded(prompt, answer)]
    made += [Encoded(system + some(3), some(12)), Encoded(some(9), some(80))]
    return [made[i] for i in torch.randperm(len(made), generator=generator).tolist()]


@pytest.mark.parametrize("family", [f for f in FAMILIES if f != "mamba"])
def test_a_common_beginning_goes_through_once_and_gives_the_same(folders, family):
    policy = stirred(folders(family))
    policy.sampling = Sampling(0.8)
    lora = [p for p in policy.model.parameters() if p.requires_grad]
    scorer, encoded = policy.scorer, kin()
    assert scorer.shares
    read = []
    hook = scorer._body.register_forward_pre_hook(
        lambda _, __, given: read.append(given["input_ids"].numel()), with_kwargs=True
    )
    scored = scorer(encoded)
    hook.remove()
    assert sum(read) < 0.6 * sum(len(one.prompt) + len(one.response) for one in encoded)
    expected, _ = naive(policy.model, encoded, 0.8)
    torch.testing.assert_close(scored.logprobs, expected, atol=1e-5, rtol=1e-5)
    weight = torch.randn(len(expected), generator=torch.Generator().manual_seed(2))
    ours = torch.autograd.grad((scored.logprobs * weight).sum(), lora)
    theirs = torch.autograd.grad((expected * weight).sum(), lora)
    scale = max(float(g.abs().max()) for g in theirs)
    for mine, other in zip(ours, theirs, strict=True):
        torch.testing.assert_close(mine, other, atol=1e-5 * max(1.0, scale), rtol=1e-4)


def test_a_common_beginning_in_16_bits(folders):
    """Attention in one piece: as near to itself in float32 as without sharing."""
    exact, rough = (engine.load(str(folders("qwen3")), dtype=d) for d in ("float32", "bfloat16"))
    encoded, gradients = kin(), {}
    for name, policy in (("exact", exact), ("shared", rough), ("apart", rough)):
        weight = policy.model.get_input_embeddings().weight.requires_grad_()
        policy.scorer.shares = name == "shared"
        (gradients[name],) = torch.autograd.grad(policy.scorer(encoded).logprobs.sum(), weight)
    far = {n: float((gradients[n].float() - gradients["exact"]).norm()) for n in ("shared", "apart")}
    assert far["shared"] < 1.5 * far["apart"]
    assert far["apart"] < 0.1 * float(gradients["exact"].norm())


@settings(max_examples=60, deadline=None)
@given(
    st.lists(st.tuples(st.integers(0, 2), st.integers(0, 140), st.integers(1, 40)), min_size=1, max_size=12)
)
def test_a_layout_has_every_token_of_every_sequence(drawn):
    stems = [tuple(range(stem, stem + 140)) for stem in range(3)]
    rows = [(*stems[stem][:kept], *range(1000, 1000 + own)) for stem, kept, own in drawn]
    for grain in (0, 1, 32):
        layout = Layout.of(rows, grain)
        flat = [token for row, shared in zip(rows, layout.shared, strict=True) for token in row[shared:]]
        assert len(flat) == sum(layout.new)
        assert min(layout.new) > 0
        assert [tuple(flat[i] for i in places) for places in layout.places()] == rows
        assert grain or not any(layout.shared)


def test_beginnings_are_shared_to_the_token_but_in_16_bits():
    row = tuple(range(80))
    rows = [row, (*row[:53], 90, 91), (*row[:31], 92), row]
    assert Layout.of(rows, 1).shared == (0, 53, 0, 0)
    assert Layout.of(rows, 32).shared == (0, 32, 0, 0)
    assert Layout.of([row, row], 1).shared == (0, 79)  # one token of each is its own
    assert [grain_of(torch.empty(1, dtype=dtype)) for dtype in (torch.float32, torch.bfloat16)] == [1, 32]


def test_the_reference_is_the_model_without_its_adapter(folders):
    policy = stirred(folders("llama"))
    encoded = sequences()
    untouched = engine.load(str(folders("llama")))
    with torch.no_grad(), policy.base():
        inside = policy.scorer(encoded).logprobs
    with torch.no_grad():
        assert torch.equal(inside, untouched.scorer(encoded).logprobs)
        assert not torch.allclose(inside, policy.scorer(encoded).logprobs)


def test_hidden_states_of_the_response_itself(folders):
    policy = engine.load(str(folders("llama")))
    one = Encoded((5, 6, 7), (8, 9, 10))
    with torch.no_grad():
        full = policy.model.model(input_ids=torch.tensor([[5, 6, 7, 8, 9, 10]]))[0][0]
        torch.testing.assert_close(policy.scorer.hidden([one]), full[2:5])
        torch.testing.assert_close(policy.scorer.hidden([one], of_response=True), full[3:6])


def test_sequences_longer_than_a_sliding_window_go_through_the_models_own_attention(folders):
    policy = stirred(folders("gemma2"))  # window 256
    policy.sampling = Sampling()
    ids = torch.randint(3, 384, (400,), generator=torch.Generator().manual_seed(0)).tolist()
    encoded = [Encoded(tuple(ids[:300]), tuple(ids[300:])), *sequences(2)]
    assert policy.scorer.packed
    with torch.no_grad():
        expected, _ = naive(policy.model, encoded)
        torch.testing.assert_close(policy.scorer(encoded).logprobs, expected, atol=1e-5, rtol=1e-5)


def test_rounding_of_large_logits_in_bfloat16_is_no_disagreement(folders):
    """Of a real model an unlikely token is 15 nats away, which bfloat16 rounds by more than it does those of a small random one."""
    model = engine.load(str(folders("qwen3")), dtype="bfloat16").model
    model.get_output_embeddings().weight.data *= 10
    scorer = Scorer(model)
    assert float(scorer._stock(Encoded((5, 6), (7, 8, 9))).abs().mean()) > 15
    assert scorer.packed


def test_a_missing_scale_is_a_disagreement_in_bfloat16_too():
    expected = -15 * torch.rand(32, generator=torch.Generator().manual_seed(0))
    assert _agree(expected + 0.05, expected, torch.bfloat16)
    assert not _agree(1.05 * expected, expected, torch.bfloat16)
    assert not _agree(expected * float("nan"), expected, torch.bfloat16)


def test_policy_logprobs_include_the_end_token(folders):
    policy = engine.load(str(folders("qwen3")))
    conversation = [{"role": "user", "content": "Tell me about otters."}]
    ids = [*policy.tokenizer.encode("Sure!", add_special_tokens=False), policy.chat.end_id]
    by_text, by_ids = policy.logprobs([conversation] * 2, ["Sure!", ids])
    assert len(by_text) == len(ids)
    torch.testing.assert_close(by_text, by_ids)


def test_exact_divergence_is_that_of_the_tempered_policies(folders):
    policy = stirred(folders("gemma2"))  # it caps its logits
    policy.sampling = Sampling(0.5)
    encoded = sequences(4)
    with torch.no_grad(), policy.base():
        reference = policy.scorer.states(encoded)
        theirs = _table(policy.model, encoded, 0.5)
    scored = policy.scorer.against(encoded, reference, 0.3)
    ours = _table(policy.model, encoded, 0.5)
    expected = (ours.exp() * (ours - theirs)).sum(1) + 0.3 * (theirs.exp() * (theirs - ours)).sum(1)
    assert scored.kl is not None
    torch.testing.assert_close(scored.kl, expected, atol=1e-5, rtol=1e-4)
    lora = [p for p in policy.model.parameters() if p.requires_grad]
    for mine, other in zip(
        torch.autograd.grad(scored.kl.sum(), lora), torch.autograd.grad(expected.sum(), lora), strict=True
    ):
        torch.testing.assert_close(mine, other, atol=2e-4, rtol=1e-3)


def _table(model, encoded, temperature):
    """[N, V] log-probs at the response positions."""
    rows = []
    for one in encoded:
        logits = model(input_ids=torch.tensor([[*one.prompt, *one.response]]), use_cache=False).logits[0]
        rows.append((logits.float() / temperature).log_softmax(-1)[len(one.prompt) - 1 : -1])
    return torch.cat(rows)


def test_a_greedy_policy_has_the_log_probs_of_temperature_one(folders):
    policy = stirred(folders("llama"))
    encoded = sequences(3)
    policy.sampling = Sampling()
    expected = policy.scorer(encoded).logprobs
    policy.sampling = GREEDY
    torch.testing.assert_close(policy.scorer(encoded).logprobs, expected)


def test_tries_at_a_long_prompt_stay_together_though_it_is_longer_than_a_piece(folders):
    """Apart, the prompt would be computed again for each of them. Two prompts are two pieces, and strangers keep to the limit."""
    policy = stirred(folders("llama"))
    scorer = Scorer(policy.model, micro_tokens=64)
    rng = torch.Generator().manual_seed(4)

    def some(count):
        return tuple(torch.randint(3, 384, (count,), generator=rng).tolist())

    prompts = [some(96), some(96)]
    encoded = [Encoded(prompt, some(6)) for prompt in prompts for _ in range(8)]
    pieces = scorer.pieces(encoded)
    assert sorted(map(sorted, pieces)) == [list(range(8)), list(range(8, 16))]
    alone = [Encoded(some(20), some(10)) for _ in range(8)]
    assert all(len(piece) <= 2 for piece in scorer.pieces(alone))
    assert all(len(piece) == 1 for piece in scorer.pieces(encoded, share=False))
