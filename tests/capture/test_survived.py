"""How much of an agent's edits is left at the next commit."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from clawback import feedback, store
from clawback.capture import hook, survived
from clawback.paths import Home
from clawback.records import Turn

START = 1_700_000_000
LINES = st.lists(
    st.sampled_from([f"{name} = {n}" for name in ("one", "two", "three") for n in range(3)]),
    min_size=1,
    max_size=6,
)
OLD = "def add(a, b):\n    return a - b\n"
NEW = 'def add(a, b):\n    """The sum."""\n    check(a)\n    return a + b\n'
CALLS = {
    "claude-code": ("Edit", {"file_path": "{folder}/sum.py", "old_string": OLD, "new_string": NEW}),
    "opencode": ("edit", {"filePath": "{folder}/sum.py", "oldString": OLD, "newString": NEW}),
    "gemini-cli": ("write_file", {"file_path": "{folder}/sum.py", "content": '"""The sum."""\ncheck(a)\nreturn a + b\n'}),
    "hermes": ("patch", {"path": "sum.py", "old_string": OLD, "new_string": NEW}),
    "claude-code, several": ("MultiEdit", {"file_path": "{folder}/sum.py", "edits": [{"old_string": OLD, "new_string": NEW}]}),
    "codex": (
        "apply_patch",
        '*** Begin Patch\n*** Update File: sum.py\n@@\n-    return a - b\n+    """The sum."""\n+    check(a)\n+    return a + b\n*** End Patch\n',
    ),
}  # fmt: skip


def turn_of(folder: Path, name: str, arguments: Any, at: float = START + 1000.0, session: str = "s") -> Turn:
    words = (
        arguments if isinstance(arguments, str) else json.dumps(arguments).replace("{folder}", str(folder))
    )
    call = {"id": "c", "type": "function", "function": {"name": name, "arguments": words}}
    messages: tuple[dict[str, Any], ...] = (
        {"role": "user", "content": "mend it"},
        {"role": "assistant", "content": "", "tool_calls": [call]},
        {"role": "tool", "tool_call_id": "c", "content": "ok"},
    )
    return Turn(
        session=session, messages=messages, response="Done.", cwd=str(folder), agent="a", created_at=at
    )


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    folder = tmp_path / "work"
    folder.mkdir()
    git(folder, "init", "-q")
    return folder


def git(folder: Path, *arguments: str, at: int = START + 2000) -> None:
    names = {f"GIT_{who}_{what}": "a@b" for who in ("AUTHOR", "COMMITTER") for what in ("NAME", "EMAIL")}
    dates = {f"GIT_{who}_DATE": f"@{at} +0000" for who in ("AUTHOR", "COMMITTER")}
    subprocess.run(["git", *arguments], cwd=folder, check=True, capture_output=True, env={"PATH": "/usr/bin:/bin", "HOME": str(folder.parent)} | names | dates)  # fmt: skip


def commit(folder: Path, text: str, at: int = START + 2000) -> None:
    (folder / "sum.py").write_text(text)
    git(folder, "add", "-A")
    git(folder, "commit", "-q", "-m", "m", at=at)


def test_no_program_that_a_repository_names_is_run(repository: Path) -> None:
    """Its settings are an agent's to write: here one that checks the signature of a commit by a program of its own."""
    commit(repository, NEW)
    seen, program = repository.parent / "seen", repository.parent / "program"
    program.write_text(f"#!/bin/sh\necho run >> {seen}\n")
    program.chmod(0o755)
    plain = subprocess.run(
        ["git", "cat-file", "commit", "HEAD"], cwd=repository, check=True, capture_output=True
    ).stdout
    head, _, words = plain.partition(b"\n\n")
    signature = b"\ngpgsig -----BEGIN PGP SIGNATURE-----\n \n x\n -----END PGP SIGNATURE-----\n\n"
    signed = subprocess.run(["git", "hash-object", "-t", "commit", "-w", "--stdin"], cwd=repository, check=True, capture_output=True, input=head + signature + words)  # fmt: skip
    git(repository, "update-ref", "HEAD", signed.stdout.decode().strip())
    for key, value in {
        "log.showSignature": "true",
        "gpg.program": str(program),
        "core.fsmonitor": str(program),
    }.items():
        git(repository, "config", key, value)
    git(repository, "log", "-1")
    assert seen.exists(), "git runs it where nobody keeps it from that"
    seen.unlink()
    assert survived.committed(str(repository), ["sum.py"], START) == {"sum.py": NEW}
    assert not seen.exists()


@pytest.mark.parametrize("agent", CALLS)
def test_edits_of_every_agent_are_found_again(agent: str, repository: Path, home: Home) -> None:
    name, arguments = CALLS[agent]
    with store.connect(home.database) as db:
        turn = db.add_turn(turn_of(repository, name, arguments))
        assert survived.notice(db, str(repository)) == []  # nothing is committed yet
        commit(repository, OLD, at=START + 500)
        assert survived.notice(db, str(repository)) == []  # that was before
        commit(repository, NEW.replace("    check(a)\n", ""))
        [sign] = survived.notice(db, str(repository))
        assert (sign.turn_id, sign.kind, sign.value, sign.person) == (turn.id, "implicit", 0.333, "survived")
        assert survived.notice(db, str(repository)) == []  # once
        commit(repository, "pass\n", at=START + 3000)
        assert survived.notice(db, str(repository)) == []


def test_a_file_that_a_later_answer_changed_is_left_out(repository: Path, home: Home) -> None:
    name, arguments = CALLS["opencode"]
    with store.connect(home.database) as db:
        db.add_turn(turn_of(repository, name, arguments))
        later = db.add_turn(
            turn_of(
                repository,
                "write",
                {"filePath": "{folder}/sum.py", "content": "one = 1\ntwo = 2\nthree = 3\n"},
                at=START + 1500.0,
            )
        )
        commit(repository, "one = 1\ntwo = 2\nthree = 3\n")
        assert [(s.turn_id, s.value) for s in survived.notice(db, str(repository))] == [(later.id, 1.0)]


def test_it_is_off_until_switched_on_and_never_outweighs_a_rating(repository: Path, home: Home) -> None:
    name, arguments = CALLS["opencode"]
    with store.connect(home.database) as db:
        turn = db.add_turn(turn_of(repository, name, arguments))
    commit(repository, "pass\n")
    for number, (setting, expected) in enumerate((("", 0), ("[capture]\nsurvived = true\n", 1))):
        home.config.write_text(setting)
        for event in ({"event": "prompt", "id": f"p{number}", "text": "and now?"}, {"event": "answer", "id": f"p{number}", "text": "Now.", "cwd": str(repository)}):  # fmt: skip
            hook.handle(home, "opencode", json.dumps({**event, "session": "s2"}).encode())
        with store.connect(home.database) as db:
            assert len(db.feedback(turn_id=turn.id)) == expected
    with store.connect(home.database) as db:
        alone, parts = feedback.reward(turn.id, db.feedback(turn_id=turn.id))
        assert (alone, [p.weight for p in parts]) == (-0.25, [0.25])
        feedback.rate(db, turn.id, 1.0)
        assert feedback.reward(turn.id, db.feedback(turn_id=turn.id))[0] == 1.0


@given(LINES, LINES, LINES)
def test_the_share_is_what_is_left(added: list[str], others: list[str], more: list[str]) -> None:
    lines = {"f": added}
    assert survived.share(lines, {"f": "\n".join([*others, *added, *more])}) == 1.0
    assert survived.share(lines, {}) == 0.0
    some = survived.share(lines, {"f": "\n".join(others)})
    assert 0.0 <= some <= survived.share(lines, {"f": "\n".join([*others, *more])}) <= 1.0
    kept = added[: len(added) // 2]
    assert survived.share(lines, {"f": "\n".join(f"  {line} " for line in kept)}) == pytest.approx(
        len(kept) / len(added)
    )


@given(st.recursive(st.none() | st.booleans() | st.text(max_size=6), lambda x: st.lists(x, max_size=3) | st.dictionaries(st.sampled_from(["path", "content", "edits", "input", "old_string"]), x, max_size=3)))  # fmt: skip
def test_any_arguments_are_read_without_an_error(arguments: Any) -> None:
    found = survived.added_lines(
        turn_of(Path("/w"), "edit", arguments if isinstance(arguments, str) else json.dumps(arguments))
    )
    assert all(lines for lines in found.values())
