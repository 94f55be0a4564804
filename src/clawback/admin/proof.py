"""A model is tried before it is taken: loaded as a run loads it, asked once, and what it said scored as a run scores it."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch

from clawback.errors import ClawbackError, ModelError
from clawback.policy import Policy, load
from clawback.templates import OPENINGS

TOKENS = 8
"""Of the answer that is drawn."""
GAP = 0.1
"""Nats a token by which whoever draws and whoever learns may differ, on average. Rounding in 16 bits makes less of it."""
_QUESTION = "What is an otter?"
_SYSTEM = "Answer in verse."
_TOOL = {"name": "look_up", "description": "Look it up.", "parameters": {"type": "object", "properties": {}}}


@dataclass(frozen=True, slots=True)
class Proof:
    """What was found when a model was tried."""

    architecture: str
    parameters: int
    context: int
    template: bool
    system: bool
    """The template has a place for a system message; else it is put before the question."""
    tools: bool
    """The template has a place for tools; else they are described in words."""
    thinking: str
    """``switched off``, ``always``, or "" for a model that does not think aloud."""
    gap: float
    """Nats a token between the log-probs of whoever draws and those of whoever learns."""

    def sentence(self) -> str:
        parts = ["system messages" if self.system else "system messages before the question"]
        parts += ["tools"] if self.tools else ["tools in words"]
        parts += [f"thinking {self.thinking}"] if self.thinking else []
        template = f"chat template with {', '.join(parts)}" if self.template else "no chat template"
        return f"it loads and answers; {template}"


def prove(base: str, revision: str | None, template_args: Mapping[str, Any], **how: Any) -> Proof:
    """Load a base and try it. ``how``: as for ``engine.load``.

    Raises ``ModelError`` with a sentence for whatever stands in the way: damage, missing weights, a tokenizer or a template that does not work,
    a sampler that cannot draw from it, or draws what is not scored alike; ``TrainingError`` where it does not fit into memory.
    """
    try:
        policy = load(base, revision=revision, **how)
        return tried(policy, template_args)
    except ClawbackError:
        raise
    except Exception as error:  # a model's own code raises whatever it likes
        reason = str(error).strip().split("\n")[0][:300] or type(error).__name__
        raise ModelError(
            f"The model {base} loads, and cannot answer here ({reason}). Choose another model."
        ) from error


def tried(policy: Policy, template_args: Mapping[str, Any]) -> Proof:
    """The same of a policy that is loaded."""
    _check_vocabulary(policy)
    conversation = [{"role": "user", "content": _QUESTION}]
    [[answer]] = policy.generate([conversation], max_tokens=TOKENS, seed=0)
    gap = _gap(policy, conversation, answer)
    base = policy.info.base
    if not math.isfinite(gap):
        raise ModelError(f"The model {base} gives log-probabilities that are no numbers. Fetch it again.")
    if gap > GAP:
        raise ModelError(
            f"The model {base} is drawn from and scored differently here ({gap:.2f} nats a token), so what it learned would not be "
            "what answers. Choose another model, and report this one."
        )
    template = str(getattr(policy.tokenizer, "chat_template", None) or "")
    switch = "enable_thinking" in template or "enable_thinking" in template_args
    return Proof(
        architecture=policy.info.architecture,
        parameters=policy.info.total_parameters,
        context=policy.info.context,
        template=bool(template),
        system=_renders(policy, [{"role": "system", "content": _SYSTEM}, *conversation], _SYSTEM),
        tools=_renders(policy, conversation, _TOOL["name"], tools=[{"type": "function", "function": _TOOL}]),
        thinking="switched off" if switch else "always" if _begins_a_thought(policy, conversation) else "",
        gap=gap,
    )


def _check_vocabulary(policy: Policy) -> None:
    """Raises ``ModelError`` where ordinary words have ids that the model has no embedding of. Added tokens may: most never come up."""
    added = getattr(policy.tokenizer, "added_tokens_decoder", {})
    size = policy.info.vocabulary
    beyond = [
        token
        for token, number in policy.tokenizer.get_vocab().items()
        if number >= size and number not in added
    ]
    if beyond:
        raise ModelError(
            f"The tokenizer of {policy.info.base} is another model's: {len(beyond)} of its tokens ({beyond[0]!r}) are beyond the "
            f"{size} that the model knows. Copy the tokenizer that belongs to the weights."
        )


def _begins_a_thought(policy: Policy, conversation: list[dict[str, str]]) -> bool:
    """Whether the template itself opens a thought where the answer begins."""
    return policy.chat.rendered(conversation).rstrip().endswith(OPENINGS)


def _gap(policy: Policy, conversation: list[dict[str, str]], answer: Any) -> float:
    """Mean difference of the log-probs that were recorded and those that a run would compute."""
    ids, drawn = list(answer.ids), torch.tensor(answer.logprobs)
    if not ids:
        return 0.0
    [scored] = policy.logprobs([conversation], [ids])
    count = min(len(scored), len(drawn))
    return float((scored[:count] - drawn[:count]).abs().mean()) if count else 0.0


def _renders(policy: Policy, messages: list[dict[str, str]], text: Any, **more: Any) -> bool:
    """Whether the template writes this text where a conversation or its tools bring it."""
    if not getattr(policy.tokenizer, "chat_template", None):
        return False
    try:
        rendered = policy.tokenizer.apply_chat_template(messages, tokenize=False, **more)
    except Exception:  # templates raise whatever they like
        return False
    return str(text) in str(rendered)
