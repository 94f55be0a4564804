"""The records that all packages share: plain frozen dataclasses, no I/O, nothing of ours imported but how a person's words are found."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, get_args

from clawback.reminders import without_reminders

Message = Mapping[str, Any]
"""One chat message as OpenAI-style APIs write it: ``{"role": …, "content": …}``."""

TurnKind = Literal["main", "side"]
FeedbackKind = Literal["rating", "preference", "edit", "critique", "implicit", "judge", "reward"]
FEEDBACK_KINDS: tuple[str, ...] = get_args(FeedbackKind)
KIND_WORDS = {"critique": "remark"}
"""What people read, where a kind of feedback has another name in the store and the API."""
Ending = Literal[
    "", "done", "stop", "length", "filter", "refusal", "pause", "error", "incomplete", "interrupted"
]
"""Why an answer ended. "": not known, and treated as ``done``. ``done``: the model ended it. ``stop``: a stop string did, so that the
text is complete and has no end token. The others were cut: at a limit of length, by a filter, by a provider's refusal, at a pause that a
further request goes on from, by an error, because the connection broke, or because the person or their client stopped it."""
CUT: frozenset[Ending] = frozenset(
    ("length", "filter", "refusal", "pause", "error", "incomplete", "interrupted")
)
"""Endings of answers that are not complete: they can be rated, and are never learned as complete ones."""
UNLEARNED: frozenset[Ending] = frozenset(("filter", "refusal", "error", "incomplete"))
"""Endings of answers that are not learned from at all: something else than the model or the person broke them off."""
OWN_MODELS = frozenset(("clawback", "clawback-base", "local"))
"""Names of the live version and its base, as our server and ``--api local`` give them; so do names that begin with ``clawback/``."""
VersionStatus = Literal["candidate", "live", "retired", "rejected"]
RunStatus = Literal["preparing", "running", "done", "failed", "stopped"]
RunKind = Literal["ratings", "episodes", "prompt", "federated", "adopted"]
"""What a run makes its version from: ratings, episodes of an environment, a search for a prompt, the changes of a
federation's members, or an adapter that was trained elsewhere."""
"""``preparing``: somebody has asked for it, and a process loads the model or measures the machine; nothing was learned yet."""
GATE = "gate"
"""The agent of turns that the gate puts into the inbox: answers of two versions to prompts that the person has asked already."""
TEACHER = "teacher:"
"""How the source of an edit or a preference begins that stands for a teacher model's answer (``clawback baseline --own``)."""
EpisodeStatus = Literal["completed", "truncated", "failed", "aborted"]
"""``completed``: the world ended it. ``truncated``: a limit did. ``failed``: the world broke, so there is no reward. ``aborted``: we stopped it."""


@dataclass(frozen=True, slots=True)
class Turn:
    """One model response and the messages that led to it.

    ``id`` is 0 until the store has given one. ``event_id`` names the outside event that brought the turn
    (the same event twice is one turn). ``version`` is the number of the policy that answered, if it was ours.
    ``response_ids`` and ``response_logprobs`` are what the embedded engine sampled, token by token.
    """

    session: str
    messages: tuple[Message, ...]
    response: str
    id: int = 0
    agent: str = "api"
    kind: TurnKind = "main"
    model: str = ""
    version: int | None = None
    cwd: str = ""
    event_id: str = ""
    created_at: float = 0.0
    response_ids: tuple[int, ...] | None = None
    response_logprobs: tuple[float, ...] | None = None
    calls: tuple[Message, ...] = ()
    """Tools that the response calls: ``{"id", "name", "arguments"}``."""
    next_state: tuple[Message, ...] = ()
    """What came back: the messages of the user, a tool or the environment that the next request brought."""
    vouched: bool = True
    """False: it came to our server without the token, and no hook has told of it. Anybody on this machine may have sent it."""
    consent: Literal["", "yes", "no"] = ""
    """Whether whoever it is from agreed that it is learned from: ``no`` is kept to look at and never trained on; "" where nobody asked."""
    licence: str = ""
    """Under which an imported turn came."""
    thinking: str = ""
    """What the model thought before it answered, as text. It is no part of ``response``; the tokens of it, if we sampled them, are the first
    of ``response_ids``."""
    ending: Ending = ""
    """Why the response ended."""

    @property
    def cut(self) -> bool:
        """Whether the response is not complete."""
        return self.ending in CUT

    @property
    def trainable(self) -> bool:
        """Whether anything may be learned from it: of the person's own conversation, and nobody has said no."""
        return self.kind == "main" and self.consent != "no"

    @property
    def prompt(self) -> str:
        """The last thing the user said, as text, without what their agent put in ("" when there is none)."""
        for message in reversed(self.messages):
            if message.get("role") == "user" and (
                text := without_reminders(shown_text(message.get("content")))
            ):
                return text
        return ""


@dataclass(frozen=True, slots=True)
class Session:
    """A conversation, and how many turns of each kind it has. ``reward``: mean of its rated turns, None for none."""

    name: str
    agent: str
    cwd: str
    created_at: float
    done_at: float | None
    main: int
    side: int
    rated: int
    reward: float | None


OWNER = "owner"
"""The person whose home it is: everything that the owner says, in a terminal, on the page or in an agent, is one person's word."""
MACHINE_KINDS = ("judge", "implicit", "reward")
"""Kinds of feedback that no person gives."""


def person_of(source: str, kind: str = "rating") -> str:
    """The person behind a source where nobody has named one.

    ``rater:anna`` and ``slack:U012`` name somebody, and so do machines (``judge:MODEL``). The terminal, the page, agents, MCP clients and files
    are surfaces: what comes through them is the owner's opinion.

    >>> person_of("claude-code"), person_of("rater:anna"), person_of("asked-again", "implicit")
    ('owner', 'rater:anna', 'asked-again')
    """
    return source if ":" in source or kind in MACHINE_KINDS else OWNER


@dataclass(frozen=True, slots=True)
class Feedback:
    """One observation about a turn. ``value`` is in [-1, 1]; text carries an edit, a critique or a note.

    ``source`` is the surface through which it came; ``person`` is who gave it ("" until the store has it: see ``author``). ``score`` is what the
    person wrote where they gave one on a ``scale`` ("1-10"); ``value`` is then the score with the middle of the scale at 0.
    """

    turn_id: int
    kind: FeedbackKind
    value: float = 0.0
    text: str = ""
    other_turn_id: int | None = None
    source: str = "cli"
    event_id: str = ""
    id: int = 0
    created_at: float = 0.0
    undone_at: float | None = None
    person: str = ""
    score: float | None = None
    scale: str = ""

    @property
    def author(self) -> str:
        """The person (or the machine) that it is from."""
        return self.person or person_of(self.source, self.kind)

    @property
    def moment(self) -> tuple[float, int]:
        """Orders what is said of a turn: by when it was said, not by when it was stored."""
        return (self.created_at, self.id)


BETTER = "A better answer would have been:"
"""What stands before an edit when it is a hint: that is an answer, and no remark about one."""


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
    def said(self) -> float:
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


def text_of(content: Any) -> str:
    """The text of a message's content: a string, or a list of blocks of which the text ones count."""
    if isinstance(content, str):
        return content
    if isinstance(content, (list, tuple)):
        texts = (
            b.get("text", "") for b in content if isinstance(b, Mapping) and b.get("type", "text") == "text"
        )
        return "\n".join(t for t in texts if isinstance(t, str))
    return ""


PICTURE = "[image]"
"""Stands in a text where the message has a picture."""


def shown_text(content: Any) -> str:
    """As ``text_of``, with a mark where a picture stands."""
    if not isinstance(content, (list, tuple)):
        return text_of(content)
    return text_of(
        [{"text": PICTURE} if isinstance(b, Mapping) and b.get("type") == "image_url" else b for b in content]
    )
