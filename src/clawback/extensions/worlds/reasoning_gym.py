"""reasoning-gym's procedural questions: one question, one answer, a score from 0 to 1."""

from __future__ import annotations

import asyncio
import re
import threading
from collections.abc import Mapping, Sequence
from typing import Any

from clawback.environments import world_helpers
from clawback.environments.core import Observation, Split, Step, Task
from clawback.errors import NotFound, UsageError
from clawback.records import Message

PACKAGE = "reasoning_gym"
OURS = ("tasks", "held_out", "tags")
ASK = "Give your final answer between <answer> and </answer>."
_ANSWER = re.compile(r"<answer>(.*?)(?:</answer>|\Z)", re.DOTALL)


def names() -> list[str]:
    world_helpers.needed(PACKAGE, "reasoning-gym")
    from reasoning_gym.factory import DATASETS

    return [str(name) for name in DATASETS]


def make(rest: str, settings: Mapping[str, Any]) -> ReasoningSet:
    known = world_helpers.member("reasoning-gym", rest, names())
    own = {key: value for key, value in settings.items() if key not in OURS}
    found = ReasoningSet(
        known, own, settings.get("tasks", 500), settings.get("held_out", 100), settings.get("tags", True)
    )
    try:
        found.dataset("test")
    except (TypeError, AssertionError, ValueError) as error:
        raise UsageError(f"reasoning-gym cannot make {rest} so: {error}") from error
    return found


class ReasoningSet:
    """Questions of one generator. Item n is made from the seed plus n, so the seeds of the splits lie far apart; a held-out question
    that training happens to have, too, is left out."""

    def __init__(
        self, kind: str, world_options: Mapping[str, object], train: int, test: int, tags: bool
    ) -> None:
        self.kind, self.world_options, self.tags = kind, dict(world_options), tags
        self.sizes: dict[Split, int] = {"train": train, "test": test}
        self.name = world_helpers.full_name("reasoning-gym", kind, self.world_options)
        self._made: dict[Split, Any] = {}
        self._lock = threading.Lock()

    def dataset(self, split: Split) -> Any:
        import reasoning_gym

        with self._lock:
            if split not in self._made:
                seed = 0 if split == "train" else world_helpers.HELD_OUT_FROM
                self._made[split] = reasoning_gym.create_dataset(
                    self.kind, seed=seed, size=self.sizes[split], **self.world_options
                )
            return self._made[split]

    def entry(self, task: Task) -> Any:
        """The item as the generator made it: question, answer, and what scoring needs."""
        with world_helpers.faults(self.name):
            return self.dataset(task.split)[int(task.data["index"])]

    def tasks(self, split: Split) -> Sequence[Task]:
        made = [Task(f"{self.name}/{split}/{n}", {"index": n}, split) for n in range(self.sizes[split])]
        if split == "train":
            return made
        learned = {self.entry(task)["question"] for task in self.tasks("train")}
        return [task for task in made if self.entry(task)["question"] not in learned]

    def make(self) -> Reasoning:
        return Reasoning(self)

    def solution(self, task: Task) -> Sequence[Message]:
        answer = self.entry(task)["answer"]
        if answer is None:
            raise NotFound(f"{self.kind} knows no answer to {task.id}.")
        return [{"role": "assistant", "content": f"<answer>{answer}</answer>" if self.tags else str(answer)}]


class Reasoning:
    """One question."""

    def __init__(self, of: ReasoningSet) -> None:
        self.of = of
        self.item: Any = None

    async def reset(self, task: Task, seed: int) -> Observation:  # noqa: ARG002 — a question leaves nothing to chance
        self.item = await asyncio.to_thread(self.of.entry, task)
        asked = {"role": "user", "content": str(self.item["question"])}
        return Observation((*([{"role": "system", "content": ASK}] if self.of.tags else []), asked))

    async def step(self, message: Message) -> Step:
        reply = world_helpers.text(message)
        tagged = _ANSWER.findall(reply)
        answer = tagged[-1].strip() if tagged else reply.strip()
        with world_helpers.faults(self.of.name):
            score = await asyncio.to_thread(self.of.dataset("train").score_answer, answer, self.item)
        info = {"unparsable": True} if self.of.tags and not tagged else {}
        return Step((), min(1.0, max(0.0, float(score))), True, info)

    async def close(self) -> None:
        self.item = None
