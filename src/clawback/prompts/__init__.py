"""Prompts as policies: refined, evolved and chosen by the feedback that their answers get.

Where the weights are not yours, what learns is the prompt::

    from clawback.prompts import Budget, Example, Prompt, optimize, reflector, evaluator

    result = optimize(
        Prompt("You are a helpful assistant."),
        [Example.ask("How do I boil an egg?"), …],
        evaluator(model, judge),      # tries a prompt on an example
        reflector(model),             # makes a new prompt of what went wrong
        Budget(calls=100),
    )
    print(result.best, result.before, result.after)

Nothing heavy is imported until a name that needs it is used.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from clawback.prompts.backends import (
        AnthropicBackend,
        BackendError,
        CallableBackend,
        LLMBackend,
        LLMResponse,
        LocalLLMBackend,
        MockLLM,
        OpenAIBackend,
        Price,
        ScriptedLLM,
        Usage,
        VersionBackend,
        as_backend,
    )
    from clawback.prompts.budget import Budget, Plan, Spent
    from clawback.prompts.journal import Journal
    from clawback.prompts.planning import plan
    from clawback.prompts.prompt import Prompt, PromptHistory
    from clawback.prompts.search import Optimizer, Result, Settings, optimize
    from clawback.prompts.sections import Section
    from clawback.prompts.types import Case, Evaluate, Example, Outcome, Proposal, Propose, Request

_WHERE = {
    **dict.fromkeys(
        ("AnthropicBackend", "BackendError", "CallableBackend", "LLMBackend", "LLMResponse"), "backends"
    ),
    **dict.fromkeys(
        ("LocalLLMBackend", "MockLLM", "OpenAIBackend", "Price", "ScriptedLLM", "Usage"), "backends"
    ),
    **dict.fromkeys(("VersionBackend", "as_backend"), "backends"),
    **dict.fromkeys(("Budget", "Plan", "Spent"), "budget"),
    "Journal": "journal",
    "plan": "planning",
    **dict.fromkeys(("Prompt", "PromptHistory"), "prompt"),
    **dict.fromkeys(("Optimizer", "Result", "Settings", "optimize"), "search"),
    "Section": "sections",
    **dict.fromkeys(("Case", "Evaluate", "Example", "Outcome", "Proposal", "Propose", "Request"), "types"),
}

__all__ = [
    "AnthropicBackend",
    "BackendError",
    "Budget",
    "CallableBackend",
    "Case",
    "Evaluate",
    "Example",
    "Journal",
    "LLMBackend",
    "LLMResponse",
    "LocalLLMBackend",
    "MockLLM",
    "OpenAIBackend",
    "Optimizer",
    "Outcome",
    "Plan",
    "Price",
    "Prompt",
    "PromptHistory",
    "Proposal",
    "Propose",
    "Request",
    "Result",
    "ScriptedLLM",
    "Section",
    "Settings",
    "Spent",
    "Usage",
    "VersionBackend",
    "as_backend",
    "optimize",
    "plan",
]


def __getattr__(name: str) -> Any:
    if name not in _WHERE:
        raise AttributeError(f"module 'clawback.prompts' has no attribute {name!r}")
    return getattr(import_module(f"clawback.prompts.{_WHERE[name]}"), name)


def __dir__() -> list[str]:
    return sorted([*globals(), *__all__])
