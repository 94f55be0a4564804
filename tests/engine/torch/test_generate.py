"""The sampler against the library's own generate, a full forward pass, and the distribution it claims to draw from."""

import time

import pytest
import torch

from clawback import engine
from clawback.extensions.demo import corpus
from clawback.models.types import GREEDY, Sampling
from clawback.sampling.batched_sampler import DrawSettings, sample
from clawback.sampling.scheduler import closed_ranks

transformers = pytest.importorskip("transformers")

STOP = 2


def tiny(kind="llama", vocabulary=64, seed=0, **more):
    torch.manual_seed(seed)
    sizes = {"vocab_size": vocabulary, "hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 3}
    sizes |= {"num_attention_heads": 4, "num_key_value_heads": 2, "max_position_embeddings": 256}
    sizes |= {"initializer_range": 0.3, "pad_token_id": 0, "eos_token_id": STOP} | more
    if kind == "mistral":
        return transformers.MistralForCausalLM(transformers.MistralConfig(**sizes, sliding_window=8)).eval()
    if kind == "qwen3_moe":
        sizes |= {"num_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 16, "head_dim": 8}
        return transformers.Qwen3MoeForCausalLM(transformers.Qwen3MoeConfig(**sizes)).eval()
    return transformers.LlamaForCausalLM(transformers.LlamaConfig(**sizes)).eval()


def prompts(count, longest=9, vocabulary=64, seed=0):
    g = torch.Generator().manual_seed(seed)
    lengths = torch.randint(1, longest + 1, (count,), generator=g).tolist()
    return [torch.randint(3, vocabulary, (n,), generator=g).tolist() for n in lengths]


def full_logprobs(model, prompt, ids, temperature=1.0):
    """Of each response token, by one pass without a cache. [tokens]"""
    with torch.no_grad():
        logits = model(torch.tensor([[*prompt, *ids]])).logits[0].float()
    log_p = torch.log_softmax(logits[len(prompt) - 1 : -1] / temperature, -1)
    return log_p.gather(1, torch.tensor(ids)[:, None])[:, 0]


@pytest.mark.parametrize("kind", ["llama", "mistral", "qwen3_moe"])
def test_greedy_is_what_generate_says(kind):
    model = tiny(kind)
    for prompt in prompts(6):
        [[ours]] = sample(model, [prompt], DrawSettings(max_tokens=20, sampling=GREEDY, stop=[STOP]))
        theirs = model.generate(torch.tensor([prompt]), do_sample=False, max_new_tokens=20)[0, len(prompt) :]
        assert list(ours.ids) == theirs.tolist()


@pytest.mark.parametrize("attention", ["sdpa", "eager"])
@pytest.mark.parametrize("kind", ["llama", "mistral", "qwen3_moe"])
def test_logprobs_are_those_of_a_full_forward(kind, attention):
    model = tiny(kind, attn_implementation=attention)
    asked = prompts(7)
    answers = sample(
        model,
        asked,
        DrawSettings(samples=3, max_tokens=25, sampling=Sampling(0.8), stop=[STOP, 5, 9], seed=1),
    )
    lengths = set()
    for prompt, group in zip(asked, answers, strict=True):
        for one in group:
            lengths.add(len(one.ids))
            assert len(one.ids) == len(one.logprobs)
            expected = full_logprobs(model, prompt, list(one.ids), 0.8)
            torch.testing.assert_close(torch.tensor(one.logprobs), expected, atol=1e-4, rtol=0)
    assert len(lengths) > 3  # rows did end at different times


def test_an_answer_ends_with_its_end_token_or_at_the_limit():
    answers = sample(tiny(), prompts(8), DrawSettings(samples=4, max_tokens=30, stop=[STOP, 7], seed=3))
    ended = [one for group in answers for one in group if one.finished]
    cut = [one for group in answers for one in group if not one.finished]
    assert ended
    assert cut
    assert all(one.ids[-1] in (STOP, 7) and not {STOP, 7} & set(one.ids[:-1]) for one in ended)
    assert all(len(one.ids) == 30 and not {STOP, 7} & set(one.ids) for one in cut)


def test_tokens_come_in_their_proportions():
    model, prompt = tiny(vocabulary=16), [4, 5]
    for temperature in (1.0, 0.5):
        [answers] = sample(
            model,
            [prompt],
            DrawSettings(samples=20_000, max_tokens=1, sampling=Sampling(temperature), rows=20_000),
        )
        counts = torch.bincount(torch.tensor([one.ids[0] for one in answers]), minlength=16)
        with torch.no_grad():
            p = torch.softmax(model(torch.tensor([prompt])).logits[0, -1] / temperature, -1)
        expected = 20_000 * p
        chi_square = float((((counts - expected) ** 2) / expected)[expected > 5].sum())
        assert chi_square < 45  # 15 degrees of freedom: p about 1e-4


def test_same_seed_same_answers_whatever_the_batching():
    model, asked = tiny(), prompts(10)
    first = sample(model, asked, DrawSettings(samples=2, max_tokens=20, stop=[STOP, 7], seed=5))
    assert first == sample(model, asked, DrawSettings(samples=2, max_tokens=20, stop=[STOP, 7], seed=5))
    other = sample(model, asked, DrawSettings(samples=2, max_tokens=20, stop=[STOP, 7], seed=5, rows=3))
    assert [[o.ids for o in g] for g in first] == [[o.ids for o in g] for g in other]
    assert first != sample(model, asked, DrawSettings(samples=2, max_tokens=20, stop=[STOP, 7], seed=6))
    generator = torch.Generator().manual_seed(5)
    assert first == sample(
        model, asked, DrawSettings(samples=2, max_tokens=20, stop=[STOP, 7], seed=generator)
    )
    assert first != sample(
        model, asked, DrawSettings(samples=2, max_tokens=20, stop=[STOP, 7], seed=generator)
    )


def test_the_mode_of_the_model_is_left_as_it_was():
    model = tiny()
    for training in (True, False):
        model.train(training)
        sample(model, [[4]], DrawSettings(max_tokens=2))
        assert model.training is training


def test_finished_rows_are_replaced_by_the_last_live_ones():
    assert closed_ranks([True, False, True, True, False]) == [4, 1]
    assert closed_ranks([False] * 3) == [0, 1, 2]
    assert closed_ranks([True] * 3) == []


def test_an_empty_prompt_is_refused():
    with pytest.raises(ValueError):
        sample(tiny(), [[4], []], DrawSettings(max_tokens=2))


@pytest.mark.slow
def test_it_is_half_again_as_fast_as_generate():
    """Four answers of the embedded model to each of 64 prompts, which end when they end; processor time, so that
    neighbours do not count."""
    policy = engine.load("embedded")
    asked = [policy.chat.prompt(p.messages) for p in corpus.prompts("rated", 64, 0)]
    width, end = max(map(len, asked)), policy.chat.end_id
    ids = torch.tensor([[0] * (width - len(p)) + p for p in asked])
    mask = torch.tensor([[0] * (width - len(p)) + [1] * len(p) for p in asked])
    settings = {"do_sample": True, "top_k": 0, "max_new_tokens": 160, "num_return_sequences": 4}
    settings |= {"eos_token_id": end, "pad_token_id": 0}

    def rate(call):
        """Tokens a second, the best of three."""
        call()
        best = 0.0
        for _ in range(3):
            start = time.process_time()
            count = call()
            best = max(best, count / (time.process_time() - start))
        return best

    def theirs():
        out = policy.model.generate(ids, attention_mask=mask, **settings)[:, width:]
        return int(sum((row == end).int().argmax() + 1 for row in out))

    def ours():
        groups = sample(policy.model, asked, DrawSettings(samples=4, max_tokens=160, stop=[end]))
        return sum(len(one.ids) for group in groups for one in group)

    ratio = rate(ours) / rate(theirs)
    print(f"{ratio:.2f} times the tokens a second of generate")
    assert ratio > 1.5
