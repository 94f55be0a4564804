"""What real agents told and wrote down, event for event (Claude Code 2.1.329, Codex 0.169.0): a tap ends on what the person saw last.

Each file of ``recorded/`` holds the events of a stretch of a session and, between them, the lines that the agent's own record had by then.
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from clawback import store
from clawback.capture import hook
from clawback.paths import Home
from clawback.records import Turn, text_of

RECORDED = Path(__file__).with_name("recorded")


def replay(
    home: Home, folder: Path, name: str, *, record: bool = True, lost: Callable[[Any], bool] = lambda _: False
) -> list[str]:
    """Bring every event but the lost ones, with the agent's record as it was at that moment; what the person was told."""
    home.config.write_text("[training]\nbackground = false\n")
    path, told = folder / "session.jsonl", []
    path.touch()
    for line in (RECORDED / f"{name}.jsonl").read_text("utf-8").splitlines():
        step = json.loads(line)
        if "record" in step:
            with path.open("a", encoding="utf-8") as file:
                file.write(json.dumps(step["record"], separators=(",", ":")) + "\n")
            continue
        event = step["event"]
        if lost(event):
            continue
        if record and "transcript_path" in event:
            event["transcript_path"] = str(path)
        try:
            reply = hook.handle(
                home, name.split("-")[0].replace("claude", "claude-code"), json.dumps(event).encode()
            )
        except hook.Unusable:
            reply = None
        if reply:
            told.append(reply["reason"])
    return told


def rated(home: Home) -> list[tuple[str, str, float]]:
    """(prompt, response, rating) of every rating that stands."""
    with store.connect(home.database) as db:
        found = [(db.turn(f.turn_id), f.value) for f in db.feedback()]
        assert all(turn.kind == "main" for turn, _ in found)
        return [(turn.prompt, turn.response, value) for turn, value in found]


def turns(home: Home) -> list[tuple[str, str]]:
    with store.connect(home.database) as db:
        return [(turn.prompt, turn.response) for turn in reversed(db.turns(limit=100))]


PARTS = " ".join(f"part{number}" for number in range(60))


def test_an_interrupted_answer_is_recorded_as_far_as_it_came_and_rated(home: Home, tmp_path: Path) -> None:
    [told] = replay(home, tmp_path, "claude-code-interrupted")
    assert "Noted: bad" in told
    assert "still to come" not in told
    [(prompt, response, value)] = rated(home)
    assert (prompt, value) == ("SLOWTEXT tell me a lot", -1.0)
    assert response == PARTS[: PARTS.index(" part12")]


def test_of_an_interrupted_answer_all_blocks_are_kept(home: Home, tmp_path: Path) -> None:
    replay(home, tmp_path, "claude-code-interrupted-in-the-second-block")
    [(_, response, _)] = rated(home)
    assert response == "Finished first block.\n" + PARTS[: PARTS.index(" part14")]


def test_where_an_answer_failed_that_is_said(home: Home, tmp_path: Path) -> None:
    [told] = replay(home, tmp_path, "claude-code-failed")
    assert (
        "There is nothing to rate: that answer failed, and the agent kept nothing of it (API Error: 400"
        in told
    )
    assert rated(home) == []
    with store.connect(home.database) as db:
        assert db.early() == [], "and nothing waits"


def test_an_interrupted_tool_is_nothing_to_rate_and_the_answer_before_is_named(
    home: Home, tmp_path: Path
) -> None:
    *_, told = replay(home, tmp_path, "claude-code-interrupted-tool")
    assert (
        "that answer was interrupted, and the agent kept nothing of it. `clawback bad --turn 1` rates the one before."
        in told
    )
    assert [value for _, _, value in rated(home)] == [1.0], "of the tap before, on the answer before"


@pytest.mark.parametrize("record", [True, False])
def test_what_is_added_while_a_tool_runs_is_kept_with_what_was_asked(
    home: Home, tmp_path: Path, record: bool
) -> None:
    replay(home, tmp_path, "claude-code-steered", record=record)
    answer = "fake answer: SLOWTOOL first ask"
    assert rated(home) == [("SLOWTOOL first ask\n\nsteering remark second ask", answer, 1.0)]


def test_a_message_that_was_queued_is_a_turn_of_its_own_and_takes_its_rating(
    home: Home, tmp_path: Path
) -> None:
    replay(home, tmp_path, "claude-code-queued")
    answer = "fake answer: queued while streaming"
    assert turns(home) == [("SLOWTEXT long one", PARTS), ("queued while streaming", answer)]
    assert rated(home) == [("queued while streaming", answer, 1.0)]


def test_a_queued_message_without_the_agents_record(home: Home, tmp_path: Path) -> None:
    replay(home, tmp_path, "claude-code-queued", record=False)
    assert rated(home) == [("queued while streaming", "fake answer: queued while streaming", 1.0)]


def test_the_answer_after_an_interrupted_one_is_meant(home: Home, tmp_path: Path) -> None:
    replay(home, tmp_path, "claude-code-interrupted-with-one-queued")
    assert rated(home) == [("typed in queue", "fake answer: typed in queue", -1.0)]


def test_several_blocks_of_text_are_one_turn(home: Home, tmp_path: Path) -> None:
    replay(home, tmp_path, "claude-code-two-blocks")
    assert rated(home) == [("TWOBLOCKS please", "First block of text.\nSecond block of text.", 1.0)]
    assert len(turns(home)) == 1


def test_several_blocks_are_one_turn_with_our_own_server_too(home: Home, tmp_path: Path) -> None:
    asked = ({"role": "user", "content": "TWOBLOCKS please"},)
    with store.connect(home.database) as db:
        session = "cd531917-ff2d-40a4-bfca-25ef2b1eb952"
        db.add_turn(Turn(session, asked, "First block of text.\nSecond block of text.", agent="claude-code"))
    replay(home, tmp_path, "claude-code-two-blocks", record=False)
    assert rated(home) == [("TWOBLOCKS please", "First block of text.\nSecond block of text.", 1.0)]
    assert len(turns(home)) == 1
    with store.connect(home.database) as db:
        assert db.turn(1).cwd == "/project", "the event knows the folder, and the server does not"


def test_a_record_that_lags_behind_is_read_again_at_the_tap(home: Home, tmp_path: Path) -> None:
    """When ``Stop`` fires the last message is often not written down yet."""
    lines = (RECORDED / "claude-code-two-blocks.jsonl").read_text("utf-8").splitlines()
    steps = [json.loads(line) for line in lines]
    late = [step for step in steps if step.get("record", {}).get("type") == "assistant"]
    rest = [step for step in steps if step not in late]
    path = tmp_path / "session.jsonl"
    path.touch()
    for step in [*rest[:-1], *late, rest[-1]]:
        if "record" in step:
            with path.open("a") as file:
                file.write(json.dumps(step["record"], separators=(",", ":")) + "\n")
        else:
            event = step["event"] | {"transcript_path": str(path)}
            hook.handle(home, "claude-code", json.dumps(event).encode())
    assert rated(home) == [("TWOBLOCKS please", "First block of text.\nSecond block of text.", 1.0)]


@pytest.mark.parametrize("record", [True, False])
def test_what_comes_of_a_sub_agent_in_the_background_is_rated(
    home: Home, tmp_path: Path, record: bool
) -> None:
    [told] = replay(home, tmp_path, "claude-code-in-the-background", record=record)
    assert "Noted: bad" in told
    assert [(prompt, value) for prompt, _, value in rated(home)] == [("SUBAGENT do it", -1.0)]
    with store.connect(home.database) as db:
        mine = [turn for turn in reversed(db.turns()) if turn.kind == "main"]
        assert [len(turn.messages) for turn in mine] == ([3, 5] if record else [1, 3])
        assert [f.turn_id for f in db.feedback()] == [mine[-1].id], "what the person saw last"


def test_a_request_that_had_no_answer_of_its_own_stands_before_what_came_of_it(
    home: Home, tmp_path: Path
) -> None:
    """The agent went to work in the background without a word, and said something only when that was done."""
    seen: list[Any] = []

    def first_stop(event: Any) -> bool:
        seen.extend([event] if event["hook_event_name"] == "Stop" else [])
        return event["hook_event_name"] == "Stop" and len(seen) == 1

    replay(home, tmp_path, "claude-code-in-the-background", record=False, lost=first_stop)
    assert [(prompt, value) for prompt, _, value in rated(home)] == [("SUBAGENT do it", -1.0)]
    with store.connect(home.database) as db:
        [turn] = [turn for turn in db.turns() if turn.kind == "main"]
        assert [text_of(m["content"])[:19] for m in turn.messages] == [
            "SUBAGENT do it",
            "<task-notification>",
        ]


def test_a_notice_that_the_record_alone_tells_of(home: Home, tmp_path: Path) -> None:
    def notice(event: Any) -> bool:
        return "<task-notification>" in event.get("prompt", "")

    replay(home, tmp_path, "claude-code-in-the-background", lost=notice)
    assert [(prompt, value) for prompt, _, value in rated(home)] == [("SUBAGENT do it", -1.0)]
    with store.connect(home.database) as db:
        assert [len(t.messages) for t in reversed(db.turns()) if t.kind == "main"] == [3, 5]


def test_a_sub_agents_answer_that_our_server_recorded_is_not_stored_again(home: Home, tmp_path: Path) -> None:
    with store.connect(home.database) as db:
        session = "cd531917-ff2d-40a4-bfca-25ef2b1eb952"
        db.add_turn(Turn(session, (), "fake answer: SUBPROMPT say hi", kind="side"))
    replay(home, tmp_path, "claude-code-in-the-background")
    with store.connect(home.database) as db:
        assert [turn.response for turn in db.turns() if turn.kind == "side"] == [
            "fake answer: SUBPROMPT say hi"
        ]


def test_codex_keeps_nothing_of_an_interrupted_answer_and_that_is_said(home: Home, tmp_path: Path) -> None:
    [told] = replay(home, tmp_path, "codex-interrupted")
    assert "that answer was interrupted, and the agent kept nothing of it" in told
    assert rated(home) == []


def test_codex_gives_up_the_answer_during_which_a_command_is_typed_and_that_is_said(
    home: Home, tmp_path: Path
) -> None:
    first, second = replay(home, tmp_path, "codex-commanded")
    assert "There is nothing to rate: that answer was ended by this command" in first
    assert "There is nothing to rate: that answer never came" in second
    with store.connect(home.database) as db:
        assert db.feedback() == []
        assert db.early() == [], "and nothing waits"


def test_what_our_server_heard_of_an_answer_that_a_command_ended_is_rated(home: Home, tmp_path: Path) -> None:
    session = json.loads((RECORDED / "codex-commanded.jsonl").read_text().splitlines()[1])["event"][
        "session_id"
    ]
    asked = ({"role": "user", "content": "Tell me about the newt."},)
    with store.connect(home.database) as db:
        db.add_turn(Turn(session, asked, "All about the newt.", agent="codex", kind="side"))
    for told in replay(home, tmp_path, "codex-commanded"):
        assert "(turn 1)" in told
    assert rated(home)[-1] == ("Tell me about the newt.", "All about the newt.", -1.0)


def test_what_our_server_heard_of_an_interrupted_answer_is_rated(home: Home, tmp_path: Path) -> None:
    session = json.loads((RECORDED / "codex-interrupted.jsonl").read_text().splitlines()[0])["event"][
        "session_id"
    ]
    asked = ({"role": "user", "content": "SLOWTEXT tell me"},)
    with store.connect(home.database) as db:
        db.add_turn(Turn(session, asked, "part0 part1 part2", agent="codex", kind="side"))
    [told] = replay(home, tmp_path, "codex-interrupted")
    assert "Noted: bad" in told
    assert rated(home) == [("SLOWTEXT tell me", "part0 part1 part2", -1.0)]


def test_codex_says_why_an_answer_failed(home: Home, tmp_path: Path) -> None:
    [told] = replay(home, tmp_path, "codex-failed")
    assert "failed, and the agent kept nothing of it (Codex ran out of room" in told


def test_a_title_is_told_by_what_codex_asked_for(home: Home, tmp_path: Path) -> None:
    replay(home, tmp_path, "codex-title")
    assert turns(home) == [("SLOWTOOL tool int", "fake answer: SLOWTOOL tool int")]
    assert [value for _, _, value in rated(home)] == [-1.0]


def test_a_rating_that_waited_in_vain_is_told_of(home: Home) -> None:
    """Without the agent's record: the next prompt says that no answer comes to the one before."""

    def prompt(text: str, name: str) -> str:
        event: dict[str, Any] = {"hook_event_name": "UserPromptSubmit", "session_id": "s", "prompt_id": name}
        reply = hook.handle(home, "claude-code", json.dumps(event | {"prompt": text}).encode())
        return str(reply["reason"]) if reply else ""

    prompt("one", "1")
    assert "still to come" in prompt("/rl bad", "2")
    assert "1 rating waits for its answer" in prompt("/rl status", "3")
    prompt("two", "4")
    told = prompt("/rl good", "5")
    assert "Your rating of" in told
    assert "(bad) came to nothing: its answer never came." in told
    assert "came to nothing" not in prompt("/rl status", "6"), "it is told once"
    with store.connect(home.database) as db:
        assert [(e.summary, bool(e.lost)) for e in db.early()] == [("bad", True), ("good", False)]


def test_no_rating_waits_for_longer_than_a_day(home: Home) -> None:
    event = {"hook_event_name": "UserPromptSubmit", "session_id": "s", "prompt_id": "1", "prompt": "one"}
    hook.handle(home, "claude-code", json.dumps(event).encode())
    hook.handle(home, "claude-code", json.dumps(event | {"prompt_id": "2", "prompt": "/rl bad"}).encode())
    with sqlite3.connect(home.database) as raw:
        raw.execute("UPDATE early SET created_at = created_at - 90000")
    raw.close()
    with store.connect(home.database) as db:
        [waiting] = db.early()
        assert waiting.lost == "its answer did not come within a day"


def test_commands_given_while_the_agent_works_have_one_name_and_all_count(home: Home) -> None:
    """Claude Code gives ``rl: bad`` the name of the request that is under way."""

    def fire(**event: Any) -> None:
        hook.handle(home, "claude-code", json.dumps({"session_id": "s", "prompt_id": "1"} | event).encode())

    fire(hook_event_name="UserPromptSubmit", prompt="one")
    for word in ("bad", "good", "bad"):
        fire(hook_event_name="UserPromptSubmit", prompt=f"rl: {word}")
    fire(hook_event_name="Stop", last_assistant_message="first")
    assert [value for _, _, value in rated(home)][-1] == -1.0


def test_undo_that_is_told_of_twice_undoes_once(home: Home) -> None:
    def fire(name: str, **event: Any) -> None:
        hook.handle(home, "claude-code", json.dumps({"session_id": "s", "prompt_id": name} | event).encode())

    fire("1", hook_event_name="UserPromptSubmit", prompt="one")
    fire("1", hook_event_name="Stop", last_assistant_message="first")
    fire("2", hook_event_name="UserPromptSubmit", prompt="/rl good")
    fire("3", hook_event_name="UserPromptSubmit", prompt="/rl note short")
    for _ in range(2):
        fire("4", hook_event_name="UserPromptSubmit", prompt="/rl undo")
    with store.connect(home.database) as db:
        assert [f.kind for f in db.feedback()] == ["rating"]


def test_a_rating_is_confirmed_though_no_run_can_be_started(
    home: Home, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*_: Any) -> str:
        raise ImportError("msgspec")

    monkeypatch.setattr("clawback.capture.taps.train_if_due", broken)
    for event in (
        {"hook_event_name": "UserPromptSubmit", "prompt": "one"},
        {"hook_event_name": "Stop", "last_assistant_message": "first"},
    ):
        hook.handle(home, "claude-code", json.dumps({"session_id": "s", "prompt_id": "1"} | event).encode())
    tap = {"hook_event_name": "UserPromptSubmit", "session_id": "s", "prompt_id": "2", "prompt": "/rl good"}
    reply = hook.handle(home, "claude-code", json.dumps(tap).encode())
    assert reply is not None
    assert "Noted: good (turn 1). Training could not be started" in reply["reason"]


def test_an_answer_to_what_is_no_request_gets_no_other_requests_words(home: Home, tmp_path: Path) -> None:
    """A command of the agent's own is markup in its record, and is asked under a name of its own."""
    replay(home, tmp_path, "claude-code-steered")
    before = turns(home)
    event = {
        "hook_event_name": "Stop",
        "session_id": "cd531917-ff2d-40a4-bfca-25ef2b1eb952",
        "prompt_id": "other",
    }
    event |= {"last_assistant_message": "done", "transcript_path": str(tmp_path / "session.jsonl")}
    with pytest.raises(hook.Unusable):
        hook.handle(home, "claude-code", json.dumps(event).encode())
    assert turns(home) == before
