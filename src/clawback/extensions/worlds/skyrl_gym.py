"""skyrl-gym's environments: text in, messages and a reward out, over rows of data that contain the ground truth."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from clawback.environments import world_helpers
from clawback.environments.core import Observation, Split, Step, Task
from clawback.errors import UsageError
from clawback.records import Message

PACKAGE = "skyrl_gym"


def names() -> list[str]:
    world_helpers.needed(PACKAGE, "skyrl-gym")
    from skyrl_gym.envs.registration import registry

    return [str(name) for name in registry]


def make(rest: str, settings: Mapping[str, Any]) -> SkyRLSet:
    known = world_helpers.member("skyrl-gym", rest, names())
    own = {key: value for key, value in settings.items() if key not in ("rows", "held_out")}
    if "rows" not in settings:
        raise UsageError(
            f"skyrl-gym:{rest} needs rows with `prompt` and `reward_spec`: skyrl-gym:{rest}?rows=FILE.jsonl"
        )
    return SkyRLSet(
        known, world_helpers.rows(Path(settings["rows"])), own, float(settings.get("held_out", 0.1))
    )


class SkyRLSet:
    """Rows ``{"prompt": [messages], "reward_spec": {"ground_truth"}, …}``; ``split`` in a row, else a tenth is held out by identity."""

    def __init__(
        self,
        kind: str,
        rows: Sequence[Mapping[str, Any]],
        config: Mapping[str, object],
        held_out: float = 0.1,
    ) -> None:
        self.kind, self.config = kind, dict(config)
        self.name = world_helpers.full_name("skyrl-gym", kind, self.config)
        self.by_split = world_helpers.split_rows(self.name, rows, held_out)

    def tasks(self, split: Split) -> Sequence[Task]:
        return self.by_split[split]

    def make(self) -> SkyRL:
        return SkyRL(self)


class SkyRL:
    """One episode."""

    def __init__(self, of: SkyRLSet) -> None:
        self.of = of
        self.inner: Any = None

    async def reset(self, task: Task, seed: int) -> Observation:  # noqa: ARG002 — its contract has no seed
        await self.close()
        with world_helpers.faults(self.of.name):
            messages = await asyncio.to_thread(self._open, task)
        return Observation(tuple(messages))

    def _open(self, task: Task) -> list[Message]:
        import skyrl_gym

        prompt = task.data.get("prompt") or []
        asked = (
            [{"role": "user", "content": prompt}] if isinstance(prompt, str) else [dict(m) for m in prompt]
        )
        self.inner = skyrl_gym.make(self.of.kind, env_config=self.of.config, extras=dict(task.data))
        messages, _ = self.inner.init(asked)
        return list(messages)

    async def step(self, message: Message) -> Step:
        with world_helpers.faults(self.of.name):
            made = await asyncio.to_thread(self.inner.step, world_helpers.text(message))
        done = bool(made["done"])
        return Step(
            tuple(made["observations"] or ()), float(made["reward"]), done, dict(made.get("metadata") or {})
        )

    async def close(self) -> None:
        inner, self.inner = self.inner, None
        if inner is not None:
            with world_helpers.faults(self.of.name):
                await asyncio.to_thread(inner.close)
