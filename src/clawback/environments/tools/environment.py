"""The tool-call agent's environment: it executes calls, returns their results, and rewards the last answer.

A reply with calls is answered with one ``tool`` message per call, in order; a reply may have several calls. A
reply without any ends the episode; where the task needs calls and none was ever made, it counts as unparsable
(``idle``). One that tries to call and cannot be parsed gets an error message, and counts as unparsable.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from clawback.environments import world_helpers
from clawback.environments.core import Observation, Split, Step, Task, Tool
from clawback.environments.tools import calls as reading
from clawback.environments.tools.task_rewards import Finished, TaskReward
from clawback.environments.tools.toolbox import Toolbox, called
from clawback.errors import UsageError
from clawback.records import Message

PATIENCE = 3
"""Unreadable replies in a row after which the episode is over."""


@dataclass(frozen=True, slots=True)
class EpisodeRules:
    """Limits of an episode, and what the policy is told first."""

    turns: int = 16
    """Replies, the last answer among them."""
    calls: int = 32
    system: str = ""
    one_reply: bool = False
    """The first reply ends the episode, and its calls are not carried out (as BFCL's single-turn rows are scored)."""

    def __post_init__(self) -> None:
        if self.turns < 1 or self.calls < 0:
            raise UsageError(
                "An episode needs at least one turn, and a number of calls that is not negative."
            )


class ToolSet:
    """Tasks ``{"prompt" or "messages", "answer"/"actions"/… for the reward}`` with a box of tools an episode."""

    free_replies = True

    def __init__(
        self,
        name: str,
        tasks: Mapping[Split, Sequence[Task]],
        toolbox: Callable[[Task], Toolbox],
        reward: TaskReward,
        rules: EpisodeRules | None = None,
    ) -> None:
        self.name, self.by_split, self.toolbox, self.reward = name, tasks, toolbox, reward
        self.rules = rules or EpisodeRules()

    def tasks(self, split: Split) -> Sequence[Task]:
        return self.by_split.get(split, ())

    def make(self) -> ToolEnvironment:
        return ToolEnvironment(self)

    def solution(self, task: Task) -> Sequence[Message]:
        """The reference actions, one a message, and the answer or the outputs."""
        data = task.data
        made = [
            reading.message([reading.Call(action["name"], action.get("arguments") or {}, f"call_{n}")])
            for n, action in enumerate(data.get("actions", ()))
        ]
        said = (
            str(data["answer"])
            if "answer" in data
            else ", ".join(map(str, data.get("outputs", ()))) or "Done."
        )
        return made if self.rules.one_reply else [*made, {"role": "assistant", "content": said}]


@dataclass(slots=True)
class _Episode:
    task: Task
    seed: int
    box: Toolbox
    tools: Sequence[Tool]
    messages: list[Message]
    calls: list[reading.Call] = field(default_factory=list)
    turns: int = 0
    unread: int = 0
    wrong: int = 0


class ToolEnvironment:
    """One episode. Create it by ``ToolSet.make``."""

    def __init__(self, of: ToolSet) -> None:
        self.of = of
        self.now: _Episode | None = None

    async def reset(self, task: Task, seed: int) -> Observation:
        await self.close()
        box = self.of.toolbox(task)
        try:
            tools = await box.open(world_helpers.mixed(task.id, seed))
        except BaseException:
            await box.close()
            raise
        opened = opening(task, self.of.rules.system)
        self.now = _Episode(task, seed, box, tools, list(opened))
        return Observation(tuple(opened), tuple(tools))

    async def step(self, message: Message) -> Step:
        now, rules = self._running(), self.of.rules
        now.turns += 1
        now.messages.append(message)
        reply = reading.read(message, tools=now.tools)
        if rules.one_reply or (not reply.calls and not reply.problems):
            now.calls += reply.calls
            idle = not now.calls and not reply.problems and bool(now.task.data.get("actions"))
            info = {"unparsable": True} if reply.problems or idle else {}
            return await self._finish(reply.text, info | ({"idle": True} if idle else {}))
        if not reply.calls:
            now.unread += 1
            if now.unread >= PATIENCE:
                return await self._finish("", {"unparsable": True})
            told = {"role": "user", "content": f"That call cannot be read: {'; '.join(reply.problems)}."}
            return await self._go_on([told], {"unparsable": True})
        now.unread = 0
        answers = [await self._call(call) for call in reply.calls]
        answers += [
            {"role": "user", "content": f"A call cannot be read: {problem}."} for problem in reply.problems
        ]
        return await self._go_on(answers, {"unparsable": True} if reply.problems else {})

    async def close(self) -> None:
        now, self.now = self.now, None
        if now is not None:
            await now.box.close()

    def _running(self) -> _Episode:
        if self.now is None:
            raise UsageError("This environment has no episode: call reset first.")
        return self.now

    async def _call(self, call: reading.Call) -> Message:
        now = self._running()
        now.calls.append(call)
        if len(now.calls) > self.of.rules.calls:
            said, right = (
                f"Error: no more than {self.of.rules.calls} calls are allowed. Give your answer.",
                False,
            )
        else:
            said, right = await called(now.box, now.tools, call)
        now.wrong += not right
        return {"role": "tool", "tool_call_id": call.id, "name": call.name, "content": said}

    async def _go_on(self, answers: list[Message], info: Mapping[str, object]) -> Step:
        now = self._running()
        now.messages += answers
        if now.turns < self.of.rules.turns:
            return Step(tuple(answers), None, False, info)
        last = await self._finish("", {**info, "truncated": True})
        return Step(tuple(answers), last.reward, True, last.info)

    async def _finish(self, answer: str, info: Mapping[str, object]) -> Step:
        now = self._running()
        told = dict(info) | {"calls": len(now.calls), "wrong_calls": now.wrong}
        finished = Finished(
            task=now.task,
            messages=tuple(now.messages),
            calls=tuple(now.calls),
            answer=answer,
            state=await now.box.state(),
            seed=world_helpers.mixed(now.task.id, now.seed),
            fresh=lambda: self.of.toolbox(now.task),
            info=told,
        )
        reward = await self.of.reward(finished)
        return Step((), reward, True, told)


def opening(task: Task, system: str) -> list[Message]:
    """What an episode opens with: the task's own messages, or its prompt after the system text."""
    given = task.data.get("messages")
    if given is None:
        given = [{"role": "user", "content": str(task.data.get("prompt", ""))}]
    own_system = task.data.get("system", system)
    has_system = any(message.get("role") == "system" for message in given)
    return [
        *([{"role": "system", "content": own_system}] if own_system and not has_system else []),
        *map(dict, given),
    ]
