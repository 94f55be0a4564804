"""Adapters that other programs trained become versions: read right or refused, and never live by themselves."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch

from clawback import config, engine, gate, store
from clawback.errors import ModelError, UsageError
from clawback.gate.report import Report, settle
from clawback.models.types import GREEDY
from clawback.paths import Home
from clawback.release import adoption, version_registry

from .conftest import Run

MESSAGES = [[{"role": "user", "content": "Tell me about the otter."}]]


def peft_folder(folder: Path, base_name: str = "embedded", **fields: Any) -> torch.Tensor:
    """What PEFT writes, and the log-probs of an answer by PEFT itself."""
    from peft import LoraConfig, get_peft_model

    policy = engine.load("embedded")
    torch.manual_seed(1)
    settings: dict[str, Any] = {
        "r": 4,
        "lora_alpha": 8,
        "task_type": "CAUSAL_LM",
        "target_modules": ["q_proj", "v_proj"],
    }
    inner: Any = get_peft_model(policy.model, LoraConfig(**(settings | fields)))
    for name, parameter in inner.named_parameters():
        if "lora_B" in name:
            parameter.data = 0.05 * torch.randn_like(parameter)
    inner.peft_config["default"].base_model_name_or_path = base_name
    inner.save_pretrained(folder)
    encoded = policy.chat.encode(MESSAGES[0], "It is an animal.")
    ids = torch.tensor([[*encoded.prompt, *encoded.response]])
    with torch.no_grad():
        logits = inner(ids).logits[0, len(encoded.prompt) - 1 : -1].float().log_softmax(-1)
    return logits.gather(1, torch.tensor(list(encoded.response))[:, None])[:, 0]


@pytest.fixture
def home(improved: Home) -> Home:
    return improved


@pytest.mark.parametrize(
    "fields",
    [
        pytest.param({}, marks=pytest.mark.slow),
        {"target_modules": r".*\.(q_proj|up_proj)"},
        pytest.param(
            {"alpha_pattern": {"v_proj": 64}, "rank_pattern": {"q_proj": 2}}, marks=pytest.mark.slow
        ),
        pytest.param({"use_rslora": True, "layers_to_transform": [1]}, marks=pytest.mark.slow),
    ],
    ids=["plain", "regex", "patterns", "rslora"],
)
def test_an_adapter_becomes_a_version_that_answers_as_peft_does(
    home: Home, run: Run, tmp_path: Path, fields: dict[str, Any]
) -> None:
    wanted = peft_folder(tmp_path / "a", **fields)
    (tmp_path / "a" / "README.md").write_text("---\ntags: [lora, trl, unsloth]\n---\n")
    with store.connect(home.database) as db:
        live = db.live().number
        code, said, err = run("adopt", str(tmp_path / "a"), "--no-gate", "--json")
        assert code == 0, err
        number = json.loads(said)["version"]["number"]
        version = db.version(number)
        assert (version.status, db.live().number) == ("candidate", live)
        origin = version.origin["adapter"]
        assert (origin["trainer"], origin["folder"]) == ("unsloth", str(tmp_path / "a"))
        version_registry.check(version)
        with pytest.raises(UsageError, match="has not passed the gate"):
            version_registry.promote(db, home, number)
    policy = engine.load("embedded", adapter=Path(version.path))
    policy.sampling = GREEDY
    [got] = policy.logprobs(MESSAGES, ["It is an animal."])
    assert torch.allclose(got, wanted, atol=1e-4)
    assert (
        "Adopted from"
        in json.loads((Path(version.path) / version_registry.PROVENANCE).read_text())["algorithm_note"]
    )


@pytest.mark.slow
def test_the_gate_judges_it_and_only_the_person_makes_it_live(home: Home, tmp_path: Path) -> None:
    peft_folder(tmp_path / "a")
    with store.connect(home.database) as db:
        before = db.live().number
        version = adoption.adopt(db, home, tmp_path / "a", config.load(home.config))
        report = gate(db, home, version.number)
        assert db.version(version.number).report is not None
        accepted = Report.from_dict(report.to_dict() | {"accepted": True})
        db.set_report(version.number, accepted.to_dict())
        assert settle(db, home, accepted).status == "candidate"
        assert db.live().number == before
        try:
            assert version_registry.promote(db, home, version.number).status == "live"
        finally:
            db.promote(before)


@pytest.mark.slow
def test_one_of_mlx_lm_is_read_too(home: Home, tmp_path: Path) -> None:
    from safetensors.torch import save_file

    from clawback.models import adapter, mlx_adapter

    wanted = peft_folder(tmp_path / "a")
    settings, tensors = mlx_adapter.to_mlx(*adapter.read(tmp_path / "a"))
    folder = tmp_path / "m"
    folder.mkdir()
    save_file(tensors, folder / "adapters.safetensors")
    (folder / "adapter_config.json").write_text(
        json.dumps(settings | {"model": "mlx-community/embedded-4bit"})
    )
    with store.connect(home.database) as db:
        version = adoption.adopt(db, home, folder, config.load(home.config))
    assert version.origin["adapter"]["trainer"] == "mlx-lm"
    policy = engine.load("embedded", adapter=Path(version.path))
    policy.sampling = GREEDY
    assert torch.allclose(policy.logprobs(MESSAGES, ["It is an animal."])[0], wanted, atol=1e-4)


def test_one_of_another_base_is_refused_unless_the_person_says_that_it_is_the_same(
    home: Home, run: Run, tmp_path: Path
) -> None:
    peft_folder(tmp_path / "a", base_name="somebody/Other-1B")
    with store.connect(home.database) as db:
        before = len(db.versions())
    code, _, err = run("adopt", str(tmp_path / "a"), "--no-gate")
    words = " ".join(err.split())
    assert code == 1
    assert "made for somebody/Other-1B, and the base here is embedded" in words
    assert "--same-base" in words
    with store.connect(home.database) as db:
        assert len(db.versions()) == before
    assert run("adopt", str(tmp_path / "a"), "--no-gate", "--same-base")[0] == 0


def test_what_cannot_be_read_right_is_refused_by_its_name_and_nothing_is_entered(
    home: Home, run: Run, tmp_path: Path
) -> None:
    with store.connect(home.database) as db:
        before = (len(db.versions()), len(db.runs()))
    peft_folder(tmp_path / "dora", use_dora=True)
    (tmp_path / "empty").mkdir()
    for name, sentence, rc in (
        ("dora", "use_dora", 1),
        ("empty", "holds no adapter", 2),
        ("none", "no folder", 2),
    ):
        code, _, err = run("adopt", str(tmp_path / name), "--no-gate")
        assert code == rc
        assert sentence in " ".join(err.split())
    with store.connect(home.database) as db:
        assert (len(db.versions()), len(db.runs())) == before


@pytest.mark.parametrize(
    ("name", "other"),
    [
        ("unsloth/Qwen2.5-0.5B-Instruct-bnb-4bit", "Qwen/Qwen2.5-0.5B-Instruct"),
        ("unsloth/Llama-3.2-1B-Instruct-unsloth-bnb-4bit", "meta-llama/Llama-3.2-1B-Instruct"),
        ("mlx-community/SmolLM2-135M-Instruct-8bit", "SmolLM2 135M Instruct"),
        ("/models/gemma-3-270m/", "gemma-3-270m.Q4_K_M.gguf"),
    ],
)
def test_one_model_under_two_names(name: str, other: str) -> None:
    assert adoption.plain_name(name) == adoption.plain_name(other)


def test_models_of_one_shape_are_two() -> None:
    names = (
        "Qwen/Qwen2.5-0.5B-Instruct",
        "Qwen/Qwen2.5-0.5B",
        "Qwen/Qwen2.5-Coder-0.5B-Instruct",
        "Qwen/Qwen25-0.5B",
    )
    assert len({adoption.plain_name(name) for name in names}) == 4


def test_the_next_version_of_a_run_is_not_an_adopted_one(home: Home, tmp_path: Path) -> None:
    """A run on top of an adopted version goes live by the gate's word, as ever."""
    from clawback.models.types import TrainResult
    from clawback.records import Run as RunRecord

    with store.connect(home.database) as db:
        peft_folder(tmp_path / "a")
        adopted = adoption.adopt(db, home, tmp_path / "a", config.load(home.config))
        run = db.add_ended_run(RunRecord("embedded", adopted.base_revision, "kto", {}, 0, adopted.number))
        result = TrainResult(adopted.path, "kto", "", "embedded", adopted.base_revision, 0, 1, "", (), 0.0)
        child = version_registry.propose(db, home, run, result)
    assert version_registry.FOREIGN in adopted.origin
    assert version_registry.FOREIGN not in child.origin


def test_a_damaged_description_is_a_sentence(tmp_path: Path) -> None:
    (tmp_path / "adapter_config.json").write_text("[")
    (tmp_path / "adapter_model.safetensors").write_bytes(b"")
    with pytest.raises(ModelError, match="cannot be read"):
        adoption.origin_of(tmp_path)
