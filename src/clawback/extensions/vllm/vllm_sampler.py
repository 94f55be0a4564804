"""A ``Sampler`` whose answers are drawn by a vLLM server: fresh answers of a run on ratings, as ``VllmConversations`` draws those of episodes.

An answer follows from its seed over there, and not from the random numbers of the learner: a run draws others
than it would have drawn itself, by the same policy. One answer of each call is scored by the learner, and a
difference in the log-probs ends the run.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING

import torch

from clawback.extensions.vllm.vllm_conversations import VllmConversations
from clawback.extensions.vllm.vllm_server import OwnVllm, RemoteVllm, VllmServer
from clawback.policy import gap
from clawback.sampling import Chance, Sampled, TurnRequest
from clawback.templates import Encoded

if TYPE_CHECKING:
    from clawback.policy import Policy
    from clawback.progress import OnProgress


class VllmSampler:
    """Draws on a vLLM server. It is asked what it serves at the first draw; what was loaded is unloaded with ``close``."""

    def __init__(
        self,
        server: VllmServer | str,
        folder: Path,
        tell: OnProgress = lambda _: None,
    ) -> None:
        """``server``: or the address of one. ``folder``: where adapters are written; vLLM must see it under the same path."""
        self.server: VllmServer = RemoteVllm(server) if isinstance(server, str) else server
        self.folder, self.tell = folder, tell
        self.name = self.server.name
        self.conversations: VllmConversations | None = None
        self.calls, self.gap = 0, 0.0
        """How often it has drawn, and the largest gap so far, nats a token."""

    @torch.no_grad()
    def __call__(
        self,
        policy: Policy,
        prompts: Sequence[Sequence[int]],
        chance: Chance,
        merge: bool,  # noqa: ARG002
    ) -> list[list[Sampled]]:
        """Raises ``HostedError``, and ``TrainingError`` where another model answers."""
        if self.conversations is None:
            self.conversations = VllmConversations(policy, self.server, self.folder, sampling=policy.sampling)
        drawer, (_, samples, tokens) = self.conversations, chance.first.shape
        drawer.sampling = policy.sampling
        drawer.refresh()
        seeds = (chance.first[..., 0] * 2**31).long().tolist()
        turns = [
            TurnRequest((i, k), prompt, seeds[i][k], tokens)
            for i, prompt in enumerate(prompts)
            for k in range(samples)
        ]
        try:
            drawn = drawer.draw(turns)
        finally:
            drawer.rest()
        if turns:
            found = gap(policy, turns[0].ids, drawn[0].ids, drawn[0].logprobs, self.server.name)
            if not self.calls:
                text = f"Answers are drawn by {self.server.name}, whose log-probs differ by {found:.3f} nats a token from the learner's"
                self.tell({"phase": "reward", "note": text})
            self.calls, self.gap = self.calls + 1, max(self.gap, found)
        if policy.sampling.truncates:
            drawn = _untruncated(policy, turns, drawn)
        return [drawn[start : start + samples] for start in range(0, len(drawn), samples)]

    def report_to(self, tell: OnProgress) -> None:
        """Who is told of what happens from here on."""
        self.tell = tell
        if isinstance(self.server, OwnVllm):
            self.server.tell = tell

    def close(self) -> None:
        if self.conversations is not None:
            self.conversations.close()
        self.server.close()

    def __enter__(self) -> VllmSampler:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def _untruncated(policy: Policy, turns: Sequence[TurnRequest], samples: Sequence[Sampled]) -> list[Sampled]:
    """The same answers with log-probs of the tempered distribution alone, which is what learns; vLLM tells those of what is left of it by top-p and top-k."""
    answers = [Encoded(tuple(turn.ids), one.ids) for turn, one in zip(turns, samples, strict=True)]
    own = policy.scorer(answers).split()
    return [
        Sampled(one.ids, tuple(values.tolist()), one.finished)
        for one, values in zip(samples, own, strict=True)
    ]
