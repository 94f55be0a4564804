"""The online training loop of evolution, actor, critic and a person, in three phases; its state survives a restart.

1. **Initialisation**: a first population; each prompt in it answers and is rated before the actor chooses
   among them.
2. **Online**: a question comes, the actor chooses a prompt, it answers, and *then* the answer is rated, at
   any later time: the rating is matched to the answer by its id. Every M ratings actor and critic learn;
   every E of these steps the population gets offspring based on the feedback.
3. **Refinement**: prompts that are duplicates in meaning or do badly are removed.

``save`` and ``load`` keep all of it as JSON, including answers that wait for their rating.
"""

from __future__ import annotations

import itertools
import json
import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from clawback.errors import NotFound, UsageError
from clawback.extensions.rlprompt.actor import Transition
from clawback.extensions.rlprompt.flow import FlowStepResult, HybridOptimizationFlow, Shown
from clawback.extensions.rlprompt.population import Individual, Population
from clawback.files import replace as write
from clawback.prompts.prompt import Prompt
from clawback.prompts.search.genome import PromptGenome, mutate_genome
from clawback.prompts.search_types import Propose

if TYPE_CHECKING:
    from clawback.records import JsonObject

Phase = Literal["init", "main", "refinement"]
Bootstrap = Callable[[str, list[str], int], float]
REMARKS = 40
"""Newest remarks that children are made from."""


@dataclass(frozen=True, slots=True)
class EvolutionaryParams:
    """``evolution_interval``: E, learning steps between generations; ``least_tries``: ratings that each prompt gets before it is judged."""

    population_size: int = 10
    elite_size: int = 2
    mutation_rate: float = 0.3
    crossover_rate: float = 0.5
    evolution_interval: int = 5
    least_tries: int = 2


@dataclass(frozen=True, slots=True)
class ActorCriticParams:
    """``num_candidates``: K prompts that the actor chooses among; ``answers``: how many of them answer each question (each is a call);
    ``update_interval``: M, ratings between two steps of learning."""

    num_candidates: int = 5
    update_interval: int = 10
    answers: int = 1


@dataclass(frozen=True, slots=True)
class TrainingConfig:
    evolutionary: EvolutionaryParams = field(default_factory=EvolutionaryParams)
    actor_critic: ActorCriticParams = field(default_factory=ActorCriticParams)
    bootstrap_queries: int = 20
    seed: int = 0


class TrainingLoop:
    """The three phases. ``propose`` makes children from remarks by a model; without it they are made by templates."""

    def __init__(
        self, config: TrainingConfig, flow: HybridOptimizationFlow, *, propose: Propose | None = None
    ) -> None:
        self.config, self.flow, self.propose = config, flow, propose
        flow.top_k_prompts = config.actor_critic.num_candidates
        flow.answers = config.actor_critic.answers
        flow.least_tries = config.evolutionary.least_tries
        flow.population.elite_size = config.evolutionary.elite_size
        self.phase: Phase = "init"
        self.query_count = 0
        self.episode_count = 0
        self.remarks: list[str] = []
        self.batch: list[Transition] = []
        self.figures: dict[str, float] = {}

    def run_initialization(
        self,
        initial_genomes: Sequence[PromptGenome],
        bootstrap_callback: Bootstrap | None = None,
        queries: Sequence[str] = ("Hello! What can you do?",),
    ) -> None:
        """Phase 1. ``bootstrap_callback(query, responses, shown)`` rates answers, if somebody is there to do so, 0 to 1."""
        self.flow.population.individuals = [Individual(genome) for genome in initial_genomes]
        self.flow.population.generation = 0
        self.phase = "main"
        if bootstrap_callback is not None and initial_genomes:
            for query in itertools.islice(itertools.cycle(queries), self.config.bootstrap_queries):
                shown = self.answer(query)
                said = bootstrap_callback(query, [shown.response, *(c.text for c in shown.others)], 0)
                self.feedback(shown.id, said)

    def answer(self, query: str) -> Shown:
        """Phase 2, first half: an answer to show."""
        return self.flow.answer(query)

    def feedback(
        self, id: str, human_feedback: float, remark: str = "", **terms: float | None
    ) -> FlowStepResult:
        """Phase 2, second half: what was said of it, 0 to 1, now or much later; with a remark in words. Raises ``NotFound``."""
        if not 0 <= human_feedback <= 1:
            raise UsageError(f"Feedback is from 0 to 1 here, not {human_feedback:g}.")
        made, transitions = self.flow.rated(id, human_feedback, **terms)
        if remark.strip():
            self.remarks = [*self.remarks, remark.strip()][-REMARKS:]
        self.query_count += 1
        self._learn(transitions)
        return made

    def prefer(self, better: str, worse: str) -> None:
        """One answer over another, both waiting for a rating. They form a group of two: nothing is known about how good either is. Raises ``NotFound``."""
        found = []
        for id, said in ((better, 1.0), (worse, 0.0)):
            shown = self.flow.waiting.pop(id, None)
            if shown is None:
                raise NotFound(f"No answer {id!r} waits to be compared.")
            found.append(
                Transition(
                    shown.query, shown.prompt_id, said, shown.logprob, f"{better}>{worse}", shown.among
                )
            )
        self.query_count += 1
        self._learn(found)

    def step(
        self,
        query: str,
        human_feedback: float | Callable[[str, str], float],
        coherence: float | None = None,
        tokens_used: float | None = None,
        safety_penalty: float | None = None,
    ) -> FlowStepResult:
        """Both halves at once. ``human_feedback``: a function of (question, answer) that is asked once the answer is there, or a number."""
        shown = self.answer(query)
        said = human_feedback(query, shown.response) if callable(human_feedback) else human_feedback
        return self.feedback(
            shown.id, said, coherence_score=coherence, tokens_used=tokens_used, safety_penalty=safety_penalty
        )

    def _learn(self, transitions: Sequence[Transition]) -> None:
        self.batch.extend(transitions)
        if self.query_count % self.config.actor_critic.update_interval:
            return
        self.figures = self.flow.actor.learn(self.batch)
        self.batch = []
        self.episode_count += 1
        if self.episode_count % self.config.evolutionary.evolution_interval == 0:
            self.evolve()

    def evolve(self) -> list[Individual]:
        """A generation: children of the best, from what was said; each will be tried before it is judged."""
        params = self.config.evolutionary
        rng = random.Random(f"{self.config.seed}:{self.flow.population.generation}")
        return self.flow.population.evolve(
            lambda genome, chance: mutate_genome(genome, params.mutation_rate, chance, propose=self.propose, remarks=self.remarks),
            size=params.population_size,
            crossover_rate=params.crossover_rate,
            least_tries=params.least_tries,
            rng=rng,
        )  # fmt: skip

    def run_refinement(
        self, prune_duplicates: bool = True, min_fitness_threshold: float | None = None
    ) -> None:
        """Phase 3: removes prompts that are duplicates in meaning or score below the threshold; the best always stays."""
        self.phase = "refinement"
        population = self.flow.population
        if prune_duplicates:
            population.prune_duplicates()
        if min_fitness_threshold is not None:
            best = population.elite(1)
            population.individuals = [i for i in population.individuals if i in best or i.fitness >= min_fitness_threshold]  # fmt: skip
        population.sort_by_fitness()

    @property
    def best(self) -> Prompt:
        """The prompt with the highest fitness among those that were tried enough."""
        ready = [
            i for i in self.flow.population.individuals if i.tries >= self.config.evolutionary.least_tries
        ]
        return max(ready or self.flow.population.individuals, key=lambda one: one.fitness).genome.to_prompt()

    def to_dict(self) -> JsonObject:
        flow = self.flow
        return {
            "format": 1,
            "phase": self.phase,
            "queries": self.query_count,
            "episodes": self.episode_count,
            "remarks": self.remarks,
            "batch": [
                [t.query, t.prompt_id, t.reward, t.logprob, t.group, list(t.among)] for t in self.batch
            ],
            "asked": flow.asked,
            "waiting": [one.to_dict() for one in flow.waiting.values()],
            "population": flow.population.to_dict(),
            "actor": flow.actor.to_dict(),
            "critic": flow.critic.to_dict(),
        }

    def save(self, path: Path) -> None:
        """Atomically, as JSON."""
        write(path, json.dumps(self.to_dict()).encode())

    def load(self, path: Path) -> None:
        """Go on where ``save`` was called. Raises ``UsageError`` for a damaged file, which is never taken for an empty one."""
        try:
            kept = json.loads(path.read_text("utf-8"))
            if kept["format"] != 1:
                raise ValueError(f"its format is {kept['format']!r}")
            self._restore(kept)
        except FileNotFoundError:
            raise NotFound(f"There is no state of a training loop at {path}.") from None
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise UsageError(f"The state {path} is damaged ({error}). Restore it from a backup or remove it.") from error  # fmt: skip

    def _restore(self, state: Mapping[str, Any]) -> None:
        population, flow = Population.from_dict(state["population"]), self.flow
        waiting = {one["id"]: Shown.from_dict(one) for one in state["waiting"]}
        batch = [
            Transition(q, id, r, lp, group, tuple(among)) for q, id, r, lp, group, among in state["batch"]
        ]
        flow.actor.restore(state["actor"])
        flow.critic.restore(state["critic"])
        flow.population.individuals, flow.population.generation = (
            population.individuals,
            population.generation,
        )
        flow.waiting, flow.asked = waiting, int(state["asked"])
        self.phase, self.query_count, self.episode_count = state["phase"], state["queries"], state["episodes"]
        self.remarks, self.batch = list(state["remarks"]), batch
