"""The interface of all environments: messages in, messages out, one instance per episode.

An *environment set* is what a plugin (entry point group ``clawback.environments``) provides: its tasks, and an
instance for each episode. The instance is async so that many episodes can wait for their environments at once.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal, Protocol, runtime_checkable

from clawback.errors import ClawbackError
from clawback.records import Message

if TYPE_CHECKING:
    from clawback.policy import Policy

Split = Literal["train", "test"]
Tool = Mapping[str, Any]
"""One tool as OpenAI-style APIs write it: ``{"type": "function", "function": {"name", "description", "parameters"}}``."""


class EnvironmentFailure(ClawbackError):
    """The environment failed, not the policy: a server is gone, a process died, a time limit of ours passed.

    Such an episode has no reward at all. It is counted, tried again, and excluded from training.
    """


@dataclass(frozen=True, slots=True)
class Task:
    """One thing to do. The same ``id`` is the same task on every machine and in every run."""

    id: str
    data: Mapping[str, Any] = field(default_factory=dict)
    split: Split = "train"


@dataclass(frozen=True, slots=True)
class ConversationRequest:
    """A whole conversation that a program of its own puts to the policy (``clawback.extensions.harness``)."""

    messages: tuple[Message, ...]
    encode: Callable[[Policy], tuple[Sequence[int], int]]
    """Its tokens, as the server that answers such a program reads them, and how many it has with all that they leave out."""
    max_tokens: int | None = None
    """Of the reply, as the program allows."""


@dataclass(frozen=True, slots=True)
class Observation:
    """What an episode opens with: the messages that the policy reads, and the tools that it may call; or the ``request`` of a program."""

    messages: tuple[Message, ...]
    tools: tuple[Tool, ...] = ()
    request: ConversationRequest | None = None


UNDELIVERED = "undelivered"


@dataclass(frozen=True, slots=True)
class Step:
    """The result of one message of the policy.

    ``reward`` is None if nothing was judged at this step. ``done`` ends the episode; ``info`` has data for
    people and metrics (``unparsable``: the reply could not be parsed; ``truncated``: a limit ended the
    episode, not the environment; ``undelivered``: the program that asked left before the reply came).
    """

    messages: tuple[Message, ...] = ()
    reward: float | None = None
    done: bool = False
    info: Mapping[str, Any] = field(default_factory=dict)
    request: ConversationRequest | None = None
    """What a program of its own asks next, in place of ``messages``."""


class Environment(Protocol):
    """The environment of one episode. Methods raise ``EnvironmentFailure`` for faults that are not the policy's."""

    async def reset(self, task: Task, seed: int) -> Observation:
        """Begin the task anew; the same task and seed open the same world."""
        ...

    async def step(self, message: Message) -> Step:
        """Answer one assistant message (``content``, and ``tool_calls`` where tools were called)."""
        ...

    async def close(self) -> None:
        """Release what the episode holds (processes, folders, connections). May be called twice."""
        ...


@runtime_checkable
class EnvironmentSet(Protocol):
    """What a plugin provides under a name: tasks with stable identities, and an environment for each episode."""

    name: str

    def tasks(self, split: Split) -> Sequence[Task]:
        """Tasks to learn from (``train``), or held-out ones (``test``); no task is in both, but for one that is alone."""
        ...

    def make(self) -> Environment:
        """A fresh environment for one episode."""
        ...


@runtime_checkable
class Selective(Protocol):
    """An environment set that leaves out tasks which it cannot run."""

    def refused(self) -> Mapping[str, str]:
        """Those tasks' ids, and why each is left out."""
        ...


@runtime_checkable
class Solvable(Protocol):
    """An environment set that knows a solution to each task, so that it can be validated without a model."""

    def solution(self, task: Task) -> Sequence[Message]:
        """Assistant messages that solve the task, in order: their episode's outcome is reward 1."""
        ...
