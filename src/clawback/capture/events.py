"""The events that every agent's adapter translates its own events into.

Named tuples, where other records are dataclasses: creating six dataclasses would add 4 ms to every hook. And no ``from __future__
import annotations``: each annotation would be a text, which named tuples compile one by one.
"""

from typing import Any, NamedTuple


class PromptEvent(NamedTuple):
    """The person asked something, or gave a Clawback command (``/rl good``).

    ``text`` is "" for what an agent asks on its own account: such a turn is nobody's.
    """

    session: str
    text: str
    id: str = ""
    """The agent's name for it: the answer to it brings the same one."""
    about: str = ""
    """The message that it replies to, where there is one: a command is then about that one and no other."""
    by: str = ""
    """Who said it, where more than one person may: their last answer is the last one to them, and of their ratings of a turn the
    newest counts."""
    transcript: str = ""
    """Where the agent keeps its own record of the session, in a form that ``transcripts.py`` reads."""
    last: bool = False
    """No answer to an earlier prompt of the session comes any more."""
    ends: bool = False
    """The agent gives up the answer that is under way when this is a command: none comes."""
    delivery: str = ""
    """A name of this very event: one that is brought twice has it twice."""
    notice: bool = False
    """The agent wrote it to itself, about work that the person had asked for before."""
    model: str = ""
    """Which model is asked, where the event says so."""
    size: int = 0
    """How many bytes of the transcript there were when the event came; 0: all that there are now."""
    at: float = 0.0
    """When the event came, where it is taken later than that; 0: now."""

    @property
    def name(self) -> str:
        """Which event it is, also among several that came while the agent was at work; "" where the agent names none."""
        return ":".join(part for part in (self.id, self.delivery) if part)


class AnswerEvent(NamedTuple):
    """The agent's answer to the prompt of that id, shown to the person."""

    session: str
    text: str
    prompt_id: str = ""
    prompt: str | None = None
    """Where the event brings it along; else it is the one that was kept."""
    cwd: str = ""
    model: str = ""
    message: str = ""
    """The agent's name for the message in which it appeared, where reactions can point at it."""
    transcript: str = ""
    """As with a prompt."""
    work: tuple[Any, ...] = ()
    """The messages between prompt and answer (tool calls and their results), where the event brings them."""
    size: int = 0
    at: float = 0.0
    """Both as with a prompt."""
    ending: str = ""
    """Why it ended (``records.Ending``), where the event says so."""
    went_on: bool = False
    """The agent had ended before, and went on because a hook sent its answer back."""
    working: bool = False
    """Tools or sub-agents of it are at work in the background."""


class FailureEvent(NamedTuple):
    """No answer to the prompt of that id will come. ``why`` completes the sentence "its answer …"."""

    session: str
    prompt_id: str
    why: str = "failed"


class DisplayEvent(NamedTuple):
    """A message shows the answer to the prompt of that id: one of several messages, or one known only after the answer was reported."""

    session: str
    prompt_id: str
    message: str


class SideAnswerEvent(NamedTuple):
    """A sub-agent's answer: recorded, never trained on."""

    session: str
    text: str
    id: str = ""
    cwd: str = ""
    transcript: str = ""
    """The record of the session that it belongs to."""


class ReactionEvent(NamedTuple):
    """👍 (+1) or 👎 (−1) on a message; 0 when it was taken away again."""

    session: str
    message: str
    value: int
    by: str
    """Who reacted: one person's newer reaction takes the place of the older."""
    id: str = ""
    at: float = 0.0
    """When it was given or taken away, where the agent says so. ``id`` then names the reaction, the same each time it
    comes and goes, and what is not newer than the last that is known of it changes nothing."""


Event = PromptEvent | AnswerEvent | FailureEvent | DisplayEvent | SideAnswerEvent | ReactionEvent

_FORMER = {
    "Prompt": "PromptEvent",
    "Answer": "AnswerEvent",
    "Failed": "FailureEvent",
    "Shown": "DisplayEvent",
    "SideAnswer": "SideAnswerEvent",
    "Reaction": "ReactionEvent",
}
"""Names until 0.2, which integrations of other packages may import."""


def __getattr__(name: str) -> object:
    from clawback.moved import renamed

    return renamed(__name__, _FORMER, name)
