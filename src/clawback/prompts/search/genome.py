"""A prompt's sections as a genome: mutation from feedback or in a given direction, and crossover that keeps their order."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from clawback.errors import UsageError
from clawback.prompts import prompt as parts
from clawback.prompts.prompt import ROLE, Prompt, PromptSection, alike
from clawback.prompts.search_types import Case, ProposalRequest, Propose

_STRENGTHS = ((0.34, "Where it fits: "), (0.67, ""), (1.0, "Above all: "))
"""Up to which strength a wish is said how."""


@dataclass(frozen=True)
class PromptGenome:
    """Named sections in order. ``system_role`` is another name of ``role``. ``locked`` ones pass through every operator as they are."""

    sections: Mapping[str, str] = field(default_factory=dict)
    locked: frozenset[str] = frozenset()

    def get_section(self, name: str) -> str:
        return self.sections.get(name, "")

    def to_prompt_text(self) -> str:
        """The role first and without a heading, every other section under its own."""
        return parts.render(self._parts())

    def to_prompt(self, version: int = 0) -> Prompt:
        return Prompt(self.to_prompt_text(), version)

    def _parts(self) -> list[PromptSection]:
        named = [
            PromptSection(_role(name), text, name in self.locked) for name, text in self.sections.items()
        ]
        return sorted(named, key=lambda one: one.name != ROLE)

    @classmethod
    def of(cls, prompt: Prompt | str) -> PromptGenome:
        """The genome of a prompt."""
        found = prompt.sections if isinstance(prompt, Prompt) else parts.parse(prompt)
        return cls({one.name: one.text for one in found}, frozenset(one.name for one in found if one.locked))


def _role(name: str) -> str:
    return ROLE if name == "system_role" else name


def mutate_genome(
    genome: PromptGenome,
    mutation_rate: float = 0.3,
    rng: random.Random | None = None,
    *,
    propose: Propose | None = None,
    cases: Sequence[Case] = (),
    remarks: Sequence[str] = (),
) -> PromptGenome:
    """With chance ``mutation_rate`` a new one, from what was said: by ``propose`` (a model), by templates where none is given.

    Where nothing can be proposed the genome stays as it is.
    """
    rng = rng or random.Random(0)
    if rng.random() >= mutation_rate:
        return genome
    if propose is None:
        from clawback.prompts.search.remark_templates import (
            from_remarks,  # brings NumPy, which nothing else here needs
        )

        propose = from_remarks
    request = ProposalRequest(genome.to_prompt(), tuple(cases), tuple(remarks), number=rng.randrange(1 << 30))
    made = propose(request).prompt
    return genome if made is None else _like(genome, made)


def crossover_genomes(
    a: PromptGenome, b: PromptGenome, crossover_rate: float = 0.5, rng: random.Random | None = None
) -> PromptGenome:
    """Each section from ``a`` with chance ``crossover_rate``, else from ``b``; in the order of ``a``, what only ``b`` has after it.

    Locked sections are ``a``'s.
    """
    rng = rng or random.Random(0)
    chosen: dict[str, str] = {}
    for name in dict.fromkeys((*a.sections, *b.sections)):
        source = a if name in a.locked or rng.random() < crossover_rate else b
        if name in source.sections:
            chosen[name] = source.sections[name]
    return PromptGenome(chosen, a.locked)


def guided_mutation(genome: PromptGenome, direction_hint: str, strength: float = 0.5) -> PromptGenome:
    """A step in a direction that is said in words: "more formal", "shorter", "no emoji".

    Args:
        direction_hint: read as a remark is; what is not known is said as it stands.
        strength: 0 changes nothing; up to a third the wish is said mildly, above two thirds before all else. What was said of the same
            before, in whatever strength, goes.

    Raises:
        UsageError: a strength outside 0 to 1.
    """
    if not 0 <= strength <= 1:
        raise UsageError(f"A strength is from 0 to 1, not {strength:g}.")
    if not strength or not direction_hint.strip():
        return genome
    from clawback.prompts.search.remark_templates import sentence, sentences_of

    opening = next(words for limit, words in _STRENGTHS if strength <= limit)
    found: tuple[PromptSection, ...] = tuple(genome._parts())
    lines = [("constraints", direction_hint.strip())]
    if wanted := sentences_of(direction_hint):
        lines = [sentence(feature, more) for feature, more in wanted]
        for feature, more in wanted:
            found = _without(found, *sentence(feature, not more))
    for section, line in lines:
        found = _without(found, section, line)
        found = parts.with_rule(found, section, opening + line)
    return _like(genome, Prompt(parts.render(found)))


def _without(sections: tuple[PromptSection, ...], section: str, line: str) -> tuple[PromptSection, ...]:
    """Without a line in whatever strength it was said."""
    old = parts.named(sections, section)
    for rule in old.rules if old else ():
        bare = rule
        for _, words in _STRENGTHS:
            bare = bare.removeprefix(words) if words else bare
        if alike(bare, line):
            sections = parts.without_rule(sections, section, rule)
    return sections


def _like(genome: PromptGenome, prompt: Prompt) -> PromptGenome:
    """The genome of ``prompt`` with the names and locks that ``genome`` has."""
    names = {_role(name): name for name in genome.sections}
    kept = {names.get(one.name, one.name): one.text for one in prompt.sections}
    locked = {name: text for name, text in genome.sections.items() if name in genome.locked}
    return PromptGenome({**kept, **locked}, genome.locked)
