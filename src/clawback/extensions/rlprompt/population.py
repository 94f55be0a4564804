"""A population of prompts: its members and their fitness, their diversity, and the next generation."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import combinations
from typing import TYPE_CHECKING, Any

from clawback.prompts.prompt import distance
from clawback.prompts.search.genome import PromptGenome, crossover_genomes

if TYPE_CHECKING:
    from clawback.records import JsonObject

PRIOR = 2.0
"""Ratings that a child's start, the fitness of its parents, counts as."""
ALIKE = 0.2
"""Prompts that are no further apart in meaning are one and the same to ``prune_duplicates``."""

Mutate = Callable[[PromptGenome, random.Random], PromptGenome]


@dataclass
class Individual:
    """A genome and how it has done. ``fitness``: what is believed of it; ``tries``: how many ratings that rests on."""

    genome: PromptGenome
    fitness: float = 0.0
    generation: int = 0
    tries: int = 0
    start: float = 0.0
    """What was believed before it was tried."""
    total: float = 0.0

    @property
    def id(self) -> str:
        return self.genome.to_prompt().id

    def to_prompt_text(self) -> str:
        return self.genome.to_prompt_text()

    def rated(self, reward: float) -> None:
        """One more rating of an answer that was given under it."""
        self.tries += 1
        self.total += reward
        self.fitness = (self.total + PRIOR * self.start) / (self.tries + PRIOR)

    def to_dict(self) -> JsonObject:
        kept = {name: getattr(self, name) for name in ("fitness", "generation", "tries", "start", "total")}
        return {"sections": dict(self.genome.sections), "locked": sorted(self.genome.locked), **kept}

    @classmethod
    def from_dict(cls, state: Mapping[str, Any]) -> Individual:
        more = {name: state[name] for name in ("fitness", "generation", "tries", "start", "total")}
        return cls(PromptGenome(dict(state["sections"]), frozenset(state["locked"])), **more)


@dataclass
class Population:
    """Individuals, in no particular order until sorted."""

    elite_size: int = 2
    individuals: list[Individual] = field(default_factory=list)
    generation: int = 0

    def add(self, individual: Individual) -> None:
        self.individuals.append(individual)

    def __len__(self) -> int:
        return len(self.individuals)

    def sort_by_fitness(self) -> None:
        self.individuals.sort(key=lambda one: -one.fitness)

    def elite(self, k: int | None = None) -> list[Individual]:
        """The best ``k``, best first."""
        return sorted(self.individuals, key=lambda one: -one.fitness)[: self.elite_size if k is None else k]

    def worst(self, k: int = 1) -> list[Individual]:
        """The worst ``k``, worst first."""
        return sorted(self.individuals, key=lambda one: one.fitness)[:k]

    def untried(self, least: int = 1) -> list[Individual]:
        """Those that have fewer ratings than ``least``: they are tried before anybody judges them."""
        return [one for one in self.individuals if one.tries < least]

    def diversity_score(self) -> float:
        """Mean distance in meaning between two of them, 0 to 1."""
        prompts = [one.genome.to_prompt() for one in self.individuals]
        apart = [distance(a, b) for a, b in combinations(prompts, 2)]
        return sum(apart) / len(apart) if apart else 0.0

    def prune_duplicates(self, alike: float = ALIKE) -> int:
        """Of those that mean the same only the best stays. How many went."""
        kept: list[Individual] = []
        for one in sorted(self.individuals, key=lambda i: (-i.fitness, -i.tries)):
            prompt = one.genome.to_prompt()
            if all(distance(prompt, other.genome.to_prompt()) > alike for other in kept):
                kept.append(one)
        gone = len(self.individuals) - len(kept)
        self.individuals = kept
        return gone

    def evolve(
        self,
        mutate: Mutate,
        *,
        size: int,
        crossover_rate: float = 0.5,
        least_tries: int = 1,
        rng: random.Random | None = None,
    ) -> list[Individual]:
        """The next generation; its newcomers are returned.

        The elite stays, and so does whoever has not been tried ``least_tries`` times: nobody is dropped untested. The others make room for children
        of the elite (crossed, then mutated); a child that means the same as somebody who is there is not taken.
        """
        rng = rng or random.Random(self.generation)
        elite = self.elite()
        waiting = [one for one in self.untried(least_tries) if one not in elite]
        others = [one for one in self.elite(len(self)) if one not in elite and one not in waiting]
        children: list[Individual] = []
        room = max(0, size - len(elite) - len(waiting))
        for _ in range(2 * room):
            if len(children) == room or not elite:
                break
            parents = rng.sample(elite, 2) if len(elite) > 1 else [elite[0], elite[0]]
            genome = mutate(crossover_genomes(parents[0].genome, parents[1].genome, crossover_rate, rng), rng)
            if self._new(genome, [*elite, *waiting, *children]):
                start = sum(one.fitness for one in parents) / 2
                children.append(Individual(genome, start, self.generation + 1, start=start))
        self.individuals = [*elite, *waiting, *children, *others[: room - len(children)]]
        self.generation += 1
        return children

    def _new(self, genome: PromptGenome, there: Sequence[Individual]) -> bool:
        prompt = genome.to_prompt()
        return all(distance(prompt, one.genome.to_prompt()) > 0 for one in there)

    def to_dict(self) -> JsonObject:
        return {
            "elite_size": self.elite_size,
            "generation": self.generation,
            "individuals": [one.to_dict() for one in self.individuals],
        }

    @classmethod
    def from_dict(cls, state: Mapping[str, Any]) -> Population:
        individuals = [Individual.from_dict(one) for one in state["individuals"]]
        return cls(state["elite_size"], individuals, state["generation"])

    def copy(self) -> Population:
        return Population(self.elite_size, [replace(one) for one in self.individuals], self.generation)
