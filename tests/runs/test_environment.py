"""Whoever starts a run, the process that trains gets the variables of an allow-list and none of the starter's secrets."""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

import clawback
from clawback import config, jobs, store
from clawback.admin import remote_commands
from clawback.capture import hook, ingest
from clawback.capture.events import AnswerEvent, PromptEvent, ReactionEvent
from clawback.cli import main
from clawback.paths import Home
from clawback.prompt_jobs import prompt_worker
from clawback.runs import trigger

SECRETS = (
    "ANTHROPIC_API_KEY", "ANTHROPIC_AUTH_TOKEN", "OPENAI_API_KEY", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN",
    "GITHUB_TOKEN", "HF_TOKEN", "TELEGRAM_BOT_TOKEN", "WANDB_API_KEY", "CLAWBACK_PASSPHRASE", "TINKER_API_KEY",
)  # fmt: skip
NEEDED = {
    "HF_HOME": "/cache/hf", "HF_HUB_OFFLINE": "1", "HF_HUB_CACHE": "/cache/hub", "CUDA_VISIBLE_DEVICES": "1",
    "HTTPS_PROXY": "http://proxy:3128", "no_proxy": "localhost", "LC_ALL": "C.UTF-8", "TMPDIR": "/tmp",
    "XDG_RUNTIME_DIR": "/run/user/1",
}  # fmt: skip


@pytest.fixture
def child(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[], dict[str, str]]]:
    """What stands in for Python writes down its arguments and its environment; the fixture reads these once it has ended."""
    written, children = tmp_path / "environment.json", []
    program = tmp_path / "python"
    program.write_text(
        f"#!{sys.executable} -IS\nimport json, os, sys\n"
        f"json.dump([sys.argv, dict(os.environ)], open({str(written)!r}, 'w'))\n"
    )
    program.chmod(0o700)
    popen = trigger.subprocess.Popen

    def start(command: list[str], **options: Any) -> Any:
        children.append(popen([str(program), *command[1:]], **options))
        return children[-1]

    played = SimpleNamespace(**{**vars(trigger.subprocess), "Popen": start})
    monkeypatch.setattr(trigger, "subprocess", played)
    for name in SECRETS:
        monkeypatch.setenv(name, f"secret of {name}")
    for name, value in NEEDED.items():
        monkeypatch.setenv(name, value)

    def environment() -> dict[str, str]:
        [only] = children
        only.wait(60)
        arguments, found = json.loads(written.read_text())
        assert arguments[2].startswith(("clawback.jobs.", "clawback.prompt_jobs.")), arguments
        return dict(found)

    yield environment
    for one in children:
        one.wait(60)


def answered(home: Home, settings: str = "") -> None:
    home.config.write_text(f"[training]\nthreshold = 1\n{settings}")
    ingest.take(home, "claude-code", PromptEvent("s", "one", "1"))
    ingest.take(home, "claude-code", AnswerEvent("s", "first", "1", message="m"))


def by_hook(home: Home) -> None:
    event = {"hook_event_name": "UserPromptSubmit", "session_id": "s", "prompt_id": "2", "prompt": "/rl bad"}
    assert hook.handle(home, "claude-code", json.dumps(event).encode())


def by_reaction(home: Home) -> None:
    ingest.take(home, "openclaw", PromptEvent("s", "one", "1"))
    ingest.take(home, "openclaw", AnswerEvent("s", "first", "1", message="m"))
    ingest.take(home, "openclaw", ReactionEvent("s", "m", 1, by="me"))


def by_command(home: Home) -> None:
    assert main(["good", "--turn", "1"]) == 0


def by_server(home: Home) -> None:
    with store.connect(home.database) as db:
        clawback.feedback.rate(db, 1, 1.0)
    assert jobs.maybe_train(home)


def by_hand(home: Home) -> None:
    assert jobs.start(home, algorithm="reinforce", seed=3)


def by_order(home: Home) -> None:
    config.save(home.config, {"capture": {"admin": ["train"]}})
    assert "prepared" in str(remote_commands.order(home, "claude-code", "/rl train"))


@pytest.mark.parametrize("start", [by_hook, by_reaction, by_command, by_server, by_hand, by_order])
def test_who_starts_a_run_hands_on_no_secret(
    home: Home,
    child: Callable[[], dict[str, str]],
    monkeypatch: pytest.MonkeyPatch,
    start: Callable[[Home], None],
) -> None:
    monkeypatch.setenv("CLAWBACK_HOME", str(home.root))
    answered(home)
    start(home)
    found = child()
    assert [name for name in found if name in SECRETS or "secret" in found[name]] == []
    assert {name: found.get(name) for name in NEEDED} == NEEDED
    assert found["CLAWBACK_HOME"] == str(home.root)
    assert {"PATH", "HOME"} <= set(found)


def test_the_key_that_the_settings_name_is_handed_on_from_a_hook(
    home: Home, child: Callable[[], dict[str, str]]
) -> None:
    answered(home, '[hosted]\nurl = "https://trainer.example"\nprovider = "tinker"\n')
    by_hook(home)
    found = child()
    assert [name for name in found if name in SECRETS] == ["TINKER_API_KEY"]


def test_a_search_for_a_prompt_gets_its_own_key_alone(
    home: Home, child: Callable[[], dict[str, str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    home.config.write_text('[prompts]\nautomatic = true\nkey_env = "OPENAI_API_KEY"\n')
    monkeypatch.setattr(prompt_worker, "due", lambda *_: True)
    assert prompt_worker.maybe_start(home)
    assert [name for name in child() if name in SECRETS] == ["OPENAI_API_KEY"]


def test_a_hooks_order_runs_without_the_agents_secrets(home: Home, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: dict[str, str] = {}
    monkeypatch.setenv("ANTHROPIC_API_KEY", "secret")

    def run(_: list[str], *, env: dict[str, str], **__: Any) -> SimpleNamespace:
        seen.update(env)
        return SimpleNamespace(stdout="done")

    monkeypatch.setattr(trigger.subprocess, "run", run)
    event = {"hook_event_name": "UserPromptSubmit", "session_id": "s", "prompt": "/rl rollback"}
    assert hook.handle(home, "claude-code", json.dumps(event).encode())
    assert seen
    assert "ANTHROPIC_API_KEY" not in seen


def test_one_place_starts_runs() -> None:
    """A background job is started by ``runs/trigger.py`` alone: no other file names one to a new process."""
    root = Path(clawback.__file__).parent
    naming = [
        str(path.relative_to(root))
        for path in root.rglob("*.py")
        if path != root / "runs" / "trigger.py"
        and re.search(r"Popen\(|\.run\(", text := path.read_text("utf-8"))
        and re.search(r"[\"']-m[\"'],\s*[\"']clawback\.jobs|jobs\.(?:worker|prompt_worker)[\"']", text)
    ]
    assert naming == []
    assert "Popen(" in (root / "runs" / "trigger.py").read_text("utf-8")
