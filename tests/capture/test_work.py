"""From the agent's own record: an answer that was told of without its text, the tools that led to it, and the model that wrote it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from clawback import store
from clawback.capture import exchanges, hook, ingest
from clawback.capture.events import AnswerEvent, PromptEvent, SideAnswerEvent
from clawback.extensions.agents import status_line
from clawback.paths import Home
from clawback.records import Turn

KEY = "sk-ant-api03-" + "a1B2" * 24


class Claude:
    """A session of Claude Code: what it tells, and what it writes down."""

    def __init__(self, home: Home, path: Path, *, named: bool = True) -> None:
        home.config.write_text("[training]\nbackground = false\n")
        self.home, self.path, self.named, self.count, self.used = home, path, named, 0, 0
        path.touch()

    def fire(self, kind: str, **event: Any) -> str:
        common = {"hook_event_name": kind, "session_id": "s", "transcript_path": str(self.path), "cwd": "/p"}
        name = {"prompt_id": f"p{self.count}"} if self.named else {}
        try:
            reply = hook.handle(self.home, "claude-code", json.dumps(common | name | event).encode())
        except hook.Unusable:
            return ""
        return str(reply["reason"]) if reply else ""

    def write(self, kind: str, content: Any, **message: Any) -> None:
        entry = {"type": kind, "sessionId": "s", "message": {"role": kind, "content": content} | message}
        if self.named and kind == "user":
            entry["promptId"] = f"p{self.count}"
        with self.path.open("a") as file:
            file.write(json.dumps(entry, separators=(",", ":")) + "\n")

    def ask(self, text: str) -> None:
        self.count += 1
        self.fire("UserPromptSubmit", prompt=text)
        self.write("user", text)

    def use(self, output: Any = "2 passed", command: str = "pytest") -> None:
        self.used += 1
        call = {"type": "tool_use", "id": f"t{self.used}", "name": "Bash", "input": {"command": command}}
        text = {"type": "text", "text": "Let me look."}
        for block in (text, call):
            self.write("assistant", [block], id=f"m{self.count}t{self.used}", model="claude-opus-5-5")
        self.write("user", [{"type": "tool_result", "tool_use_id": call["id"], "content": output}])

    def say(self, text: str) -> None:
        self.write(
            "assistant", [{"type": "text", "text": text}], id=f"m{self.count}b", model="claude-opus-5-5"
        )


def turns(home: Home) -> list[Turn]:
    with store.connect(home.database) as db:
        return [turn for turn in reversed(db.turns(limit=100)) if turn.kind == "main"]


def ratings(home: Home) -> list[tuple[str, float]]:
    with store.connect(home.database) as db:
        return [(db.turn(f.turn_id).response, f.value) for f in db.feedback()]


@pytest.mark.parametrize("named", [True, False])
@pytest.mark.parametrize("lag", [False, True])
@pytest.mark.parametrize("tools", [False, True])
def test_a_stop_without_text_is_read_from_the_record(
    home: Home, tmp_path: Path, named: bool, lag: bool, tools: bool
) -> None:
    """Wrappers and older versions leave the text out, older versions name no prompts, and the record may come a moment later."""
    agent = Claude(home, tmp_path / "s.jsonl", named=named)
    for number in (1, 2):
        agent.ask(f"question {number}")
        if tools:
            agent.use()
        if not lag:
            agent.say(f"answer {number}")
        agent.fire("Stop")
        if lag:
            agent.say(f"answer {number}")
    agent.count += 1
    assert "Noted: bad (turn 2)" in agent.fire("UserPromptSubmit", prompt="/rl bad")
    assert [(turn.prompt, turn.response) for turn in turns(home)] == [
        ("question 1", "answer 1"),
        ("question 2", "answer 2"),
    ]
    assert ratings(home) == [("answer 2", -1.0)]
    assert {turn.model for turn in turns(home)} == {"claude-opus-5-5"}


def test_a_rating_that_waits_for_a_text_finds_it_or_is_told_of(home: Home, tmp_path: Path) -> None:
    agent = Claude(home, tmp_path / "s.jsonl")
    agent.ask("one")
    agent.use()
    agent.fire("Stop")
    agent.count += 1
    assert "still to come" in agent.fire("UserPromptSubmit", prompt="/rl good"), "not of “Let me look.”"
    agent.count -= 1
    agent.say("done")
    agent.ask("two")
    assert ratings(home) == [("done", 1.0)]
    agent.fire("Stop")  # and nothing is ever written down
    agent.count += 1
    agent.fire("UserPromptSubmit", prompt="/rl bad")
    agent.ask("three")
    agent.count += 1
    assert "came to nothing" in agent.fire("UserPromptSubmit", prompt="/rl status")
    with store.connect(home.database) as db:
        assert [early for early in db.early() if not early.lost] == []


def test_a_stop_without_text_takes_what_our_server_heard(home: Home) -> None:
    with store.connect(home.database) as db:
        number = db.add_turn(Turn("s", ({"role": "user", "content": "one"},), "first", model="m")).id
    ingest.take(home, "claude-code", PromptEvent("s", "one", "1"))
    ingest.take(home, "claude-code", AnswerEvent("s", "", "1"))
    assert "Noted: good" in (ingest.take(home, "claude-code", PromptEvent("s", "/rl good", "2")) or "")
    with store.connect(home.database) as db:
        assert [f.turn_id for f in db.feedback()] == [number]


def test_a_stop_without_text_and_record_is_logged(home: Home) -> None:
    ingest.take(home, "claude-code", PromptEvent("s", "one", "1"))
    with pytest.raises(ingest.Unusable, match="empty answer"):
        ingest.take(home, "claude-code", AnswerEvent("s", "", "1"))


@pytest.mark.parametrize("lag", [False, True])
def test_tools_and_their_results_are_kept_as_the_proxy_keeps_them(
    home: Home, tmp_path: Path, lag: bool
) -> None:
    agent = Claude(home, tmp_path / "s.jsonl")
    agent.ask("run the tests")
    agent.use([{"type": "text", "text": f"2 passed with {KEY}"}, {"type": "image", "source": {}}])
    if not lag:
        agent.say("All pass.")
    agent.fire("Stop", last_assistant_message="All pass.")
    if lag:
        agent.say("All pass.")
    agent.ask("thanks")
    agent.say("Welcome.")
    agent.fire("Stop", last_assistant_message="Welcome.")
    first, second = turns(home)
    asked, called, result = first.messages
    assert (asked["role"], asked["content"], first.response, first.calls) == (
        "user",
        "run the tests",
        "All pass.",
        (),
    )
    assert called == {
        "role": "assistant",
        "content": "Let me look.",
        "tool_calls": [
            {
                "id": "t1",
                "type": "function",
                "function": {"name": "Bash", "arguments": '{"command": "pytest"}'},
            }
        ],
    }
    assert (result["role"], result["tool_call_id"]) == ("tool", "t1")
    assert result["content"].startswith("2 passed with")
    assert result["content"].endswith("[image]")
    assert KEY not in str(first.messages), "redacted like all else"
    assert [m["role"] for m in second.messages] == ["user", "assistant", "tool", "assistant", "user"]
    assert second.prompt == "thanks"


def test_work_has_a_bound_and_stays_whole(home: Home, tmp_path: Path) -> None:
    agent = Claude(home, tmp_path / "s.jsonl")
    agent.ask("much")
    for _ in range(30):
        agent.use("x" * 60_000, command="y" * 60_000)
    agent.say("Done.")
    agent.fire("Stop", last_assistant_message="Done.")
    [turn] = turns(home)
    assert len(json.dumps(turn.messages)) < exchanges.WORK_CHARACTERS + 10_000
    called = [json.loads(c["function"]["arguments"]) for m in turn.messages for c in m.get("tool_calls", ())]
    assert called, "arguments stay JSON"
    assert turn.messages[1]["role"] == "assistant"


def test_a_call_without_its_result_is_left_out() -> None:
    exchange = exchanges.Exchange()
    exchange.add_result("lost", "the call is before what was read")
    exchange.add_call("m1", "a", "Bash", {"command": "ls"})
    exchange.add_call("m1", "b", "Bash", {"command": "pwd"})
    exchange.add_result("a", "x")
    assert exchange.open
    assert [(m["role"], len(m.get("tool_calls", ()))) for m in exchange.work_before("Done.")] == [
        ("assistant", 1),
        ("tool", 0),
    ]


@pytest.mark.parametrize("named", [True, False])
def test_the_model_is_known_once_the_record_has_it(home: Home, tmp_path: Path, named: bool) -> None:
    agent = Claude(home, tmp_path / "s.jsonl", named=named)
    agent.ask("zero")
    agent.say("Even better: first")
    agent.fire("Stop", last_assistant_message="Even better: first")
    agent.ask("one")
    agent.fire("Stop", last_assistant_message="first")  # nothing is written down yet
    assert turns(home)[1].model == ""
    agent.say("first")
    agent.ask("two")
    assert [(turn.response, turn.model) for turn in turns(home)] == [
        ("Even better: first", "claude-opus-5-5"),
        ("first", "claude-opus-5-5"),
    ]


@pytest.mark.parametrize("written", [True, False])
def test_the_status_line_brings_what_stop_came_too_early_for(
    home: Home, tmp_path: Path, written: bool
) -> None:
    agent = Claude(home, tmp_path / "s.jsonl")
    agent.ask("one")
    agent.fire("Stop", **({} if written else {"last_assistant_message": "first"}))
    if written:
        agent.say("first")
    event = {"session_id": "s", "transcript_path": str(agent.path), "model": {"id": "claude-opus-5-5"}}
    status_line.text(home, json.dumps(event).encode())
    assert [(turn.response, turn.model) for turn in turns(home)] == [("first", "claude-opus-5-5")]
    for odd in (b"", b"[]", b"{", b'{"session_id": 7, "model": 3}'):
        assert status_line.text(home, odd).startswith("clawback v0")


def test_openclaw_tells_of_tools_and_of_failures(home: Home) -> None:
    def tell(**event: Any) -> str:
        reply = hook.handle(home, "openclaw", json.dumps({"session": "s", "id": "1"} | event).encode())
        return str(reply["reply"]) if reply else ""

    home.config.write_text("[training]\nbackground = false\n")
    call = {
        "role": "assistant",
        "content": "",
        "tool_calls": [{"id": "c", "name": "read", "arguments": {"a": 1}}, 7],
    }
    tell(event="prompt", text="one")
    tell(
        event="answer",
        text="first",
        work=[call, {"role": "tool", "tool_call_id": "c", "content": f"x {KEY}"}, 3],
    )
    [turn] = turns(home)
    assert [m["role"] for m in turn.messages] == ["user", "assistant", "tool"]
    assert turn.messages[1]["tool_calls"][0]["function"] == {"name": "read", "arguments": '{"a": 1}'}
    assert KEY not in str(turn.messages)
    tell(event="prompt", id="2", text="two")
    assert "still to come" in tell(event="prompt", id="3", text="/rl good")
    tell(event="failed", id="2")
    assert "came to nothing: its answer failed" in tell(event="prompt", id="4", text="/rl status")


@pytest.mark.parametrize("first", ["Stop", "SubagentStop"])
def test_the_main_answer_that_is_told_of_as_a_sub_agents_is_one_turn(home: Home, first: str) -> None:
    ingest.take(home, "claude-code", PromptEvent("s", "one", "1"))
    events = [AnswerEvent("s", "first", "1"), SideAnswerEvent("s", "first", "")]
    for event in events if first == "Stop" else reversed(events):
        ingest.take(home, "claude-code", event)
    ingest.take(home, "claude-code", SideAnswerEvent("s", "of a sub-agent", "a"))
    with store.connect(home.database) as db:
        assert [(turn.kind, turn.response) for turn in reversed(db.turns())] == [
            ("main", "first"),
            ("side", "of a sub-agent"),
        ]


def lines(path: Path, *entries: dict[str, Any]) -> None:
    path.write_text("".join(json.dumps(entry) + "\n" for entry in entries))


@pytest.mark.parametrize("silent", [False, True])
def test_codex_keeps_its_tools(home: Home, tmp_path: Path, silent: bool) -> None:
    path = tmp_path / "rollout.jsonl"
    items: list[tuple[str, dict[str, Any]]] = [
        ("event_msg", {"type": "task_started", "turn_id": "1"}),
        ("turn_context", {"turn_id": "1", "model": "gpt-6-sol"}),
        ("event_msg", {"type": "user_message", "message": "list"}),
        ("event_msg", {"type": "agent_message", "message": "Looking."}),
        (
            "response_item",
            {"type": "function_call", "call_id": "c1", "name": "shell", "arguments": '{"cmd":"ls"}'},
        ),
        ("response_item", {"type": "function_call_output", "call_id": "c1", "output": '{"output": "a.py"}'}),
        (
            "response_item",
            {"type": "custom_tool_call", "call_id": "c2", "name": "apply_patch", "input": "***"},
        ),
        ("response_item", {"type": "custom_tool_call_output", "call_id": "c2", "output": "ok"}),
        ("event_msg", {"type": "agent_message", "message": "One file."}),
    ]
    lines(path, *({"type": kind, "payload": payload} for kind, payload in items))
    common = {"session_id": "s", "turn_id": "1", "transcript_path": str(path)}
    told = {} if silent else {"last_assistant_message": "One file."}
    for event in (
        {"hook_event_name": "UserPromptSubmit", "prompt": "list"},
        {"hook_event_name": "Stop"} | told,
    ):
        hook.handle(home, "codex", json.dumps(common | event).encode())
    [turn] = turns(home)
    assert (turn.prompt, turn.response, turn.model) == ("list", "One file.", "gpt-6-sol")
    assert [m["role"] for m in turn.messages] == ["user", "assistant", "tool", "assistant", "tool"]
    assert [m["content"] for m in turn.messages] == ["list", "Looking.", "a.py", "", "ok"]
    assert turn.messages[3]["tool_calls"][0]["function"] == {"name": "apply_patch", "arguments": "***"}


@pytest.mark.parametrize("lined", [False, True])
def test_gemini_keeps_its_tools_and_its_model(home: Home, tmp_path: Path, lined: bool) -> None:
    path = tmp_path / "session.json"
    call = {
        "id": "c1",
        "name": "read_file",
        "args": {"path": "a.py"},
        "result": [{"functionResponse": {"id": "c1", "response": {"output": "x = 1"}}}],
    }
    messages = [
        {"id": "1", "type": "user", "content": [{"text": "read a.py"}]},
        {"id": "2", "type": "gemini", "content": "", "model": "gemini-3-pro", "toolCalls": [call]},
        {"id": "3", "type": "gemini", "content": "It sets x.", "model": "gemini-3-pro"},
    ]
    if lined:
        lines(path, {"sessionId": "s"}, *messages)
    else:
        path.write_text(json.dumps({"sessionId": "s", "messages": messages}, indent=2))
    common = {"session_id": "s", "transcript_path": str(path), "prompt": "read a.py"}
    for event in (
        {"hook_event_name": "BeforeAgent"},
        {"hook_event_name": "AfterAgent", "prompt_response": "It sets x."},
    ):
        hook.handle(home, "gemini-cli", json.dumps(common | event).encode())
    [turn] = turns(home)
    assert (turn.response, turn.model) == ("It sets x.", "gemini-3-pro")
    assert [(m["role"], m["content"]) for m in turn.messages] == [
        ("user", "read a.py"),
        ("assistant", ""),
        ("tool", "x = 1"),
    ]
