"""The plugins of opencode and Hermes Agent: put in, taken out byte for byte, and what they send."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from clawback import store
from clawback.capture import agent_integration, hook, script, take_out
from clawback.errors import ConfigError
from clawback.extensions.agents.hermes import enabled
from clawback.paths import Home


def tree(folder: Path) -> dict[str, bytes | None]:
    return {
        str(p.relative_to(folder)): p.read_bytes() if p.is_file() else None for p in sorted(folder.rglob("*"))
    }


@pytest.fixture(params=["opencode", "hermes"])
def settings(
    request: pytest.FixtureRequest, tmp_path: Path
) -> tuple[agent_integration.AgentIntegration, Path]:
    folder = tmp_path / "agent"
    folder.mkdir()
    name = {"opencode": "opencode.json", "hermes": "config.yaml"}[request.param]
    (folder / name).write_text(
        {"opencode": '{"model": "x/y"}', "hermes": "# mine\nmodel:\n  default: x\n"}[request.param]
    )
    return agent_integration.find(request.param), folder / name


def test_it_is_put_in_and_taken_out_byte_for_byte(
    settings: tuple[agent_integration.AgentIntegration, Path], home: Home
) -> None:
    agent, path = settings
    before = tree(path.parent)
    assert not agent.status(home, path).installed
    changed = agent.install(home, path)
    assert [line.partition(": ")[0] for line in agent.plan(home, path)] == [str(p) for p in changed]
    assert agent.install(home, path) == []
    state = agent.status(home, path)
    assert (state.installed, state.problem) == (True, "")
    assert f'HOOK = "{script.path(home)}"' in changed[0].read_text()
    (changed[0].parent / "__pycache__").mkdir()
    (changed[0].parent / "__pycache__" / "x.cpython-311.pyc").write_bytes(b"x")
    if agent.name == "opencode":
        (changed[0].parent / "__pycache__" / "x.cpython-311.pyc").unlink()
        (changed[0].parent / "__pycache__").rmdir()
    assert sorted(agent.uninstall(home, path)) == sorted(changed)
    assert tree(path.parent) == before
    assert not list((home.root / "installed").iterdir())


def test_it_is_taken_out_where_clawback_is_gone(
    settings: tuple[agent_integration.AgentIntegration, Path], home: Home
) -> None:
    agent, path = settings
    before = tree(path.parent)
    changed = agent.install(home, path)
    changed[0].write_text(changed[0].read_text() + "\n")
    path.write_text(path.read_text() + "\n")  # the agent has written its settings since
    done = subprocess.run(
        [sys.executable, take_out.__file__, str(home.root)], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    after = tree(path.parent)
    own = path.name
    assert {k: v for k, v in after.items() if k != own} == {k: v for k, v in before.items() if k != own}
    read = yaml.safe_load if own.endswith("yaml") else json.loads
    rest = read(path.read_text())
    rest.pop("plugins", None)
    assert rest == read(before[own] or b"")


def test_another_home_and_another_version_are_told(
    settings: tuple[agent_integration.AgentIntegration, Path], home: Home, tmp_path: Path
) -> None:
    agent, path = settings
    [main, other, *_] = agent.install(home, path)
    there = Home(tmp_path / "there")
    there.create()
    assert agent.status(there, path).other == script.path(home)
    other.write_text("something else")
    assert "run `clawback init` again" in agent.status(home, path).problem
    main.unlink()
    assert not agent.status(home, path).installed


CONFIGS = [
    "", "model: x\n", "model: x", "plugins:\n", "plugins: {}\n", "plugins:\n  enabled: []\n", "plugins:\n  enabled:\n",
    "plugins:\n  enabled:\n  - a\n  - b\nmodel: x\n", "plugins:\n    enabled:\n        - a\n    disabled: [c]\n",
    "plugins:\n  # which\n  enabled: [a, b]  # mine\n", "plugins:\n  disabled:\n    - c\nafter:\n  - 1\n", "plugins: null\nx: [1]\n",
    "a:\n  plugins:\n    enabled: [no]\n", "plugins:\n  hook_callback_timeout: 3\n\n# end\n", "x: 1\nplugins:\n  enabled: ['a']",
]  # fmt: skip


@pytest.mark.parametrize("text", CONFIGS)
def test_a_plugin_is_enabled_in_hermes_settings_and_nothing_else_changes(text: str) -> None:
    before = yaml.safe_load(text) or {}
    after = enabled(text.encode(), Path("c"))
    held = yaml.safe_load(after)
    plugins = held.pop("plugins")
    known = before.pop("plugins", None) or {}
    names = plugins.pop("enabled")
    assert sorted(names) == sorted([*(known.pop("enabled", None) or []), "clawback"])
    assert (held, plugins) == (before, known)
    assert enabled(after, Path("c")) == after
    rest = yaml.safe_load(take_out.without_listed(after)) or {}
    assert "clawback" not in str(rest)


@given(
    st.lists(st.from_regex(r"[a-z][a-z0-9-]{0,8}", fullmatch=True), unique=True),
    st.dictionaries(
        st.sampled_from(["model", "zeta", "hooks"]), st.integers() | st.lists(st.text(max_size=5), max_size=2)
    ),
    st.booleans(),
    st.sampled_from([None, "disabled", "entries"]),
)
def test_settings_that_hermes_writes_itself_are_understood(
    names: list[str], others: dict[str, Any], flow: bool, further: str | None
) -> None:
    plugins: dict[str, Any] = {"enabled": names} | ({further: ["x"]} if further else {})
    text = yaml.safe_dump(
        others | {"plugins": plugins}, default_flow_style=None if flow else False, sort_keys=False
    )
    try:
        after = yaml.safe_load(enabled(text.encode(), Path("c")))
    except ConfigError:
        assert "{" in text or "[" in text  # in flow form, left alone, and told
        return
    assert after == others | {"plugins": plugins | {"enabled": after["plugins"]["enabled"]}}
    assert sorted(after["plugins"]["enabled"]) == sorted({*names, "clawback"})


@pytest.mark.parametrize(
    "text",
    [
        "plugins: {enabled: [a]}\n",
        "plugins: &x\n  enabled: [a]\n",
        '{"plugins": 1}',
        '"plugins":\n  enabled: []\n',
    ],
)
def test_what_is_not_understood_is_left_alone(text: str, home: Home, tmp_path: Path) -> None:
    path = tmp_path / "config.yaml"
    path.write_text(text)
    with pytest.raises(ConfigError, match="hermes plugins enable clawback"):
        agent_integration.find("hermes").install(home, path)
    assert tree(tmp_path / "plugins") == {}
    assert path.read_text() == text


@pytest.mark.parametrize("agent", ["opencode", "hermes"])
def test_a_turn_with_its_tools_is_stored_and_rated(agent: str, home: Home) -> None:
    work = [
        {
            "role": "assistant",
            "content": "",
            "tool_calls": [{"id": "c1", "name": "bash", "arguments": '{"command": "ls"}'}],
        },
        {"role": "tool", "tool_call_id": "c1", "content": "otter.txt"},
    ]
    events = [
        {"event": "prompt", "session": "s", "id": "p1", "text": "which files?", "last": True},
        {
            "event": "answer",
            "session": "s",
            "id": "p1",
            "text": "One.",
            "model": "m",
            "cwd": "/w",
            "work": work,
            "ending": "stop",
        },
        {
            "event": "answer",
            "session": "s",
            "id": "p1",
            "text": "One.",
            "model": "m",
            "cwd": "/w",
            "work": work,
            "ending": "stop",
        },
        {"event": "failed", "session": "s", "id": "p1"},
    ]
    for event in events:
        assert hook.handle(home, agent, json.dumps(event).encode()) is None
    said = hook.handle(
        home, agent, json.dumps({"event": "prompt", "session": "s", "text": "/rl good"}).encode()
    )
    assert said == {"reply": "Clawback: Noted: good (turn 1)."}
    with store.connect(home.database) as db:
        [turn] = db.turns()
        assert (turn.prompt, turn.response, turn.model, turn.cwd, turn.ending) == (
            "which files?",
            "One.",
            "m",
            "/w",
            "done",
        )
        assert [m["role"] for m in turn.messages] == ["user", "assistant", "tool"]
        assert turn.messages[1]["tool_calls"][0]["function"]["name"] == "bash"
        assert [f.value for f in db.feedback()] == [1.0]
