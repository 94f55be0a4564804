"""RLPrompt's interface: candidates, critics, populations and training loops under that project's names (docs/coming-from/rlprompt.md).

The names are imported from ``clawback.prompts``. Nothing else of Clawback uses them.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from clawback.extensions.rlprompt.actor import (
        CandidateResponse,
        GPROOptimizer,
        PromptActor,
        RandomActor,
        ThompsonActor,
        Transition,
    )
    from clawback.extensions.rlprompt.critic import Agreement, ConstantCritic, Critic, MockCritic
    from clawback.extensions.rlprompt.feedback_signals import (
        FeedbackAggregator,
        HumanFeedbackCollector,
        HumanFeedbackResult,
        NoFeedback,
        launch_standalone,
        preference_to_scores,
        rating_to_score,
        thumbs_to_score,
    )
    from clawback.extensions.rlprompt.flow import FlowStepResult, HybridOptimizationFlow, Shown
    from clawback.extensions.rlprompt.online_training import (
        ActorCriticParams,
        EvolutionaryParams,
        TrainingConfig,
        TrainingLoop,
    )
    from clawback.extensions.rlprompt.population import Individual, Population
    from clawback.extensions.rlprompt.refinement_env import PromptRefinementEnv, RefinementLoop
    from clawback.extensions.rlprompt.rewards import HybridReward, RewardReport, ScalarReward

_WHERE = {
    **dict.fromkeys(
        ("CandidateResponse", "GPROOptimizer", "PromptActor", "RandomActor", "ThompsonActor", "Transition"),
        "actor",
    ),
    **dict.fromkeys(("Agreement", "ConstantCritic", "Critic", "MockCritic"), "critic"),
    **dict.fromkeys(("PromptRefinementEnv", "RefinementLoop"), "refinement_env"),
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
        "feedback_signals",
    ),
    **dict.fromkeys(("FlowStepResult", "HybridOptimizationFlow", "Shown"), "flow"),
    **dict.fromkeys(("Individual", "Population"), "population"),
    **dict.fromkeys(("HybridReward", "RewardReport", "ScalarReward"), "rewards"),
    **dict.fromkeys(
        ("ActorCriticParams", "EvolutionaryParams", "TrainingConfig", "TrainingLoop"), "online_training"
    ),
}

__all__ = [
    "ActorCriticParams",
    "Agreement",
    "CandidateResponse",
    "ConstantCritic",
    "Critic",
    "EvolutionaryParams",
    "FeedbackAggregator",
    "FlowStepResult",
    "GPROOptimizer",
    "HumanFeedbackCollector",
    "HumanFeedbackResult",
    "HybridOptimizationFlow",
    "HybridReward",
    "Individual",
    "MockCritic",
    "NoFeedback",
    "Population",
    "PromptActor",
    "PromptRefinementEnv",
    "RandomActor",
    "RefinementLoop",
    "RewardReport",
    "ScalarReward",
    "Shown",
    "ThompsonActor",
    "TrainingConfig",
    "TrainingLoop",
    "Transition",
    "launch_standalone",
    "preference_to_scores",
    "rating_to_score",
    "thumbs_to_score",
]


def __getattr__(name: str) -> Any:
    if name not in _WHERE:
        raise AttributeError(f"module 'clawback.extensions.rlprompt' has no attribute {name!r}")
    return getattr(import_module(f"clawback.extensions.rlprompt.{_WHERE[name]}"), name)
