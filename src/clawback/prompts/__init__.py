"""Prompt learning: prompts are policies, refined, evolved and chosen by the feedback on their answers.

Where the weights are not yours, the prompt is trained instead::

    from clawback.prompts import Budget, Example, Prompt, optimize, reflector, evaluator

    result = optimize(
        Prompt("You are a helpful assistant."),
        [Example.ask("How do I boil an egg?"), …],
        evaluator(model, judge),      # tries a prompt on an example
        reflector(model),             # makes a new prompt of what went wrong
        Budget(calls=100),
    )
    print(result.best, result.first_score, result.best_score)

Nothing heavy is imported until a name that needs it is used.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from clawback import installed, moved, plugins
from clawback.errors import MissingExtra

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
    from clawback.prompts.evaluation import contains, evaluator, exact_match
    from clawback.prompts.prompt import Prompt, PromptHistory, PromptSection
    from clawback.prompts.prompt_guards import objections
    from clawback.prompts.search.genome import PromptGenome, crossover_genomes, guided_mutation, mutate_genome
    from clawback.prompts.search.ledger import Budget, BudgetPlan, Journal, SearchCost, plan
    from clawback.prompts.search.optimize import (
        Optimizer,
        PromptSearchResult,
        SearchSettings,
        engine,
        optimize,
    )
    from clawback.prompts.search.reflection import reflector
    from clawback.prompts.search.remark_templates import from_remarks
    from clawback.prompts.search_types import (
        Case,
        Evaluate,
        Example,
        Outcome,
        Proposal,
        ProposalRequest,
        Propose,
    )

_WHERE = {
    **dict.fromkeys(
        (
            "AnthropicBackend",
            "BackendError",
            "CallableBackend",
            "LLMBackend",
            "LLMResponse",
            "LocalLLMBackend",
            "MockLLM",
            "OpenAIBackend",
            "Price",
            "ScriptedLLM",
            "Usage",
            "VersionBackend",
            "as_backend",
        ),
        "backends",
    ),
    **dict.fromkeys(("Budget", "BudgetPlan", "SearchCost"), "search.ledger"),
    **dict.fromkeys(("engine",), "search.optimize"),
    **dict.fromkeys(("contains", "evaluator", "exact_match"), "evaluation"),
    **dict.fromkeys(
        ("PromptGenome", "crossover_genomes", "guided_mutation", "mutate_genome"), "search.genome"
    ),
    **dict.fromkeys(("objections",), "prompt_guards"),
    **dict.fromkeys(("Journal",), "search.ledger"),
    **dict.fromkeys(("plan",), "search.ledger"),
    **dict.fromkeys(("Prompt", "PromptHistory"), "prompt"),
    **dict.fromkeys(("reflector",), "search.reflection"),
    **dict.fromkeys(("Optimizer", "PromptSearchResult", "SearchSettings", "optimize"), "search.optimize"),
    **dict.fromkeys(("PromptSection",), "prompt"),
    **dict.fromkeys(("from_remarks",), "search.remark_templates"),
    **dict.fromkeys(
        ("Case", "Evaluate", "Example", "Outcome", "Proposal", "Propose", "ProposalRequest"), "search_types"
    ),
}

__all__ = [
    "ActorCriticParams",
    "Agreement",
    "AnthropicBackend",
    "BackendError",
    "Budget",
    "BudgetPlan",
    "CallableBackend",
    "CandidateResponse",
    "Case",
    "ConstantCritic",
    "Critic",
    "Evaluate",
    "EvolutionaryParams",
    "Example",
    "FeedbackAggregator",
    "FlowStepResult",
    "GPROOptimizer",
    "HumanFeedbackCollector",
    "HumanFeedbackResult",
    "HybridOptimizationFlow",
    "HybridReward",
    "Individual",
    "Journal",
    "LLMBackend",
    "LLMResponse",
    "LocalLLMBackend",
    "MockCritic",
    "MockLLM",
    "NoFeedback",
    "OpenAIBackend",
    "Optimizer",
    "Outcome",
    "Population",
    "Price",
    "Prompt",
    "PromptActor",
    "PromptGenome",
    "PromptHistory",
    "PromptRefinementEnv",
    "PromptSearchResult",
    "PromptSection",
    "Proposal",
    "ProposalRequest",
    "Propose",
    "RandomActor",
    "RefinementLoop",
    "RewardReport",
    "ScalarReward",
    "ScriptedLLM",
    "SearchCost",
    "SearchSettings",
    "Shown",
    "ThompsonActor",
    "TrainingConfig",
    "TrainingLoop",
    "Transition",
    "Usage",
    "VersionBackend",
    "as_backend",
    "contains",
    "crossover_genomes",
    "engine",
    "evaluator",
    "exact_match",
    "from_remarks",
    "guided_mutation",
    "launch_standalone",
    "mutate_genome",
    "objections",
    "optimize",
    "plan",
    "preference_to_scores",
    "rating_to_score",
    "reflector",
    "thumbs_to_score",
]


_FORMER = {
    "Plan": "BudgetPlan",
    "Request": "ProposalRequest",
    "Result": "PromptSearchResult",
    "Section": "PromptSection",
    "Settings": "SearchSettings",
    "Spent": "SearchCost",
}
"""Names until 0.2."""


def __getattr__(name: str) -> Any:
    try:
        if name in _WHERE:
            return getattr(import_module(f"clawback.prompts.{_WHERE[name]}"), name)
        if name in __all__:
            return _of_extensions(name)
    except ModuleNotFoundError as error:
        if error.name != "numpy":
            raise
        raise MissingExtra(
            f"{name} needs NumPy, which is not installed. Run: {installed.add('prompts')}"
        ) from error
    return moved.renamed(__name__, _FORMER, name)


def _of_extensions(name: str) -> Any:
    """A name that an extension adds to this face."""
    for extension in plugins.built_in(plugins.PROMPTS):
        module = plugins.load(plugins.PROMPTS, extension)
        if name in module.__all__:
            return getattr(module, name)
    raise AttributeError(f"module 'clawback.prompts' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted([*globals(), *__all__])
