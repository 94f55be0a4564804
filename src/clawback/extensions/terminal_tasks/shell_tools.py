"""The shell's tools, called in any format of ``tools.calls`` or by fenced text, and the replies to them.

A call that cannot be read is answered with the expected form; nothing is guessed.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence

from clawback.environments.core import Tool
from clawback.environments.tools.calls import Call, Fence, ParsedReply
from clawback.environments.tools.calls import read as read_calls
from clawback.errors import NotFound, SandboxError, UsageError
from clawback.extensions.sandbox import CommandResult, Process, Sandbox
from clawback.records import Message

SHOWN = 4000
"""Characters of an output that the policy reads: the first and the last."""
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


def _run(_: str, body: str) -> Call:
    return Call("run", {"command": body.rstrip("\n")})


def _write(path: str, body: str) -> Call | str:
    return Call("write_file", {"path": path, "content": body}) if path else "Name the file: ```write PATH"


def _view(path: str, _: str) -> Call | str:
    return Call("view_file", {"path": path}) if path else "Name the file: ```view PATH"


FENCES: Mapping[str, Fence] = {
    **dict.fromkeys(("bash", "sh", "shell", "console"), _run),
    "write": _write,
    "view": _view,
}
"""Code fences that are calls, for models without tool calls: ``bash`` with a command, ``write PATH`` with a content, ``view PATH``."""
_REQUIRED = {
    str(tool["function"]["name"]): tuple(tool["function"]["parameters"]["required"]) for tool in TOOLS
}


def read(message: Message) -> ParsedReply:
    """The calls of a message; one of a tool that does not exist, or without what it needs, is a problem."""
    reply = read_calls(message, FENCES, TOOLS)
    wrong = {index: problem for index, call in enumerate(reply.calls) if (problem := mismatch(call))}
    return ParsedReply(
        reply.text,
        tuple(call for index, call in enumerate(reply.calls) if index not in wrong),
        (*wrong.values(), *reply.problems),
        (*(reply.calls[index].id for index in wrong), *reply.problem_ids),
    )


def calls(message: Message) -> list[Call]:
    """The calls of a message that can be carried out, in order."""
    return list(read(message).calls)


def mismatch(call: Call) -> str:
    """Why a call cannot be carried out ("" if it can)."""
    if call.name not in _REQUIRED:
        return f"There is no tool {call.name!r}. There are {', '.join(_REQUIRED)}."
    missing = [key for key in _REQUIRED[call.name] if not isinstance(call.arguments.get(key), str)]
    return f"{call.name} needs {missing[0]!r}, a text." if missing else ""


class Shell:
    """A box with its programs, answering calls one by one."""

    def __init__(self, box: Sandbox, seconds: float, env: Mapping[str, str] | None = None) -> None:
        self.box, self.seconds, self.env = box, seconds, dict(env or {})
        self._programs: dict[str, Process] = {}

    def answer(self, call: Call) -> str:
        """What the policy reads. A call that is wrong gets a sentence; a box that broke raises ``SandboxError``."""
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

    def _run(self, command: str, seconds: object) -> str:
        limit = (
            min(float(seconds), self.seconds)
            if isinstance(seconds, int | float) and seconds > 0
            else self.seconds
        )
        if "\0" in command:
            return "A command has no null characters."
        return shown(self.box.exec(["bash", "-c", command], timeout=limit, env=self.env))

    def _view(self, path: str, line: object) -> str:
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


def shown(result: CommandResult) -> str:
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
