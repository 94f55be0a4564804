"""The shell's tools, called by tool calls or by fenced text, and the replies to them.

A model without tool calls writes a fence: ``bash`` with a command, ``write PATH`` with a file's content,
``view PATH``. A fence that cannot be parsed is answered with the expected form; nothing is guessed.
"""

from __future__ import annotations

import json
import re
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from clawback.environments.core import Tool
from clawback.errors import NotFound, SandboxError, UsageError
from clawback.records import Message, text_of
from clawback.sandbox import Process, Result, Sandbox

SHOWN = 4000
"""Characters of an output that the policy reads: the first and the last."""
_FENCE = re.compile(r"^```[ \t]*(\w+)[ \t]*([^\n`]*)\n(.*?)^```[ \t]*$", re.S | re.M)
_CLOSED = re.compile(r"^```[ \t]*$", re.M)
_SHELLS = ("bash", "sh", "shell", "console")
_QUIET, _LONGEST = 0.2, 2.0


def _tool(name: str, description: str, required: Sequence[str], /, **parameters: str) -> Tool:
    kinds = {"seconds": "number", "line": "integer"}
    properties = {
        key: {"type": kinds.get(key, "string"), "description": text} for key, text in parameters.items()
    }
    schema = {"type": "object", "properties": properties, "required": list(required)}
    return {"type": "function", "function": {"name": name, "description": description, "parameters": schema}}


TOOLS: tuple[Tool, ...] = (
    _tool("run", "Run a bash command in the working folder and wait for it.", ["command"],
          command="The command.", seconds="How long it may take."),
    _tool("write_file", "Write a file, in place of what it holds.", ["path", "content"],
          path="The file, from the working folder.", content="All of its content."),
    _tool("view_file", "Show a file's lines with their numbers.", ["path"],
          path="The file, from the working folder.", line="The line to begin with (1 is the first)."),
    _tool("start", "Start a program that goes on running, and name it.", ["name", "command"],
          name="A name for it.", command="The command."),
    _tool("write_process", "Write a line to a program that was started.", ["name", "text"],
          name="Its name.", text="The line."),
    _tool("view_process", "Show what a program that was started has written since.", ["name"], name="Its name."),
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Call:
    """One use of a tool. ``problem`` says why it cannot be read, if it cannot. ``id`` is "" for fenced text."""

    name: str
    arguments: Mapping[str, Any]
    id: str = ""
    problem: str = ""


def calls(message: Message) -> list[Call]:
    """What an assistant message asks for: its tool calls, else its fences, in order. Nothing at all is a last word."""
    told = message.get("tool_calls")
    if told:
        return [_called(one) for one in told]
    text = text_of(message.get("content"))
    # Behind the last that closes none is looked for: a model may open a thousand fences, and each would be followed to the end.
    end = max((one.end() for one in _CLOSED.finditer(text)), default=0)
    found = [_fenced(*match.groups()) for match in _FENCE.finditer(text, 0, end)]
    if not found and re.search(r"^```[ \t]*(?:bash|sh|shell|console|write|view)\b", text, re.M):
        return [Call("", {}, problem="The fence is not closed. End it with a line of three backticks.")]
    return [one for one in found if one is not None]


def _called(told: Any) -> Call:
    told = told if isinstance(told, Mapping) else {}
    function = told.get("function", told)
    function = function if isinstance(function, Mapping) else {}
    name, arguments, id = (
        str(function.get("name", "")),
        function.get("arguments", {}),
        str(told.get("id", "")),
    )
    if isinstance(arguments, str):
        try:
            arguments = json.loads(arguments)
        except ValueError:
            return Call(name, {}, id, f"The arguments of {name} are no JSON.")
    schema = next(
        (tool["function"]["parameters"] for tool in TOOLS if tool["function"]["name"] == name), None
    )
    if schema is None:
        names = ", ".join(tool["function"]["name"] for tool in TOOLS)
        return Call(name, {}, id, f"There is no tool {name!r}. There are {names}.")
    if not isinstance(arguments, Mapping):
        return Call(name, {}, id, f"The arguments of {name} are no object.")
    for key in schema["required"]:
        if not isinstance(arguments.get(key), str):
            return Call(name, {}, id, f"{name} needs {key!r}, a text.")
    return Call(name, arguments, id)


def _fenced(word: str, rest: str, body: str) -> Call | None:
    """A fence as a call; None for one that only shows something (code of another language)."""
    if word in _SHELLS:
        return Call("run", {"command": body.rstrip("\n")})
    if word in ("write", "view"):
        if not rest.strip():
            return Call(word, {}, problem=f"Name the file: ```{word} PATH")
        path = {"path": rest.strip()}
        return Call("write_file", {**path, "content": body}) if word == "write" else Call("view_file", path)
    return None


class Shell:
    """A box with its programs, answering calls one by one."""

    def __init__(self, box: Sandbox, seconds: float, env: Mapping[str, str] | None = None) -> None:
        self.box, self.seconds, self.env = box, seconds, dict(env or {})
        self._programs: dict[str, Process] = {}

    def answer(self, call: Call) -> str:
        """What the policy reads. A call that is wrong gets a sentence; a box that broke raises ``SandboxError``."""
        if call.problem:
            return call.problem
        told = call.arguments
        try:
            match call.name:
                case "run":
                    return self._run(str(told["command"]), told.get("seconds"))
                case "write_file":
                    content = str(told["content"]).encode(errors="replace")
                    self.box.write(str(told["path"]), content)
                    return f"Wrote {len(content)} bytes to {told['path']}."
                case "view_file":
                    return self._view(str(told["path"]), told.get("line"))
                case "start":
                    return self._start(str(told["name"]), str(told["command"]))
                case "write_process":
                    return self._write(str(told["name"]), str(told["text"]))
                case _:
                    return self._look(str(told["name"]))
        except (UsageError, NotFound) as error:
            return str(error)

    def _run(self, command: str, seconds: Any) -> str:
        limit = (
            min(float(seconds), self.seconds)
            if isinstance(seconds, int | float) and seconds > 0
            else self.seconds
        )
        if "\0" in command:
            return "A command has no null characters."
        return shown(self.box.exec(["bash", "-c", command], timeout=limit, env=self.env))

    def _view(self, path: str, line: Any) -> str:
        try:
            data = self.box.read(path, limit=1 << 20)
        except (UsageError, NotFound):
            raise
        except SandboxError as error:  # the file's fault (too long, closed), not the box's
            return str(error)
        lines = data.decode(errors="replace").splitlines()
        first = max(1, line) if isinstance(line, int) else 1
        return (
            clip("\n".join(f"{n}\t{text}" for n, text in enumerate(lines[first - 1 :], first))) or "(empty)"
        )

    def _start(self, name: str, command: str) -> str:
        if (old := self._programs.get(name)) and old.running:
            return f"{name} is running already."
        if sum(one.running for one in self._programs.values()) >= 4:
            return "Four programs are running already."
        self._programs[name] = self.box.start(["bash", "-c", command], env=self.env)
        return self._look(name)

    def _write(self, name: str, text: str) -> str:
        if name not in self._programs:
            return f"There is no program {name!r}. Start it first."
        if not self._programs[name].running:
            return f"{name} has ended."
        self._programs[name].write(text.encode(errors="replace") + (b"" if text.endswith("\n") else b"\n"))
        return self._look(name)

    def _look(self, name: str) -> str:
        """New output, once none has come for a moment."""
        if name not in self._programs:
            return f"There is no program {name!r}. Start it first."
        program, text, began = self._programs[name], "", time.monotonic()
        last = began
        while (
            time.monotonic() - began < _LONGEST
            and (time.monotonic() - last < _QUIET or not text)
            and program.running
        ):
            time.sleep(0.02)
            new = "".join(program.view())
            if new:
                text, last = text + new, time.monotonic()
        text += "".join(program.view())
        if program.running:
            return clip(text) or "(no new output)"
        return clip(text) + f"\n[ended, exit code {program.wait().exit_code}]"


def shown(result: Result) -> str:
    """A command's output as the policy reads it."""
    parts = [clip(result.stdout.rstrip("\n")), clip(result.stderr.rstrip("\n"))]
    why = {"time": "out of time", "memory": "too much memory", "disk": "too much on disk", "output": "too much output",
           "processes": "too many processes"}.get(result.ended, "")  # fmt: skip
    parts.append(f"[ended: {why}]" if why else f"[exit code {result.exit_code}]" if result.exit_code else "")
    return "\n".join(part for part in parts if part) or "(no output)"


def clip(text: str) -> str:
    if len(text) <= SHOWN:
        return text
    half = SHOWN // 2
    return f"{text[:half]}\n[… {len(text) - SHOWN} characters left out …]\n{text[-half:]}"
