"""The dialogue of an episode that a program of its own leads, as branches of one episode. No torch, no I/O.

An agent program sends whole conversations. Each is a prompt in tokens, and its reply is sampled. A prompt that begins
with all tokens of a branch (what was read and written in it) continues that branch. Any other prompt begins a branch of
its own, in which earlier replies are only read: the text was tokenized otherwise than it was sampled, the
history was compacted, or a sub-agent asks. So every sampled token is learned exactly once, in the context that it was
sampled in.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from clawback.environments.core import ConversationRequest, EnvironmentFailure
from clawback.records import Branch, Episode, Message

if TYPE_CHECKING:
    from clawback.policy import Policy


@dataclass
class _Growing:
    ids: list[int] = field(default_factory=list)
    mask: list[bool] = field(default_factory=list)
    logprobs: list[float] = field(default_factory=list)

    def add(self, ids: Sequence[int], logprobs: Sequence[float] | None) -> None:
        """``logprobs``: None for what is read."""
        self.ids += ids
        self.mask += [logprobs is not None] * len(ids)
        self.logprobs += logprobs if logprobs is not None else [0.0] * len(ids)

    def cut(self, start: int) -> None:
        """Keep what is before that place."""
        del self.ids[start:], self.mask[start:], self.logprobs[start:]


class EpisodeBranches:
    """``read`` a prompt, ``write`` its reply, and again."""

    def __init__(self) -> None:
        self._branches: list[_Growing] = []
        self.current = -1
        """The branch that the newest prompt is in."""

    def read(self, prompt: Sequence[int]) -> int:
        """The branch that this prompt continues, the longest where there are several, or a new one; the reply to it is written there."""
        known = [
            place
            for place, branch in enumerate(self._branches)
            if len(branch.ids) <= len(prompt) and list(prompt[: len(branch.ids)]) == branch.ids
        ]
        self.current = max(
            known, key=lambda place: len(self._branches[place].ids), default=len(self._branches)
        )
        if self.current == len(self._branches):
            self._branches.append(_Growing())
        branch = self._branches[self.current]
        branch.add(prompt[len(branch.ids) :], None)
        return self.current

    def write(self, ids: Sequence[int], logprobs: Sequence[float]) -> tuple[int, int]:
        """The reply to the newest prompt; where it stands in its branch."""
        branch = self._branches[self.current]
        start = len(branch.ids)
        branch.add(ids, logprobs)
        return start, len(branch.ids)

    def retract(self, start: int) -> None:
        """Take the newest reply, which begins at ``start`` of its branch, out again."""
        self._branches[self.current].cut(start)

    @property
    def branches(self) -> tuple[Branch, ...]:
        return tuple(Branch(tuple(b.ids), tuple(b.mask), tuple(b.logprobs)) for b in self._branches)


def unheard(conversation: Sequence[Message], previous: Sequence[Message]) -> list[Message]:
    """The messages of a request that the requests before it did not have, without replies of the policy: those are known."""
    same = 0
    while same < min(len(conversation), len(previous)) and conversation[same] == previous[same]:
        same += 1
    return [message for message in conversation[same:] if message.get("role") != "assistant"]


REQUEST_TOKENS = "request_tokens"
"""Key of a reply's message whose request was longer than what the policy was shown: all of its tokens."""
GROWTH, BLOCK = 1.5, 1024
"""A program's later requests are longer than its first ones: how much longer a prompt a person is told to allow, in blocks of tokens."""


class ProgramDialogue:
    """As ``rollouts.token_record.Dialogue``, for ``rollouts.Rollouts``."""

    pixels = None

    def __init__(self, policy: Policy) -> None:
        self.policy = policy
        self.messages: list[Message] = []
        """What is shown to people: what was new in each request, and the replies."""
        self._branches = EpisodeBranches()
        self._request: ConversationRequest | None = None
        self._previous: Sequence[Message] = ()
        self._prompt: list[int] = []
        self._length = 0

    @property
    def branches(self) -> tuple[Branch, ...]:
        return self._branches.branches

    @property
    def branch(self) -> int:
        """The branch that the next reply is written in, once ``prompt`` has been asked for."""
        return self._branches.current

    def request(self, request: ConversationRequest) -> None:
        """What the program asks next. Raises ``EnvironmentFailure`` where it does not fit, and whatever its encoding raises."""
        ids, length = request.encode(self.policy)
        self._prompt, self._length = list(ids), length
        if not 0 < len(self._prompt) < self.policy.info.context:
            raise EnvironmentFailure(
                f"the program's request has {len(self._prompt)} tokens; {self.policy.info.base} reads {self.policy.info.context}"
            )
        self.messages += unheard(request.messages, self._previous)
        self._request, self._previous = request, request.messages

    def observe(self, messages: Sequence[Message]) -> None:
        """What ends the episode has no answer."""

    def prompt(self) -> list[int]:
        """The tokens of the newest request, as the server that answers would read it."""
        self._branches.read(self._prompt)
        return self._prompt

    def most_tokens(self, wanted: int) -> int:
        """Of the next reply: as many as the program allows and there is room for."""
        assert self._request is not None
        room = self.policy.info.context - len(self._prompt)
        return max(1, min(wanted, self._request.max_tokens or wanted, room))

    def wrote(self, ids: Sequence[int], logprobs: Sequence[float], ended: bool) -> tuple[int, int, str]:
        """The reply to ``prompt``. Where it stands in its branch, and its text."""
        _, text = self.policy.chat.text(self._prompt, ids)
        start, end = self._branches.write(ids, logprobs)
        marks = {REQUEST_TOKENS: self._length} if self._length > len(self._prompt) else {}
        self.messages.append(
            {"role": "assistant", "content": text, **marks, **({} if ended else {"cut": True})}
        )
        return start, end, text

    def retract(self, start: int) -> None:
        """Take the newest reply, which begins at ``start`` of its branch, out again: nobody has read it."""
        self._branches.retract(start)
        self.messages.pop()


def cut_notice(policy: Policy, episodes: Sequence[Episode]) -> str:
    """A sentence where the requests of programs did not fit into what the policy reads, with what to set; "" elsewhere."""
    replies = [m for e in episodes for m in e.messages if m.get("role") == "assistant"]
    lengths = [int(m[REQUEST_TOKENS]) for m in replies if m.get(REQUEST_TOKENS)]
    if not lengths:
        return ""
    base, longest, most = policy.info.base, max(lengths), policy.info.context * 3 // 4
    wanted = min(most, BLOCK * math.ceil(GROWTH * longest / BLOCK))
    cure = (
        f"Let it read them: `clawback config set generation.max_prompt {wanted}`. Time and memory grow with it."
        if longest <= most
        else f"{base} can be shown {most:,} at most: take a base with a context of {BLOCK * math.ceil(longest * 4 / 3 / BLOCK):,} tokens or more."
    )
    return (
        f"{len(lengths)} of {len(replies)} requests of the program were cut: they have up to {longest:,} tokens, and {base} is shown {policy.max_prompt:,}, "
        f"so the program's own instructions and tools are left out. {cure}"
    )
