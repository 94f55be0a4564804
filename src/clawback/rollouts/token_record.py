"""What a policy read and wrote in an episode, token by token: a growing conversation, and what each reply brought.

Sampled tokens are kept as they were sampled, and only new text is rendered.

Before each reply the template renders the conversation with a mark in place of the last reply. If the
rendered text begins with what the policy read before that reply, followed by the mark, then only what follows
the mark is new: it is tokenized by itself and appended to the sampled ids. (A template may render a reply
otherwise than the policy read it, without trailing spaces for instance: then what it rendered before that
reply is compared.) Otherwise (messages were cut off or changed, a template drops old thoughts, or the end
token that was drawn is not the template's) the old tokens would not be those of this conversation: a new
branch begins.

Of a model that sees, each reply to a conversation with pictures has a branch of its own, as its processor makes tokens of
the whole.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from clawback.environments.core import UNDELIVERED, ConversationRequest, EnvironmentFailure, Observation, Step
from clawback.environments.tools.calls import in_words
from clawback.pictures import pictures
from clawback.records import Branch, Episode, EpisodeStep, Message
from clawback.rollouts.program_dialogue import ProgramDialogue

if TYPE_CHECKING:
    from collections.abc import Hashable

    from clawback.environments.episode_loop import Ending, Order
    from clawback.policy import Policy
    from clawback.sampling import Sampled, TurnRequest
    from clawback.templates import Chat, Pixels


MARK = "zebra-7c21-quagga"
"""Stands for a reply while the template is looked at. No template strips or changes it."""


@dataclass
class _Growing:
    ids: list[int] = field(default_factory=list)
    mask: list[bool] = field(default_factory=list)
    logprobs: list[float] = field(default_factory=list)
    pictures: tuple[str, ...] = ()

    def read(self, ids: Sequence[int]) -> None:
        self.ids += ids
        self.mask += [False] * len(ids)
        self.logprobs += [0.0] * len(ids)

    def wrote(self, ids: Sequence[int], logprobs: Sequence[float]) -> None:
        self.ids += ids
        self.mask += [True] * len(ids)
        self.logprobs += logprobs


class Dialogue:
    """``prompt``, ``wrote``, ``heard``, and again. ``messages`` is what was said so far."""

    def __init__(self, chat: Chat, messages: Sequence[Message], *, max_prompt: int) -> None:
        """``max_prompt``: tokens that the policy may be shown; beyond it the oldest messages go (``Chat.prompt``)."""
        self.chat, self.max_prompt = chat, max_prompt
        self.messages: list[Message] = list(messages)
        self.pixels: Pixels | None = None
        """What the policy sees beside ``prompt``."""
        self.cut = 0
        """How often the history had to be cut to fit."""
        self._branches: list[_Growing] = []
        self._read = ""
        """The text that the policy read before its last reply; "" where the next request begins a branch."""
        self._then: list[Message] = []
        """The messages that it read them as."""
        self._reply = -1
        """Where the last reply stands among the messages."""
        self._ended = False

    @property
    def branches(self) -> tuple[Branch, ...]:
        return tuple(
            Branch(tuple(b.ids), tuple(b.mask), tuple(b.logprobs), b.pictures) for b in self._branches
        )

    @property
    def branch(self) -> int:
        """The number of the branch that the next reply is written in, once ``prompt`` has been asked for."""
        return len(self._branches) - 1

    def prompt(self) -> list[int]:
        """All that the next reply follows. Asks for ``pixels``, too."""
        if self._look():
            return list(self._branches[-1].ids)
        new = self._new()
        if new is None or len(self._branches[-1].ids) + len(new) > self.max_prompt:
            whole = self.chat.rendered(self.messages)
            ids = self.chat.tokens(whole)
            short = len(ids) > self.max_prompt
            if short or self.chat.system:
                ids = self.chat.prompt(self.messages, self.max_prompt)
            self.cut += short
            self._branches.append(_Growing())
            self._branches[-1].read(ids)
            self._read = "" if short else whole  # what was cut today is cut elsewhere tomorrow
        else:
            self._branches[-1].read(new)
        self._then = list(self.messages)
        return list(self._branches[-1].ids)

    def _look(self) -> bool:
        """Begin a branch with what the policy sees; False where there is nothing to be seen."""
        self.pixels = None
        if self.chat.eyes is not None and any(pictures(m.get("content")) for m in self.messages):
            ids, self.pixels = self.chat.looked(self.messages, self.max_prompt)
            if self.pixels is not None:
                self._branches.append(_Growing(pictures=self.pixels.pictures))
                self._branches[-1].read(ids)
                self._read = ""
        return self.pixels is not None

    def _new(self) -> list[int] | None:
        """Tokens of what came after the last reply, which ``_read`` then ends with; None where the past is not what it was."""
        if not self._read or self._reply < 0:
            return None
        reply = self.messages[self._reply]
        marked = [*self.messages]
        marked[self._reply] = {**reply, "content": MARK}
        text = self.chat.rendered(marked)
        begun = self._read
        if not text.startswith(begun + MARK):
            begun = self.chat.rendered(self._then)
        if not text.startswith(begun + MARK):
            return None
        rest = text[len(begun) + len(MARK) :]
        new = [int(t) for t in self.chat.tokenizer.encode(rest, add_special_tokens=False)]
        if self._ended:
            # What ends the reply was sampled with it.
            if not new or new[0] != self._branches[-1].ids[-1]:
                return None
            new = new[1:]
        self._read = begun + str(reply["content"]) + rest
        return new

    def wrote(self, ids: Sequence[int], logprobs: Sequence[float], ended: bool) -> tuple[int, int, str]:
        """The reply to ``prompt``. Where it stands in the branch, and its text."""
        branch = self._branches[-1]
        start = len(branch.ids)
        thought, text = self.chat.text(branch.ids[-64:], ids)
        branch.wrote(ids, logprobs)
        self._reply, self._ended = len(self.messages), ended
        self.messages.append({"role": "assistant", "content": text})
        if thought:  # the template will not show it again
            self._read = ""
        return start, len(branch.ids), text

    def observe(self, messages: Sequence[Message]) -> None:
        """What was answered to the last reply."""
        self.messages += messages


class TokenRecord:
    """A ``Record`` of an episode loop: ``open``, then ``turn``, ``write`` and ``hear`` for each reply; ``episode`` at the end."""

    def __init__(self, policy: Policy, max_tokens: int, penalty: float) -> None:
        """``max_tokens``: of a reply. ``penalty``: what a reply costs that the environment could not read."""
        self.policy, self.max_tokens, self.penalty = policy, max_tokens, penalty
        self.dialogue: Dialogue | ProgramDialogue | None = None
        self.steps: list[EpisodeStep] = []

    def begin(self) -> None:
        self.dialogue, self.steps = None, []

    def open(self, observation: Observation) -> None:

        if observation.request is not None:
            self.dialogue = ProgramDialogue(self.policy)
            self.dialogue.request(observation.request)
            return
        room = self.policy.info.context - self.max_tokens
        self.dialogue = Dialogue(
            self.policy.chat,
            in_words(observation.messages, observation.tools),
            max_prompt=max(16, min(self.policy.max_prompt, room)),
        )

    @property
    def messages(self) -> list[Message]:
        return self.dialogue.messages if self.dialogue else []

    def show(self, messages: Sequence[Message]) -> None:
        """What the policy reads before its next reply."""
        assert self.dialogue is not None
        self.dialogue.observe(in_words(messages, ()))

    def turn(self, key: Hashable, seed: int) -> TurnRequest:
        """The next reply, to be drawn."""
        from clawback.sampling import TurnRequest

        assert self.dialogue is not None
        prompt, most = self.dialogue.prompt(), self.max_tokens
        if isinstance(self.dialogue, ProgramDialogue):
            most = self.dialogue.most_tokens(most)
        return TurnRequest(key, prompt, seed, most, self.dialogue.pixels)

    def write(self, reply: Sampled, update: int) -> Message:
        """The reply that was drawn, as a message. ``update``: how often the weights had changed."""
        assert self.dialogue is not None
        branch = self.dialogue.branch
        start, end, _ = self.dialogue.wrote(reply.ids, reply.logprobs, reply.finished)
        self.steps.append(EpisodeStep(branch, start, end, update=update, ended=reply.finished))
        return self.dialogue.messages[-1]

    def hear(self, step: Step) -> None:
        self.show(step.messages)
        if step.info.get(UNDELIVERED):
            self._retract(step)
        else:
            self.note(step.reward, bool(step.info.get("unparsable")))
        if step.request is not None and not step.done:
            self._request(step.request)

    def note(self, reward: float | None, unparsable: bool) -> None:
        """What the last reply brought, and whether it could be read."""
        penalty = -abs(self.penalty) if unparsable else 0.0
        self.steps[-1] = replace(self.steps[-1], reward=reward, unparsable=unparsable, penalty=penalty)

    def _retract(self, step: Step) -> None:
        """Nothing is learned from a reply that nobody has read; a reward goes to the last one that was. Raises ``EnvironmentFailure`` where none was."""
        assert isinstance(self.dialogue, ProgramDialogue)
        self.dialogue.retract(self.steps.pop().start)
        if step.done and not self.steps:
            raise EnvironmentFailure("the program left before any reply had reached it")
        if step.reward is not None and self.steps:
            self.note(step.reward, False)

    def _request(self, request: ConversationRequest) -> None:
        assert isinstance(self.dialogue, ProgramDialogue)
        self.dialogue.request(request)

    def episode(
        self,
        environment: str,
        order: Order,
        ending: Ending,
    ) -> Episode:
        """All of it. One that failed has its messages, and nothing to learn from."""
        complete = ending.status != "failed" and self.dialogue is not None
        return Episode(
            environment=environment,
            task=order.task.id,
            seed=order.seed,
            messages=tuple(self.messages),
            branches=self.dialogue.branches if complete and self.dialogue else (),
            steps=tuple(self.steps) if complete else (),
            status=ending.status,
            stop_reason=ending.reason,
            number=order.number,
            group=order.group,
            split=order.split,
            created_at=time.time(),
        )
