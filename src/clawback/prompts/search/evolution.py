"""An evolutionary search (``--engine evolve``): a population of prompts with crossover, and mutation from feedback.

It is an ``Optimizer`` like the search by reflection. Without feedback in words it explores the possible
sentences more evenly; with words it takes more calls. Every child races against the better of its parents, so
losing ones stop early here too.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from functools import partial

from clawback.prompts.prompt import Prompt, distance
from clawback.prompts.search.genome import PromptGenome, crossover_genomes
from clawback.prompts.search.optimize import Optimizer, SearchRun, SearchSettings
from clawback.prompts.search.optimize import optimize as search
from clawback.prompts.search.racing import Candidate
from clawback.prompts.search_types import Example, ProposalRequest

SIZE, ELITE = 8, 3
"""Children a generation, and parents that they are made from."""


class Generations(SearchRun):
    phase = "generation"

    def step(self) -> str:
        """One generation: ``SIZE`` children of the elite. Why the search is over, or ""."""
        elite = [one for _, one in self.pool.ranked(self.train)][:ELITE]
        for _ in range(SIZE):
            self.number += 1
            rng = self.rng("child")
            one, other = rng.sample(elite, 2) if len(elite) > 1 else (elite[0], elite[0])
            failing = self.failing(one)
            if not failing:
                return "the best prompt fails on no training example any more"
            child = self._child(one, other, failing, rng)
            self.since += 1
            if self.ledger.unparsable >= self.settings.unparsable:
                return f"{self.ledger.unparsable} proposals in a row could not be read"
            if child is not None and not any(distance(child, c.prompt) <= 0.0 for c in self.pool.all):
                self.enter(child, one, failing, self.others(one, failing))
            if self.since >= self.settings.patience:
                return f"{self.since} children in a row were no better"
        return ""

    def _child(
        self, candidate: Candidate, other: Candidate, failing: Sequence[Example], rng: random.Random
    ) -> Prompt | None:
        """Crossed where the parents differ, else (or in half of the cases too) mutated from what was said."""
        prompt = candidate.prompt
        if other is not candidate and rng.random() < 0.5:
            crossed = crossover_genomes(
                PromptGenome.of(candidate.prompt), PromptGenome.of(other.prompt), 0.5, rng
            )
            prompt = candidate.prompt.with_refinement(
                crossed.to_prompt_text(), author="crossover", other=other.prompt.id
            )
            if rng.random() < 0.5 and prompt.id not in (candidate.prompt.id, other.prompt.id):
                return prompt
        cases = tuple(self.ledger.case(candidate.prompt, e) for e in failing)
        made = self.ledger.propose(
            ProposalRequest(prompt, cases, self.remarks, lost=tuple(candidate.lost[-12:]), number=self.number)
        )
        return made.prompt and candidate.prompt.with_refinement(made.prompt.text, **made.prompt.metadata)


optimize: Optimizer = partial(search, settings=SearchSettings(merge=False), strategy=Generations)
"""As ``search.optimize``."""
