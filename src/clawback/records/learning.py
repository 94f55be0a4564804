"""Records of learning: what a run learns from, what it plays, and what comes of it.

They are imported when one of them is first used: a hook stores turns and feedback alone, and making these
classes takes longer than all else that it does.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from clawback.records import CUT, OWNER, Ending, FeedbackKind, Message

VersionStatus = Literal["candidate", "live", "retired", "rejected"]
RunStatus = Literal["preparing", "running", "done", "failed", "stopped"]
"""``preparing``: somebody has asked for it, and a process loads the model or measures the machine; nothing was learned yet."""
RunKind = Literal["ratings", "episodes", "prompt", "federated", "adopted"]
"""What a run makes its version from: ratings, episodes of an environment, a search for a prompt, the changes of a
federation's members, or an adapter that was trained elsewhere."""
EpisodeStatus = Literal["completed", "truncated", "failed", "aborted"]
"""``completed``: the world ended it. ``truncated``: a limit did. ``failed``: the world broke, so there is no reward. ``aborted``: we stopped it."""


@dataclass(frozen=True, slots=True)
class Part:
    """How one feedback row entered a reward: its value, and the weight that it was given."""

    feedback_id: int
    kind: FeedbackKind
    value: float
    weight: float


@dataclass(frozen=True, slots=True)
class Term:
    """How one part of a reward that adds up entered it: ``value`` in [0, 1], ``share`` its λ over all that were there."""

    name: str
    value: float
    share: float


@dataclass(frozen=True, slots=True)
class Sample:
    """A turn made ready to train on: who said what, and what it was worth, in [-1, 1]."""

    turn_id: int
    messages: tuple[Message, ...]
    response: str
    reward: float
    parts: tuple[Part, ...] = ()
    response_ids: tuple[int, ...] | None = None
    response_logprobs: tuple[float, ...] | None = None
    hints: tuple[str, ...] = ()
    """What would have made the response better, in words: critiques and edits."""
    foreign_hints: tuple[str, ...] = ()
    """Those of ``hints`` that are not the owner's own words: read to understand ratings, never made an instruction."""
    response_mask: tuple[bool, ...] | None = None
    """Which of ``response_ids`` the policy wrote itself. The others (what a tool put in between) are read, not learned."""
    terms: tuple[Term, ...] = ()
    """Where the reward adds up from more than feedback: from what (``rewards/terms.py``)."""
    ending: Ending = ""
    """Why the response ended."""
    model: str = ""
    """The model that wrote the response, by the name under which the turn was captured; "" where that is not known."""
    version: int | None = None
    """The version of the policy that wrote it, where the policy did."""
    edited: bool = False
    """The response is an edit: what the turn should have said. ``model`` then names the teacher model whose words it is, "" for a person's."""
    has_calls: bool = False
    """The turn also calls tools, which the text of the response leaves out."""

    @property
    def cut(self) -> bool:
        """Whether the response is not complete. Then it is no example of how long an answer is, or of how it ends."""
        return self.ending in CUT

    @property
    def ends(self) -> bool:
        """Whether the end token belongs after the response."""
        return self.ending in ("", "done")

    @property
    def feedback_value(self) -> float:
        """What feedback alone makes of it, in [-1, 1]."""
        return next((2 * term.value - 1 for term in self.terms if term.name == "feedback"), self.reward)

    @property
    def newest(self) -> int:
        """Id of the newest feedback that made the reward: ids grow with the time of a rating."""
        return max((part.feedback_id for part in self.parts), default=0)

    @property
    def rated(self) -> bool:
        """False where words are all there is: the reward is then no opinion."""
        return bool(self.parts) or not self.hints


RuleStatus = Literal["proposed", "believed", "dropped", "withdrawn"]
"""``believed``: the ratings speak for it, or the owner wrote it. ``dropped``: they do not. ``withdrawn``: the owner took it back."""


@dataclass(frozen=True, slots=True)
class Rule:
    """What a person wants of every answer: one sentence, and a check that tells whether an answer keeps it."""

    text: str
    check: str = ""
    """The check by code, with its parameter (``"words <= 80"``); "" where only a judge can tell."""
    author: str = OWNER
    """Whose words: a person (``records.OWNER``, ``rater:anna``), ``agent:NAME`` or ``model:NAME`` that proposed it, ``list`` for one of ours."""
    id: int = 0
    status: RuleStatus = "proposed"
    created_at: float = 0.0
    evidence: Mapping[str, Any] = field(default_factory=dict)
    """How it was tested: counts of rated answers that keep and break it, its p-value, the judge. JSON."""


@dataclass(frozen=True, slots=True)
class Branch:
    """One sequence of an episode, token by token as the policy read and wrote it.

    It goes on as long as each request to the policy begins with all of the one before; where it does not (history was cut, the template
    drops old thoughts), the next request begins another branch.
    """

    ids: tuple[int, ...]
    mask: tuple[bool, ...]
    """Which of them the policy wrote."""
    logprobs: tuple[float, ...]
    """Of each that it wrote, under the tempered policy that wrote it; 0 for the others."""
    pictures: tuple[str, ...] = ()
    """SHA-256 of the pictures that it read, in order. They stand in the episode's messages."""


@dataclass(frozen=True, slots=True)
class EpisodeStep:
    """One message of the policy in an episode: ``branches[branch].ids[start:end]`` is what it wrote."""

    branch: int
    start: int
    end: int
    reward: float | None = None
    """What the environment gave for it; None where nothing was judged."""
    penalty: float = 0.0
    """What an unparsable reply cost, on top and never positive. Learned from, but no part of the episode's return."""
    unparsable: bool = False
    update: int = 0
    """How many times the policy had been updated when it wrote this."""
    ended: bool = True
    """False: cut off at the longest reply."""


@dataclass(frozen=True, slots=True)
class Episode:
    """One try at a task: what was said, the tokens as sampled, and what each step brought."""

    environment: str
    task: str
    seed: int
    messages: tuple[Message, ...]
    branches: tuple[Branch, ...]
    steps: tuple[EpisodeStep, ...]
    status: EpisodeStatus
    stop_reason: str = ""
    number: int = 0
    """Its place in the run: the same number is the same task and seed."""
    group: int = 0
    """Episodes of the same task and seed that are held against each other share one."""
    split: Literal["train", "test"] = "train"
    id: int = 0
    run_id: int | None = None
    created_at: float = 0.0

    @classmethod
    def of(cls, values: Mapping[str, Any]) -> Episode:
        """What ``dataclasses.asdict`` gave, also after a way through JSON."""
        return cls(
            **{
                **values,
                "messages": tuple(values["messages"]),
                "branches": tuple(
                    Branch(
                        tuple(b["ids"]), tuple(b["mask"]), tuple(b["logprobs"]), tuple(b.get("pictures", ()))
                    )
                    for b in values["branches"]
                ),
                "steps": tuple(EpisodeStep(**s) for s in values["steps"]),
            }
        )

    @property
    def total(self) -> float:
        """The undiscounted return: the sum of what the environment gave."""
        return sum(step.reward or 0.0 for step in self.steps)

    @property
    def replies(self) -> tuple[int, ...]:
        """Places of the policy's replies among the messages, one a step. Worked examples before the task have replies, too: those come first."""
        places = [i for i, message in enumerate(self.messages) if message.get("role") == "assistant"]
        return tuple(places[max(0, len(places) - len(self.steps)) :]) if self.steps else ()

    @property
    def unparsable(self) -> int:
        """Replies that could not be read."""
        return sum(step.unparsable for step in self.steps)


@dataclass(frozen=True, slots=True)
class Run:
    """One training run: feedback in, one candidate version out, every input recorded.

    ``progress`` is what ``status`` shows while it runs: ``{"phase", "step", "steps", …}``.
    """

    base: str
    base_revision: str
    algorithm: str
    recipe: Mapping[str, Any]
    seed: int
    parent: int
    id: int = 0
    status: RunStatus = "running"
    train_ids: tuple[int, ...] = ()
    held_out_ids: tuple[int, ...] = ()
    created_at: float = 0.0
    finished_at: float | None = None
    pid: int | None = None
    progress: Mapping[str, Any] = field(default_factory=dict)
    version: int | None = None
    error: str = ""
    stop_at: float | None = None
    """When somebody asked it to stop."""
    interrupted: bool = False
    """Its process is gone, though nobody has ended the run: `clawback train` goes on with it."""
    kind: RunKind = "ratings"

    @property
    def begun(self) -> bool:
        """Whether its inputs are recorded. Nothing of a run that was only prepared can be resumed."""
        return bool(self.recipe)

    @property
    def state(self) -> str:
        """What people are told: the status, or ``interrupted``."""
        return "interrupted" if self.interrupted else self.status


@dataclass(frozen=True, slots=True)
class Version:
    """One numbered policy. v0 is the base model: ``path`` is empty and it can never be deleted."""

    number: int
    status: VersionStatus
    base: str
    base_revision: str = ""
    parent: int | None = None
    run_id: int | None = None
    path: str = ""
    created_at: float = 0.0
    promoted_at: float | None = None
    report: Mapping[str, Any] | None = None
    stale: bool = False
    """True when feedback that this version learned from has since been undone or deleted."""
    prompt: str = ""
    """What is added to the agent's own system prompt while it answers; "" for none."""
    origin: Mapping[str, Any] = field(default_factory=dict)
    """How the prompt came about: ``author``, what was spent, what was left out."""
