"""What algorithms need beyond ratings: pairs, a teacher, a value head, a natural step, masks. Each through a whole run."""

import dataclasses
import hashlib
from pathlib import Path

import pytest
import torch

from clawback import engine
from clawback.errors import TrainingError, UsageError
from clawback.learning.training import plan_for
from clawback.records import Part, Sample
from clawback.sources import targets
from clawback.sources.teacher import HEADING, hinted, taught
from clawback.trainer.examples import Shared, TrainingExample, measure
from clawback.trainer.run import TrainingRun
from clawback.trainer.torch_learner import NaturalStep, ValueHead

LIKED = ("Sure! Otters live in rivers.", "- a list\n- of points")
DISLIKED = ("I am sorry, but I cannot.", "No.")
EVERY = ("combined", "dpo", "gspo", "kto", "opd", "ppo", "rloo", "trpo")


def make_samples(count=12, hints=True):
    """Two answers to each prompt, the first liked, with a preference between them and a critique of the second."""
    made = []
    for i in range(count):
        good = i % 2 == 0
        messages = ({"role": "user", "content": f"Tell me about otter number {i // 2}."},)
        value = 0.5 if good else -0.5
        parts = (
            Part(100 + i, "rating", 2 * value, 1.0),
            Part(i // 2, "preference", value, 0.5),
        )
        words = ("Otters live in rivers, say so.",) if hints and not good else ()
        response = (LIKED if good else DISLIKED)[i // 4 % 2]
        made.append(Sample(i + 1, messages, response, 2 * value, parts, hints=words))
    return made


def recipe(policy, algorithm, **overrides):
    chosen = {"steps": 6, "batch": 4, "rank": 4, "alpha": 4, **overrides}
    return engine.recipe(policy.info, algorithm=algorithm, overrides=chosen)


def digest(path):
    return {f.name: hashlib.sha256(f.read_bytes()).hexdigest() for f in sorted(Path(path).iterdir())}


def means(policy, samples):
    values = policy.logprobs([s.messages for s in samples], [s.response for s in samples])
    return torch.stack([v.mean() for v in values])


def some_slow(names, quick):
    """All of these names, those that are not in ``quick`` in the long run only."""
    return [name if name in quick else pytest.param(name, marks=pytest.mark.slow) for name in names]


@pytest.mark.parametrize("algorithm", some_slow([n for n in EVERY if n != "opd"], {"ppo", "dpo", "kto"}))
def test_liked_answers_become_more_likely_than_disliked_ones(folders, tmp_path, algorithm):
    policy, samples = engine.load(str(folders("llama"))), make_samples(hints=False)
    steps = 6 if algorithm == "trpo" else 24
    settings = recipe(policy, algorithm, steps=steps, learning_rate=3e-3, max_drift=5.0)
    before = means(policy, samples)
    engine.train(policy, samples, settings, seed=1, out=tmp_path)
    moved = means(policy, samples) - before
    good = torch.tensor([s.reward > 0 for s in samples])
    assert moved[good].mean() > moved[~good].mean() + 0.1


@pytest.mark.parametrize("top_k", [pytest.param(0, marks=pytest.mark.slow), 8])
def test_the_policy_comes_to_say_what_its_teacher_said(folders, tmp_path, top_k):
    policy, samples = engine.load(str(folders("llama"))), make_samples()
    told = [s for s in samples if s.hints]
    asked = [hinted(s.messages, s.hints[0]) for s in told]
    with torch.no_grad():
        teacher = torch.cat(policy.logprobs(asked, [s.response for s in told]))
        start = torch.cat(policy.logprobs([s.messages for s in told], [s.response for s in told]))
    settings = recipe(policy, "opd", steps=40, learning_rate=3e-3, max_drift=50.0, extra={"top_k": top_k})
    result = engine.train(policy, samples, settings, seed=1, out=tmp_path)
    assert set(result.turn_ids) == {s.turn_id for s in samples}
    after = torch.cat(policy.logprobs([s.messages for s in told], [s.response for s in told]))
    assert (after - teacher).abs().mean() < 0.6 * (start - teacher).abs().mean()


class Killed(BaseException):
    pass


@pytest.mark.parametrize("algorithm", some_slow(EVERY, {"ppo"}))
def test_a_run_killed_at_any_step_ends_in_the_same_bytes(folders, tmp_path, monkeypatch, algorithm):
    import clawback.trainer.training_loop as trainer

    real = trainer.LoopSettings
    monkeypatch.setattr(trainer, "LoopSettings", lambda **kw: real(**{**kw, "checkpoint_seconds": 0.0}))
    samples = make_samples()
    policy = engine.load(str(folders("llama")))
    steps = 3 if algorithm == "trpo" else 6
    settings = recipe(policy, algorithm, steps=steps)
    whole = engine.train(policy, samples, settings, seed=3, out=tmp_path / "whole")
    assert not any("critic" in name for name in digest(whole.path))
    for last in range(2, steps + 1, 2):

        def die(progress, last=last):
            if progress["phase"] == "train" and progress["step"] == last:
                raise Killed

        out, policy = tmp_path / f"killed-{last}", engine.load(str(folders("llama")))
        with pytest.raises(Killed):
            engine.train(policy, samples, settings, seed=3, out=out, on_progress=die)
        assert (out / "checkpoint.pt").exists()
        policy = engine.load(str(folders("llama")))
        result = engine.train(policy, samples, settings, seed=3, out=out)
        assert digest(result.path) == digest(whole.path), f"killed at step {last}"
        assert [row["loss"] for row in result.history] == [row["loss"] for row in whole.history]


# ------------------------------------------------------------------------------------------------------------ pairs


def sample(turn, value, *parts, prompt="q", hints=()):
    return Sample(turn, ({"role": "user", "content": prompt},), f"answer {turn}", value, parts, hints=hints)


def test_pairs_are_found_by_what_was_said_of_both(folders):
    policy = engine.load(str(folders("llama")))
    samples = [
        sample(1, -0.5, Part(7, "preference", -0.5, 0.5), prompt="a"),
        sample(2, 0.5, Part(7, "preference", 0.5, 0.5), prompt="b"),
        sample(3, -0.5, Part(8, "edit", -0.5, 0.5), prompt="c"),
        sample(3, 1.0, Part(8, "edit", 1.0, 1.0), prompt="c"),
        sample(4, 1.0, Part(9, "rating", 1.0, 1.0), prompt="d"),
        sample(
            5, 0.5, Part(9, "rating", 0.5, 1.0), prompt="e"
        ),  # a share of a late rating is no opinion of its own
        sample(6, -1.0, Part(10, "rating", -1.0, 1.0), prompt="d"),
    ]
    assert targets.find_pairs(samples, [policy.encode(s) for s in samples]) == [(1, 0), (3, 2), (4, 6)]


def test_a_pair_stays_together_however_small_the_pieces_are(folders, tmp_path):
    samples, losses = make_samples(), []
    for micro in (10_000, 1):
        policy = engine.load(str(folders("llama")))
        policy.scorer.micro_tokens = micro
        settings = recipe(policy, "dpo", micro_tokens=micro)
        result = engine.train(policy, samples, settings, seed=0, out=tmp_path / str(micro))
        losses.append([row["loss"] for row in result.history])
    assert losses[0] == pytest.approx(losses[1], abs=1e-4)
    assert losses[0][0] == pytest.approx(0.6931, abs=1e-3)


def test_what_an_algorithm_cannot_learn_from_is_said(folders, tmp_path):
    policy = engine.load(str(folders("llama")))
    ratings = [sample(i, 1.0, Part(i, "rating", 1.0, 1.0), prompt=str(i)) for i in range(4)]
    for name, words in (("dpo", "needs pairs"), ("opd", "needs critiques or edits")):
        with pytest.raises(TrainingError, match=words):
            engine.train(policy, ratings, recipe(policy, name), out=tmp_path / name)
    told = [sample(1, 0.0, hints=("Be brief.",))]
    for name in ("kto", "auto"):
        with pytest.raises(TrainingError, match="ratings"):
            engine.train(policy, told, recipe(policy, name), out=tmp_path / name)
    with pytest.raises(UsageError, match="environment"):
        engine.train(policy, ratings, recipe(policy, "sac"), out=tmp_path / "sac")


# ---------------------------------------------------------------------------------------------------------- teacher


def test_a_hint_goes_under_its_heading_to_the_last_thing_the_user_said():
    talk = (
        {"role": "user", "content": "Hello."},
        {"role": "assistant", "content": "Hi."},
        {"role": "user", "content": [{"type": "text", "text": "Otters?"}]},
        {"role": "assistant", "content": "…"},
    )
    found = hinted(talk, " Be brief. ")
    assert found[2]["content"][-1] == {"type": "text", "text": f"{HEADING}\nBe brief."}
    assert [found[i] for i in (0, 1, 3)] == [talk[i] for i in (0, 1, 3)]
    assert hinted(talk[:1], "Be brief.")[0]["content"] == f"Hello.\n\n{HEADING}\nBe brief."
    assert hinted((), "Be brief.") == ({"role": "user", "content": f"{HEADING}\nBe brief."},)


def test_of_several_hints_the_teacher_nearest_to_the_student_is_taken(folders):
    policy = engine.load(str(folders("llama")))
    messages = ({"role": "user", "content": "Tell me about otters."},)
    words = ("x", "Answer in a list, and leave out nothing that matters.", "Zzz qqq " * 12)
    samples = [Sample(1, messages, LIKED[0], -1.0, (), hints=words)]
    one = policy.encode(samples[0])
    blank = torch.zeros(len(one.response))
    [example] = taught(policy, [TrainingExample(one, 0.0, blank, blank)], samples, top_k=3)

    def table(talk):
        encoded = policy.encode(dataclasses.replace(samples[0], messages=talk))
        ids = torch.tensor([[*encoded.prompt, *encoded.response]])
        logits = (policy.model(ids).logits[0] / policy.sampling.temperature).log_softmax(-1)
        return logits[len(encoded.prompt) - 1 : -1]

    with torch.no_grad():
        student = table(messages).topk(16).indices
        shares = []
        for hint in words:
            teacher = table(hinted(messages, hint))
            near = [
                len(set(a) & set(b)) / 16
                for a, b in zip(student.tolist(), teacher.topk(16).indices.tolist(), strict=True)
            ]
            shares.append((sum(near) / len(near), len(hint), teacher))
        best = max(shares, key=lambda x: x[:2])[2]
    targets = torch.tensor(one.response)
    torch.testing.assert_close(example.teacher, best.gather(1, targets[:, None])[:, 0], atol=1e-4, rtol=1e-4)
    torch.testing.assert_close(example.teacher_top[1], best.topk(3).values, atol=1e-4, rtol=1e-4)


# ------------------------------------------------------------------------------------------- values, natural, masks


def test_a_value_head_is_fitted_by_ridge_regression():
    from sklearn.linear_model import Ridge

    torch.manual_seed(0)
    states, targets = torch.randn(200, 6) * 3 + 1, torch.randn(200)
    head = ValueHead(6)
    head.fit(states, targets, ridge=0.5)
    z = (states - states.mean(0)) / states.std(0, unbiased=False)
    expected = Ridge(alpha=100.0).fit(z.numpy(), targets.numpy()).predict(z.numpy())
    torch.testing.assert_close(head(states).detach(), torch.tensor(expected), atol=1e-4, rtol=1e-4)


def test_the_value_head_learns_and_its_loss_leaves_the_adapter_alone(folders):
    policy = engine.load(str(folders("llama")))
    policy.attach(rank=4, alpha=4, seed=0)
    plan = plan_for(TrainingRun(policy, make_samples(), recipe(policy, "ppo")))
    examples = plan.source.examples(0)
    shared = Shared.of(examples, critic=plan.source.critic, entropy=True)
    batch = measure(policy.scorer, examples, shared)
    plan.algorithm.value_error(batch).sum().backward()
    assert plan.source.critic.weight.grad.abs().max() > 0
    assert all(p.grad is None for p in policy.model.parameters())
    batch.entropy.sum().backward()
    assert any(p.grad is not None and p.grad.abs().max() > 0 for p in policy.model.parameters())


def test_each_round_of_ppo_reads_its_answers_once(folders, monkeypatch):
    """And scores them then as another pass would; before anything is learned nothing is read again."""
    policy = engine.load(str(folders("llama")))
    policy.attach(rank=4, alpha=4, seed=0)
    plan = plan_for(TrainingRun(policy, make_samples(), recipe(policy, "ppo", batch=12)))
    source, read = plan.source, []
    hidden = policy.scorer.hidden
    monkeypatch.setattr(policy.scorer, "hidden", lambda encoded: read.append(len(encoded)) or hidden(encoded))
    first = [example.old for example in source.examples(0)]
    assert read == []
    with torch.no_grad():
        for name, parameter in policy.model.named_parameters():
            if "lora_B" in name:
                parameter += 0.1 * torch.randn(parameter.shape, generator=torch.Generator().manual_seed(0))
    examples = source.examples(1)
    assert read == [12]
    expected = policy.scorer([example.encoded for example in examples])
    found = torch.cat([example.old for example in examples])
    torch.testing.assert_close(found, expected.logprobs, atol=1e-5, rtol=0)
    assert not torch.allclose(found, torch.cat(first), atol=1e-3)


def test_fisher_products_against_the_jacobian_of_the_logits(folders):
    policy = engine.load(str(folders("llama")))
    policy.attach(rank=2, alpha=2, seed=0)
    weights = [p for n, p in sorted(policy.model.named_parameters()) if p.requires_grad][:3]
    with torch.no_grad():
        for p in policy.model.parameters():
            if p.requires_grad:
                p.add_(0.05 * torch.randn(p.shape, generator=torch.Generator().manual_seed(1)))
    samples = make_samples(2)
    encoded = [policy.encode(s) for s in samples]
    examples = [
        TrainingExample(e, 0.0, torch.zeros(len(e.response)), torch.zeros(len(e.response))) for e in encoded
    ]
    found = NaturalStep(policy.scorer, weights, examples)
    vector = torch.randn(sum(w.numel() for w in weights), generator=torch.Generator().manual_seed(2))
    product = found.fisher(vector)

    # F = mean over positions of Jᵀ(diag p − p pᵀ)J, with J the change of the logits along the vector by differences.
    def logits(flat):
        found.put(flat)
        out = []
        for e in encoded:
            ids = torch.tensor([[*e.prompt, *e.response]])
            out.append(policy.model(ids).logits[0][len(e.prompt) - 1 : -1])
        return torch.cat(out) / policy.sampling.temperature

    little = 1e-2 / float(vector.norm())
    with torch.no_grad():
        along = (logits(found.before + little * vector) - logits(found.before - little * vector)) / (
            2 * little
        )
    now = logits(found.before)
    p = now.detach().softmax(-1)
    pull = p * (along - (p * along).sum(1, keepdim=True)) / len(p)
    expected = torch.cat([g.reshape(-1) for g in torch.autograd.grad(now, weights, pull)])
    assert torch.cosine_similarity(product, expected, dim=0) > 0.999
    assert float(product.norm() / expected.norm()) == pytest.approx(1.0, rel=0.02)


def test_trpo_keeps_to_its_trust_region(folders, tmp_path):
    policy = engine.load(str(folders("llama")))
    settings = recipe(policy, "trpo", steps=3, batch=12, extra={"max_step_kl": 0.01})
    result = engine.train(policy, make_samples(), settings, seed=0, out=tmp_path)
    moved = [row["step_kl"] for row in result.history]
    assert max(moved) <= 0.01
    assert moved[0] > 0.002
    assert all(row["step_share"] > 0 for row in result.history)


@pytest.mark.parametrize("algorithm", ["reinforce", "ppo", "grpo"])
def test_what_a_tool_said_is_read_and_not_learned(folders, algorithm):
    policy = engine.load(str(folders("llama")))
    policy.attach(rank=4, alpha=4, seed=0)
    ids = tuple(range(10, 22))
    mask = tuple(not 4 <= i < 8 for i in range(12))
    samples = [
        dataclasses.replace(s, response_ids=ids, response_mask=mask) for s in make_samples(4, hints=False)
    ]
    plan = plan_for(TrainingRun(policy, samples, recipe(policy, algorithm)))
    examples = plan.source.examples(0)
    shared = Shared.of(examples, critic=plan.source.critic)
    batch = measure(policy.scorer, examples, shared)
    assert batch.tokens == 4 * 8
    assert batch.lengths().tolist() == [8.0] * 4
    whole = policy.scorer([e.encoded for e in examples]).split()
    kept = torch.tensor(mask)
    torch.testing.assert_close(batch.logprobs, torch.cat([values[kept] for values in whole]))
    if algorithm == "ppo":
        assert batch.token_advantages.numel() == 32
        assert batch.token_advantages.mean().item() == pytest.approx(0.0, abs=1e-5)
