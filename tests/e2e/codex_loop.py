"""A real Codex, by ``codex exec`` and in a terminal, in front of a scripted server: run by test_codex.py where only loopback exists.

usage: codex_loop.py CODEX WORKDIR
Prints one JSON object about what happened.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psutil

sys.path.insert(0, str(Path(__file__).parent))

from agents import claude_environment, soon
from responses_server import Asked, Call, ResponsesServer, Say
from serve_loop import CODEX_SETTINGS, serve
from terminal import Terminal

from clawback import store
from clawback.capture import conversation_threads
from clawback.paths import Home
from clawback.records import Turn

LINES = "".join(f"Line {number} of it.\n" for number in range(1, 13))
"""What comes of an answer whose end never comes."""
HELP = "Count what is in the jar."
TOOL = "while [ ! -e go ]; do sleep 0.1; done; echo tool-ran"
"""It runs until the file is there."""
HOOKS_OF_THEIRS = b'{ "hooks": {"Stop": [ {"hooks": [{"type": "command", "command": "true"}]} ]} }'
TRUSTED = ("--dangerously-bypass-hook-trust",)


def answer(asked: Asked) -> Say | Call:
    """By what is asked about: "the otter" is answered with "All about the otter."."""
    said = " ".join(asked.texts)
    about = " and the ".join(re.findall(r"about the (\w+)", said))
    if about == "epic":
        return Say(LINES, endless=True)
    if about == "newt":
        return Say("All about the newt.\n", endless=True)
    if about.startswith("tool") and not asked.outputs:
        return Call("exec_command", {"cmd": TOOL, "yield_time_ms": 30_000})
    if about == "helper" and len(asked.outputs) < 2:
        if not asked.outputs:
            return Call("spawn_agent", {"message": HELP})
        return Call("wait_agent", {"targets": [json.loads(asked.outputs[0])["agent_id"]]})
    if HELP in said:
        return Say("Three beans.")
    return Say(f"All about the {about}.")


class Person:
    """Somebody with a Codex and a Clawback of their own, in a throwaway home."""

    def __init__(self, program: str, workdir: Path, server: ResponsesServer, url: str = "") -> None:
        self.program, self.server = program, server
        self.project, self.codex = workdir / "project", workdir / ".codex"
        self.home = Home(workdir / "clawback")
        for folder in (self.project, self.codex):
            folder.mkdir(parents=True)
        self.environment = claude_environment(workdir, "", self.home.root) | {
            "CODEX_HOME": str(self.codex),
            "KEY": "none",
            "TERM": "xterm-256color",
        }
        self.config, self.hooks = self.codex / "config.toml", self.codex / "hooks.json"
        settings = CODEX_SETTINGS.format(url=url or server.url, project=self.project)
        self.config.write_text(
            f"# Mine.\napproval_policy = 'never'\nsandbox_mode = 'danger-full-access'{settings}"
        )
        self.hooks.write_bytes(HOOKS_OF_THEIRS)
        self.before = self.files()
        self.run("clawback", "init", "--yes", "--agent", "codex", "--model", "embedded")
        self.installed = self.files()

    def files(self) -> list[bytes]:
        return [self.config.read_bytes(), self.hooks.read_bytes()]

    def run(self, *command: str) -> str:
        done = subprocess.run(
            command,
            cwd=self.project,
            env=self.environment,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=180,
            check=False,
        )
        assert done.returncode == 0, f"{command[:3]}: {done.stdout[-1500:]} {done.stderr[-2000:]}"
        return done.stdout

    def exec(self, text: str, *options: str, thread: str = "") -> str:
        """``codex exec``; the thread that it was said in. A thread that is given goes on."""
        resumed = ["resume", thread] if thread else []
        out = self.run(self.program, "exec", *resumed, "--skip-git-repo-check", "--json", *options, text)
        events = [json.loads(line) for line in out.splitlines() if line.startswith("{")]
        return str(next(e["thread_id"] for e in events if e["type"] == "thread.started"))

    @contextmanager
    def terminal(self, *options: str) -> Iterator[Terminal]:
        """Codex as a person sees it; without the server in the background that it otherwise leaves behind."""
        with Terminal(
            [self.program, "--no-daemon", "--no-alt-screen", *options], self.project, self.environment
        ) as terminal:
            yield terminal

    @contextmanager
    def calls(self, into: dict[str, Any], name: str) -> Iterator[None]:
        """How often the model is asked for an answer meanwhile."""

        def count() -> int:
            return sum(not asked.title for asked in self.server.asked)

        before = count()
        yield
        into[name] = count() - before

    def turns(self, kind: str = "main") -> list[Turn]:
        with store.connect(self.home.database) as db:
            return list(reversed(db.turns(limit=100, kind=kind)))

    def answered(self, *responses: str) -> None:
        soon(f"{responses}", lambda: [t.response for t in self.turns()] == list(responses))

    def at_rest(self, ended: int) -> None:
        """Wait until Codex has noted the end of so many turns: what is typed before goes into the one that is under way."""

        def over() -> bool:
            threads = sorted((self.codex / "sessions").rglob("*.jsonl"))  # a sub-agent's is younger
            events = re.findall(r'"type":"(?:task_complete|turn_aborted)"', threads[0].read_text())
            return len(events) == ended

        soon(f"the end of {ended} turns", over)

    def stored(self) -> dict[str, Any]:
        """What there is when Codex, its hooks and what it notifies have ended."""
        soon("the end of Codex", lambda: not list(self.processes()))
        main = self.turns()
        with store.connect(self.home.database) as db:
            given = [(db.turn(f.turn_id).response, f.value) for f in db.feedback() if f.kind == "rating"]
            waiting = len(db.early())
        return {
            "turns": [[t.prompt, t.response] for t in main],
            "asked": [
                [m["content"] for m in conversation_threads.human(t.messages) if m["role"] == "user"]
                for t in main
            ],
            "calls": [[call["name"] for call in t.calls] for t in main],
            "elsewhere": [t.response for t in main if t.cwd != str(self.project)],
            "agents": sorted({t.agent for t in main}),
            "sessions": len({t.session for t in main}),
            "endings": [t.ending for t in main],
            "models": sorted({t.model for t in main}),
            "work": [[m["role"] for m in t.messages if m["role"] in ("assistant", "tool")] for t in main],
            "side": [t.response for t in self.turns("side")],
            "rated": given,
            "waiting": waiting,
        }

    def rated(self) -> bool:
        with store.connect(self.home.database) as db:
            return bool(db.feedback())

    def doctor(self) -> str:
        """What ``clawback doctor`` says of Codex."""
        done = subprocess.run(
            ["clawback", "doctor"], env=self.environment, capture_output=True, text=True, timeout=180
        )
        return " ".join(line for line in done.stdout.splitlines() if "odex" in line)

    def removed(self) -> dict[str, Any]:
        """Take the hooks out again. What Codex has written meanwhile stays, and every other byte is as it was."""
        config, _ = self.files()
        line = self.installed[0].removesuffix(self.before[0])
        self.run("clawback", "init", "--agent", "codex", "--remove", "--yes")
        after, hooks = self.files()
        return {
            "hooks_restored": hooks == self.before[1],
            "config_restored": after == config.removeprefix(line) and after.startswith(self.before[0]),
            "config_untouched": after == self.before[0],
        }

    def processes(self) -> Iterator[psutil.Process]:
        """Codex, and whatever it has started, in this home."""
        for process in psutil.process_iter():
            try:
                if process.environ().get("CODEX_HOME") == str(self.codex):
                    yield process
            except (psutil.NoSuchProcess, psutil.AccessDenied):
                continue

    def left(self) -> None:
        """End what a test that failed has left running."""
        for process in self.processes():
            process.terminate()


# ---------------------------------------------------------------------------------------------------- what is done


def before_trust(person: Person) -> dict[str, Any]:
    """Codex skips the hooks; ``notify`` tells of each answer, and of the command that the model was asked."""
    seen: dict[str, Any] = {}
    otter = person.exec("Tell me about the otter.")
    person.answered("All about the otter.")
    person.exec("Tell me about the fox.")
    person.answered("All about the otter.", "All about the fox.")
    with person.calls(seen, "calls_of_rl"):
        person.exec("rl: good", thread=otter)
    soon("the rating", person.rated)
    return {**seen, "doctor": person.doctor(), **person.stored()}


def by_exec(person: Person) -> dict[str, Any]:
    """With hooks: two conversations, and the older one is rated."""
    seen: dict[str, Any] = {}
    otter = person.exec("Tell me about the otter.", *TRUSTED)
    person.exec("Tell me about the fox.", *TRUSTED)
    with person.calls(seen, "calls_of_rl"):
        person.exec("rl: good", *TRUSTED, thread=otter)
    return {**seen, **person.stored()}


def after_trust(person: Person) -> dict[str, Any]:
    """A person trusts the hooks where Codex asks; then they run without a flag."""
    with person.terminal() as terminal:
        terminal.shows("Hooks need review")
        terminal.choose("2", "› 2. Trust all")
        terminal.press("\r")
        terminal.shows("default · ~/project")
        terminal.say("/quit")
        terminal.ends()
    doctor = person.doctor()
    otter = person.exec("Tell me about the otter.")
    seen: dict[str, Any] = {"doctor": doctor}
    with person.calls(seen, "calls_of_rl"):
        person.exec("rl: bad", thread=otter)
    return {**seen, **person.stored()}


def in_the_terminal(person: Person, served: bool) -> dict[str, Any]:
    """A conversation as a person has it; ``served``: through our own server, which hears what Codex throws away."""
    seen: dict[str, Any] = {}
    with person.terminal(*TRUSTED) as terminal:

        def command(text: str, reply: str, name: str) -> None:
            with person.calls(seen, name):
                terminal.say(text)
                terminal.shows(f"Clawback: {reply}")

        terminal.shows("default · ~/project")
        terminal.say("Tell me about the otter.")
        terminal.shows("All about the otter.")
        person.at_rest(1)
        command("rl: good", "Noted: good", "calls_of_rl")
        person.at_rest(2)

        terminal.say("Tell me about the epic.")
        terminal.shows("Line 12 of it.")
        terminal.press("\x1b")
        terminal.shows("Conversation interrupted")
        person.at_rest(3)
        if served:
            soon("what was heard", lambda: LINES in [t.response for t in person.turns()])
        nothing = "There is nothing to rate: that answer was"
        reply = "Noted: bad" if served else f"{nothing} interrupted, and the agent kept nothing of it"
        command("rl: bad", reply, "calls_of_rl_after_escape")
        person.at_rest(4)

        terminal.say("Tell me about the tool.")
        soon("the tool's call", lambda: "Tell me about the tool." in person.server.asked[-1].texts)
        terminal.say("And about the owl.")
        terminal.shows("Messages to be submitted after next tool call")
        (person.project / "go").touch()
        terminal.shows("the tool and the owl.")
        person.at_rest(5)
        command("rl: good", "Noted: good", "calls_of_rl_after_steering")
        person.at_rest(6)

        terminal.say("Tell me about the helper.")
        terminal.shows("All about the helper.")
        person.at_rest(7)
        command("rl: rate 10", "Noted:", "calls_of_rl_after_helper")
        person.at_rest(8)
        terminal.say("Tell me about the newt.")
        terminal.shows("All about the newt.")
        reply = "Noted: bad" if served else f"{nothing} ended by this command"
        command("rl: bad", reply, "calls_of_rl_meanwhile")
        person.at_rest(9)

        terminal.say("/quit")
        terminal.ends()
    return {**seen, **person.stored()}


def main(program: str, workdir: Path) -> dict[str, Any]:
    seen, people = {}, []
    with ResponsesServer(answer) as server:
        try:
            for name, act in (
                ("before_trust", before_trust),
                ("by_exec", by_exec),
                ("after_trust", after_trust),
            ):
                people.append(Person(program, workdir / name, server))
                seen[name] = act(people[-1]) | people[-1].removed()
            people.append(Person(program, workdir / "hooks", server))
            seen["hooks"] = in_the_terminal(people[-1], served=False) | people[-1].removed()
            home = Home(workdir / "served" / "clawback")
            home.create()
            with serve(home, "--upstream", server.url) as url:
                people.append(Person(program, workdir / "served", server, url))
                seen["served"] = in_the_terminal(people[-1], served=True) | people[-1].removed()
        finally:
            for person in people:
                person.left()
    return seen


if __name__ == "__main__":
    print(json.dumps(main(sys.argv[1], Path(sys.argv[2])), ensure_ascii=False))
