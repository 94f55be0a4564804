"""Adapters of other programs are read as PEFT reads them, or refused by the name of the field."""

from __future__ import annotations

import dataclasses
import json
import warnings

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from clawback import engine
from clawback.errors import ModelError
from clawback.models import adapter as adapters
from clawback.models import lora_config
from clawback.models.types import GREEDY

QV = ["q_proj", "v_proj"]
MESSAGES = [{"role": "user", "content": "Tell me about otters, please."}]
ANSWER = "Otters live in rivers and along coasts."

READ = {
    "plain": {"target_modules": QV},
    "all-linear": {"target_modules": "all-linear"},
    "regex": {"target_modules": r".*\.(q_proj|v_proj)"},
    "regex of one layer": {"target_modules": r"model\.layers\.1\.(self_attn|mlp)\.\w+_proj"},
    "rslora": {"target_modules": QV, "use_rslora": True},
    "alpha_pattern": {"target_modules": QV, "alpha_pattern": {"v_proj": 64}},
    "alpha_pattern regex": {"target_modules": QV, "alpha_pattern": {r"layers\.1\..*(q|v)_proj": 2.5}},
    "alpha_pattern anchored": {"target_modules": QV, "alpha_pattern": {r"^model\.layers\.0\.self_attn\.q_proj": 32}},
    "rank_pattern": {"target_modules": QV, "rank_pattern": {"q_proj": 2}},
    "rank_pattern larger": {"target_modules": QV, "rank_pattern": {r"layers.0.self_attn.v_proj": 16}},
    "both patterns, rslora": {
        "target_modules": QV, "rank_pattern": {"q_proj": 2}, "alpha_pattern": {"v_proj": 3}, "use_rslora": True,
    },
    "overlapping patterns": {"target_modules": QV, "alpha_pattern": {r".*_proj": 5, "q_proj": 50}},
    "layers_to_transform": {"target_modules": QV, "layers_to_transform": [1]},
    "layers_to_transform, number": {"target_modules": QV, "layers_to_transform": 0},
    "layers_pattern": {"target_modules": QV, "layers_to_transform": [0], "layers_pattern": "layers"},
    "exclude_modules": {"target_modules": QV, "exclude_modules": ["v_proj"]},
    "exclude_modules regex": {"target_modules": "all-linear", "exclude_modules": r".*layers\.0\..*"},
    "bias without biases": {"target_modules": ["q_proj"], "bias": "lora_only"},
    "gaussian": {"target_modules": QV, "init_lora_weights": "gaussian"},
    "orthogonal": {"target_modules": QV, "init_lora_weights": "orthogonal"},
    "no init": {"target_modules": QV, "init_lora_weights": False},
    "dropout": {"target_modules": QV, "lora_dropout": 0.3},
    "one module": {"target_modules": ["o_proj"]},
}  # fmt: skip
REFUSED = {
    "use_dora": {"target_modules": QV, "use_dora": True},
    "modules_to_save": {"target_modules": QV, "modules_to_save": ["lm_head"]},
    "trainable_token_indices": {"target_modules": QV, "trainable_token_indices": [5, 6]},
    "lora_bias": {"target_modules": ["q_proj"], "lora_bias": True},
    "init_lora_weights": {"target_modules": QV, "init_lora_weights": "pissa"},
    "init_lora_weights olora": {"target_modules": QV, "init_lora_weights": "olora"},
    "init_lora_weights pissa_niter": {"target_modules": QV, "init_lora_weights": "pissa_niter_4"},
    "alora_invocation_tokens": {"target_modules": QV, "alora_invocation_tokens": [3, 4]},
    "target_modules lm_head": {"target_modules": ["q_proj", "lm_head"]},
    "target_modules embed": {"target_modules": ["q_proj", "embed_tokens"]},
    "layer_replication": {"target_modules": QV, "layer_replication": [(0, 2), (1, 2)]},
}


def made(base, folder, **fields):
    """A PEFT adapter with random weights in a folder, as PEFT itself saves it."""
    from peft import LoraConfig, get_peft_model
    from transformers import AutoModelForCausalLM

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        config = LoraConfig(**{"r": 4, "lora_alpha": 8, "task_type": "CAUSAL_LM"} | fields)
        model = get_peft_model(AutoModelForCausalLM.from_pretrained(base, dtype=torch.float32), config)
        for name, weight in model.named_parameters():
            if "lora_" in name:
                weight.data = weight.data.float() + 0.05 * torch.randn_like(weight)
        model.save_pretrained(folder)
    return folder


def by_peft(base, folder, ids):
    from peft import PeftModel
    from transformers import AutoModelForCausalLM

    plain = AutoModelForCausalLM.from_pretrained(base, dtype=torch.float32)
    model = PeftModel.from_pretrained(plain, folder).eval()
    prompt, response = ids.prompt, ids.response
    with torch.no_grad():
        logits = model(torch.tensor([[*prompt, *response]])).logits[0].float().log_softmax(-1)
    return torch.stack([logits[len(prompt) - 1 + i, token] for i, token in enumerate(response)])


def compared(base, folder):
    """Largest difference of log-probs: ours, PEFT's; and how far the adapter is from the base."""
    policy = engine.load(str(base), adapter=folder)
    policy.sampling = GREEDY
    ours = policy.logprobs([MESSAGES], [ANSWER])[0]
    theirs = by_peft(base, folder, policy.chat.encode(MESSAGES, ANSWER))
    with policy.base():
        moved = (policy.logprobs([MESSAGES], [ANSWER])[0] - ours).abs().max()
    return float((ours - theirs).abs().max()), float(moved)


@pytest.mark.parametrize("kind", READ)
def test_read_as_peft_reads_it(folders, tmp_path, kind):
    base = folders("llama")
    apart, moved = compared(base, made(base, tmp_path / "a", **READ[kind]))
    assert apart < 1e-5 < moved


@pytest.mark.parametrize("kind", REFUSED)
def test_refused_by_the_name_of_the_field(folders, tmp_path, kind):
    base = folders("qwen3" if "lm_head" in kind else "llama")
    adapter = made(base, tmp_path / "a", **REFUSED[kind])
    with pytest.raises(ModelError, match=kind.split()[0]):
        engine.load(str(base), adapter=adapter)


def test_a_lora_on_the_head_without_the_heads_own_weights_is_refused(folders, tmp_path):
    from peft import LoraConfig, get_peft_model
    from transformers import AutoModelForCausalLM

    base = folders("qwen3")
    config = LoraConfig(r=4, target_modules=["q_proj", "lm_head"], task_type="CAUSAL_LM")
    model = get_peft_model(AutoModelForCausalLM.from_pretrained(base), config)
    model.save_pretrained(tmp_path, save_embedding_layers=False)
    with pytest.raises(ModelError, match=r"target_modules .*lm_head"):
        engine.load(str(base), adapter=tmp_path)


@pytest.mark.parametrize("fields", [{"target_modules": ["c_attn"]}, {"target_modules": r".*c_(fc|proj)", "alpha_pattern": {"c_fc": 3}}])  # fmt: skip
def test_conv1d(folders, tmp_path, fields):
    base = folders("gpt2")
    apart, moved = compared(base, made(base, tmp_path / "a", **fields))
    assert apart < 1e-5 < moved


@pytest.mark.parametrize("patterns", [{}, {"rank_pattern": {r".*\.gate_up_proj": 8}, "alpha_pattern": {r".*\.gate_up_proj": 8}}, {"alpha_pattern": {"q_proj": 40}}, {"use_rslora": True}])  # fmt: skip
def test_fused_experts(folders, tmp_path, patterns):
    base = folders("qwen3_moe")
    fields = {
        "target_modules": r".*self_attn\.(q_proj|v_proj)",
        "target_parameters": ["mlp.experts.down_proj", "mlp.experts.gate_up_proj"],
    }
    apart, moved = compared(base, made(base, tmp_path / "a", **fields, **patterns))
    assert apart < 1e-5 < moved


def test_every_field_of_the_installed_peft_is_read_or_refused(tmp_path):
    """A field that PEFT gets tomorrow is refused by its name as soon as it is set."""
    from peft import LoraConfig

    known = lora_config._RESOLVED | lora_config._INERT | set(lora_config._ALLOWED)
    plain = LoraConfig(target_modules=QV).to_dict() | {"target_modules": QV, "r": 4, "lora_alpha": 8}
    lora_config.check(tmp_path, plain, [])
    others = {f.name for f in dataclasses.fields(LoraConfig)} - known
    assert {"use_dora", "modules_to_save", "arrow_config", "kasa_config", "use_bdlora"} <= others
    for field in {*others, "a_field_of_next_year"}:
        with pytest.raises(ModelError, match=rf"sets {field} \("):
            lora_config.check(tmp_path, plain | {field: {"x": 1}}, [])


def test_a_pattern_without_end_has_one(tmp_path, monkeypatch):
    monkeypatch.setattr(lora_config, "PATTERN_SECONDS", 0.05)
    name = "model.layers.0.self_attn." + "a" * 60 + "!"
    with pytest.raises(ModelError, match="alpha_pattern"):
        lora_config._matching(tmp_path, "alpha_pattern", {"(?:a|aa)+": 1}, name)
    with pytest.raises(ModelError, match="rank_pattern"):
        lora_config._matching(tmp_path, "rank_pattern", {"(": 1}, name)


@settings(max_examples=60, deadline=None)
@given(
    st.lists(st.sampled_from([1, 2, 3, 5, 8]), min_size=3, max_size=3),
    st.lists(st.sampled_from([0.5, 1, 4, 16, 33]), min_size=3, max_size=3),
    st.booleans(),
)
def test_one_rank_and_one_scale_mean_the_same(tmp_path_factory, ranks, alphas, rooted):
    """Against the formula of LoRA itself: s·B·A of each module."""
    names = ["model.layers.0.q_proj", "model.layers.0.v_proj", "model.layers.1.q_proj"]
    tensors, wanted = {}, []
    for name, rank, alpha in zip(names, ranks, alphas, strict=True):
        a, b = torch.randn(rank, 6), torch.randn(7, rank)
        tensors |= {f"base_model.model.{name}.lora_{k}.weight": t for k, t in (("A", a), ("B", b))}
        wanted.append((alpha / (rank**0.5 if rooted else rank)) * b @ a)
    config = {
        "r": 4, "lora_alpha": 8, "use_rslora": rooted, "target_modules": ["q_proj", "v_proj"],
        "rank_pattern": dict(zip(names, ranks, strict=True)), "alpha_pattern": dict(zip(names, alphas, strict=True)),
    }  # fmt: skip
    plain, found = lora_config.plain(tmp_path_factory.getbasetemp(), config, tensors)
    assert not plain["use_rslora"]
    assert not plain.get("rank_pattern")
    for name, product in zip(names, wanted, strict=True):
        a, b = (found[f"base_model.model.{name}.lora_{k}.weight"] for k in "AB")
        assert a.shape[0] == plain["r"]
        torch.testing.assert_close(plain["lora_alpha"] / plain["r"] * b @ a, product, atol=1e-4, rtol=1e-4)


def mixed(kind):
    import transformers as t

    common = {
        "vocab_size": 384, "hidden_size": 32, "num_hidden_layers": 3, "num_attention_heads": 4, "num_key_value_heads": 4,
        "intermediate_size": 48, "max_position_embeddings": 256, "n_routed_experts": 4, "num_experts_per_tok": 2,
        "moe_intermediate_size": 24, "n_group": 1, "topk_group": 1, "pad_token_id": 0, "eos_token_id": 2, "bos_token_id": 2,
    }  # fmt: skip
    latent = {
        "q_lora_rank": 16, "kv_lora_rank": 16, "qk_rope_head_dim": 4, "qk_nope_head_dim": 4, "v_head_dim": 8,
    }  # fmt: skip
    return {
        "deepseek-v3": lambda: t.DeepseekV3Config(**common, **latent, first_k_dense_replace=1),
        "deepseek-v3, no dense layers": lambda: t.DeepseekV3Config(**common, **latent, first_k_dense_replace=0),
        "glm4-moe": lambda: t.Glm4MoeConfig(**common, head_dim=8, first_k_dense_replace=1),
        "qwen2-moe": lambda: t.Qwen2MoeConfig(
            **{k: v for k, v in common.items() if k != "n_routed_experts"},
            num_experts=4, shared_expert_intermediate_size=24, mlp_only_layers=[0],
        ),
    }[kind]()  # fmt: skip


@pytest.fixture(
    scope="module",
    params=[
        "deepseek-v3",
        "qwen2-moe",
        *(
            pytest.param(kind, marks=pytest.mark.slow)
            for kind in ("deepseek-v3, no dense layers", "glm4-moe")
        ),
    ],
)
def mixed_folder(request, tmp_path_factory, tok):
    from transformers import AutoModelForCausalLM

    torch.manual_seed(0)
    folder = tmp_path_factory.mktemp("mixed")
    AutoModelForCausalLM.from_config(mixed(request.param)).save_pretrained(folder)
    tok.save_pretrained(folder)
    return folder


def test_experts_beside_dense_layers_load_again(mixed_folder, tmp_path):
    """DeepSeek-V3, GLM-4 MoE and their kind: what was written is what loads, here and in PEFT."""
    policy = engine.load(str(mixed_folder))
    policy.attach(rank=4, alpha=8, seed=0)
    for name, weight in policy.model.named_parameters():
        if "lora_B" in name:
            weight.data += 0.1 * torch.randn_like(weight)
    policy.sampling = GREEDY
    policy.save(tmp_path)
    again = engine.load(str(mixed_folder), adapter=tmp_path)
    again.sampling = GREEDY
    ours, theirs = (p.logprobs([MESSAGES], [ANSWER])[0] for p in (policy, again))
    assert torch.equal(ours, theirs)
    apart, moved = compared(mixed_folder, tmp_path)
    assert apart < 1e-5 < moved
    config = json.loads((tmp_path / "adapter_config.json").read_text())
    assert all("experts" in name for name in config["target_parameters"])
    assert not config["rank_pattern"]


def test_versions_that_an_earlier_release_trained_on_them_load(mixed_folder, tmp_path, monkeypatch):
    """Their files name the experts twice, and one rank by a pattern."""
    monkeypatch.setattr(adapters, "_converted", lambda model, leaves: set())
    policy = engine.load(str(mixed_folder))
    policy.attach(rank=4, alpha=8, seed=0)
    for name, weight in policy.model.named_parameters():
        if "lora_B" in name:
            weight.data += 0.1 * torch.randn_like(weight)
    policy.save(tmp_path)
    config = json.loads((tmp_path / "adapter_config.json").read_text())
    if "gate_up_proj" in config["target_parameters"]:
        assert config["rank_pattern"]
    apart, moved = compared(mixed_folder, tmp_path)
    assert apart < 1e-5 < moved
