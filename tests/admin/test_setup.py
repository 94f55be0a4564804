"""The wizard, the service and orders from a chat."""

from __future__ import annotations

import json
import os
import plistlib
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from clawback import config, store
from clawback.admin import health, installation, remote_commands, system_service
from clawback.capture import script, server_proof
from clawback.cli import main
from clawback.extensions.agents import status_line
from clawback.models import local_models
from clawback.paths import Home
from clawback.records import Run, Turn


@pytest.fixture
def alone(home: Home, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Home:
    """A home folder, a PATH and settings folders that hold nothing."""
    for name in (
        "CLAUDE_CONFIG_DIR",
        "CODEX_HOME",
        "OPENCLAW_CONFIG_PATH",
        "OPENCLAW_STATE_DIR",
        "XDG_CONFIG_HOME",
    ):
        monkeypatch.delenv(name, raising=False)
    for name in ("HF_HOME", "HF_HUB_CACHE", "XDG_CACHE_HOME", "OLLAMA_MODELS"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(local_models, "OLLAMA_SERVICE", tmp_path / "service")
    monkeypatch.setattr(local_models, "smollm2", lambda: None)
    monkeypatch.setenv("HOME", str(tmp_path / "person"))
    monkeypatch.setenv("PATH", "/nowhere")
    monkeypatch.setenv("CLAWBACK_HOME", str(home.root))
    return home


def test_what_a_dry_run_prints_as_json_are_absolute_paths(
    alone: Home, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    for name in ("relative", "~/tilde", str(alone.root)):
        monkeypatch.setenv("CLAWBACK_HOME", name)
        assert main(["init", "--dry-run", "--json", "--agent", "claude-code", "--model", "embedded"]) == 0
        lines = json.loads(capsys.readouterr().out)["would_change"]
        assert len(lines) > 2
        assert all(Path(line.split(":")[0]).is_absolute() and "~" not in line for line in lines), lines


def test_what_is_on_the_machine_is_proposed_and_all_of_it_can_be_undone(
    alone: Home, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    person = tmp_path / "person"
    before = {
        person / ".claude" / "settings.json": b'{"model": "opus"}',
        person / ".codex" / "config.toml": b'model = "x"\n[tui]\nnotifications = true\n',
        person / ".gemini" / "settings.json": b"{}\n",
        person / ".openclaw" / "openclaw.json": b'{\n    "plugins": {"allow": ["other"]}\n}',
    }
    for path, content in before.items():
        path.parent.mkdir(parents=True)
        path.write_bytes(content)
    assert main(["init", "--dry-run", "--json"]) == 0
    would = "\n".join(json.loads(capsys.readouterr().out)["would_change"])
    for path, content in before.items():
        assert str(path) in would
        assert path.read_bytes() == content, "a dry run changes nothing"
    assert main(["init", "--yes", "--json"]) == 0
    made = json.loads(capsys.readouterr().out)
    assert made["agents"] == ["claude-code", "codex", "openclaw", "gemini-cli"]
    assert set(map(str, before)) <= set(made["changed"])
    assert main(["init", "--yes", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["changed"] == [], "again changes nothing"
    assert main(["init", "--remove", "--yes"]) == 0
    assert {path: path.read_bytes() for path in before} == before
    assert not (person / ".codex" / "hooks.json").exists()


def test_who_takes_over_the_hooks_of_another_home_is_told(
    alone: Home, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    command = ["init", "--yes", "--agent", "claude-code", "--model", "embedded"]
    assert main([*command, "--dry-run"]) == main(command) == main(command) == 0
    assert "comes here from now on" not in (said := capsys.readouterr().out)
    assert "no longer" not in said
    monkeypatch.setenv("CLAWBACK_HOME", str(tmp_path / "second"))
    assert main([*command, "--dry-run"]) == main(command) == 0
    said = " ".join(capsys.readouterr().out.split())
    assert f"no longer {script.path(alone)}" in said
    assert f"its hooks ran {script.path(alone)}" in said


def test_settings_that_cannot_be_read_stop_it_before_anything_is_changed(alone: Home, tmp_path: Path) -> None:
    person = tmp_path / "person"
    for name, content in ((".claude", b"{}"), (".gemini", b"{broken")):
        (person / name).mkdir(parents=True)
        (person / name / "settings.json").write_bytes(content)
    assert main(["init", "--yes"]) == 2
    assert (person / ".claude" / "settings.json").read_bytes() == b"{}"
    assert not alone.config.exists()


def test_an_agent_that_nobody_knows_is_wrong_usage(alone: Home, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["init", "--yes", "--agent", "emacs"]) == 2
    assert "there are: claude-code" in capsys.readouterr().err
    assert main(["init", "--yes", "--agent", "claude-cod"]) == 2
    assert "Did you mean claude-code?" in capsys.readouterr().err


def test_every_file_is_named_before_it_is_written_and_then_what_to_do_next(
    alone: Home, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "person" / ".claude").mkdir(parents=True)
    with_service = installation.SetupProposal(
        ["claude-code"], "embedded", "balanced", "http://127.0.0.1:1/v1", service=True
    )
    monkeypatch.setattr(system_service.sys, "platform", "linux")
    would = "\n".join(installation.plan(alone, with_service))
    for named in (
        "config.toml: model embedded",
        "upstream http",
        "settings.json",
        "rl.md",
        system_service.UNIT,
    ):
        assert named in would
    assert "clawback serve" not in [command for command, _ in installation.next_steps(with_service)]
    assert main(["init", "--yes", "--agent", "claude-code", "--model", "embedded"]) == 0
    out = capsys.readouterr().out
    for command in ("clawback doctor", "clawback serve", "clawback chat", "clawback good", "clawback status"):
        assert command in out


def test_an_upstream_that_is_no_address_is_refused(alone: Home, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["init", "--yes", "--agent", "none", "--upstream", "ftp://x"]) == 2
    assert "begins with http" in capsys.readouterr().err
    assert not alone.config.exists()


# ------------------------------------------------------------------------------------------------------- service


def test_the_unit_is_one_that_systemd_takes(
    home: Home, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In a folder whose name has all that systemd would expand."""
    odd = Home(tmp_path / 'my $HOME "100 %" \\ folder')
    odd.create()
    monkeypatch.setattr(system_service.sys, "platform", "linux")
    unit = tmp_path / system_service.UNIT
    unit.write_bytes(system_service.text(odd))
    verify = "/usr/bin/systemd-analyze"
    if not Path(verify).exists():
        pytest.skip("systemd-analyze is not installed")
    done = subprocess.run([verify, "verify", "--man=no", str(unit)], capture_output=True, text=True)
    complaints = [line for line in done.stderr.splitlines() if system_service.UNIT in line]
    assert complaints == [], done.stderr


def unquoted(line: str) -> list[str]:
    """The words of a unit's line, as systemd.syntax(7) has them."""
    words, word, inside, i = [], "", False, 0
    while i < len(line):
        if line[i] == '"':
            inside = not inside
        elif line[i] == "\\":
            i += 1
            word += line[i]
        elif line[i] == " " and not inside:
            words.append(word)
            word = ""
        else:
            word += line[i]
        i += 1
    return [w.replace("%%", "%") for w in [*words, word]]


def test_the_unit_means_this_python_and_this_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    odd = Home(tmp_path / 'my $HOME "100 %" \\ folder')
    monkeypatch.setattr(system_service.sys, "platform", "linux")
    lines = dict(line.split("=", 1) for line in system_service.text(odd).decode().splitlines() if "=" in line)
    command = [word.replace("$$", "$") for word in unquoted(lines["ExecStart"])]
    assert command == [sys.executable, "-m", "clawback", "serve"]
    assert unquoted(lines["Environment"]) == [f"CLAWBACK_HOME={odd.root}"]


def test_the_launchd_agent_means_the_same(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(system_service.sys, "platform", "darwin")
    made = plistlib.loads(system_service.text(Home(tmp_path / "<home> & more")))
    assert made["ProgramArguments"] == [sys.executable, "-m", "clawback", "serve"]
    assert made["EnvironmentVariables"] == {"CLAWBACK_HOME": str(tmp_path / "<home> & more")}


def test_install_status_and_uninstall_ask_the_service_manager(
    alone: Home, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A ``systemctl`` that writes down what it was asked, for there is no systemd where tests run."""
    programs, asked = tmp_path / "bin", tmp_path / "asked"
    programs.mkdir()
    (programs / "systemctl").write_text(f'#!/bin/sh\necho "$@" >> {asked}\n')
    (programs / "systemctl").chmod(0o755)
    monkeypatch.setattr(system_service.sys, "platform", "linux")
    monkeypatch.setenv("PATH", f"{programs}:/bin:/usr/bin")
    assert main(["service", "status"]) == 1
    for _ in range(2):
        assert main(["service", "install"]) == 0
    assert main(["service", "status"]) == 0
    assert system_service.file().read_bytes() == system_service.text(alone)
    assert main(["service", "uninstall"]) == 0
    assert not system_service.file().exists()
    told = asked.read_text().splitlines()
    assert told.count("--user enable --now clawback.service") == 2
    assert told.count("--user restart clawback.service") == 1, "only a changed unit is started anew"
    assert told[-2:] == ["--user disable --now clawback.service", "--user daemon-reload"]
    capsys.readouterr()


def test_a_service_manager_that_refuses_is_quoted(
    alone: Home, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    programs = tmp_path / "bin"
    programs.mkdir()
    (programs / "systemctl").write_text("#!/bin/sh\necho 'Failed to connect to bus' >&2; exit 1\n")
    (programs / "systemctl").chmod(0o755)
    monkeypatch.setattr(system_service.sys, "platform", "linux")
    monkeypatch.setenv("PATH", f"{programs}:/bin:/usr/bin")
    assert main(["service", "install"]) == 1
    assert "Failed to connect to bus" in capsys.readouterr().err


# -------------------------------------------------------------------------------------------- doctor and orders


def found(home: Home, word: str) -> list[dict[str, Any]]:
    return [dict(f) for f in health.check(home) if word in f["what"]]


def test_doctor_tells_a_port_in_use_from_a_server_that_died(
    alone: Home, monkeypatch: pytest.MonkeyPatch
) -> None:
    import socket

    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        config.save(alone.config, {"serve": {"port": port}})
        assert not found(alone, "something else listens")[0]["ok"]
        monkeypatch.setattr(server_proof, "SECONDS", 0.2)
        (alone.root / script.SERVER).write_text(f"{port}\n")
        assert not found(alone, f"what listens on port {port} does not answer as our server does")[0]["ok"]
        monkeypatch.setattr(server_proof, "proven", lambda home, asked: (home, asked) == (alone, port))
        assert found(alone, f"the server runs on port {port}")[0]["ok"]
    assert not found(alone, "is not running")[0]["ok"]


def test_status_says_that_codex_skips_hooks_until_its_person_trusts_them(
    alone: Home, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    settings = tmp_path / "person" / ".codex"
    settings.mkdir(parents=True)
    assert main(["init", "--yes", "--agent", "codex"]) == 0
    capsys.readouterr()
    assert main(["status"]) == 0
    assert "skips the hooks until you have trusted them" in capsys.readouterr().out
    held = (settings / "config.toml").read_text()
    trust = f'\n[hooks.state."{settings / "hooks.json"}:stop:0:0"]\ntrusted_hash = "sha256:0"\n'
    (settings / "config.toml").write_text(held + trust)
    assert main(["status"]) == 0
    assert "trusted" not in capsys.readouterr().out
    assert main(["init", "--remove", "--yes"]) == 0
    assert (settings / "config.toml").read_text() == trust, "what others changed since stays"


def test_doctor_names_a_live_version_of_another_base(home: Home) -> None:
    from clawback.records import Version

    with store.connect(home.database) as db:
        db.add_version(Version(1, "candidate", "somebody/else-7b", path=str(home.version(1))))
        db.set_report(1, {"accepted": True})
        db.promote(1)
    [one] = found(home, "somebody/else-7b")
    assert not one["ok"]
    assert "reset" in one["fix"]


@pytest.mark.parametrize("word", ["train", "rollback", "reset"])
def test_orders_are_off_unless_the_settings_name_them(home: Home, word: str) -> None:
    reply = str(remote_commands.order(home, "openclaw", f"/rl {word}"))
    assert "not allowed" in reply
    assert f"`clawback {'' if word == 'train' else 'versions '}{word}`" in reply
    with store.connect(home.database) as db:
        assert db.runs() == []
        assert db.live().number == 0


def test_an_order_that_is_named_is_carried_out(home: Home) -> None:
    config.save(home.config, {"capture": {"admin": ["rollback", "reset"]}})
    assert "base model is live" in str(remote_commands.order(home, "openclaw", "/rl rollback"))
    assert "ratings are kept" in str(remote_commands.order(home, "openclaw", "/rl reset"))
    assert "not allowed" in str(remote_commands.order(home, "openclaw", "/rl train"))
    assert remote_commands.order(home, "openclaw", "/rl good") is None
    assert remote_commands.order(home, "openclaw", "please reset the router") is None


def test_the_status_line_says_version_and_ratings(home: Home) -> None:
    assert status_line.text(home) == "clawback v0 · 0/32 ratings"
    with store.connect(home.database) as db:
        from clawback import feedback

        turn = db.add_turn(Turn("s", ({"role": "user", "content": "q"},), "a")).id
        feedback.rate(db, turn, 1)
        assert status_line.text(home) == "clawback v0 · 1/32 ratings"
        run = db.start_run(Run("embedded", "", "grpo", {}, 0, 0, pid=os.getpid(), progress={}))
        db.update_run(run.id, progress={"phase": "train", "step": 5, "steps": 20})
    assert status_line.text(home) == "clawback v0 · training 25 %"
    home.database.write_bytes(b"not a database, and longer than its header would be" * 100)
    assert status_line.text(home) == "clawback ?"


def test_init_pins_the_commit_that_it_chose(
    alone: Home, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("HF_HUB_CACHE", str(tmp_path / "hub"))
    first, second, other = ("a" * 40, "b" * 40, "c" * 40)
    for name, commits in (("tiny", (first, second)), ("other", (other,))):
        repository = tmp_path / "hub" / f"models--someone--{name}"
        for commit in commits:
            (repository / "snapshots" / commit).mkdir(parents=True)
        (repository / "refs").mkdir()
        (repository / "refs" / "main").write_text(commits[0])

    def revision(*arguments: str) -> str | None:
        assert main([*arguments]) == 0, capsys.readouterr().err
        return config.load(alone.config).model.revision

    init = ("init", "--yes", "--agent", "none", "--model")
    assert revision(*init, "someone/tiny") == first
    (tmp_path / "hub" / "models--someone--tiny" / "refs" / "main").write_text(second)
    assert revision(*init, "someone/tiny") == first, "what was chosen stays"
    assert revision(*init, "someone/other") == other
    assert revision("config", "set", "model.base", "embedded") is None, (
        "a commit of another model means nothing"
    )
    assert revision("config", "set", "model.revision", "main") == "main"
    assert revision("config", "set", "model.base", "embedded") == "main"
