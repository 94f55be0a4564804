"""What an agent's own record of a session tells of one request: its words, the tools that were called for it, the answer and how it ended."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import datetime

from clawback.records import PICTURE, Ending, JsonObject, text_of

RESULT_CHARACTERS = 20_000
"""How much of one tool's result, or of one argument, is kept: its beginning and its end."""
WORK_CHARACTERS = 200_000
"""How much of all tool calls and results of one answer is kept, newest first."""
ERROR_CHARACTERS = 200
"""How much of an error's message is kept."""
_AS_SENT = '"api-request'
"""Requests as they were sent, which are large, are entries of their own."""


@dataclass(slots=True)
class Exchange:
    """A request and the answers and tool calls that followed it."""

    ids: list[str] = field(default_factory=list)
    """The agent's names for the prompts that it answers."""
    requests: list[str] = field(default_factory=list)
    """What the person wrote: the request, then what they added while the agent was at work."""
    notice: str = ""
    """Or what the agent wrote to itself, about work that was asked for before."""
    blocks: list[str] = field(default_factory=list)
    """The text of the last response that has any, block by block."""
    response: str = ""
    """The name of the newest response."""
    end: str = ""
    """``interrupted``, ``failed``, ``done``; "" where it is under way, or not known."""
    error: str = ""
    stop: Ending = ""
    """Why the response with ``blocks`` ended, by the model's own word; "" where the record has none."""
    model: str = ""
    cwd: str = ""
    session: str = ""
    name: str = ""
    """The entry's own name of the answer."""
    at: float = 0.0
    """When the answer was written."""
    steps: list[JsonObject] = field(default_factory=list)
    """The responses and the results of tools in order, as chat messages."""
    step_names: list[str] = field(default_factory=list)
    """Of each step the name of its response; "" for a result."""

    @property
    def text(self) -> str:
        return "\n".join(block for block in self.blocks if block.strip()).strip()

    @property
    def open(self) -> bool:
        """Whether the record ends with a tool call or its result, so that the text of the answer is still to come."""
        return bool(self.steps) and (self.steps[-1]["role"] == "tool" or "tool_calls" in self.steps[-1])

    @property
    def ending(self) -> Ending:
        """Why the answer ended: what a person or a failure broke off is cut, also between two responses."""
        complete = self.stop and not self.open
        if complete or not self.blocks:
            return self.stop
        return {"interrupted": "interrupted", "failed": "error"}.get(self.end, self.stop)  # type: ignore[return-value]

    def ending_of(self, text: str) -> Ending:
        """Why an answer with this text ended: the agent's words about a failure may stand in the place of one."""
        words = text.strip()
        if self.error and words[:ERROR_CHARACTERS] == self.error:
            return "error"
        return self.ending if words in (self.text, *self.blocks[-1:]) else ""

    def work_before(self, text: str) -> list[JsonObject]:
        """The tool calls and results that led to an answer with this text (or its last block)."""
        end = len(self.steps)
        spoken = [i for i, step in enumerate(self.steps) if step["role"] == "assistant" and step["content"]]
        if spoken and self.blocks and text.strip() in (self.blocks[-1], self.text):
            end = spoken[-1]
        return bounded(self.steps[:end])

    def calls_of(self, text: str) -> list[JsonObject]:
        """The tools that the response with this text itself calls: there are such where the answer ended in a tool."""
        last: JsonObject = next(
            (step for step in reversed(self.steps) if step.get("content") and step["role"] == "assistant"), {}
        )
        if not self.blocks or text.strip() not in (self.blocks[-1], self.text):
            return []
        return [{"id": call["id"], **call["function"]} for call in last.get("tool_calls", ())]

    def begin_again(self) -> None:
        """The answer so far was sent back: it is a turn of its own, and what follows is the answer to that."""
        self.steps, self.step_names, self.blocks = [], [], []

    def add_text(self, response: str, text: str) -> None:
        """A piece of text of a response."""
        step = self._step(response)
        step["content"] = "\n".join(part for part in (step["content"], text) if part)

    def add_call(self, response: str, call_id: object, name: object, arguments: object) -> None:
        """A tool that a response calls."""
        words = (
            arguments if isinstance(arguments, str) else json.dumps(_shortened(arguments), ensure_ascii=False)
        )
        function = {"name": str(name or ""), "arguments": shortened(words)}
        calls = self._step(response).setdefault("tool_calls", [])
        calls.append({"id": str(call_id or ""), "type": "function", "function": function})

    def add_result(self, call_id: object, content: object) -> None:
        """What a tool returned."""
        self.steps.append(
            {"role": "tool", "tool_call_id": str(call_id or ""), "content": shortened(result_text(content))}
        )
        self.step_names.append("")

    def _step(self, response: str) -> JsonObject:
        """The step of a response; of one without a name, that which goes on."""
        if response in self.step_names and response:
            return self.steps[self.step_names.index(response)]
        if not response and self.steps and self.steps[-1]["role"] == "assistant":
            return self.steps[-1]
        self.steps.append({"role": "assistant", "content": ""})
        self.step_names.append(response)
        return self.steps[-1]


def result_text(content: object) -> str:
    """A tool's result as text; a mark stands for a picture."""
    if isinstance(content, Mapping):
        inner = content.get("output", content.get("content", content))
        return inner if isinstance(inner, str) else json.dumps(_shortened(content), ensure_ascii=False)
    pictures = (
        sum(isinstance(b, Mapping) and b.get("type") == "image" for b in content)
        if isinstance(content, list)
        else 0
    )
    return "\n".join(part for part in [text_of(content), *[PICTURE] * pictures] if part)


def shortened(text: str, limit: int = RESULT_CHARACTERS) -> str:
    """The beginning and the end of a long text."""
    if len(text) <= limit:
        return text
    return (
        f"{text[: limit // 2]}\n[{len(text) - limit:,} characters left out]\n{text[len(text) - limit // 2 :]}"
    )


def _shortened(value: object) -> object:
    """Arguments whose long texts are cut, so that they stay valid JSON."""
    if isinstance(value, str):
        return shortened(value, RESULT_CHARACTERS // 4)
    if isinstance(value, Mapping):
        return {str(key): _shortened(inner) for key, inner in list(value.items())[:200]}
    if isinstance(value, (list, tuple)):
        return [_shortened(inner) for inner in value[:200]]
    return value


def bounded(steps: list[JsonObject]) -> list[JsonObject]:
    """The newest steps that fit, beginning with a response, each call with its result.

    A call without a result, and a result without its call, is left out: no chat template takes them.
    """
    room, start = WORK_CHARACTERS, len(steps)
    while start and (room := room - len(json.dumps(steps[start - 1], ensure_ascii=False))) >= 0:
        start -= 1
    chosen = steps[start:]
    results = {step["tool_call_id"] for step in chosen if step["role"] == "tool"}
    called: set[str] = set()
    kept: list[JsonObject] = []
    for step in chosen:
        if step["role"] == "tool":
            kept += [step] if step["tool_call_id"] in called else []
            continue
        calls = [call for call in step.get("tool_calls", ()) if call["id"] in results]
        called |= {call["id"] for call in calls}
        plain = {"role": "assistant", "content": step["content"]}
        if calls or plain["content"]:
            kept.append({**plain, "tool_calls": calls} if calls else plain)
    return kept


def entries(lines: Iterable[str], marks: tuple[str, ...]) -> Iterator[JsonObject]:
    """Lines that hold one of the marks; others (requests as they were sent, snapshots of files) are large and say nothing here."""
    for line in lines:
        if any(mark in line for mark in marks) and _AS_SENT not in line[:40]:
            try:
                entry = json.loads(line)
            except (ValueError, RecursionError):
                continue
            if isinstance(entry, dict):
                yield entry


def moment(stamp: object) -> float:
    """A timestamp of a record in seconds; 0 for none."""
    try:
        return datetime.fromisoformat(str(stamp)).timestamp()
    except ValueError:
        return 0.0
