"""What a program of its own asks of the policy, as branches of one episode. No torch, no I/O.

An agent program sends whole conversations. Each is a prompt in tokens, and its reply is sampled. A prompt that begins
with all tokens of a branch (what was read and written in it) continues that branch. Any other prompt begins a branch of
its own, in which what earlier replies said is only read: the text was tokenized otherwise than it was sampled, the
history was compacted, or a sub-agent asks. So every sampled token is learned exactly once, in the context that it was
sampled in.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from clawback.records import Branch, Message


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
