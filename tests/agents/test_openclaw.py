"""OpenClaw's settings are merged into and given back; what its plugin tells is read, and what it cannot mean is refused."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given
from hypothesis import settings as hyp_settings
from hypothesis import strategies as st

from clawback import store
from clawback.capture import ingest
from clawback.capture.agent_integration import State
from clawback.capture.events import AnswerEvent, DisplayEvent, PromptEvent, ReactionEvent
from clawback.capture.ingest import Unusable
from clawback.errors import ConfigError
from clawback.extensions.agents import openclaw
from clawback.extensions.agents.openclaw import OpenClaw, plugin_folder
from clawback.paths import Home, secret
from clawback.serve import hooks

agent = OpenClaw()


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "agent" / "openclaw.json"


def written(file: Path, content: bytes | None) -> Path:
    file.parent.mkdir(exist_ok=True)
    if content is not None:
        file.write_bytes(content)
    return file


# ----------------------------------------------------------------------------------------------- settings


@pytest.mark.parametrize(
    "before",
    [
        None,
        b"{}",
        b'{"gateway":{"port":18789}}',
        b'{\n    "plugins": {\n        "allow": ["telegram"]\n    }\n}\n\n',
        b'{\n\t"plugins": {"load": {"paths": ["/somewhere/else"]}, "entries": {"x": {}}}\n}',
        '{"agents": {"list": [{"id": "ü"}]}}'.encode(),
    ],
)
def test_removing_leaves_the_file_byte_for_byte_as_it_was(
    home: Home, file: Path, before: bytes | None
) -> None:
    written(file, before)
    agent.install(home, file)
    assert agent.status(home, file) == State(True, file)
    assert agent.install(home, file) == [], "again changes nothing"
    agent.uninstall(home, file)
    assert (file.read_bytes() if file.exists() else None) == before


def test_what_openclaw_reads_after_it(home: Home, file: Path) -> None:
    home.config.write_text("[serve]\nport = 9137\n")
    written(file, json.dumps({"plugins": {"allow": ["telegram"]}}).encode())
    agent.install(home, file)
    plugins = json.loads(file.read_bytes())["plugins"]
    assert plugins["load"]["paths"] == [str(plugin_folder())]
    assert plugins["allow"] == ["telegram", "clawback"], "a closed list must let us in"
    assert plugins["entries"]["clawback"] == {
        "enabled": True,
        "hooks": {"allowConversationAccess": True},
        "config": {"url": "http://127.0.0.1:9137", "token": secret(home.root / "hook-token")},
    }


@pytest.mark.parametrize(
    "before",
    [{}, {"gateway": {"port": 1}}, {"plugins": {}}, {"plugins": {"load": {"paths": []}, "allow": ["x"]}}],
)
def test_nothing_empty_stays_that_was_not_there(home: Home, file: Path, before: dict[str, Any]) -> None:
    for others in ({}, {"theirs": 1}):
        written(file, json.dumps(before, indent=4).encode())
        agent.install(home, file)
        file.write_text(json.dumps(json.loads(file.read_bytes()) | others, indent=4))
        agent.uninstall(home, file)
        assert file.read_text() == json.dumps(before | others, indent=4)


def test_what_was_changed_since_stays(home: Home, file: Path) -> None:
    written(file, b'{"gateway": {"port": 1}}')
    agent.install(home, file)
    now = json.loads(file.read_bytes())
    now["gateway"]["port"] = 2
    now["plugins"]["entries"]["other"] = {"enabled": True}
    now["plugins"]["load"]["paths"].insert(0, "/theirs")
    file.write_text(json.dumps(now))
    agent.uninstall(home, file)
    held = json.loads(file.read_bytes())
    assert held["gateway"] == {"port": 2}
    assert held["plugins"]["entries"] == {"other": {"enabled": True}}
    assert held["plugins"]["load"] == {"paths": ["/theirs"]}


@pytest.mark.parametrize(
    "broken",
    [
        b"{",
        b"[]",
        b"{port: 1, // as JSON5 has it\n}",
        b'{"plugins": []}',
        b'{"plugins": {"load": {"paths": 1}}}',
        b'{"plugins": {"entries": 1}}',
    ],
)
def test_settings_that_cannot_be_read_are_left_alone(home: Home, file: Path, broken: bytes) -> None:
    written(file, broken)
    with pytest.raises(ConfigError, match="left alone"):
        agent.install(home, file)
    assert file.read_bytes() == broken


def test_what_is_wrong_is_named(home: Home, file: Path, tmp_path: Path) -> None:
    assert agent.status(home, file) == State(False, file)
    written(file, b'{"plugins": {"entries": []}}')
    assert agent.status(home, file) == State(False, file)
    file.unlink()
    agent.install(home, file)
    held = json.loads(file.read_bytes())
    assert "another home" in agent.status(Home(tmp_path / "second"), file).problem
    held["plugins"]["load"]["paths"] = ["/gone/integrations/openclaw"]
    file.write_text(json.dumps(held))
    assert "/gone/integrations/openclaw, which is gone" in agent.status(home, file).problem
    held["plugins"]["load"]["paths"] = []
    file.write_text(json.dumps(held))
    assert "does not name the plugin" in agent.status(home, file).problem
    held["plugins"]["load"]["paths"] = [str(plugin_folder())]
    held["plugins"]["entries"]["clawback"]["enabled"] = False
    file.write_text(json.dumps(held))
    assert "switched off" in agent.status(home, file).problem
    held["plugins"]["entries"]["clawback"]["enabled"] = True
    held["plugins"]["entries"]["clawback"]["config"]["url"] = "http://127.0.0.1:1"
    file.write_text(json.dumps(held))
    assert "another address" in agent.status(home, file).problem


def test_the_file_is_where_openclaw_looks_for_it(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("OPENCLAW_CONFIG_PATH", str(tmp_path / "a.json"))
    assert agent.file() == tmp_path / "a.json"
    monkeypatch.delenv("OPENCLAW_CONFIG_PATH")
    monkeypatch.setenv("OPENCLAW_STATE_DIR", str(tmp_path / "state"))
    assert agent.file() == tmp_path / "state" / "openclaw.json"


def test_the_plugin_that_is_named_is_whole() -> None:
    folder = plugin_folder()
    package = json.loads((folder / "package.json").read_bytes())
    manifest = json.loads((folder / "openclaw.plugin.json").read_bytes())
    assert manifest["id"] == openclaw.ID
    for entry in package["openclaw"]["extensions"]:
        assert (folder / entry).is_file()
    built = {p.stem for p in (folder / "dist").glob("*.js")}
    assert built == {p.stem for p in (folder / "src").glob("*.ts")}, "every source is built, and nothing else"
    code = "".join(p.read_text() for p in (folder / "src").glob("*.ts"))
    for forbidden in ("child_process", "process.env", "eval(", "node:fs"):
        assert forbidden not in code


# ------------------------------------------------------------------------------------------------- events


def test_events_as_the_plugin_tells_them() -> None:
    assert agent.parse({"event": "prompt", "session": "s", "id": "r", "text": "Hi"}) == PromptEvent(
        "s", "Hi", "r"
    )
    told = {"event": "answer", "session": "s", "id": "r", "text": "Hello", "model": "clawback/m"}
    assert agent.parse(told) == AnswerEvent("s", "Hello", "r", model="clawback/m")
    assert agent.parse({"event": "shown", "session": "s", "id": "r", "message": "telegram/default/11/2"}) == (
        DisplayEvent("s", "r", "telegram/default/11/2")
    )
    reaction = {
        "event": "reaction", "session": "s", "message": "m", "value": -1, "by": "telegram:11", "id": "e"
    }  # fmt: skip
    assert agent.parse(reaction) == ReactionEvent("s", "m", -1, "telegram:11", "e")
    assert agent.parse({"event": "something new", "session": "s"}) is None


@pytest.mark.parametrize(
    "event",
    [
        {"event": "prompt", "text": "no session"},
        {"event": "prompt", "session": 7, "text": "x"},
        {"event": "prompt", "session": "s" * 501, "text": "x"},
        {"event": "prompt", "session": "s", "text": ["x"]},
        {"event": "answer", "session": "s", "id": {}, "text": "x"},
        {"event": "shown", "session": "s", "id": "r"},
        {"event": "shown", "session": "s", "message": "m"},
        {"event": "reaction", "session": "s", "message": "m", "by": "a", "value": 2},
        {"event": "reaction", "session": "s", "message": "m", "by": "a", "value": True},
        {"event": "reaction", "session": "s", "message": "m", "by": "a", "value": 0.5},
        {"event": "reaction", "session": "s", "message": "", "by": "a", "value": 1},
        {"event": "reaction", "session": "s", "message": "m", "value": 1},
        {"event": 1},
    ],
)
def test_events_that_say_too_little_or_too_much_are_refused(event: dict[str, Any]) -> None:
    with pytest.raises(Unusable):
        agent.parse(event)


values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=6), inner, max_size=3),
    max_leaves=6,
)
FIELDS = ("event", "session", "id", "text", "message", "value", "by", "model")


@hyp_settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    st.dictionaries(st.sampled_from(FIELDS), values, max_size=8),
    st.sampled_from(["prompt", "answer", "shown", "reaction", ""]),
)
def test_whatever_comes_in_the_server_answers(home: Home, event: dict[str, Any], kind: str) -> None:
    event = {**event, "event": kind} if kind else event
    said, media = hooks.answer(home, "openclaw", json.dumps(event).encode())
    assert media == "application/json"
    assert said == "" or set(json.loads(said)) == {"reply"}


# -------------------------------------------------------------------------------------------- attribution


def tell(home: Home, **event: Any) -> str:
    said, _ = hooks.answer(home, "openclaw", json.dumps(event).encode())
    return str(json.loads(said)["reply"]) if said else ""


def turn(home: Home, session: str, number: str, *messages: str) -> None:
    tell(home, event="prompt", session=session, id=number, text=f"prompt {number}")
    tell(home, event="answer", session=session, id=number, text=f"answer {number}")
    for message in messages:
        tell(home, event="shown", session=session, id=number, message=message)


def ratings(home: Home) -> dict[str, list[float]]:
    with store.connect(home.database) as db:
        return {
            t.response: [f.value for f in db.feedback(turn_id=t.id)] for t in reversed(db.turns(limit=50))
        }


def react(home: Home, message: str, value: int, number: str, by: str = "telegram:11") -> None:
    tell(home, event="reaction", session="s", message=message, value=value, by=by, id=number)


def test_a_reaction_rates_the_answer_that_its_message_shows(home: Home) -> None:
    turn(home, "s", "1", "a", "b")
    turn(home, "s", "2", "c")
    react(home, "b", 1, "e1")
    react(home, "b", 1, "e1")
    react(home, "c", -1, "e2")
    react(home, "nowhere", -1, "e3")
    assert ratings(home) == {"answer 1": [1.0], "answer 2": [-1.0]}
    react(home, "c", 0, "e2")
    assert ratings(home) == {"answer 1": [1.0], "answer 2": []}


def test_a_reaction_that_comes_first_waits_for_its_message(home: Home) -> None:
    turn(home, "s", "1", "a")
    react(home, "b", -1, "e1")
    react(home, "d", 1, "e2")
    react(home, "d", 0, "e2")
    turn(home, "s", "2", "b", "d")
    assert ratings(home) == {"answer 1": [], "answer 2": [-1.0]}


def test_a_message_of_no_known_answer_is_left_out(home: Home) -> None:
    turn(home, "s", "1", "a")
    with pytest.raises(Unusable):
        ingest.take(home, "openclaw", DisplayEvent("s", "2", "b"))
    react(home, "b", 1, "e1")
    assert ratings(home) == {"answer 1": []}


def test_a_command_rates_the_newest_answer_of_its_own_conversation(home: Home) -> None:
    turn(home, "s", "1")
    turn(home, "other", "2")
    assert tell(home, event="prompt", session="s", id="c1", text="/rl good").startswith(
        "Clawback: Noted: good"
    )
    assert tell(home, event="prompt", session="s", id="c1", text="/rl good"), "told twice"
    assert ratings(home) == {"answer 1": [1.0], "answer 2": []}
    tell(home, event="prompt", session="s", id="own:3", text="")
    assert "which is not kept" in tell(home, event="prompt", session="s", id="c2", text="/rl bad")
    assert ratings(home) == {"answer 1": [1.0], "answer 2": []}


def test_what_changes_more_than_a_rating_is_off_unless_the_settings_name_it(home: Home) -> None:
    assert "not allowed" in tell(home, event="prompt", session="s", id="1", text="/rl reset")
    home.config.write_text('[capture]\nadmin = ["reset"]\n')
    assert "base model is live" in tell(home, event="prompt", session="s", id="2", text="/rl reset")


# ------------------------------------------------------------------------------------------------- plugin


@pytest.mark.slow
def test_the_plugins_own_tests_and_its_build(tmp_path: Path) -> None:
    import sys

    sys.path.insert(0, str(Path(__file__).parents[1] / "e2e"))
    import agents

    program, node = agents.openclaw()
    modules = program.parents[1]
    folder = tmp_path / "openclaw"
    folder.mkdir()
    for name in ("src", "test", "dist", "package.json", "tsconfig.json"):
        (folder / name).symlink_to(plugin_folder() / name)
    (folder / "node_modules").symlink_to(modules)

    def run(*command: str) -> str:
        done = subprocess.run(
            [str(node / "node"), *command], cwd=folder, capture_output=True, text=True, timeout=300
        )
        assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-2000:]
        return done.stdout

    run("--test", *sorted(str(p) for p in (plugin_folder() / "test").glob("*.test.mjs")))
    built = tmp_path / "built"
    compiler = str(modules / "typescript" / "lib" / "tsc.js")
    run(compiler, "-p", str(folder / "tsconfig.json"), "--outDir", str(built), "--preserveSymlinks")
    for file in sorted(built.iterdir()):
        assert file.read_bytes() == (plugin_folder() / "dist" / file.name).read_bytes(), (
            f"{file.name} was not built after its source changed (npm run build)"
        )
