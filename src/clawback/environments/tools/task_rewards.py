"""Rewards for an episode of tool calls: by its answer, its calls, the state that it left behind, a verifier, or a judge."""

from __future__ import annotations

import asyncio
import hashlib
import inspect
import json
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar, Protocol

from clawback.environments.core import EnvironmentFailure, Task
from clawback.environments.tools.calls import Call
from clawback.environments.tools.toolbox import Toolbox, called
from clawback.errors import UsageError
from clawback.records import Message, text_of

if TYPE_CHECKING:
    from clawback.feedback.endpoint import Ask
    from clawback.records import JsonObject

_NUMBER = re.compile(r"[-+]?\$?\d[\d,]*(?:\.\d+)?(?:[eE][-+]?\d+)?|[-+]?\.\d+")
_MARKS = (
    (re.compile(r"\\boxed\s*+\{([^{}]*+)\}"), ""),
    (re.compile(r"<answer>(.*?)</answer>", re.DOTALL), "</answer>"),
    (re.compile(r"####\s*((?:[^\n#]|#(?!###))+)"), ""),
    (re.compile(r"answer(?:\s+is)?\s*[:=]?\s*([^\n]+)", re.IGNORECASE), ""),
)
"""How answers are marked, and what closes a mark that may go over lines."""


@dataclass(frozen=True, slots=True)
class Finished:
    """An episode that is over: what rewards look at."""

    task: Task
    messages: tuple[Message, ...]
    calls: tuple[Call, ...]
    answer: str
    """The last thing that the policy said; "" where it never answered."""
    state: Any
    seed: int
    fresh: Callable[[], Toolbox]
    """Another box for the same task, as the episode found it."""
    info: JsonObject = field(default_factory=dict)


class TaskReward(Protocol):
    """From 0 (failed) to 1 (solved). Raises ``EnvironmentFailure`` where nobody can tell."""

    async def __call__(self, episode: Finished) -> float: ...


@dataclass(frozen=True, slots=True)
class AnswerReward:
    """1 where the final answer is the task's ``answer``: as a number where that is one, else as text without case."""

    field: str = "answer"

    async def __call__(self, episode: Finished) -> float:
        return float(same_answer(episode.answer, str(episode.task.data[self.field])))


def _marked(reply: str) -> str | None:
    for mark, closes in _MARKS:
        # Behind the last that closes none is looked for: each of many openings would be followed to the end.
        found = mark.findall(reply, 0, reply.rfind(closes) + len(closes) if closes else len(reply))
        if found:
            return str(found[-1]).strip()
    return None


def same_answer(reply: str, expected: str) -> bool:
    """Is what a reply ends with the expected answer? A marked answer counts, else the last number or the whole reply."""
    marked = _marked(reply)
    if (number := as_number(expected)) is None:
        said = reply.strip() if marked is None else marked
        return _bare(said) == _bare(expected)
    numbers = _NUMBER.findall(marked if marked is not None and _NUMBER.search(marked) else reply)
    if not numbers:
        return False
    said_number = as_number(numbers[0] if marked is not None else numbers[-1])
    return said_number is not None and abs(said_number - number) <= 1e-6 * max(1.0, abs(number))


def as_number(text: str) -> float | None:
    """``$1,200.50`` → 1200.5; None for what is no number."""
    bare = text.strip().rstrip(".%").replace(",", "").replace("$", "")
    try:
        value = float(bare)
    except ValueError:
        return None
    return value if abs(value) < 1e300 else None


def _bare(text: str) -> str:
    return re.sub(r"\s+", " ", text).strip(" .\"'`").lower()


@dataclass(frozen=True, slots=True)
class EndState:
    """1 where the state is the one that the task's reference ``actions`` leave, and the last reply tells each of its ``outputs``.

    The reference actions are played in a fresh box: any way to the same end counts, and nothing is judged by its looks. A reply
    that tells many numbers beside the wanted ones tells none: otherwise counting from 1 to 100 would be an answer.
    """

    async def __call__(self, episode: Finished) -> float:
        wanted = await reference_state(episode.fresh(), episode.task, episode.seed)
        outputs = [str(part) for part in episode.task.data.get("outputs", ())]
        right = digest(episode.state) == digest(wanted)
        told = tells(episode.answer, outputs)
        episode.info.update({"state": right} | ({"outputs": told} if outputs else {}))
        return float(right and told)


MORE_NUMBERS = 4


def tells(reply: str, outputs: Sequence[str]) -> bool:
    """Does a reply name each of these, as whole words and without naming every number there is?"""
    said = re.sub(r"(?<=\d),(?=\d{3})", "", reply).lower()
    if len(set(_NUMBER.findall(said))) > len(outputs) + MORE_NUMBERS and any(map(as_number, outputs)):
        return False
    return all(re.search(rf"(?<![\w.]){re.escape(part.lower())}(?!\w|\.\d)", said) for part in outputs)


async def reference_state(box: Toolbox, task: Task, seed: int) -> Any:
    """What the reference actions leave behind. Raises ``EnvironmentFailure`` where one of them does not go through."""
    try:
        tools = await box.open(seed)
        for action in task.data.get("actions", ()):
            result, right = await called(box, tools, Call(action["name"], action.get("arguments") or {}))
            if not right:
                raise EnvironmentFailure(f"{task.id}: the reference action {action['name']} fails: {result}")
        return await box.state()
    finally:
        await box.close()


def digest(state: object) -> str:
    """A state's identity: equal for equal JSON, whatever the order of its keys."""
    text = json.dumps(state, sort_keys=True, ensure_ascii=False, default=str)
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()


@dataclass(frozen=True, slots=True)
class Calls:
    """How much of the task's reference ``actions`` the calls are: something to climb for a model that is never wholly right at first.

    An action is worth (1 + its arguments that are equal) / (1 + all arguments of it and of the call) of the call to the same tool
    that is most like it, and each call is used once. The sum is divided by the number of actions or of calls, whichever is larger, so
    that calling everything is not an answer. Only calls that wholly match are worth 1, in any order; no call is carried out again.
    """

    async def __call__(self, episode: Finished) -> float:
        wanted = episode.task.data.get("actions", ())
        left, total = list(episode.calls), 0.0
        for action in wanted:
            arguments = action.get("arguments") or {}
            worth = [likeness(call, action["name"], arguments) for call in left]
            if best := max(worth, default=0.0):
                total += best
                del left[worth.index(best)]
        most = max(len(wanted), len(episode.calls))
        return total / most if most else 1.0


def likeness(call: Call, name: str, arguments: Mapping[str, object]) -> float:
    """0 for another tool, else the share of name and arguments that is equal, as JSON."""
    if call.name != name:
        return 0.0
    names = arguments.keys() | call.arguments.keys()
    same = [
        key
        for key in arguments.keys() & call.arguments.keys()
        if digest(arguments[key]) == digest(call.arguments[key])
    ]
    return (1 + len(same)) / (1 + len(names))


@dataclass(frozen=True, slots=True)
class Verified:
    """What a verifier of ``clawback.rewards`` says of the final answer (``regex``, ``json-schema``, one of your own …).

    A setting ``"{name}"`` takes the task's field of that name.
    """

    name: str
    settings: Mapping[str, Any] = field(default_factory=dict)

    def of_task(self, fields: Mapping[str, object]) -> JsonObject:
        """The settings for a task. Raises ``KeyError`` for a field that it does not have."""
        return {
            key: fields[value[1:-1]] if isinstance(value, str) and re.fullmatch(r"\{\w+\}", value) else value
            for key, value in self.settings.items()
        }

    async def __call__(self, episode: Finished) -> float:
        from clawback.rewards import verifiers

        verifier = verifiers.make(self.name, self.of_task(episode.task.data))
        asked = "\n".join(text_of(m.get("content")) for m in episode.messages if m.get("role") == "user")
        return float(await asyncio.to_thread(verifier, asked, episode.answer))


@dataclass(frozen=True, slots=True)
class Own:
    """What a function of one's own says: a number from 0 to 1, or a truth value.

    It is given what it has parameters for: ``prompt``, ``answer`` (or ``response``), ``task`` (the task's fields), ``calls``,
    ``messages``, ``state``.
    """

    GIVEN: ClassVar[tuple[str, ...]] = ("prompt", "answer", "response", "task", "calls", "messages", "state")
    function: Callable[..., Any]

    def mismatch(self) -> str:
        """Why the function cannot be called ("" if it can)."""
        parameters = inspect.signature(self.function).parameters
        plain = [
            p.name
            for p in parameters.values()
            if p.default is p.empty and p.kind not in (p.VAR_POSITIONAL, p.VAR_KEYWORD)
        ]
        unknown = [name for name in plain if name not in self.GIVEN]
        return f"wants `{unknown[0]}`; it can have {', '.join(self.GIVEN)}" if unknown else ""

    async def __call__(self, episode: Finished) -> float:
        prompt = "\n".join(text_of(m.get("content")) for m in episode.messages if m.get("role") == "user")
        known = {
            "prompt": prompt, "answer": episode.answer, "response": episode.answer, "task": dict(episode.task.data),
            "calls": episode.calls, "messages": list(episode.messages), "state": episode.state,
        }  # fmt: skip
        given = {name: known[name] for name in inspect.signature(self.function).parameters if name in known}
        if inspect.iscoroutinefunction(self.function):
            score = await self.function(**given)
        else:
            score = await asyncio.to_thread(lambda: self.function(**given))
        if not isinstance(score, int | float) or not 0 <= score <= 1:
            raise EnvironmentFailure(f"The reward function gave {score!r}, not a number from 0 to 1.")
        return float(score)


@dataclass(frozen=True, slots=True)
class JudgeReward:
    """A judge model's grade of the final answer, with the episode before it in view; ``rubric`` says what counts."""

    ask: Ask
    rubric: str = ""
    votes: int = 1

    async def __call__(self, episode: Finished) -> float:
        from clawback.feedback.endpoint import NoAnswer
        from clawback.rewards.generative import Generative

        before = "\n\n".join(f"{m.get('role')}: {message_text(m)}" for m in episode.messages[:-1])
        asked = before + (f"\n\nWhat counts: {self.rubric}" if self.rubric else "")
        try:
            [grade] = await asyncio.to_thread(
                Generative(self.ask, self.votes).score, [(asked, episode.answer)]
            )
        except NoAnswer as error:
            raise EnvironmentFailure(f"Nobody judged {episode.task.id}: {error}.") from error
        return grade


@dataclass(frozen=True, slots=True)
class Unrewarded:
    """0 for every episode: of tasks that ``--reward`` rewards."""

    async def __call__(self, episode: Finished) -> float:  # noqa: ARG002
        return 0.0


def message_text(message: Message) -> str:
    """A message as text, with the calls that it makes."""
    made = "".join(
        f"\n[calls {c['function']['name']} {c['function']['arguments']}]"
        for c in message.get("tool_calls") or ()
    )
    return text_of(message.get("content")) + made


@dataclass(frozen=True, slots=True)
class Weighted:
    """Several rewards as one: the mean by weight."""

    parts: Sequence[tuple[TaskReward, float]]

    async def __call__(self, episode: Finished) -> float:
        total = sum(weight for _, weight in self.parts)
        if total <= 0:
            raise UsageError("The weights of a reward must add up to more than 0.")
        return sum([weight * await part(episode) for part, weight in self.parts]) / total
