"""The hooks' door: the right prompt with the right answer, and an agent that is never held up or broken."""

from __future__ import annotations

import json
import os
import random
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from clawback import store
from clawback.capture import answer_turns, hook
from clawback.paths import Home


def fire(home: Home, event: Any) -> dict[str, Any] | None:
    payload = event if isinstance(event, bytes) else json.dumps(event).encode()
    return hook.handle(home, "claude-code", payload)


def submit(home: Home, prompt: str, session: str = "s", **more: Any) -> dict[str, Any] | None:
    return fire(
        home, {"hook_event_name": "UserPromptSubmit", "session_id": session, "prompt": prompt, **more}
    )


def stop(home: Home, message: str, session: str = "s", **more: Any) -> None:
    fire(home, {"hook_event_name": "Stop", "session_id": session, "last_assistant_message": message, **more})


def said(home: Home) -> list[tuple[str, str, int]]:
    with store.connect(home.database) as db:
        return [(t.prompt, t.response, len(t.messages)) for t in reversed(db.turns(limit=1000))]


def test_a_conversation_is_captured_with_what_led_to_each_answer(home: Home) -> None:
    submit(home, "one", prompt_id="1")
    stop(home, "first", prompt_id="1", cwd="/project")
    submit(home, "two", prompt_id="2")
    stop(home, "second", prompt_id="2")
    assert said(home) == [("one", "first", 1), ("two", "second", 3)]
    with store.connect(home.database) as db:
        assert [m["content"] for m in db.turn(2).messages] == ["one", "first", "two"]
        assert db.turn(1).cwd == "/project"


def test_an_event_that_comes_twice_counts_once(home: Home) -> None:
    for _ in range(2):
        submit(home, "one", prompt_id="1")
    for _ in range(3):
        stop(home, "first", prompt_id="1")
    for _ in range(2):
        submit(home, "/rl good", prompt_id="2")
    with store.connect(home.database) as db:
        assert db.count_turns() == 1
        assert len(db.feedback(active=False)) == 1


def test_sessions_that_interleave_are_kept_apart(home: Home) -> None:
    home.config.write_text("[training]\nbackground = false\n")
    rng = random.Random(0)
    waiting = [(f"s{i % 20}", f"p{i}") for i in range(80)]
    asked: dict[str, str] = {}
    expected = []
    while waiting or asked:
        if waiting and (not asked or rng.random() < 0.5) and waiting[0][0] not in asked:
            session, prompt = waiting.pop(0)
            submit(home, prompt, session, prompt_id=prompt)
            asked[session] = prompt
        else:
            session = rng.choice(sorted(asked))
            prompt = asked.pop(session)
            stop(home, f"answer to {prompt}", session, prompt_id=prompt)
            expected.append((prompt, session))
            opinion = "good" if rng.random() < 0.5 else "bad"
            submit(home, f"/rl {opinion} about {prompt}", session, prompt_id=f"rl-{prompt}")
    with store.connect(home.database) as db:
        for given in db.feedback():
            turn = db.turn(given.turn_id)
            assert given.text == f"about {turn.prompt}"
            assert turn.response == f"answer to {turn.prompt}"
        assert len(db.feedback()) == 80


def test_rl_is_answered_without_the_model(home: Home) -> None:
    assert "nothing to rate" in submit(home, "/rl good")["reason"]  # type: ignore[index]
    submit(home, "one")
    stop(home, "first")
    replies = {
        "/rl good nice": "noted: good",
        "rl: bad": "noted: bad",
        "/RL rate 8": "noted: 8 of 10",
        "/rl remark no apology": "noted",
        "/rl undo": "taken back (remark",
        "/rl status": "the base model is live",
        "/rl": "the base model is live",
        "/rl nonsense": "use good, bad",
        "/rl rate eleven": "use good, bad",
        "/rl rate 11": "from 1 to 10",
    }
    for command, reply in replies.items():
        answer = submit(home, command)
        assert answer is not None
        assert answer["decision"] == "block", "only this keeps it out of the model's context"
        assert reply in answer["reason"].lower(), command
    for prompt in ("rl is short for reinforcement learning", "what is /rl good for?", "/rlx"):
        assert submit(home, prompt) is None


def test_what_comes_of_work_in_the_background_answers_what_the_person_had_asked_for(home: Home) -> None:
    submit(home, "one", prompt_id="1")
    stop(home, "first", prompt_id="1")
    submit(home, "<task-notification>done</task-notification>", prompt_id="2")
    stop(home, "I see it is done", prompt_id="2")
    submit(home, "/rl good", prompt_id="3")
    assert said(home) == [("one", "first", 1), ("one", "I see it is done", 3)]
    with store.connect(home.database) as db:
        assert [f.turn_id for f in db.feedback()] == [2]


def test_what_the_agent_writes_to_itself_about_anything_else_is_no_turn_of_a_person(home: Home) -> None:
    submit(home, "one", prompt_id="1")
    stop(home, "first", prompt_id="1")
    submit(home, "<system-reminder>time is over</system-reminder>", prompt_id="2")
    stop(home, "I see", prompt_id="2")
    assert said(home) == [("one", "first", 1)]
    reply = submit(home, "/rl bad", prompt_id="3")
    assert reply is not None
    assert "not kept" in reply["reason"]
    assert "`clawback bad --turn 1`" in reply["reason"]


def test_a_sub_agents_answer_is_recorded_and_never_rated(home: Home) -> None:
    submit(home, "one")
    stop(home, "first")
    fire(
        home,
        {
            "hook_event_name": "SubagentStop",
            "session_id": "s",
            "agent_id": "a",
            "last_assistant_message": "side",
        },
    )
    submit(home, "/rl good")
    with store.connect(home.database) as db:
        assert [t.kind for t in db.turns()] == ["side", "main"]
        assert [db.turn(f.turn_id).response for f in db.feedback()] == ["first"]


def test_secrets_are_not_stored(home: Home) -> None:
    secret = "ghp_" + "a1B2" * 9
    submit(home, f"my token is {secret}")
    stop(home, f"never share {secret}")
    submit(home, f"/rl bad leaked {secret}")
    assert secret.encode() not in b"".join(p.read_bytes() for p in home.root.rglob("*") if p.is_file())


def test_settings_of_privacy_count(home: Home) -> None:
    home.config.write_text("[privacy]\nredact = false\nmax_turn_bytes = 50\n")
    submit(home, "x" * 1000 + "ghp_" + "a1B2" * 9)
    stop(home, "yes")
    [(prompt, _, _)] = said(home)
    assert len(prompt) == 50
    assert prompt.endswith("a1B2")


def test_a_long_conversation_keeps_its_newest_part(home: Home, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(answer_turns, "CONTEXT_CHARACTERS", 100)
    for number in range(12):
        submit(home, f"question {number:02}", prompt_id=str(number))
        stop(home, f"answer {number:02}", prompt_id=str(number))
    with store.connect(home.database) as db:
        contents = [str(m["content"]) for m in db.turn(12).messages]
    assert contents[-1] == "question 11"
    assert contents[-2] == "answer 10"
    assert sum(map(len, contents[:-1])) <= 100


# ------------------------------------------------------------------------------------------------------- hostile


def run(home: Home, payload: bytes, **more: Any) -> subprocess.CompletedProcess[bytes]:
    command = [sys.executable, "-m", "clawback.capture.hook", "claude-code", "--home", str(home.root)]
    return subprocess.run(command, input=payload, capture_output=True, timeout=60, **more)


STOP = {"hook_event_name": "Stop", "session_id": "s", "last_assistant_message": "secret-content"}
HOSTILE = {
    "empty": b"",
    "not json": b"\x00\xff\xfe",
    "cut off": json.dumps(STOP).encode()[:-5],
    "a bomb of brackets": b"[" * 2_000_000,
    "another": b'{"a":' * 500_000,
    "an array": b"[1, 2]",
    "wrong types": json.dumps(STOP | {"last_assistant_message": {"x": 1}}).encode(),
    "a number for a session": json.dumps(STOP | {"session_id": 5}).encode(),
    "no session": b'{"hook_event_name": "Stop"}',
    "a long session": json.dumps(STOP | {"session_id": "s" * 1000}).encode(),
    "an unknown event": b'{"hook_event_name": "Nonsense", "session_id": "s"}',
    "an answer to nothing": json.dumps(STOP).encode(),
}


@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_events_leave_nothing_behind_and_exit_with_0(home: Home, name: str) -> None:
    done = run(home, HOSTILE[name])
    assert (done.returncode, done.stdout, done.stderr) == (0, b"", b"")
    log = home.logs / "hooks.log"
    assert not log.exists() or len(log.read_text().splitlines()) == 1
    assert not log.exists() or "secret-content" not in log.read_text()
    with store.connect(home.database) as db:
        assert db.count_turns() == 0


def test_a_huge_event_is_left_out(home: Home) -> None:
    payload = (
        b'{"hook_event_name": "Stop", "session_id": "s", "last_assistant_message": "'
        + b"x" * 100_000_000
        + b'"}'
    )
    done = run(home, payload)
    assert done.returncode == 0
    assert "larger than" in (home.logs / "hooks.log").read_text()


def test_half_a_surrogate_pair_is_stored_as_text(home: Home) -> None:
    fire(home, b'{"hook_event_name": "UserPromptSubmit", "session_id": "s", "prompt": "a \\ud800 b"}')
    stop(home, "fine")
    assert said(home) == [("a ? b", "fine", 1)]


@pytest.mark.parametrize("trouble", ["locked", "damaged", "newer", "home is a file", "read-only"])
def test_the_agent_goes_on_whatever_the_store_is_like(home: Home, trouble: str) -> None:
    submit(home, "one", prompt_id="1")
    holder = None
    if trouble == "locked":
        holder = store.connect(home.database)
        holder._db.execute("BEGIN EXCLUSIVE")
    elif trouble == "damaged":
        home.database.write_bytes(b"nonsense" * 1000)
        for extra in ("-wal", "-shm"):
            home.database.with_name(home.database.name + extra).unlink(missing_ok=True)
    elif trouble == "newer":
        with store.connect(home.database) as db:
            db._db.execute("PRAGMA user_version = 999")
    elif trouble == "home is a file":
        home = Home(home.root / "file")
        home.root.write_text("")
    elif trouble == "read-only" and os.geteuid() == 0:
        pytest.skip("root writes everywhere")
    else:
        home.root.chmod(0o500)
    done = run(home, json.dumps(STOP | {"prompt_id": "1"}).encode())
    assert (done.returncode, done.stderr) == (0, b"")
    if holder:
        holder._db.execute("ROLLBACK")
        holder.close()


def test_files_of_the_folder_where_the_agent_runs_are_not_imported(home: Home, tmp_path: Path) -> None:
    project = tmp_path / "project"
    (project / "clawback").mkdir(parents=True)
    (project / "json.py").write_text("raise SystemExit('imported')")
    (project / "clawback" / "__init__.py").write_text("raise SystemExit('imported')")
    command = [sys.executable, "-I", "-m", "clawback.capture.hook", "claude-code", "--home", str(home.root)]
    event = {"hook_event_name": "UserPromptSubmit", "session_id": "s", "prompt": "/rl status"}
    done = subprocess.run(
        command, input=json.dumps(event), cwd=project, capture_output=True, text=True, check=True
    )
    assert json.loads(done.stdout)["decision"] == "block"


def mutate(rng: random.Random, data: bytes) -> bytes:
    """One of the ways in which an event goes wrong."""
    at = rng.randrange(len(data) + 1)
    return rng.choice(
        [
            lambda: data[:at],
            lambda: data[:at] + bytes(rng.randrange(256) for _ in range(rng.randrange(1, 6))) + data[at:],
            lambda: data[:at] + data[at + rng.randrange(1, 20) :],
            lambda: data.replace(
                b'"s"', rng.choice([b"null", b"[]", b"1e999", b'"\\u0000"', b"{}", b'"../../x"'])
            ),
            lambda: data.replace(
                b"text", rng.choice([b"\\ud83d", b"'; DROP TABLE turns; --", b"$(touch x)", b"%s%n"])
            ),
        ]
    )()


@pytest.mark.slow
def test_thousands_of_mutated_events_neither_crash_nor_store_half(home: Home) -> None:
    rng = random.Random(1)
    base = [
        json.dumps(
            {"hook_event_name": "UserPromptSubmit", "session_id": "s", "prompt_id": "p", "prompt": "text"}
        ),
        json.dumps(
            {
                "hook_event_name": "UserPromptSubmit",
                "session_id": "s",
                "prompt_id": "q",
                "prompt": "/rl good text",
            }
        ),
        json.dumps(
            {"hook_event_name": "Stop", "session_id": "s", "prompt_id": "p", "last_assistant_message": "text"}
        ),
        json.dumps(
            {
                "hook_event_name": "SubagentStop",
                "session_id": "s",
                "agent_id": "a",
                "last_assistant_message": "text",
            }
        ),
    ]
    for _ in range(3000):
        payload = mutate(rng, rng.choice(base).encode())
        try:
            hook.handle(home, "claude-code", payload)
        except hook.Unusable as reason:
            assert "text" not in str(reason).replace("not text", "")
    with store.connect(home.database) as db:
        assert db.integrity() == []
        for turn in db.turns(limit=10_000):
            assert turn.response
            assert turn.kind == "side" or turn.prompt
        for given in db.feedback():
            assert db.turn(given.turn_id).kind == "main"


def test_the_log_stays_small(home: Home, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hook, "MAX_LOG", 1000)
    for _ in range(200):
        hook.log(home, "x" * 50)
    files = sorted(home.logs.iterdir())
    assert [f.name for f in files] == ["hooks.log", "hooks.log.1"]
    assert all(f.stat().st_size < 1200 and f.stat().st_mode & 0o077 == 0 for f in files)
