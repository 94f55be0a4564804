"""The program that agents run: to the server where it runs, to a Python of its own where not, and never in the agent's way."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import pytest

from clawback import store
from clawback.capture import script
from clawback.paths import Home, secret
from clawback.records import Feedback, Turn, Version


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


def test_the_status_line_is_right_after_each_change_and_starts_no_python_without_one(odd: Home) -> None:
    """Agents ask for it every second, so an answer is kept until the database or the settings change."""
    starts, wrapper = odd.root / "starts", odd.root / "python"
    wrapper.write_text(f'#!/bin/sh\necho >> "{starts.name}"\nexec {sys.executable} "$@"\n')
    wrapper.chmod(0o755)
    file = script.path(odd)
    file.write_text(file.read_text().replace(f"python={sys.executable}", 'python="$home/python"', 1))

    def shown() -> str:
        done = subprocess.run([file, "status-line"], input=b"{}", capture_output=True, cwd=odd.root)
        return done.stdout.decode()

    def started() -> int:
        return starts.read_text().count("\n")

    for number in range(1, 4):
        with store.connect(odd.database) as db:
            turn = db.add_turn(Turn("s", ({"role": "user", "content": str(number)},), "a"))
            db.add_feedback(Feedback(turn.id, "rating", 1.0))
        assert shown() == f"clawback v0 · {number}/32 ratings"
    before = started()
    assert [shown() for _ in range(3)] == ["clawback v0 · 3/32 ratings"] * 3
    assert started() <= before + 1, "one more where the change was too near to tell"
    odd.config.write_text("[training]\nbackground = false\nthreshold = 64\n")
    assert shown() == "clawback v0 · 3/64 ratings"
    with store.connect(odd.database) as db:  # somebody reads and writes all the time
        assert shown() == "clawback v0 · 3/64 ratings"
        db.add_feedback(Feedback(turn.id, "rating", -1.0))
        db.add_feedback(Feedback(db.add_turn(Turn("s", (), "b")).id, "rating", 1.0))
        assert shown() == "clawback v0 · 4/64 ratings"


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


def test_where_clawback_is_gone_the_agent_goes_on_and_its_person_is_told_once_a_day(odd: Home) -> None:
    made = script.path(odd).read_text()
    for gone in (f"python={sys.executable}", "from clawback.rules.hook import"):
        script.path(odd).write_text(
            made.replace(gone, "python=/nowhere/python" if "=" in gone else "from nowhere import")
        )
        (odd.root / script.GONE).unlink(missing_ok=True)
        code, said = run(odd, "claude-code", prompt("one"))
        assert code == 0
        told = json.loads(said)
        assert list(told) == ["systemMessage"], "and nothing that blocks or enters the conversation"
        assert "Clawback is not where it was" in told["systemMessage"]
        assert "--remove" in told["systemMessage"]
        assert run(odd, "claude-code", prompt("two")) == (0, "")
    assert script.trouble(odd) == ""
    script.path(odd).write_text(made.replace(f"python={sys.executable}", "python=/nowhere/python"))
    assert script.trouble(odd) == "the hooks run /nowhere/python, which is gone"
    for typed in ("/rl good", "rl: good"):
        for separators in ((",", ":"), (", ", ": ")):
            event = json.dumps(prompt(typed), separators=separators).encode()
            code, said = run(odd, "claude-code", event)
            assert (code, json.loads(said)["decision"]) == (0, "block"), "a command does not go to the model"
    assert run(odd, "status-line", b"{}") == (0, "clawback is gone")


def test_the_program_takes_itself_out_without_clawback(
    odd: Home, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from clawback.extensions.agents.claude_code import ClaudeCode
    from clawback.extensions.agents.codex import Codex

    monkeypatch.setenv("CODEX_HOME", str(tmp_path / "codex"))
    settings, changed, toml = (
        tmp_path / "a" / "settings.json",
        tmp_path / "b" / "settings.json",
        tmp_path / "codex" / "config.toml",
    )
    for file, before in ((settings, b'{\n "model": "opus"}'), (changed, b"{}"), (toml, b"# mine\n")):
        file.parent.mkdir()
        file.write_bytes(before)
    for file in (settings, changed):
        ClaudeCode().install(odd, file)
    Codex().install(odd)
    changed.write_text(json.dumps(json.loads(changed.read_text()) | {"model": "sonnet"}))
    script.path(odd).write_text(
        script.path(odd).read_text().replace(f"python={sys.executable}", "python=/nowhere/python")
    )
    code, said = run(odd, "--remove", b"")
    assert (code, said.count("taken out of")) == (0, 4)
    assert settings.read_bytes() == b'{\n "model": "opus"}'
    assert json.loads(changed.read_text()) == {"model": "sonnet"}
    assert toml.read_bytes() == b"# mine\n"
    assert not (settings.parent / "commands" / "rl.md").exists()
    assert not list((odd.root / "installed").iterdir())


def test_a_server_that_hangs_is_left_alone_for_a_minute(odd: Home) -> None:
    """It takes the connection, and says nothing: stopped, or swapped out."""
    with socket.socket() as silent:
        silent.bind(("127.0.0.1", 0))
        silent.listen(5)
        silent.settimeout(5)
        script.announce(odd, silent.getsockname()[1])
        took = []
        for number in range(3):
            began = time.monotonic()
            code, said = run(odd, "claude-code", prompt("/rl status", f"p{number}"))
            took.append(time.monotonic() - began)
            assert (code, json.loads(said)["decision"]) == (0, "block")
        assert took[0] - max(took[1:]) < 4, "a quarter of a second, not five"
        silent.accept()[0].close()
        silent.settimeout(0.01)
        with pytest.raises(TimeoutError):
            silent.accept()  # it was asked once
        (odd.root / script.HUNG).write_text("1\n")  # a minute is over
        run(odd, "claude-code", prompt("/rl status", "q"))
        silent.settimeout(5)
        silent.accept()[0].close()


def test_an_order_is_obeyed_without_a_server_where_the_settings_allow_it(odd: Home) -> None:
    said = json.loads(run(odd, "claude-code", prompt("/rl rollback"))[1])["reason"]
    assert "`rollback` is not allowed from claude-code" in said
    odd.config.write_text('[capture]\nadmin = ["rollback"]\n')
    said = json.loads(run(odd, "claude-code", prompt("/rl rollback", "q"))[1])["reason"]
    assert said == "Clawback: There is no older version to go back to: the base model is live."
    with store.connect(odd.database) as db:
        made = db.add_version(
            Version(number=1, base="embedded", base_revision="", status="candidate", path="", parent=0)
        )
        db.promote(made.number)
    said = json.loads(run(odd, "claude-code", prompt("/rl rollback", "r"))[1])["reason"]
    assert said == "Clawback: version 0 is live again."
    with store.connect(odd.database) as db:
        assert db.live().number == 0


def test_who_took_the_port_hears_nothing(odd: Home) -> None:
    """A server died, its word stayed, and somebody else listens there now: neither token nor event is said, and no answer taken."""
    heard = bytearray()
    with socket.create_server(("127.0.0.1", 0)) as squatter:
        script.announce(odd, squatter.getsockname()[1])

        def listen() -> None:
            client, _ = squatter.accept()
            with client:
                heard.extend(client.recv(65536))
                client.sendall(b'HTTP/1.1 200 OK\r\n\r\n{"decision": "block", "reason": "BUY"}!')
                client.settimeout(20)
                while piece := client.recv(65536):
                    heard.extend(piece)

        thread = threading.Thread(target=listen)
        thread.start()
        assert run(odd, "claude-code", prompt("my own secret words")) == (0, "")
        thread.join(30)
    assert heard.startswith(b"GET /api/hooks/proof ")
    assert secret(odd.root / "hook-token").encode() not in heard
    assert b"my own secret words" not in heard
    stop = {"hook_event_name": "Stop", "session_id": "s", "prompt_id": "p", "last_assistant_message": "first"}
    (odd.root / script.SERVER).unlink()
    run(odd, "claude-code", stop)
    assert turns(odd) == [("my own secret words", "first")], "Python took over"


def test_the_word_of_a_server_is_its_owners_alone_and_new_each_time(odd: Home) -> None:
    script.announce(odd, 1)
    first = script.announced(odd)
    script.announce(odd, 1)
    assert first
    assert first != script.announced(odd)
    assert (odd.root / script.SERVER).stat().st_mode & 0o777 == 0o600


def test_a_server_that_is_stopped_takes_its_word_back(odd: Home, server: Any) -> None:
    wait_for(odd)
    server.terminate()
    assert server.wait(60) == 0
    assert not (odd.root / script.SERVER).exists()


def test_the_token_is_printed_to_terminals_alone(odd: Home, server: Any) -> None:
    wait_for(odd)
    assert secret(odd.root / "token") not in server.stdout.readline()


@pytest.mark.parametrize("length", [3_999, 4_000, 4_001])
def test_an_event_of_just_as_many_bytes_as_are_read_at_once_is_whole(
    odd: Home, server: Any, length: int
) -> None:
    """bash reads the first 4,000 by itself, and may cut a character of two bytes there."""
    wait_for(odd)
    empty = len(json.dumps(prompt(""), ensure_ascii=False).encode())
    for text in ("x" * (length - empty), "é" * ((length - empty) // 2)):
        data = json.dumps(prompt(text, str(len(text))), ensure_ascii=False).encode()
        assert run(odd, "claude-code", data) == (0, "")
        with store.connect(odd.database) as db:
            kept = db.kept_prompt("claude-code", "s", str(len(text)))
        assert kept
        assert kept.text == text
    assert not (odd.logs / "hooks.log").exists()


@pytest.mark.parametrize(
    ("kind", "more"),
    [("UserPromptSubmit", ("dataclasses", "inspect", "clawback.records", "msgspec")), ("Stop", ())],
)
def test_an_event_loads_nothing_that_it_has_no_use_for(odd: Home, kind: str, more: tuple[str, ...]) -> None:
    """Each of these takes milliseconds of every prompt or answer, and comes back by one careless import."""
    assert run(odd, "claude-code", prompt("one")) == (0, "")
    script.path(odd).write_text(
        script.path(odd)
        .read_text()
        .replace('"$python" -I', '"$python" -X importtime -I')
        .replace("exec 2>", "# ")
    )
    words = [str(script.path(odd)), "claude-code"]
    event = prompt("two") | {"hook_event_name": kind, "last_assistant_message": "an answer"}
    done = subprocess.run(words, input=json.dumps(event).encode(), capture_output=True, timeout=60)
    loaded = {line.rsplit("|", 1)[1].strip() for line in done.stderr.decode().splitlines() if "|" in line}
    assert "clawback.store.pending" in loaded, "the measurement itself"
    for name in ("site", "hashlib", "_hashlib", "tomllib", "datetime", *more):
        assert name not in loaded
