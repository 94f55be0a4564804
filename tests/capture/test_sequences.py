"""Whatever happens in whatever order, a tap ends on the answer that the person saw last, or is refused in words; none waits for ever.

Sessions of Claude Code and Codex are played as the real ones behave (``recorded/``): prompts, messages that are queued and taken into the
running turn or asked after it, tools, answers of several blocks, interruptions, failures, sub-agents, work in the background, the agent's own
record with and without its lag, answers told of without their text; the database is locked by another process; the hooks' server is up, down, hangs and acts on everything once more when it wakes up, or is killed
(SIGKILL) before one of the statements with which it stores an event, and the hook's program goes on by itself.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import tempfile
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from clawback import store
from clawback.capture import hook, ingest, script, spool
from clawback.paths import Home
from clawback.records import Turn
from clawback.serve import hooks
from clawback.store.connection import sqlite3

SEQUENCES = int(os.environ.get("CLAWBACK_SEQUENCES", "20"))
"""A long run: ``CLAWBACK_SEQUENCES=1000``."""


@dataclass
class Exchange:
    name: str
    blocks: list[str] = field(default_factory=list)
    message: int = 0
    said: bool = False
    """The newest response has text."""
    asked: list[str] = field(default_factory=list)

    @property
    def text(self) -> str:
        return "\n".join(self.blocks)


@dataclass
class Tap:
    exchange: Exchange
    reply: str


class World:
    """What all sessions share: the hooks' way to us."""

    def __init__(self, home: Home) -> None:
        self.home, self.server, self.late, self.count = home, "down", [], 0
        self.statements: int | None = None
        """How many more the server lives for, where it is about to be killed."""
        self.taps: dict[str, Tap] = {}
        self.finished: list[tuple[Exchange, bool]] = []
        """Answers of which the agent has told, and whether the hooks alone record them."""
        self.holder: sqlite3.Connection | None = None

    def lock(self) -> None:
        """Another process holds the database's write lock."""
        if self.holder is None:
            with store.connect(self.home.database):
                pass
            self.holder = sqlite3.connect(self.home.database, isolation_level=None)
            self.holder.execute("BEGIN IMMEDIATE")

    def unlock(self) -> None:
        if self.holder is not None:
            self.holder.execute("ROLLBACK")
            self.holder.close()
            self.holder = None

    def name(self) -> str:
        self.count += 1
        return f"n{self.count}"

    def fire(self, agent: str, event: dict[str, Any]) -> str:
        payload = json.dumps({script.DELIVERY: self.name()} | event).encode()
        if self.statements is not None:
            self.kill(agent, payload)
        if self.server == "up":
            said, _ = hooks.answer(self.home, agent, payload)
            return str(json.loads(said)["reason"]) if said else ""
        if self.server == "hung":
            self.late.append((agent, payload))
        try:
            reply = hook.handle(self.home, agent, payload)
        except hook.Unusable:
            return ""
        return str(reply["reason"]) if reply else ""

    def kill(self, agent: str, payload: bytes) -> None:
        """The server takes an event, and dies at it; the hook's program notices that the connection is closed."""
        assert self.statements is not None
        child = os.fork()
        if child == 0:
            left = self.statements

            def count(_: Any, event: str, called: Any) -> None:
                nonlocal left
                if event == "c_call" and called.__name__ in ("execute", "executemany", "commit"):
                    left -= 1
                    if left < 0:
                        os.kill(os.getpid(), signal.SIGKILL)

            try:
                sys.setprofile(count)
                hooks.answer(self.home, agent, payload)
            finally:
                os._exit(0)  # it was done, and died before it could say so
        os.waitpid(child, 0)
        self.server, self.statements = "down", None

    def wake(self) -> None:
        for agent, payload in self.late:
            hooks.answer(self.home, agent, payload)
        self.late = []


class Session:
    """One session of Claude Code."""

    agent = "claude-code"

    def __init__(self, world: World, path: Path) -> None:
        self.world, self.path, self.name = world, path, world.name()
        path.touch()
        self.running: Exchange | None = None
        self.seen: Exchange | None = None
        self.queue: list[str] = []
        self.lag: list[dict[str, Any]] = []

    # ------------------------------------------------------------------------------------------ what it writes

    def write(self, entry: dict[str, Any]) -> None:
        with self.path.open("a") as file:
            file.write(json.dumps(entry, separators=(",", ":")) + "\n")

    def flush(self) -> None:
        for entry in self.lag:
            self.write(entry)
        self.lag = []

    def fire(self, kind: str, **event: Any) -> str:
        common = {
            "hook_event_name": kind,
            "session_id": self.name,
            "transcript_path": str(self.path),
            "cwd": "/project",
        }
        return self.world.fire(self.agent, common | event)

    def user(self, name: str, content: Any, **more: Any) -> None:
        message = {"role": "user", "content": content}
        self.write({"type": "user", "promptId": name, "sessionId": self.name, "message": message} | more)

    # ------------------------------------------------------------------------------------------- what happens

    def ask(self) -> None:
        text = f"question {self.world.name()}"
        if self.running:
            self.fire("UserPromptSubmit", prompt=text, prompt_id=self.running.name)
            self.queue.append(text)
            return
        self.running = Exchange(self.world.name(), asked=[text])
        self.fire("UserPromptSubmit", prompt=text, prompt_id=self.running.name)
        self.user(self.running.name, text, origin={"kind": "human"})

    def say(self, lag: bool = False) -> None:
        """A block of text: a new response, or one more block of the same."""
        if not self.running:
            return
        one = self.running
        block = f"answer {self.world.name()}"
        if one.said:
            one.blocks.append(block)
        else:
            one.blocks, one.said, one.message = [block], True, one.message + 1
        message = {
            "id": f"{one.name}-{one.message}",
            "role": "assistant",
            "content": [{"type": "text", "text": block + " "}],
        }
        self.lag.append({"type": "assistant", "uuid": block, "sessionId": self.name, "message": message})
        if not lag:
            self.flush()

    def tool(self) -> None:
        """A tool is called, and what was queued meanwhile goes along with its result."""
        if not self.running:
            return
        self.flush()
        one = self.running
        one.message += 0 if one.said else 1
        call = {"type": "tool_use", "id": self.world.name(), "name": "Bash", "input": {}}
        message = {"id": f"{one.name}-{one.message}", "role": "assistant", "content": [call]}
        self.write({"type": "assistant", "uuid": self.world.name(), "message": message})
        one.said = False
        self.user(one.name, [{"type": "tool_result", "tool_use_id": call["id"], "content": "ran"}])
        for text in self.queue:
            told = {
                "type": "queued_command",
                "prompt": text,
                "commandMode": "prompt",
                "origin": {"kind": "human"},
            }
            self.write({"type": "attachment", "attachment": told})
        one.asked += self.queue
        self.queue = []

    def finish(self, silent: bool = False) -> None:
        """``silent``: the event does not say what was answered."""
        if not self.running or not self.running.said:
            return
        one = self.running
        self.fire(
            "Stop", prompt_id=one.name, **({} if silent else {"last_assistant_message": one.blocks[-1]})
        )
        self.world.finished.append((one, type(self) is not Proxied))
        self.flush()
        self.over()

    def interrupt(self) -> None:
        if not self.running:
            return
        self.flush()
        self.user(self.running.name, [{"type": "text", "text": "[Request interrupted by user]"}])
        self.over()

    def fail(self) -> None:
        if not self.running:
            return
        self.flush()
        message = {
            "id": self.world.name(),
            "role": "assistant",
            "model": "<synthetic>",
            "content": [{"type": "text", "text": "API Error"}],
        }
        self.write({"type": "assistant", "isApiErrorMessage": True, "message": message})
        self.over()

    def over(self) -> None:
        """The turn is over; what was queued is asked now, under names that no event has told of."""
        self.seen, self.running = self.running, None
        for text in self.queue:
            self.running = Exchange(self.world.name(), asked=self.queue)
            self.user(self.running.name, text, origin={"kind": "human"}, promptSource="queued")
        self.queue = []

    def notice(self) -> None:
        """Work in the background is done, and the agent tells of it."""
        if self.running or self.seen is None:
            return
        self.running = Exchange(self.world.name())
        text = "<task-notification>done</task-notification>"
        self.fire("UserPromptSubmit", prompt=text, prompt_id=self.running.name)
        self.user(self.running.name, text, origin={"kind": "task-notification"})

    def aside(self) -> None:
        self.fire("SubagentStop", agent_id=self.world.name(), last_assistant_message="aside")

    def tap(self) -> None:
        """At rest about what was seen last; while the agent is at work about what it is at."""
        note = self.world.name()
        one = self.running or self.seen or Exchange("")
        text = f"rl: bad {note}" if self.running else f"/rl good {note}"
        reply = self.fire(
            "UserPromptSubmit", prompt=text, prompt_id=self.running.name if self.running else note
        )
        assert reply, "a command is always answered"
        self.world.taps[note] = Tap(one, reply)
        if not self.running and not one.text:
            assert "othing to rate" in reply or spool.ACCEPTED in reply, reply

    def close(self) -> None:
        """Whatever is under way ends, and the conversation goes on once more."""
        while self.running:
            self.say()
            self.finish()
        self.ask()
        self.say()
        self.finish()


class Proxied(Session):
    """One whose requests go through our server as well, which stores each response before the agent has had the end of it."""

    def __init__(self, world: World, path: Path) -> None:
        super().__init__(world, path)
        self.messages: list[dict[str, Any]] = []

    def heard(self, *, whole: bool, calls: tuple[dict[str, Any], ...] = ()) -> None:
        one = self.running
        said = one.text if one and one.said else ""
        if one and (said or calls):
            kind = "main" if whole else "side"
            turn = Turn(self.name, tuple(self.messages), said, agent=self.agent, kind=kind, calls=calls)  # type: ignore[arg-type]
            held = self.world.holder is not None
            self.world.unlock()  # the server waits for its own writes
            with store.connect(self.world.home.database) as db:
                db.add_turn(turn)
            if held:
                self.world.lock()
            self.messages.append({"role": "assistant", "content": said})

    def user(self, name: str, content: Any, **more: Any) -> None:
        super().user(name, content, **more)
        if isinstance(content, str):
            self.messages.append({"role": "user", "content": content})

    def tool(self) -> None:
        if not self.running:
            return
        self.heard(whole=True, calls=({"id": "c", "name": "Bash", "arguments": "{}"},))
        steered = self.queue
        super().tool()
        self.messages.append({"role": "tool", "tool_call_id": "c", "content": "ran"})
        self.messages += [{"role": "user", "content": text} for text in steered]

    def finish(self, silent: bool = False) -> None:
        if self.running and self.running.said:
            self.heard(whole=True)
        super().finish(silent)

    def interrupt(self) -> None:
        self.heard(whole=False)
        super().interrupt()


class Codex(Session):
    """One session of Codex: what is added goes into the running turn; of an interrupted answer nothing is kept; a command ends it."""

    agent = "codex"

    def fire(self, kind: str, **event: Any) -> str:
        event["turn_id"] = event.pop("prompt_id", "")
        return super().fire(kind, **event)

    def event(self, kind: str, **told: Any) -> None:
        turn = self.running.name if self.running else ""
        self.write(
            {
                "timestamp": "2026-11-22T12:00:00Z",
                "type": "event_msg",
                "payload": {"type": kind, "turn_id": turn} | told,
            }
        )

    def item(self, kind: str, text: str) -> None:
        self.event("item_completed", item={"type": kind, "content": [{"type": "text", "text": text}]})

    def user(self, name: str, content: Any, **more: Any) -> None:
        self.event("task_started")
        self.item("UserMessage", content)

    def ask(self) -> None:
        if not self.running:
            super().ask()
            return
        text = f"question {self.world.name()}"
        self.fire("UserPromptSubmit", prompt=text, prompt_id=self.running.name)
        self.running.asked.append(text)
        self.item("UserMessage", text)

    def say(self, lag: bool = False) -> None:
        if self.running:
            self.running.blocks, self.running.said = [f"answer {self.world.name()}"], True
            self.item("AgentMessage", self.running.blocks[0])

    def tool(self) -> None:
        if self.running:
            self.running.said = False

    def finish(self, silent: bool = False) -> None:
        if self.running and self.running.said:
            told = {} if silent else {"last_assistant_message": self.running.blocks[-1]}
            self.fire("Stop", prompt_id=self.running.name, **told)
            self.world.finished.append((self.running, True))
            self.event("task_complete", last_agent_message=self.running.blocks[-1])
            self.over()

    def interrupt(self) -> None:
        if self.running:
            self.event("turn_aborted", reason="interrupted")
            self.over()

    def fail(self) -> None:
        if self.running:
            self.event("task_complete", last_agent_message=None, error={"message": "out of room"})
            self.over()

    def notice(self) -> None: ...

    def tap(self) -> None:
        super().tap()
        if self.running:  # it gives up what it is at
            self.event("task_complete", last_agent_message=None)
            self.over()


ACTIONS = (
    "ask",
    "say",
    "say late",
    "tool",
    "finish",
    "finish silently",
    "interrupt",
    "fail",
    "notice",
    "aside",
    "tap",
    "tap",
)
SERVER = ("up", "down", "hung", "wake", "lock", "lock", "unlock")
KILLS = tuple(f"kill {statements}" for statements in (0, 4, 8, 12, 18, 25, 40))
STEPS = st.lists(
    st.tuples(st.integers(0, 3), st.sampled_from(ACTIONS) | st.sampled_from([*SERVER, *KILLS])),
    min_size=5,
    max_size=40,
)


def play(folder: Path, steps: list[tuple[int, str]]) -> None:
    home = Home(folder / "clawback")
    home.create()
    home.config.write_text("[training]\nbackground = false\n")
    world = World(home)
    kinds = (Session, Session, Codex, Proxied)
    sessions = [kind(world, folder / f"session{number}.jsonl") for number, kind in enumerate(kinds)]
    for number, action in steps:
        if action == "wake":
            world.wake()
        elif action in ("up", "down", "hung"):
            world.server = action
        elif action.startswith("kill"):
            world.statements = int(action.removeprefix("kill"))
        elif action in ("lock", "unlock"):
            getattr(world, action)()
        elif action == "finish silently":
            sessions[number].finish(silent=True)
        elif action == "say late":
            sessions[number].say(lag=True)
        else:
            getattr(sessions[number], action)()
    world.unlock()
    for session in sessions:
        session.close()
    world.wake()
    world.server = "down"
    told = ""
    for session in sessions:
        session.tap()
        told += world.taps[f"n{world.count - 1}"].reply  # the last name is the event's
    check(home, world, told)


def check(home: Home, world: World, told: str) -> None:
    with store.connect(home.database) as db:
        found: dict[str, list[str]] = {}
        for given in db.feedback():
            turn = db.turn(given.turn_id)
            assert turn.kind == "main"
            if given.kind == "rating":
                found.setdefault(given.text, []).append(turn.response)
        early = db.early()
        everything = db.turns(limit=1000, kind="main")
        responses = [turn.response for turn in everything if turn.response]
    assert len(responses) == len(set(responses)), "an answer is one turn"
    assert not [one for one in early if not one.lost], "nothing waits for ever"
    assert not spool.waiting(home)
    for exchange, alone in world.finished:
        turns = [turn for turn in everything if turn.response == exchange.text]
        assert len(turns) == 1, (exchange, [turn.response for turn in everything])
        if alone and exchange.asked:
            assert turns[0].prompt == "\n\n".join(exchange.asked)
    lost = {one.text for one in early}
    for note, tap in world.taps.items():
        if tap.exchange.text:
            assert found.get(note) == [tap.exchange.text], (note, tap)  # once, however often it was told of
        else:
            assert note not in found, (note, tap)
            assert note in lost or "othing to rate" in tap.reply, (note, tap)
    if lost:
        replies = told + "".join(tap.reply for tap in world.taps.values())
        assert replies.count("came to nothing") >= len(lost), "and it is said"


@settings(max_examples=SEQUENCES, deadline=None, suppress_health_check=list(HealthCheck), derandomize=True)
@given(STEPS)
@example([(0, "ask"), (0, "say late"), (0, "say late"), (0, "tap"), (0, "finish")])
@example(
    [(0, "ask"), (0, "lock"), (0, "say late"), (0, "finish silently"), (0, "tap"), (0, "ask"), (0, "unlock")]
)
def test_every_tap_ends_on_what_the_person_saw_last(steps: list[tuple[int, str]]) -> None:
    with tempfile.TemporaryDirectory() as folder, pytest.MonkeyPatch.context() as patch:
        patch.setattr(ingest, "BUSY_SECONDS", 0.01)
        play(Path(folder), steps)
