"""Which conversation a request belongs to, named or not, and what came back after each answer."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import httpx
import pytest

from clawback import config, store
from clawback.capture import conversation_threads
from clawback.cli import main
from clawback.paths import Home
from clawback.serve import app as serving

from .conftest import Running, Upstream

Say = Callable[..., None]


@pytest.fixture
def say(proxy: Running, upstream: Upstream) -> Say:
    """``say(messages, answer, headers)``: one request through the proxy."""

    def one(messages: list[Any], answer: str, url: str = "", body: Any = None, **headers: str) -> None:
        upstream.says(json.dumps({"choices": [{"message": {"content": answer}}]}).encode())
        sent = {name.replace("_", "-"): value for name, value in headers.items()}
        asked = {"messages": messages, "tools": [], **(body or {})}
        httpx.post(f"{url or proxy.url}/v1/chat/completions", json=asked, headers=sent).raise_for_status()

    return one


def user(text: str) -> dict[str, str]:
    return {"role": "user", "content": text}


def said(text: str) -> dict[str, str]:
    return {"role": "assistant", "content": text}


def stored(home: Home) -> list[Any]:
    with store.connect(home.database) as db:
        return list(reversed(db.turns(limit=100)))


def test_a_request_that_goes_on_with_a_conversation_is_its_next_turn(say: Say, home: Home) -> None:
    say([{"role": "system", "content": "It is Monday."}, user("One?")], "1.")
    say([user("Other?")], "O.")
    say([{"role": "system", "content": "It is Tuesday."}, user("One?"), said("1."), user("Two?")], "2.")
    say(
        [
            user("One?"),
            said("1."),
            user("Two?"),
            said("2."),
            {"role": "tool", "tool_call_id": "t", "content": "ok"},
        ],
        "3.",
    )
    one, other, two, three = stored(home)
    assert one.session == two.session == three.session != other.session
    assert [m["content"] for m in one.next_state] == ["Two?"]
    assert [(m["role"], m["content"]) for m in two.next_state] == [("tool", "ok")]
    assert (three.next_state, other.next_state) == ((), ())


def test_sent_again_it_says_nothing_new(say: Say, home: Home) -> None:
    say([user("One?")], "1.")
    say([user("One?"), said("1."), user("Two?")], "2.")
    say([user("One?"), said("1."), user("Or rather three?")], "3.")
    assert [m["content"] for m in stored(home)[0].next_state] == ["Two?"]


def test_a_restart_loses_no_session(
    say: Say, home: Home, upstream: Upstream, proxy: Running, running: Any
) -> None:
    say([user("One?")], "1.")
    proxy.close()
    there = running(upstream)
    again = running(serving.make(home, config.ServeSection(upstream=there.url)))
    say([user("One?"), said("1."), user("Two?")], "2.", url=again.url)
    assert len({turn.session for turn in stored(home)}) == 1


def test_agents_name_their_sessions_and_errands(say: Say, home: Home) -> None:
    say([user("One?")], "1.", x_claude_code_session_id="s-1", user_agent="claude-cli/2.1 (external, cli)")
    say([user("Find it.")], "f", x_claude_code_session_id="s-1", x_claude_code_agent_id="a")
    say(
        [user("One?")],
        "{}",
        body={"response_format": {"type": "json_schema", "json_schema": {"schema": {}}}},
        x_session_id="s-1",
    )
    say([user("quota")], "ok", x_session_id="s-1", body={"max_tokens": 1})
    say([user("One?")], "2.", x_session_id="s-1", x_turn_type="side")
    say([user("Create a detailed summary of our conversation so far.")], "sum", x_session_id="s-1")
    say([user("Bye.")], "3.", x_session_id="s-1", x_session_done="true")
    assert [turn.kind for turn in stored(home)] == ["main", "side", "side", "side", "side", "side", "main"]
    assert stored(home)[0].agent == "claude-code"
    with store.connect(home.database) as db:
        one = db.session("s-1")
    assert (one.main, one.side, one.rated, one.reward) == (2, 5, 0, None)
    assert one.done_at


def test_the_command_lists_and_shows_them(
    say: Say, home: Home, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("CLAWBACK_HOME", str(home.root))
    say([user("One?")], "1.", x_session_id="a")
    say([user("Two?")], "2.", x_session_id="a", x_turn_type="side")
    assert main(("bad", "--turn", "1")) == 0
    capsys.readouterr()
    assert main(("sessions", "--json")) == 0
    [one] = json.loads(capsys.readouterr().out)
    assert (one["name"], one["main"], one["side"], one["rated"], one["reward"]) == ("a", 1, 1, 1, -1.0)
    assert main(("sessions", "a")) == 0
    assert "One?" in capsys.readouterr().out
    assert main(("sessions", "b")) == 2


def test_places_do_not_depend_on_how_a_text_is_cut_into_blocks() -> None:
    plain = [user("Hi"), said("Yes.")]
    blocks = [{"role": "user", "content": [{"type": "text", "text": "Hi"}]}, said(" Yes. ")]
    assert conversation_threads.places(plain) == conversation_threads.places(blocks)
    assert (
        conversation_threads.places(plain)[0][1]
        == conversation_threads.places_and_ends([user("Hi")], ["Yes."], [])[1][0]
    )
    assert (
        conversation_threads.places(plain)[0][1]
        != conversation_threads.places_and_ends([user("Ho")], ["Yes."], [])[1][0]
    )


def test_a_survey_is_kept_by_version(trained: Home, capsys: pytest.CaptureFixture[str]) -> None:
    for arguments in (("4",), ("2", "--person", "b"), ("5", "--version", "0")):
        assert main(("survey", *arguments)) == 0
    capsys.readouterr()
    assert main(("survey", "--json")) == 0
    rows = json.loads(capsys.readouterr().out)
    assert [(r["version"], r["answers"], r["mean"], r["error"]) for r in rows] == [
        (0, 1, 5.0, None),
        (1, 2, 3.0, 1.0),
    ]
    assert main(("survey", "6")) == 2
    assert main(("survey", "3", "--version", "9")) == 2


def test_what_agents_put_in_is_told_from_what_people_said() -> None:
    messages = [
        {"role": "system", "content": "You are an agent."},
        user("<environment_context>\n  <cwd>/x</cwd>\n</environment_context>"),
        {
            "role": "user",
            "content": [{"type": "text", "text": "<system-reminder>Mind.</system-reminder>Hello."}],
        },
        said("Yes?"),
        {"role": "tool", "tool_call_id": "t", "content": "ok"},
        user("Thanks. <<<BEGIN_OPENCLAW_INTERNAL_CONTEXT>>> and so on"),
    ]
    assert conversation_threads.human(messages) == [user("Hello."), said("Yes?"), user("Thanks.")]


CONTEXT = (
    "<<<BEGIN_OPENCLAW_INTERNAL_CONTEXT>>>\nSystem: [{}] A reaction.\n<<<END_OPENCLAW_INTERNAL_CONTEXT>>>"
)


def openclaws(text: str, channel: str = "") -> dict[str, str]:
    """What OpenClaw 2026.9.6 makes of a person's message; the first one of a session names the channel in use now."""
    block = 'Conversation info: ⟦openclaw:ctx⟧\n```json\n{"sender":{"id":"11","name":"Ann"}}\n```\n\n'
    runs = (
        f"\n\nRuntime: agent=main | session=agent:main:main | model=x/m | channel={channel}"
        if channel
        else ""
    )
    return user(f"[Sat 2026-11-21 19:09 UTC] {block}{text}{runs}")


def test_openclaws_conversations_are_known_without_a_header(say: Say, home: Home) -> None:
    asks = {
        "role": "assistant",
        "content": None,
        "tool_calls": [{"id": "c1", "type": "function", "function": {"name": "exec", "arguments": "{}"}}],
    }
    context = {"role": "user", "content": [{"type": "text", "text": CONTEXT.format("now")}]}
    say([openclaws("One?", "telegram"), context], "1.")
    say([openclaws("One?", "webchat"), said("1."), openclaws("Two?"), user(CONTEXT.format("later"))], "2.")
    one, two = stored(home)
    assert one.session == two.session
    assert (one.prompt, two.prompt) == ("One?", "Two?")
    assert [m["content"] for m in one.next_state] == ["Two?"]
    assert [m["role"] for m in two.messages] == ["user", "assistant", "user"]
    tool = {"role": "tool", "tool_call_id": "c1", "content": "ok"}
    assert (
        conversation_threads.places_and_ends([openclaws("One?"), context], [""], [{"id": "c_1"}])[1][0]
        == (conversation_threads.places([openclaws("One?"), asks, tool])[0][1])
    ), "OpenClaw takes the underscore out of a call's id"
    [first, second] = conversation_threads.places(
        [openclaws("One?"), context, asks, tool, context, said("Done.")]
    )
    assert [
        place for _, place in conversation_threads.places([openclaws("One?"), asks, tool, said("Done.")])
    ] == [
        first[1],
        second[1],
    ]


@pytest.mark.parametrize(
    "text",
    ["[Sat 2026-11-21] kept", "see [Sat 2026-11-21 19:09 UTC]", "Runtime: agent=x", "```json\n{}\n```", ""],
)
def test_what_only_looks_like_openclaws_stays(text: str) -> None:
    assert conversation_threads.spoken([user(text)]) == [user(text)]
