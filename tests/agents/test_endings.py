"""Why an answer ended, from the agents' own records and events: nothing cut is stored as complete."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from clawback import store
from clawback.capture import hook, ingest, transcripts
from clawback.capture.agent_integration import find
from clawback.capture.events import AnswerEvent, PromptEvent
from clawback.endings import more_telling
from clawback.paths import Home
from clawback.records import CUT, Ending, Turn

RECORDED = Path(__file__).parents[1] / "capture" / "recorded"


def endings(agent: str, lines: list[dict[str, Any]]) -> list[tuple[str, str]]:
    read = transcripts.reader(agent)([json.dumps(line, separators=(",", ":")) for line in lines])
    return [(exchange.text, exchange.ending) for exchange in read]


def recorded(name: str) -> list[dict[str, Any]]:
    steps = map(json.loads, (RECORDED / f"{name}.jsonl").read_text().splitlines())
    return [step["record"] for step in steps if "record" in step]


# ------------------------------------------------------------------------------------------------- Claude Code


def asked(text: str = "question", name: str = "p1") -> dict[str, Any]:
    return {"type": "user", "promptId": name, "sessionId": "s", "message": {"role": "user", "content": text}}


def said(*content: Any, stop: str | None = None, name: str = "m1", **more: Any) -> dict[str, Any]:
    blocks = [{"type": "text", "text": part} if isinstance(part, str) else part for part in content]
    message = {"id": name, "role": "assistant", "model": "m", "content": blocks, "stop_reason": stop}
    return {"type": "assistant", "sessionId": "s", "message": message} | more


CALL = {"type": "tool_use", "id": "t1", "name": "Bash", "input": {"command": "ls"}}
RESULT = {"type": "tool_result", "tool_use_id": "t1", "content": "a file"}
ESCAPED = asked("[Request interrupted by user]")
ESCAPED_TOOL = asked("[Request interrupted by user for tool use]")
FAILED = said("API Error: 529 overloaded", stop="stop_sequence", name="e1", isApiErrorMessage=True)


@pytest.mark.parametrize(
    ("entries", "ending"),
    [
        ([said("all", stop="end_turn")], "done"),
        ([said("all")], ""),
        ([said("all", stop="max_tokens")], "length"),
        ([said("all", stop="model_context_window_exceeded")], "length"),
        ([said("all", stop="refusal")], "refusal"),
        ([said("all", stop="pause_turn")], "pause"),
        ([said("all", stop="stop_sequence")], "stop"),
        ([said("all"), ESCAPED], "interrupted"),
        ([said("all", stop="end_turn"), ESCAPED], "done"),
        ([said("all"), said(CALL, stop="tool_use"), ESCAPED_TOOL], "interrupted"),
        ([said("all", CALL, stop="tool_use"), asked([RESULT]), ESCAPED_TOOL], "interrupted"),
        ([said("all", CALL, stop="tool_use"), asked([RESULT]), FAILED], "error"),
        ([said("all"), FAILED], "error"),
        ([said("all", stop="max_tokens"), FAILED], "length"),
        ([said("look", CALL, stop="tool_use"), asked([RESULT]), said("all", name="m2"), ESCAPED], "interrupted"),
        ([said("look", stop="max_tokens"), said("all", stop="end_turn", name="m2")], "done"),
    ],
)  # fmt: skip
def test_claude_code(entries: list[dict[str, Any]], ending: str) -> None:
    assert endings("claude-code", [asked(), *entries]) == [("all", ending)]


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("interrupted", ["done", "interrupted"]),
        ("interrupted-in-the-second-block", ["interrupted"]),
        ("two-blocks", ["done"]),
    ],
)
def test_claude_code_as_it_was_recorded(name: str, expected: list[str]) -> None:
    read = endings("claude-code", recorded(f"claude-code-{name}"))
    assert [ending for text, ending in read if text] == expected


# ---------------------------------------------------------------------------------------------- Codex and Gemini


def event(kind: str, **payload: Any) -> dict[str, Any]:
    return {"type": "event_msg", "payload": {"type": kind, "turn_id": "t", **payload}}


@pytest.mark.parametrize(
    ("last", "ending"),
    [
        (event("task_complete", error=None), "done"),
        (event("turn_aborted", reason="interrupted"), "interrupted"),
        (event("task_complete", error={"message": "stream disconnected"}), "error"),
        (event("task_complete", error={"message": "full", "codex_error_info": "context_window_exceeded"}), "length"),
        (event("task_complete", error={"message": "Incomplete response returned, reason: max_output_tokens"}), "length"),
        (event("task_complete", error={"message": "Incomplete response returned, reason: content_filter"}), "filter"),
        (event("token_count"), ""),
    ],
)  # fmt: skip
def test_codex(last: dict[str, Any], ending: str) -> None:
    lines = [
        event("task_started"),
        event("user_message", message="question"),
        event("agent_message", message="all"),
    ]
    assert endings("codex", [*lines, last]) == [("all", ending)]  # fmt: skip


@pytest.mark.parametrize(
    ("more", "after", "ending"),
    [
        ({"finishReason": "STOP"}, [], "done"),
        ({"finishReason": "MAX_TOKENS"}, [], "length"),
        ({"finishReason": "SAFETY"}, [], "filter"),
        ({}, [], ""),
        ({}, [{"type": "error", "content": "[API Error: 503]"}], "error"),
        ({}, [{"type": "info", "content": "Request cancelled."}], "interrupted"),
    ],
)
def test_gemini(more: dict[str, Any], after: list[dict[str, Any]], ending: str) -> None:
    lines = [
        {"type": "user", "id": "1", "content": "question"},
        {"type": "gemini", "id": "2", "content": "all", **more},
    ]
    assert endings("gemini-cli", [*lines, *after]) == [("all", ending)]  # fmt: skip


def test_what_a_function_of_gemini_returned_is_no_prompt() -> None:
    """The Gemini CLI writes it as a message of the user's, beside the result that stands with the call."""
    returned = [{"functionResponse": {"id": "c1", "name": "ls", "response": {"output": "a file"}}}]
    call = {"id": "c1", "name": "ls", "args": {}, "result": returned}
    lines = [
        {"sessionId": "s", "projectHash": "h", "startTime": "2026-11-22T12:00:00Z"},
        {"type": "user", "id": "1", "content": [{"text": "question"}]},
        {"type": "gemini", "id": "2", "content": "", "model": "g"},
        {"$set": {"lastUpdated": "2026-11-22T12:00:01Z"}},
        {"type": "gemini", "id": "2", "content": "", "model": "g", "toolCalls": [call]},
        {"type": "user", "id": "3", "content": returned},
        {"type": "gemini", "id": "4", "content": "all", "model": "g"},
    ]
    [exchange] = transcripts.reader("gemini-cli")([json.dumps(line) for line in lines])
    assert (exchange.requests, exchange.text) == (["question"], "all")
    assert [step["content"] for step in exchange.work_before("all")] == ["", "a file"]


def test_a_gemini_session_that_is_gone_on_with_begins_with_all_that_was_said() -> None:
    def message(kind: str, name: str, text: str) -> dict[str, Any]:
        return {"id": name, "type": kind, "content": [{"text": text}]}

    context = "<session_context>\nThis is the Gemini CLI. We are setting up the context for our chat.\n</session_context>"
    before = [message("user", "0", context), message("user", "1", "one"), message("gemini", "2", "first")]
    lines = [
        {"sessionId": "s", "projectHash": "h"},
        {"$set": {"messages": before}},
        message("user", "3", "two"),
        message("gemini", "4", "wrong"),
        {"$rewindTo": "3"},
        message("user", "5", "three"),
        message("gemini", "6", "third"),
    ]
    read = transcripts.reader("gemini-cli")([json.dumps(line) for line in lines])
    assert [(exchange.requests, exchange.text) for exchange in read] == [
        (["one"], "first"),
        (["three"], "third"),
    ]


# ------------------------------------------------------------------------------------------------- what is stored


class Claude:
    def __init__(self, home: Home, path: Path) -> None:
        home.config.write_text("[training]\nbackground = false\n")
        self.home, self.path, self.name = home, path, "p1"
        path.touch()

    def fire(self, kind: str, **more: Any) -> str:
        common = {"hook_event_name": kind, "session_id": "s", "transcript_path": str(self.path)}
        reply = hook.handle(
            self.home, "claude-code", json.dumps(common | {"prompt_id": self.name} | more).encode()
        )
        return str(reply["reason"]) if reply else ""

    def write(self, *entries: dict[str, Any]) -> None:
        with self.path.open("a") as file:
            file.writelines(json.dumps(entry, separators=(",", ":")) + "\n" for entry in entries)


def stored(home: Home) -> list[tuple[str, str]]:
    with store.connect(home.database) as db:
        return [(turn.response, turn.ending) for turn in reversed(db.turns(limit=100)) if turn.kind == "main"]


@pytest.mark.parametrize("late", [False, True])
@pytest.mark.parametrize(("stop", "ending"), [("end_turn", "done"), ("max_tokens", "length")])
def test_a_stop_event_has_the_ending_of_the_record(
    home: Home, tmp_path: Path, late: bool, stop: str, ending: str
) -> None:
    """Also where the record is written after the event: at the session's next one."""
    agent = Claude(home, tmp_path / "s.jsonl")
    agent.fire("UserPromptSubmit", prompt="question")
    agent.write(asked())
    if not late:
        agent.write(said("all", stop=stop))
    agent.fire("Stop", last_assistant_message="all")
    assert stored(home) == [("all", "" if late else ending)]
    if late:
        agent.write(said("all", stop=stop))
        agent.name = "p2"
        agent.fire("UserPromptSubmit", prompt="thanks")
    assert stored(home) == [("all", ending)]


def test_an_answer_that_was_stopped_can_be_rated_and_the_reply_says_so(home: Home, tmp_path: Path) -> None:
    agent = Claude(home, tmp_path / "s.jsonl")
    agent.fire("UserPromptSubmit", prompt="question")
    agent.write(asked(), said("the first half"), ESCAPED)
    agent.name = "p2"
    reply = agent.fire("UserPromptSubmit", prompt="/rl bad")
    assert "Noted: bad" in reply
    assert "stopped before its end" in reply
    assert stored(home) == [("the first half", "interrupted")]


def test_an_agents_words_about_a_failure_are_no_answer_to_learn(home: Home, tmp_path: Path) -> None:
    agent = Claude(home, tmp_path / "s.jsonl")
    agent.fire("UserPromptSubmit", prompt="question")
    agent.write(asked(), FAILED)
    agent.fire("Stop", last_assistant_message="API Error: 529 overloaded")
    assert stored(home) == [("API Error: 529 overloaded", "error")]


@pytest.mark.parametrize(
    ("proxied", "hooked", "both"),
    [
        ("done", "", "done"),
        ("", "done", "done"),
        ("incomplete", "interrupted", "interrupted"),
        ("length", "done", "length"),
        ("done", "interrupted", "interrupted"),
        ("length", "interrupted", "length"),
    ],
)
def test_of_two_reports_of_one_answer_the_more_telling_ending_stays(
    home: Home, proxied: Ending, hooked: Ending, both: Ending
) -> None:
    with store.connect(home.database) as db:
        db.add_turn(Turn("s", ({"role": "user", "content": "question"},), "all", ending=proxied))
    ingest.take(home, "claude-code", PromptEvent("s", "question", "1"))
    ingest.take(home, "claude-code", AnswerEvent("s", "all", "1", ending=hooked))
    assert stored(home) == [("all", both)]


@pytest.mark.parametrize(
    ("word", "ending"),
    [("stop", "done"), ("toolUse", "done"), ("length", "length"), ("error", "error"), ("aborted", "interrupted"),
     ("", ""), ("what nobody knows", "")],
)  # fmt: skip
def test_openclaw_says_why_a_model_stopped(home: Home, word: str, ending: str) -> None:
    agent = find("openclaw")
    for fields in (
        {"event": "prompt", "text": "question"},
        {"event": "answer", "text": "all", "ending": word},
    ):
        parsed = agent.parse({"session": "s", "id": "1", **fields})
        assert parsed is not None
        ingest.take(home, "openclaw", parsed)
    assert stored(home) == [("all", ending)]


ENDINGS = st.sampled_from(
    ("", "done", "stop", "incomplete", "error", "interrupted", "pause", "length", "refusal", "filter")
)


@given(ENDINGS, ENDINGS, ENDINGS)
def test_a_cut_is_never_lost_in_whatever_order_it_is_told(a: Ending, b: Ending, c: Ending) -> None:
    together = more_telling(more_telling(a, b), c)
    assert together == more_telling(a, more_telling(c, b))
    assert (together in CUT) == any(ending in CUT for ending in (a, b, c))
