"""The program that agents run: to the server where it runs, to a Python of its own where not, and never in the agent's way."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import pytest

from clawback import store
from clawback.capture import script
from clawback.paths import Home


def run(
    home: Home, agent: str, event: dict[str, Any] | bytes, *, as_argument: bool = False
) -> tuple[int, str]:
    data = event if isinstance(event, bytes) else json.dumps(event).encode()
    words = [str(script.path(home)), agent, *([data.decode()] if as_argument else [])]
    done = subprocess.run(words, input=b"" if as_argument else data, capture_output=True, timeout=60)
    return done.returncode, done.stdout.decode()


@pytest.fixture
def odd(tmp_path: Path) -> Home:
    """A home with what a shell would expand in its name."""
    made = Home(tmp_path / "it's $HOME `x`")
    made.create()
    made.config.write_text("[training]\nbackground = false\n")
    script.write(made)
    return made


@pytest.fixture
def server(odd: Home) -> Any:
    process = subprocess.Popen(
        [sys.executable, "-m", "clawback", "serve", "--port", "0", "--upstream", "http://127.0.0.1:9"],
        env=os.environ | {"CLAWBACK_HOME": str(odd.root)},
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdout
    process.stdout.readline()
    yield process
    process.kill()
    process.wait()


def wait_for(home: Home) -> None:
    for _ in range(400):
        if (home.root / script.SERVER).exists():
            return
        threading.Event().wait(0.05)
    raise AssertionError("the server did not start")


def prompt(text: str, number: str = "p") -> dict[str, Any]:
    return {"hook_event_name": "UserPromptSubmit", "session_id": "s", "prompt_id": number, "prompt": text}


def turns(home: Home) -> list[tuple[str, str]]:
    with store.connect(home.database) as db:
        return [(t.prompt, t.response) for t in db.turns()]


def test_without_a_server(odd: Home) -> None:
    assert run(odd, "claude-code", prompt('it\'s "one" $HOME `x` \\n')) == (0, "")
    stop = {"hook_event_name": "Stop", "session_id": "s", "prompt_id": "p", "last_assistant_message": "é\n"}
    assert run(odd, "claude-code", stop) == (0, "")
    assert turns(odd) == [('it\'s "one" $HOME `x` \\n', "é\n")]
    code, said = run(odd, "claude-code", prompt("/rl good", "q"))
    assert (code, json.loads(said)["decision"]) == (0, "block")
    assert run(odd, "status-line", b"{}") == (0, "clawback v0 · 1/32 ratings")


def test_without_bash_too(odd: Home, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "/nowhere")
    assert script.write(odd).read_text().startswith("#!/bin/sh\n")
    monkeypatch.undo()
    (odd.root / script.SERVER).write_text("1\n")
    assert run(odd, "claude-code", prompt("one")) == (0, "")
    assert json.loads(run(odd, "claude-code", prompt("/rl status"))[1])["decision"] == "block"


def test_a_large_event_through_the_server(odd: Home, server: Any) -> None:
    wait_for(odd)
    run(odd, "claude-code", prompt("é" * 100_000))
    stop = {
        "hook_event_name": "Stop",
        "session_id": "s",
        "prompt_id": "p",
        "last_assistant_message": "ü" * 500_000,
    }
    assert run(odd, "claude-code", stop) == (0, "")
    assert not (odd.logs / "hooks.log").exists()
    assert [(len(p), len(r)) for p, r in turns(odd)] == [(100_000, 500_000)]


def test_an_event_as_an_argument(odd: Home) -> None:
    told = {"type": "agent-turn-complete", "thread-id": "t", "turn-id": "1", "client": "c"}
    told |= {"input-messages": ["one"], "last-assistant-message": "first"}
    assert run(odd, "codex", told, as_argument=True) == (0, "")
    assert turns(odd) == [("one", "first")]


def test_through_the_server_and_when_it_has_died_without_a_word(odd: Home, server: Any) -> None:
    wait_for(odd)
    code, said = run(odd, "claude-code", prompt("/rl status"))
    assert (code, json.loads(said)["decision"]) == (0, "block")
    run(odd, "claude-code", prompt('it\'s "one" $HOME `x` \\n'))
    server.kill()
    server.wait()
    assert (odd.root / script.SERVER).exists(), "nobody was left to take it away"
    stop = {"hook_event_name": "Stop", "session_id": "s", "prompt_id": "p", "last_assistant_message": "first"}
    assert run(odd, "claude-code", stop) == (0, "")
    assert turns(odd) == [('it\'s "one" $HOME `x` \\n', "first")]


@pytest.mark.parametrize("trouble", ["database", "folder", "payload", "agent"])
def test_whatever_is_wrong_the_agent_goes_on(odd: Home, trouble: str) -> None:
    agent, event = "claude-code", json.dumps(prompt("one")).encode()
    if trouble == "database":
        odd.database.write_bytes(b"not a database" * 1000)
    elif trouble == "folder":
        odd.database.mkdir()
    elif trouble == "payload":
        event = b"\xff{"
    else:
        agent = "emacs"
    assert run(odd, agent, event) == (0, "")
    assert "event left out" in (odd.logs / "hooks.log").read_text()


def test_a_full_disk_is_none_of_the_agents_business(odd: Home) -> None:
    """A file system of 256 KB, filled to the brim, in a mount namespace of its own."""
    import shutil

    room = odd.root.parent / "full"
    room.mkdir()
    if os.geteuid() or not shutil.which("unshare"):
        pytest.skip("a file system of a test's own needs root and unshare")
    steps = (
        'mount -t tmpfs -o size=256k tmpfs "$1" && cp "$2" "$1"/clawback-hook && '
        'sed -i "s#^home=.*#home=$1#" "$1"/clawback-hook && cat /dev/zero > "$1"/filler; '
        '"$1"/clawback-hook claude-code; echo "exit $?"'
    )
    home = Home(room)
    (odd.root.parent / "copy").write_text(script.write(odd).read_text().replace(str(odd.root), str(room)))
    (odd.root.parent / "copy").chmod(0o700)
    done = subprocess.run(
        ["unshare", "-m", "sh", "-c", steps, "_", str(home.root), str(odd.root.parent / "copy")],
        input=json.dumps(prompt("one")),
        capture_output=True,
        text=True,
        timeout=60,
    )
    if "mount" in done.stderr and "denied" in done.stderr:
        pytest.skip("this machine does not let us mount")
    assert done.stdout == "exit 0\n", done.stderr
