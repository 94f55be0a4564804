"""The settings of a real person's agent: merged into, never damaged, and left as they were found."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given
from hypothesis import settings as hyp_settings
from hypothesis import strategies as st

from clawback.capture import script
from clawback.capture.agent_integration import State
from clawback.errors import ConfigError
from clawback.extensions.agents.claude_code import ClaudeCode
from clawback.extensions.agents.codex import Codex
from clawback.paths import Home

agent = ClaudeCode()
OTHERS = {"matcher": "", "hooks": [{"type": "command", "command": "say done"}]}


@pytest.fixture
def file(tmp_path: Path) -> Path:
    folder = tmp_path / "agent"
    folder.mkdir()
    return folder / "settings.json"


@pytest.mark.parametrize(
    "before",
    [
        None,
        b"{}",
        b'{"model":"opus"}',
        b'{\n    "hooks": {\n        "Stop": []\n    }\n}\n',
        b'{\n\t"permissions": {"allow": ["Bash(ls:*)"]},\n\t"hooks": {}\n}',
        json.dumps(
            {"hooks": {"Stop": [OTHERS], "PreToolUse": [OTHERS]}, "x": "ü"}, ensure_ascii=False
        ).encode(),
    ],
)
def test_removing_leaves_the_file_byte_for_byte_as_it_was(
    home: Home, file: Path, before: bytes | None
) -> None:
    if before is not None:
        file.write_bytes(before)
    agent.install(home, file)
    assert agent.status(home, file) == State(True, file)
    assert (file.parent / "commands" / "rl.md").exists()
    agent.install(home, file)
    agent.uninstall(home, file)
    assert (file.read_bytes() if file.exists() else None) == before
    assert sorted(p.name for p in file.parent.iterdir()) == ([] if before is None else ["settings.json"])


def test_installing_twice_is_installing_once(home: Home, file: Path) -> None:
    file.write_text(json.dumps({"hooks": {"Stop": [OTHERS]}}))
    assert agent.install(home, file)
    once = file.read_bytes()
    assert agent.install(home, file) == []
    assert file.read_bytes() == once
    stop = json.loads(once)["hooks"]["Stop"]
    assert stop[0] == OTHERS
    assert len(stop) == 2


def test_the_status_line_is_drawn_anew_every_second(home: Home, file: Path) -> None:
    """Claude Code's shortest interval: after a rating nothing else makes it draw the line."""
    agent.install(home, file)
    assert json.loads(file.read_bytes())["statusLine"]["refreshInterval"] == 1


def test_what_was_changed_since_stays(home: Home, file: Path) -> None:
    file.write_text('{"model": "opus"}')
    agent.install(home, file)
    now = json.loads(file.read_text())
    now["hooks"]["Stop"].insert(0, OTHERS)
    now["model"] = "sonnet"
    file.write_text(json.dumps(now))
    agent.uninstall(home, file)
    assert json.loads(file.read_text()) == {"model": "sonnet", "hooks": {"Stop": [OTHERS]}}


def by_the_agent(home: Home, file: Path) -> None:
    agent.uninstall(home, file)


def by_the_program(home: Home, file: Path) -> None:
    """Where Clawback itself is gone."""
    subprocess.run([sys.executable, home.root / script.REMOVE, home.root], check=True, capture_output=True)


@pytest.mark.parametrize("remove", [by_the_agent, by_the_program])
@pytest.mark.parametrize(
    "before",
    [
        None,
        b"{}",
        b'{"model":"opus"}',
        b'{"hooks":{}}',
        b'{\r\n    "hooks": {"Stop": [], "Other": {}},\r\n    "a": {}\r\n}',
        json.dumps({"hooks": {"Stop": [OTHERS]}}, indent=1).encode(),
    ],
)
def test_settings_that_the_agent_has_written_anew_are_as_they_were(
    home: Home, file: Path, before: bytes | None, remove: Any
) -> None:
    """Nobody has changed what they say, though the bytes are others: agents write their settings in a form of their own."""
    if before is not None:
        file.write_bytes(before)
    agent.install(home, file)
    file.write_text(json.dumps(json.loads(file.read_bytes()), indent=4, sort_keys=True))
    remove(home, file)
    assert (file.read_bytes() if file.exists() else None) == before
    assert not (file.parent / "commands").exists()


@pytest.mark.parametrize("remove", [by_the_agent, by_the_program])
@pytest.mark.parametrize("before", [{}, {"model": "opus"}, {"hooks": {}}, {"hooks": {"Stop": []}, "a": []}])
def test_nothing_empty_stays_that_was_not_there(
    home: Home, file: Path, before: dict[str, Any], remove: Any
) -> None:
    file.write_text(json.dumps(before, indent=4))
    agent.install(home, file)
    file.write_text(json.dumps(json.loads(file.read_bytes()) | {"theme": "dark"}, indent=4))
    remove(home, file)
    assert file.read_text() == json.dumps(before | {"theme": "dark"}, indent=4)


@pytest.mark.parametrize("remove", [by_the_agent, by_the_program])
def test_a_folder_that_was_not_there_is_gone_again(home: Home, tmp_path: Path, remove: Any) -> None:
    file = tmp_path / "new" / "deeper" / "settings.json"
    agent.install(home, file)
    remove(home, file)
    assert not (tmp_path / "new").exists()


def test_codexs_folder_too_goes_with_the_last_file_in_it(
    home: Home, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CODEX_HOME", str(tmp_path / "codex"))
    assert len(Codex().install(home)) == 2
    Codex().uninstall(home)
    assert not (tmp_path / "codex").exists()


@pytest.mark.parametrize("broken", [b"{", b"[]", b'{"hooks": []}', b'{"hooks": {"Stop": 1}}', b"\xff\xfe"])
def test_settings_that_cannot_be_read_are_left_alone(home: Home, file: Path, broken: bytes) -> None:
    file.write_bytes(broken)
    with pytest.raises(ConfigError, match="left alone"):
        agent.install(home, file)
    assert file.read_bytes() == broken


def test_a_persons_own_rl_command_is_kept(home: Home, file: Path) -> None:
    page = file.parent / "commands" / "rl.md"
    page.parent.mkdir()
    page.write_text("mine")
    agent.install(home, file)
    agent.uninstall(home, file)
    assert page.read_text() == "mine"


def test_a_hook_whose_program_is_gone_is_named(
    home: Home, file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(script.sys, "executable", "/nowhere/python")
    agent.install(home, file)
    assert "/nowhere/python, which is gone" in agent.status(home, file).problem


def test_the_command_that_is_installed_runs(home: Home, file: Path) -> None:
    agent.install(home, file)
    command = json.loads(file.read_text())["hooks"]["UserPromptSubmit"][0]["hooks"][0]["command"]
    event = {"hook_event_name": "UserPromptSubmit", "session_id": "s", "prompt": "/rl status"}
    done = subprocess.run(
        ["sh", "-c", command], input=json.dumps(event), capture_output=True, text=True, check=True
    )
    assert json.loads(done.stdout)["decision"] == "block"


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=6), inner, max_size=3),
    max_leaves=10,
)


@hyp_settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    st.dictionaries(st.text(max_size=6) | st.just("hooks"), json_values),
    st.sampled_from([None, 1, 2, 4, "\t"]),
)
def test_any_settings_come_back_the_same(tmp_path: Path, content: dict[str, Any], indent: Any) -> None:
    home, path = Home(tmp_path / "home"), tmp_path / "any" / "settings.json"
    home.create()
    path.parent.mkdir(exist_ok=True)
    before = json.dumps(content, indent=indent).encode()
    path.write_bytes(before)
    try:
        agent.install(home, path)
        agent.uninstall(home, path)
    except ConfigError:
        pass  # not what Claude Code's settings look like: left alone
    assert path.read_bytes() == before


def test_the_plan_names_everything_that_is_written(home: Home, file: Path) -> None:
    assert any("the status line" in line for line in agent.plan(home, file))


def test_the_persons_own_command_is_not_shown_beside_the_reply() -> None:
    """Claude Code reads it inside ``hookSpecificOutput``, and nowhere else."""
    reply = agent.reply("Noted")
    assert reply["hookSpecificOutput"] == {
        "hookEventName": "UserPromptSubmit",
        "suppressOriginalPrompt": True,
    }
