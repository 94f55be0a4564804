"""The types of a prompt search: examples, their outcomes, requests for a better prompt, and proposals.

Its interfaces are two functions. ``Evaluate`` tries a prompt on an example; ``Propose`` makes a new prompt
from what went wrong. A search is built from these two alone, so that any model, judge or person can be behind
them.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, Protocol

from clawback.prompts.backends import ONE_CALL, Usage
from clawback.prompts.prompt import Prompt
from clawback.records import JsonObject, Message, Turn, text_of

Split = Literal["train", "validation"]


@dataclass(frozen=True, slots=True)
class Example:
    """One case that a prompt is tried on.

    Attributes:
        id: stable and unique among the examples of a search.
        messages: the conversation to be answered. A system message in it is not used: the prompt takes its place.
        answer: what was answered once, with ``remarks`` about it: the person's own words.
        reference: how it should have been answered (an edit), "" where nobody said.
        split: ``train`` examples are shown to whoever proposes; ``validation`` ones only decide, and are never shown.
        anchor: this one must not get worse, whatever else gets better.
    """

    id: str
    messages: tuple[Message, ...]
    answer: str = ""
    remarks: tuple[str, ...] = ()
    reference: str = ""
    split: Split = "train"
    anchor: bool = False

    @classmethod
    def ask(cls, question: str, id: str = "", **more: Any) -> Example:
        """From one question; its id is a hash of it where none is given."""
        made = cls(id, ({"role": "user", "content": question},), **more)
        return made if id else cls(made.fingerprint, made.messages, **more)

    @property
    def question(self) -> str:
        """The last thing the person said."""
        return Turn("", self.messages, "").prompt

    @property
    def fingerprint(self) -> str:
        """Hash of what is asked and wanted: scores of another content are not this one's."""
        said = [(m.get("role"), text_of(m.get("content"))) for m in self.messages]
        return _hash([said, self.reference])


@dataclass(frozen=True, slots=True)
class Outcome:
    """The result of a prompt on an example. ``score``: higher is better, 1 is perfect (any range works; 0 to 1 is usual).

    ``feedback`` explains the score in words; ``terms`` are the parts of the score. A failure is a low score
    with the error as its feedback, not an exception.
    """

    score: float
    feedback: str = ""
    response: str = ""
    terms: Mapping[str, float] = field(default_factory=dict)
    usage: Usage = ONE_CALL

    def to_dict(self) -> JsonObject:
        return {"score": self.score, "feedback": self.feedback, "response": self.response, "terms": dict(self.terms), "usage": self.usage.to_dict()}  # fmt: skip

    @classmethod
    def from_dict(cls, state: Mapping[str, Any]) -> Outcome:
        return cls(
            float(state["score"]),
            state["feedback"],
            state["response"],
            state["terms"],
            Usage(**state["usage"]),
        )


@dataclass(frozen=True, slots=True)
class Case:
    """An example and what came of it: what whoever proposes gets to see."""

    example: Example
    outcome: Outcome


@dataclass(frozen=True, slots=True)
class ProposalRequest:
    """A request for a better prompt, with what is known about the current one.

    Attributes:
        prompt: the one to change.
        cases: examples that it failed on, worst first, then some that it did well on.
        remarks: the person's remarks that belong to no one example, newest last.
        other: a second prompt to merge with, where the request is for a merge.
        lost: the rules that earlier children of this prompt were tried with and lost by.
        number: counts the requests of a search; a proposer that draws at random takes its seed from it.
    """

    prompt: Prompt
    cases: tuple[Case, ...] = ()
    remarks: tuple[str, ...] = ()
    other: Prompt | None = None
    lost: tuple[str, ...] = ()
    number: int = 0

    @property
    def fingerprint(self) -> str:
        seen = [
            (c.example.fingerprint, c.outcome.score, c.outcome.feedback, c.outcome.response)
            for c in self.cases
        ]
        return _hash([self.prompt.id, self.other.id if self.other else "", seen, self.remarks, self.lost, self.number])  # fmt: skip


@dataclass(frozen=True, slots=True)
class Proposal:
    """A new prompt, or None with the ``problem`` that there was (nothing could be read out of the model's answer)."""

    prompt: Prompt | None
    usage: Usage = ONE_CALL
    problem: str = ""

    def to_dict(self) -> JsonObject:
        made = self.prompt.to_dict() if self.prompt else None
        return {"prompt": made, "usage": self.usage.to_dict(), "problem": self.problem}

    @classmethod
    def from_dict(cls, state: Mapping[str, Any]) -> Proposal:
        made = Prompt.from_dict(state["prompt"]) if state["prompt"] else None
        return cls(made, Usage(**state["usage"]), state["problem"])


class Evaluate(Protocol):
    """Try a prompt on an example. Raise ``ClawbackError`` only where no further call can succeed."""

    def __call__(self, prompt: Prompt, example: Example, /) -> Outcome: ...


class Propose(Protocol):
    """Make a new prompt of what went wrong with one."""

    def __call__(self, request: ProposalRequest, /) -> Proposal: ...


def mean(scores: Sequence[float]) -> float:
    """0 for none."""
    return sum(scores) / len(scores) if scores else 0.0


def _hash(value: object) -> str:
    return hashlib.sha256(json.dumps(value, sort_keys=True, default=str).encode()).hexdigest()[:16]
