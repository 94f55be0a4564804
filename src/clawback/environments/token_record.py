"""What a policy read and wrote in an episode, token by token, with what each reply brought."""

from __future__ import annotations

import time
from dataclasses import replace
from typing import TYPE_CHECKING

from clawback.environments.core import UNDELIVERED, ConversationRequest, EnvironmentFailure, Observation, Step
from clawback.environments.program_dialogue import ProgramDialogue
from clawback.environments.tools.calls import in_words
from clawback.records import Episode, EpisodeStep, Message

if TYPE_CHECKING:
    from collections.abc import Hashable, Sequence

    from clawback.environments.conversations import TurnRequest
    from clawback.environments.dialogue import Dialogue
    from clawback.environments.episode_loop import Ending, Order
    from clawback.policy import Policy
    from clawback.sampling import Sampled


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
        from clawback.environments.dialogue import Dialogue

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
        from clawback.environments.conversations import TurnRequest

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
