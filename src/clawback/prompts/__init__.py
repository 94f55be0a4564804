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

from clawback.errors import MissingExtra

if TYPE_CHECKING:
    from clawback.prompts.actor import (
        CandidateResponse,
        GPROOptimizer,
        PromptActor,
        RandomActor,
        ThompsonActor,
        Transition,
    )
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
    from clawback.prompts.critic import Agreement, ConstantCritic, Critic, MockCritic
    from clawback.prompts.engines import engine
    from clawback.prompts.env import PromptRefinementEnv
    from clawback.prompts.evaluation import contains, evaluator, exact_match
    from clawback.prompts.feedback import (
        FeedbackAggregator,
        HumanFeedbackCollector,
        HumanFeedbackResult,
        NoFeedback,
        launch_standalone,
        preference_to_scores,
        rating_to_score,
        thumbs_to_score,
    )
    from clawback.prompts.flow import FlowStepResult, HybridOptimizationFlow, Shown
    from clawback.prompts.genome import PromptGenome, crossover_genomes, guided_mutation, mutate_genome
    from clawback.prompts.guards import objections
    from clawback.prompts.journal import Journal
    from clawback.prompts.loop import RefinementLoop
    from clawback.prompts.planning import plan
    from clawback.prompts.population import Individual, Population
    from clawback.prompts.prompt import Prompt, PromptHistory
    from clawback.prompts.reflection import reflector
    from clawback.prompts.rewards import HybridReward, RewardReport, ScalarReward
    from clawback.prompts.search import Optimizer, Result, Settings, optimize
    from clawback.prompts.sections import Section
    from clawback.prompts.templates import from_remarks
    from clawback.prompts.training import (
        ActorCriticParams,
        EvolutionaryParams,
        TrainingConfig,
        TrainingLoop,
    )
    from clawback.prompts.types import Case, Evaluate, Example, Outcome, Proposal, Propose, Request

_WHERE = {
    **dict.fromkeys(
        ("CandidateResponse", "GPROOptimizer", "PromptActor", "RandomActor", "ThompsonActor", "Transition"),
        "actor",
    ),
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
    **dict.fromkeys(("Budget", "Plan", "Spent"), "budget"),
    **dict.fromkeys(("Agreement", "ConstantCritic", "Critic", "MockCritic"), "critic"),
    **dict.fromkeys(("engine",), "engines"),
    **dict.fromkeys(("PromptRefinementEnv",), "env"),
    **dict.fromkeys(("contains", "evaluator", "exact_match"), "evaluation"),
    **dict.fromkeys(
        (
            "FeedbackAggregator",
            "HumanFeedbackCollector",
            "HumanFeedbackResult",
            "NoFeedback",
            "launch_standalone",
            "preference_to_scores",
            "rating_to_score",
            "thumbs_to_score",
        ),
        "feedback",
    ),
    **dict.fromkeys(("PromptGenome", "crossover_genomes", "guided_mutation", "mutate_genome"), "genome"),
    **dict.fromkeys(("objections",), "guards"),
    **dict.fromkeys(("Journal",), "journal"),
    **dict.fromkeys(("RefinementLoop",), "loop"),
    **dict.fromkeys(("plan",), "planning"),
    **dict.fromkeys(("Individual", "Population"), "population"),
    **dict.fromkeys(("Prompt", "PromptHistory"), "prompt"),
    **dict.fromkeys(("reflector",), "reflection"),
    **dict.fromkeys(("HybridReward", "RewardReport", "ScalarReward"), "rewards"),
    **dict.fromkeys(("Optimizer", "Result", "Settings", "optimize"), "search"),
    **dict.fromkeys(("FlowStepResult", "HybridOptimizationFlow", "Shown"), "flow"),
    **dict.fromkeys(("Section",), "sections"),
    **dict.fromkeys(("from_remarks",), "templates"),
    **dict.fromkeys(
        (
            "ActorCriticParams",
            "EvolutionaryParams",
            "TrainingConfig",
            "TrainingLoop",
        ),
        "training",
    ),
    **dict.fromkeys(("Case", "Evaluate", "Example", "Outcome", "Proposal", "Propose", "Request"), "types"),
}

__all__ = [
    "ActorCriticParams",
    "Agreement",
    "AnthropicBackend",
    "BackendError",
    "Budget",
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
    "Plan",
    "Population",
    "Price",
    "Prompt",
    "PromptActor",
    "PromptGenome",
    "PromptHistory",
    "PromptRefinementEnv",
    "Proposal",
    "Propose",
    "RandomActor",
    "RefinementLoop",
    "Request",
    "Result",
    "RewardReport",
    "ScalarReward",
    "ScriptedLLM",
    "Section",
    "Settings",
    "Shown",
    "Spent",
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


def __getattr__(name: str) -> Any:
    if name not in _WHERE:
        raise AttributeError(f"module 'clawback.prompts' has no attribute {name!r}")
    try:
        return getattr(import_module(f"clawback.prompts.{_WHERE[name]}"), name)
    except ModuleNotFoundError as error:
        if error.name != "numpy":
            raise
        raise MissingExtra(
            f"{name} needs NumPy, which is not installed. Run: pip install 'clawback[prompts]'"
        ) from error


def __dir__() -> list[str]:
    return sorted([*globals(), *__all__])
