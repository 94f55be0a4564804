"""One question through population, actor, critic and a person: an answer under the chosen prompt, and later its reward."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

from clawback.errors import NotFound, UsageError
from clawback.extensions.rlprompt.actor import CandidateResponse, Transition
from clawback.extensions.rlprompt.population import Individual, Population
from clawback.extensions.rlprompt.rewards import HybridReward, RewardFn, RewardReport, report
from clawback.feedback.endpoint import guess
from clawback.prompts.backends import Complete, LLMBackend, as_backend
from clawback.rewards.composite import coherence, safety

if TYPE_CHECKING:
    from clawback.records import JsonObject


class CriticLike(Protocol):
    def score(self, system_prompt: str, query: str, response: str) -> float: ...
    def update(self, system_prompt: str, query: str, response: str, rating: float) -> None: ...
    def to_dict(self) -> JsonObject: ...
    def restore(self, state: Mapping[str, object]) -> None: ...


class ActorLike(Protocol):
    def choose(self, query: str, prompt_ids: Sequence[str]) -> tuple[int, float]: ...
    def probabilities(self, query: str, prompt_ids: Sequence[str]) -> Any: ...
    def learn(self, batch: Sequence[Transition]) -> dict[str, float]: ...
    def to_dict(self) -> JsonObject: ...
    def restore(self, state: Mapping[str, object]) -> None: ...


@dataclass(frozen=True, slots=True)
class Shown:
    """An answer that waits for its rating. ``id`` joins the two."""

    id: str
    query: str
    response: str
    system_prompt: str
    prompt_id: str
    logprob: float
    among: tuple[str, ...] = ()
    """The prompts that could have answered, by id."""
    others: tuple[CandidateResponse, ...] = ()
    """Answers under other prompts that were not shown."""
    other_logprobs: tuple[float, ...] = ()

    def to_dict(self) -> JsonObject:
        kept = {name: getattr(self, name) for name in ("id", "query", "response", "system_prompt", "prompt_id", "logprob")}  # fmt: skip
        others = [[c.text, c.system_prompt, c.prompt_index] for c in self.others]
        return {
            **kept,
            "among": list(self.among),
            "others": others,
            "other_logprobs": list(self.other_logprobs),
        }

    @classmethod
    def from_dict(cls, state: Mapping[str, Any]) -> Shown:
        others = tuple(CandidateResponse(text, prompt, place) for text, prompt, place in state["others"])
        more = {
            "among": tuple(state["among"]),
            "other_logprobs": tuple(state["other_logprobs"]),
            "others": others,
        }
        return cls(**{**state, **more})


@dataclass(frozen=True, slots=True)
class FlowStepResult:
    """One answer with what it was worth: ``reward_total`` and its ``terms``; ``critic_score`` as it was before the rating was known."""

    shown: Shown
    human_feedback: float
    critic_score: float
    reward: RewardReport

    @property
    def query(self) -> str:
        return self.shown.query

    @property
    def response_shown(self) -> str:
        return self.shown.response

    @property
    def reward_total(self) -> float:
        return self.reward.value

    @property
    def terms(self) -> Mapping[str, float]:
        return self.reward.terms


class HybridOptimizationFlow:
    """A question in, an answer out under the prompt that the actor chose; later a rating in, a reward out."""

    def __init__(
        self,
        llm: LLMBackend | Complete,
        population: Population,
        actor: ActorLike,
        critic: CriticLike,
        reward_fn: RewardFn | None = None,
        *,
        top_k_prompts: int = 5,
        answers: int = 1,
        least_tries: int = 1,
        max_tokens: int = 512,
        temperature: float | None = None,
    ) -> None:
        self.llm, self.population, self.actor, self.critic = as_backend(llm), population, actor, critic
        self.reward_fn = reward_fn or HybridReward()
        self.top_k_prompts, self.answers, self.least_tries = top_k_prompts, answers, least_tries
        self.max_tokens, self.temperature = max_tokens, temperature
        self.waiting: dict[str, Shown] = {}
        self.asked = 0

    def arms(self) -> list[Individual]:
        """The prompts that may answer the next question: the best, but whoever has not been tried enough comes first."""
        waiting = self.population.untried(self.least_tries)
        tried = [one for one in self.population.elite(len(self.population)) if one not in waiting]
        return (waiting or tried)[: self.top_k_prompts]

    def get_prompt_texts(self) -> list[str]:
        return [one.to_prompt_text() for one in self.arms()]

    def answer(self, query: str) -> Shown:
        """Answer a question. Raises ``UsageError`` without a population."""
        arms = self.arms()
        if not arms:
            raise UsageError("There is no prompt yet: call run_initialization with at least one genome.")
        ids = [one.id for one in arms]
        place, logprob = self.actor.choose(query, ids)
        places = [place, *(i for i in range(len(arms)) if i != place)][: max(1, self.answers)]
        made = [CandidateResponse(self._ask(arms[i], query), arms[i].to_prompt_text(), i) for i in places]
        chances = self.actor.probabilities(query, ids) if len(made) > 1 else ()
        shown = Shown(
            str(self.asked),
            query,
            made[0].text,
            made[0].system_prompt,
            ids[place],
            logprob,
            tuple(ids),
            tuple(made[1:]),
            tuple(math.log(chances[other.prompt_index]) for other in made[1:]),
        )
        self.asked += 1
        self.waiting[shown.id] = shown
        return shown

    def rated(
        self,
        id: str,
        human_feedback: float,
        *,
        coherence_score: float | None = None,
        tokens_used: float | None = None,
        safety_penalty: float | None = None,
    ) -> tuple[FlowStepResult, list[Transition]]:
        """Record the rating of an answer, 0 to 1. Missing terms are measured on the answer. Raises ``NotFound``."""
        shown = self.waiting.pop(id, None)
        if shown is None:
            raise NotFound(f"No answer {id!r} waits for a rating: it was rated already, or never given.")
        expected = self.critic.score(shown.system_prompt, shown.query, shown.response)
        info = {
            "human_feedback": human_feedback,
            "critic_score": expected,
            "response_coherence": coherence(shown.response) if coherence_score is None else coherence_score,
            "tokens_used": guess(shown.response) if tokens_used is None else tokens_used,
            "safety_penalty": 1.0 - safety(shown.response) if safety_penalty is None else safety_penalty,
        }
        made = FlowStepResult(shown, human_feedback, expected, report(self.reward_fn, info))
        self.critic.update(shown.system_prompt, shown.query, shown.response, 2 * human_feedback - 1)
        for one in self.population.individuals:
            if one.id == shown.prompt_id:
                one.rated(human_feedback)
        return made, self._transitions(made)

    def _transitions(self, step: FlowStepResult) -> list[Transition]:
        """The choice that was made; where other prompts answered too, in one group with theirs, which the critic speaks for."""
        shown = step.shown
        if not shown.others:
            return [
                Transition(shown.query, shown.prompt_id, step.reward_total, shown.logprob, "", shown.among)
            ]
        found = [
            Transition(
                shown.query, shown.prompt_id, step.human_feedback, shown.logprob, shown.id, shown.among
            )
        ]
        for other, logprob in zip(shown.others, shown.other_logprobs, strict=True):
            expected = self.critic.score(other.system_prompt, shown.query, other.text)
            found.append(Transition(shown.query, shown.among[other.prompt_index], expected, logprob, shown.id, shown.among))  # fmt: skip
        return found

    def _ask(self, individual: Individual, query: str) -> str:
        messages = individual.genome.to_prompt().messages(query)
        return self.llm.complete(messages, max_tokens=self.max_tokens, temperature=self.temperature).text
