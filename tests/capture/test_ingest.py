"""A rating reaches the answer that it was meant for, or waits for it, or is refused; never another."""

from __future__ import annotations

import os
import random
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from clawback import config, store
from clawback.capture import agent_integration, hook, ingest
from clawback.capture.events import AnswerEvent, Event, PromptEvent, ReactionEvent, SideAnswerEvent
from clawback.dialects.shapes import Asked
from clawback.errors import UsageError
from clawback.feedback import due
from clawback.paths import Home

MUTATIONS = int(os.environ.get("CLAWBACK_MUTATIONS", "300"))
AGENTS = ("claude-code", "codex", "openclaw", "gemini-cli")


def ratings(home: Home) -> dict[str, list[float]]:
    """Response → its active ratings."""
    with store.connect(home.database) as db:
        return {t.response: [f.value for f in db.feedback(turn_id=t.id)] for t in db.turns(limit=10_000)}


@pytest.mark.slow
def test_two_hundred_sessions_at_once_late_repeated_and_out_of_order(home: Home) -> None:
    """Each answer's text says what it must be rated; every event may come twice, and a rating before its answer."""
    home.config.write_text("[training]\nbackground = false\n")
    rng = random.Random(0)
    lines: list[list[tuple[str, Event]]] = []
    for number in range(200):
        agent = AGENTS[number % 4]
        mine: list[tuple[str, Event]] = []
        for turn in range(2):
            sign = rng.choice((1, -1))
            said = f"{agent} {number} {turn} {sign:+d}"
            prompt = PromptEvent(f"s{number}", f"question {number} {turn}", f"p{turn}")
            answer = AnswerEvent(f"s{number}", said, f"p{turn}", message=f"m{number}-{turn}")
            word = "good" if sign > 0 else "bad"
            rated = PromptEvent(f"s{number}", f"/rl {word}", f"r{turn}")
            reacted = ReactionEvent(f"s{number}", f"m{number}-{turn}", sign, by="me", id=f"e{number}-{turn}")
            rest: list[Event] = [answer, rated]
            if rng.random() < 0.5:
                rest = [answer, reacted]
            rng.shuffle(rest)  # the rating may overtake its answer
            mine += [(agent, event) for event in [prompt, *rest] for _ in range(rng.choice((1, 1, 2)))]
        lines.append(mine)
    while lines:  # interleaved, each session in the order in which its own events happened
        line = rng.choice(lines)
        ingest.take(home, *line.pop(0))
        if not line:
            lines.remove(line)
    found = ratings(home)
    assert len(found) == 400
    for said, values in found.items():
        assert values == [float(said.split()[-1])], said


def test_a_reaction_that_is_long_late_finds_its_message_and_only_that(home: Home) -> None:
    for number in range(5):
        ingest.take(home, "openclaw", PromptEvent("s", f"q{number}", str(number)))
        ingest.take(home, "openclaw", AnswerEvent("s", f"a{number}", str(number), message=f"m{number}"))
    ingest.take(home, "openclaw", ReactionEvent("s", "m1", -1, by="me"))
    ingest.take(home, "openclaw", ReactionEvent("s", "unknown", 1, by="me"))
    assert ratings(home) == {"a0": [], "a1": [-1.0], "a2": [], "a3": [], "a4": []}


def test_a_reaction_taken_away_is_taken_back_even_before_its_message(home: Home) -> None:
    ingest.take(home, "openclaw", ReactionEvent("s", "m0", 1, by="me", id="e0"))
    ingest.take(home, "openclaw", ReactionEvent("s", "m0", 0, by="me", id="e0"))
    ingest.take(home, "openclaw", AnswerEvent("s", "a0", "0", prompt="q", message="m0"))
    ingest.take(home, "openclaw", ReactionEvent("s", "m0", 1, by="me", id="e1"))
    ingest.take(home, "openclaw", ReactionEvent("s", "m0", 0, by="me", id="e1"))
    assert ratings(home) == {"a0": []}


def test_an_answer_that_never_came_takes_its_rating_with_it(home: Home) -> None:
    ingest.take(home, "codex", PromptEvent("s", "one", "1"))
    ingest.take(home, "codex", AnswerEvent("s", "first", "1"))
    ingest.take(home, "codex", PromptEvent("s", "two", "2"))  # interrupted
    said = ingest.take(home, "codex", PromptEvent("s", "rl: bad", "3"))
    assert said is not None
    assert "still to come" in said
    assert ratings(home) == {"first": []}
    assert "Taken back" in (ingest.take(home, "codex", PromptEvent("s", "rl: undo", "4")) or "")


def test_what_a_server_of_ours_recorded_is_not_stored_twice(home: Home) -> None:
    from clawback.records import Turn

    with store.connect(home.database) as db:
        kept = db.add_turn(Turn("s", ({"role": "user", "content": "one"},), "first ", response_ids=(1, 2))).id
    ingest.take(home, "claude-code", PromptEvent("s", "one", "1"))
    ingest.take(home, "claude-code", AnswerEvent("s", "first", "1"))
    ingest.take(home, "claude-code", PromptEvent("s", "/rl good", "2"))
    with store.connect(home.database) as db:
        assert db.count_turns() == 1
        assert [f.turn_id for f in db.feedback()] == [kept]


def test_a_sub_agents_answer_never_takes_a_rating(home: Home) -> None:
    ingest.take(home, "codex", PromptEvent("s", "one", "1"))
    ingest.take(home, "codex", AnswerEvent("s", "first", "1"))
    ingest.take(home, "codex", SideAnswerEvent("s", "side", "x"))
    ingest.take(home, "codex", PromptEvent("s", "rl: good", "2"))
    assert ratings(home) == {"first": [1.0], "side": []}


def test_notify_alone_counts_for_codex(home: Home) -> None:
    """Before its person trusts the hooks; sub-agents and threads that make titles are no turns."""

    def told(turn: str, asked: str, said: str, **more: Any) -> None:
        event = {"type": "agent-turn-complete", "thread-id": "t", "turn-id": turn, "client": "codex-tui"}
        event |= {"input-messages": [asked], "last-assistant-message": said} | more
        parsed = agent_integration.find("codex").parse(event)
        if parsed:
            ingest.take(home, "codex", parsed)

    told("1", "one", "first")
    told("1", "one", "first")
    told("2", "make a title", '{"title": "One"}')
    told("3", "errand", "done", client=None)
    told("4", "rl: bad", "I am a model and do not know what that means")
    assert ratings(home) == {"first": [-1.0]}


BASE: list[tuple[str, dict[str, Any]]] = [
    ("claude-code", {"hook_event_name": "UserPromptSubmit", "session_id": "s", "prompt_id": "p", "prompt": "text"}),
    ("claude-code", {"hook_event_name": "Stop", "session_id": "s", "prompt_id": "p", "last_assistant_message": "text"}),
    ("codex", {"hook_event_name": "UserPromptSubmit", "session_id": "s", "turn_id": "p", "prompt": "rl: good text"}),
    ("codex", {"type": "agent-turn-complete", "thread-id": "s", "turn-id": "p", "client": "c", "input-messages": ["text"], "last-assistant-message": "text"}),
    ("openclaw", {"event": "answer", "session": "s", "id": "p", "prompt": "text", "text": "text", "message": "m"}),
    ("openclaw", {"event": "prompt", "session": "s", "id": "q", "text": "/rl train"}),
    ("openclaw", {"event": "reaction", "session": "s", "message": "m", "value": 1, "by": "me", "id": "e"}),
    ("gemini-cli", {"hook_event_name": "AfterAgent", "session_id": "s", "prompt": "text", "prompt_response": "text"}),
]  # fmt: skip
SECRET = "sk-ant-api03-" + "Ab1" * 12
values = st.one_of(
    st.none(), st.booleans(), st.integers(), st.floats(), st.text(max_size=30), st.just(SECRET), st.just("/rl train"),
    st.just("$(touch /tmp/clawback-never)"), st.just("\ud800"), st.lists(st.text(max_size=5), max_size=3), st.dictionaries(st.text(max_size=5), st.text(max_size=5), max_size=2),
)  # fmt: skip


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Home:
    made = Home(tmp_path_factory.mktemp("mutated"))
    made.create()
    made.config.write_text("[training]\nbackground = false\n")
    return made


@settings(max_examples=MUTATIONS, deadline=None, suppress_health_check=list(HealthCheck), derandomize=True)
@given(st.sampled_from(BASE), st.dictionaries(st.integers(0, 8), values, max_size=3), st.booleans())
def test_mutated_events_store_nothing_half_and_tell_no_secret(
    shared: Home, base: tuple[str, dict[str, Any]], changes: dict[int, Any], over_http: bool
) -> None:
    import json

    from clawback.serve import hooks

    agent, event = base
    keys = list(event)
    event = event | {keys[i % len(keys)]: value for i, value in changes.items()}
    payload = json.dumps(event).encode()
    if over_http:
        hooks.answer(shared, agent, payload)
    else:
        try:
            hook.handle(shared, agent, payload)
        except (ingest.Unusable, UsageError) as reason:
            assert SECRET not in str(reason)
    with store.connect(shared.database) as db:
        for turn in db.turns(limit=20):
            assert turn.response
            assert SECRET not in turn.response + str(turn.messages)
        assert db.active_run() is None, "nobody may start a run from an agent unless the settings say so"
    assert not Path("/tmp/clawback-never").exists(), "something was executed"
    log = shared.logs / "hooks.log"
    assert not log.exists() or SECRET not in log.read_text()


def test_an_invitation_to_rate_is_shown_only_where_it_is_wanted(home: Home) -> None:
    stop = b'{"hook_event_name": "Stop", "session_id": "s", "prompt_id": "p", "last_assistant_message": "a"}'
    asked = b'{"hook_event_name": "UserPromptSubmit", "session_id": "s", "prompt_id": "p", "prompt": "q"}'
    assert hook.handle(home, "claude-code", asked) is None
    assert hook.handle(home, "claude-code", stop) is None
    config.save(home.config, {"capture": {"ask": True}})
    assert hook.handle(home, "claude-code", asked) is None
    told = hook.handle(home, "claude-code", stop)
    assert told == {"systemMessage": "Clawback: was that good? /rl good, /rl bad or /rl rate 1-10"}, (
        "and nothing that blocks"
    )


def test_an_agent_that_nobody_knows_is_named(home: Home) -> None:
    with pytest.raises(UsageError, match="there are: claude-code, codex"):
        agent_integration.find("emacs")


def test_an_agent_of_ones_own_is_one_file_and_an_entry_point(
    home: Home, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The one that docs/agents.md shows."""
    source = Path("docs/agents.md").read_text()
    code = source.split("```python\n")[1].split("```")[0]
    (tmp_path / "my_agent.py").write_text(code)
    info = tmp_path / "my_agent-1.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: my-agent\nVersion: 1\n")
    (info / "entry_points.txt").write_text("[clawback.agents]\nmy-agent = my_agent:MyAgent\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setenv("HOME", str(tmp_path))
    assert "my-agent" in agent_integration.names()
    agent = agent_integration.find("my-agent")
    agent.install(home)
    assert agent.status(home).installed
    assert hook.handle(home, "my-agent", b'{"kind": "asked", "chat": "s", "text": "one"}') is None
    assert hook.handle(home, "my-agent", b'{"kind": "said", "chat": "s", "text": "first"}') is None
    reply = hook.handle(home, "my-agent", b'{"kind": "asked", "chat": "s", "text": "/rl good"}')
    assert reply is not None
    assert "Noted: good" in str(reply)
    assert ratings(home) == {"first": [1.0]}
    agent.uninstall(home)
    assert not agent.status(home).installed


def test_in_a_shared_conversation_the_last_answer_is_the_last_one_to_that_person(home: Home) -> None:
    """OpenClaw's default has one session for everybody's direct messages."""

    def say(text: str, name: str, by: str) -> str | None:
        event = agent_integration.find("openclaw").parse(
            {"event": "prompt", "session": "s", "id": name, "text": text, "by": by}
        )
        assert event is not None
        return ingest.take(home, "openclaw", event)

    for number, who in enumerate(("telegram:ann", "telegram:eve"), 1):
        say(f"from {who}", str(number), who)
        ingest.take(home, "openclaw", AnswerEvent("s", f"to {who}", str(number)))
    say("/rl bad mine", "3", "telegram:ann")
    assert ratings(home) == {"to telegram:ann": [-1.0], "to telegram:eve": []}
    refused = say("/rl good", "4", "telegram:new")
    assert refused is not None
    assert "You have had no answer here yet" in refused


def test_no_training_is_said_to_begin_when_none_may(home: Home, monkeypatch: pytest.MonkeyPatch) -> None:
    import subprocess
    import time

    started: list[Any] = []
    monkeypatch.setattr(subprocess, "Popen", lambda *given, **_: started.append(given))
    config.save(home.config, {"training": {"threshold": 1}})
    with store.connect(home.database) as db:
        db.set(due.FAILED, {"at": time.time(), "why": "no room"})
    ingest.take(home, "codex", PromptEvent("s", "q", "p"))
    ingest.take(home, "codex", AnswerEvent("s", "a", "p"))
    assert ingest.take(home, "codex", PromptEvent("s", "rl: good", "r")) == "Clawback: Noted: good (turn 1)."
    assert "no room" in str(ingest.take(home, "codex", PromptEvent("s", "rl: status", "r2")))
    assert started == []


def test_a_second_start_of_training_is_not_said(home: Home, monkeypatch: pytest.MonkeyPatch) -> None:
    import subprocess

    started: list[Any] = []

    def start(*command: Any, **_: Any) -> Any:
        started.append(command)
        return SimpleNamespace(pid=os.getpid())

    monkeypatch.setattr(subprocess, "Popen", start)
    config.save(home.config, {"training": {"threshold": 1}})
    said = []
    for number in range(3):
        ingest.take(home, "codex", PromptEvent("s", f"q{number}", f"p{number}"))
        ingest.take(home, "codex", AnswerEvent("s", f"a{number}", f"p{number}"))
        said.append(ingest.take(home, "codex", PromptEvent("s", "rl: good", f"r{number}")) or "")
    assert ["being prepared" in one for one in said] == [True, False, False]
    assert len(started) == 1


def test_opencodes_sub_agents_and_compaction_are_errands() -> None:
    from clawback.capture import conversation_threads

    def kind(text: str, **headers: str) -> str:
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        messages = [{"role": "system", "content": "be kind"}, {"role": "user", "content": text}]
        return conversation_threads.kind_of(Asked(tuple(messages), tools=({},)), named)

    assert kind("look into it", x_parent_session_id="ses_1") == "side"
    assert kind("Here is the conversation so far: <conversation>…") == "side"
    assert kind("Generate a concise, single-line task title of at most 36 characters") == "side"
    assert kind("look into it") == "main"


def test_what_is_shown_as_the_prompt_is_what_the_person_wrote() -> None:
    from clawback.reminders import without_reminders

    caveat = "<local-command-caveat>The command below was run directly.</local-command-caveat>\n"
    name = "<command-name>/clear</command-name>\n            <command-message>clear</command-message>\n<command-args></command-args>\n"
    out = "<local-command-stdout></local-command-stdout>\n"
    assert (
        without_reminders(f"<system-reminder>x</system-reminder>\n{caveat}{name}{out}after clear")
        == "after clear"
    )
    assert without_reminders("[Request interrupted by user]\nTell me more") == "Tell me more"
    assert without_reminders("[Request interrupted by user for tool use]") == ""
    steered = (
        "The user sent a new message while you were working:\nuse tabs\n\nplease\n\nThis is how Claude Code surfaces messages the user "
        "sends mid-turn — within the running turn. Address the message above as you continue this turn."
    )
    assert without_reminders(steered) == "use tabs\n\nplease"
    assert without_reminders("<task-notification>a</task-notification>") == ""
    done = (
        '<subagent_notification>\n{"agent_path": "a", "status": {"completed": "b"}}\n</subagent_notification>'
    )
    assert without_reminders(done) == "", "Codex, when a sub-agent has ended"
    for plain in (
        "what is <command-name> for?",
        "a < b > c",
        "[Request interrupted by user] is what it says",
        "<p>x</p>",
    ):
        assert without_reminders(plain) == plain


def test_taking_out_what_agents_add_is_linear() -> None:
    """Twice the text may take twice the steps: every tag is looked at once, and a closing one that is not there is looked for once."""
    from clawback import reminders

    for piece in (
        "<command-name>",
        "<system-reminder",
        "<task-notification>x",
        "</command-name>",
        "<command-name>a</command-name>",
    ):
        text = piece * 100_000
        assert len(reminders.without_reminders(text)) <= len(text)
