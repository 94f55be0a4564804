"""The records that all packages share: plain frozen dataclasses, no I/O, nothing of ours imported.

Here stands what capture stores. ``records.learning`` has the records of runs, episodes, rules and versions; ``clawback.records`` gives them by
the same names, and imports them when one is first used.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, TypeVar, get_args

if TYPE_CHECKING:
    from clawback.records.learning import Branch as Branch
    from clawback.records.learning import Episode as Episode
    from clawback.records.learning import EpisodeStatus as EpisodeStatus
    from clawback.records.learning import EpisodeStep as EpisodeStep
    from clawback.records.learning import Part as Part
    from clawback.records.learning import Rule as Rule
    from clawback.records.learning import RuleStatus as RuleStatus
    from clawback.records.learning import Run as Run
    from clawback.records.learning import RunKind as RunKind
    from clawback.records.learning import RunStatus as RunStatus
    from clawback.records.learning import Sample as Sample
    from clawback.records.learning import Term as Term
    from clawback.records.learning import Version as Version
    from clawback.records.learning import VersionStatus as VersionStatus

Message = Mapping[str, Any]
"""One chat message as OpenAI-style APIs write it: ``{"role": …, "content": …}``."""

Value = TypeVar("Value")
JsonObject = dict[str, Any]
"""What a JSON object is read as, and written from."""

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
GATE = "gate"
"""The agent of turns that the gate puts into the inbox: answers of two versions to prompts that the person has asked already."""
GATE_ANSWERS = 96
"""Fresh answers of each version that the gate compares: six to each of 16 prompts."""
GUARDED_ANSWERS = 48
"""Of these, as many are also read after another prompt and under the candidate, for its guards: a share of 48 has a standard error of 0.07."""
TEACHER = "teacher:"
"""How the source of an edit or a preference begins that stands for a teacher model's answer (``clawback baseline --own``)."""


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
        from clawback.reminders import without_reminders  # a rating needs none of it

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


def text_of(content: object) -> str:
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


def shown_text(content: object) -> str:
    """As ``text_of``, with a mark where a picture stands."""
    if not isinstance(content, (list, tuple)):
        return text_of(content)
    return text_of(
        [{"text": PICTURE} if isinstance(b, Mapping) and b.get("type") == "image_url" else b for b in content]
    )


SYSTEM = ("system", "developer")


def under(messages: Sequence[Message], prompt: str) -> tuple[Message, ...]:
    """A conversation with the prompt after what the agent's own system prompt says: once, however often it is put there.

    At the end of the leading system messages, because what comes before stays as the provider has it in its cache, and some providers look at how the
    agent's own prompt begins.
    """
    if not prompt.strip():
        return tuple(messages)
    head = 0
    while head < len(messages) and messages[head].get("role") in SYSTEM:
        head += 1
    if any(prompt.strip() in text_of(m.get("content")) for m in messages if m.get("role") in SYSTEM):
        return tuple(messages)
    if not head:
        return ({"role": "system", "content": prompt.strip()}, *messages)
    last = messages[head - 1]
    return (
        *messages[: head - 1],
        {**last, "content": with_prompt(last.get("content"), prompt)},
        *messages[head:],
    )


def with_prompt(content: object, prompt: str) -> object:
    """The content of a system message with the prompt at its end: text as text, blocks as one block more."""
    if isinstance(content, (list, tuple)):
        return [*content, {"type": "text", "text": prompt.strip()}]
    own = content.rstrip() if isinstance(content, str) else ""
    return f"{own}\n\n{prompt.strip()}" if own else prompt.strip()


def newest_messages(messages: Sequence[Message], characters: int) -> list[Message]:
    """The newest messages with at most so many characters, calls of tools included. They do not begin within a call."""
    start = len(messages)
    while start and (characters := characters - _characters(messages[start - 1])) >= 0:
        start -= 1
    while 0 < start < len(messages) and messages[start].get("role") == "tool":
        start += 1
    return list(messages[start:])


def _characters(message: Message) -> int:
    calls = message.get("tool_calls")
    return len(str(message.get("content", ""))) + (len(str(calls)) if calls else 0)


_LEARNING = frozenset(
    (
        *("Branch", "Episode", "EpisodeStatus", "EpisodeStep", "Part", "Rule", "RuleStatus"),
        *("Run", "RunKind", "RunStatus", "Sample", "Term", "Version", "VersionStatus"),
    )
)


def with_keys(values: Mapping[str, Value], keys: Mapping[str, str]) -> dict[str, Value]:
    """The mapping with ``keys`` (a key → its new name) renamed: files and the API keep their words where a field has got a better name."""
    return {keys.get(key, key): value for key, value in values.items()}


def __getattr__(name: str) -> object:
    if name not in _LEARNING:
        raise AttributeError(f"module 'clawback.records' has no attribute {name!r}")
    from importlib import import_module

    value = globals()[name] = getattr(import_module("clawback.records.learning"), name)
    return value
