"""The records that all packages share: plain frozen dataclasses, no I/O, nothing of ours imported."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

Message = Mapping[str, Any]
"""One chat message as OpenAI-style APIs write it: ``{"role": …, "content": …}``."""

TurnKind = Literal["main", "side"]
FeedbackKind = Literal["rating", "preference", "edit", "critique", "implicit", "judge", "reward"]
VersionStatus = Literal["candidate", "live", "retired", "rejected"]
RunStatus = Literal["running", "done", "failed", "stopped"]
GATE = "gate"
"""The agent of turns that the gate puts into the inbox: answers of two versions to prompts that the person has asked already."""
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


@dataclass(frozen=True, slots=True)
class Feedback:
    """One observation about a turn. ``value`` is in [-1, 1]; text carries an edit, a critique or a note."""

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
    response_mask: tuple[bool, ...] | None = None
    """Which of ``response_ids`` the policy wrote itself. The others (what a tool put in between) are read, not learned."""
    terms: tuple[Term, ...] = ()
    """Where the reward adds up from more than feedback: from what (``rewards/terms.py``)."""

    @property
    def said(self) -> float:
        """What feedback alone makes of it, in [-1, 1]."""
        return next((2 * term.value - 1 for term in self.terms if term.name == "feedback"), self.reward)

    @property
    def rated(self) -> bool:
        """False where words are all there is: the reward is then no opinion."""
        return bool(self.parts) or not self.hints


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


_TO_THE_END = ("system-reminder", "environment_context", "user_instructions", "permissions")
_CLOSED = (
    "local-command-caveat", "local-command-stdout", "local-command-stderr", "command-name", "command-message", "command-args",
    "bash-input", "bash-stdout", "bash-stderr", "task-notification", "turn_aborted", "subagent_notification",
    "ide_opened_file", "ide_selection",
)  # fmt: skip
"""What Claude Code and Codex put into the user's messages between tags. The former also where nothing closes them."""
_INTERRUPTED = ("[Request interrupted by user]", "[Request interrupted by user for tool use]")
_STEERED = "The user sent a new message while you were working:\n"
_STEERED_ENDS = ("\n\nThis is how Claude Code surfaces", "\n\nIMPORTANT: After completing your current task")
"""Around what the person wrote while the agent was at work; a line that begins so is the agent's, to its end."""
_INSTRUCTIONS = ("# AGENTS.md instructions", "</INSTRUCTIONS>")


def without_reminders(text: str) -> str:
    """What the person wrote: a message without what their agent added ("" where it was nothing else). Linear in the text's length."""
    if "<" in text or _INSTRUCTIONS[0] in text:
        text = _without_tags(text)
    if _STEERED in text:
        text = _without_steering(text)
    if "[Request interrupted" in text:
        text = "\n".join(line for line in text.split("\n") if line.strip() not in _INTERRUPTED).strip()
    return text


def _without_tags(text: str) -> str:
    kept: list[str] = []
    unclosed: set[str] = set()  # names that nothing closes from here on: looked for once
    tag, at = re.compile(_TAG), 0
    while found := tag.search(text, at):
        name = found[1]
        if name is None:
            opens, close = found.start(), text.find(_INSTRUCTIONS[1], found.end())
        else:
            opens = found.start()
            close = -1 if name in unclosed else text.find(f"</{name}", found.end())
        if close < 0 and name in _CLOSED:
            unclosed.add(name)
            kept.append(text[at : found.end()])
            at = found.end()
            continue
        kept.append(text[at:opens])
        end = text.find(">", close) + 1 if close >= 0 else len(text)
        at = end or len(text)
    return "".join([*kept, text[at:]]).strip()


_TAG = rf"<({'|'.join((*_TO_THE_END, *_CLOSED))})\b[^<>]{{0,200}}>|{_INSTRUCTIONS[0]}"
"""Compiled when first needed: hooks start often."""


def _without_steering(text: str) -> str:
    first, *said = text.split(_STEERED)
    kept = [first]
    for piece in said:
        ends = [place for mark in _STEERED_ENDS if (place := piece.find(mark)) >= 0]
        line = piece.find("\n", min(ends) + 2) if ends else -1
        kept.append(piece[: min(ends)] + (piece[line:] if line >= 0 else "") if ends else piece)
    return "\n".join(part.strip() for part in kept if part.strip())


_THOUGHTS = (
    r"\s*(?:<think>(?P<a>.*?)(?:</think>|\Z)|\[THINK\](?P<b>.*?)(?:\[/THINK\]|\Z)"
    r"|<\|channel\|>analysis<\|message\|>(?P<c>.*?)(?:<\|end\|>)?"
    r"(?:(?:<\|start\|>assistant)?<\|channel\|>final<\|message\|>|\Z))\s*"
)
"""What reasoning models put before an answer: Qwen 3 and DeepSeek R1, Magistral, gpt-oss."""


def split_thinking(text: str) -> tuple[str, str]:
    """What a model thought, and what it answered. Text that begins with no such mark is all answer; where the end mark is
    missing all of it is thought.

    >>> split_thinking("<think>Easy.</think>\\n\\nFour.")
    ('Easy.', 'Four.')
    >>> split_thinking("Say </think> aloud.")
    ('', 'Say </think> aloud.')
    """
    if not text.lstrip()[:16].startswith(("<think>", "[THINK]", "<|channel|>")):
        return "", text
    found = re.match(_THOUGHTS, text, re.DOTALL)
    if found is None:
        return "", text
    thought = next((part for part in found.groups() if part is not None), "")
    return thought.strip(), text[found.end() :]


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
