"""Genomes change where they are told to, keep their order, and every child is tried before it is judged."""

import random

import pytest

from clawback.errors import UsageError
from clawback.prompts import (
    Case,
    Example,
    Individual,
    Outcome,
    Population,
    Prompt,
    PromptGenome,
    ProposalRequest,
    crossover_genomes,
    from_remarks,
    guided_mutation,
    mutate_genome,
)

A = PromptGenome({"role": "You help.", "tone": "Formal.", "constraints": "- Be brief."})
B = PromptGenome({"system_role": "You assist.", "tone": "Casual.", "format": "A list."})


def request(*remarks, prompt="You help.", **more):
    return ProposalRequest(
        Prompt(prompt),
        (Case(Example.ask("Hi?"), Outcome(0.0, remarks[0] if remarks else "")),),
        remarks[1:],
        **more,
    )


def test_the_role_stands_first_and_bare():
    assert (
        PromptGenome({"tone": "Dry.", "system_role": "You help."}).to_prompt_text()
        == "You help.\n\n## Tone\nDry."
    )
    assert PromptGenome.of(A.to_prompt()) == A


def test_crossover_keeps_order_and_takes_whole_sections():
    for seed in range(20):
        child = crossover_genomes(
            A,
            PromptGenome({"role": "You assist.", "tone": "Casual.", "format": "A list."}),
            0.5,
            random.Random(seed),
        )
        names = list(child.sections)
        assert names == [n for n in ("role", "tone", "constraints", "format") if n in names]
        assert child.get_section("tone") in ("Formal.", "Casual.")
    assert crossover_genomes(A, B, 1.0).get_section("tone") == "Formal."
    assert crossover_genomes(A, B, 0.0).get_section("tone") == "Casual."
    locked = PromptGenome(A.sections, frozenset({"tone"}))
    assert crossover_genomes(locked, B, 0.0).get_section("tone") == "Formal."


def test_a_remark_becomes_a_sentence_in_its_section():
    made = from_remarks(request("too long")).prompt
    assert made.section("constraints") == "- Answer in at most two short sentences."
    assert from_remarks(request("no emoji, please")).prompt.section("tone") == "- Use no emoji."
    assert "child" in from_remarks(request("Explain it like to a child.")).prompt.text


def test_the_opposite_of_a_wish_goes():
    prompt = "You help.\n\n## Constraints\n- Answer thoroughly and in detail."
    assert (
        from_remarks(request("too long", prompt=prompt)).prompt.section("constraints")
        == "- Answer in at most two short sentences."
    )


def test_what_was_asked_for_most_often_comes_first_and_what_lost_is_left_alone():
    asked = request("use a list", "no emoji", "no emoji at all")
    assert "Use no emoji." in from_remarks(asked).prompt.text
    again = request("use a list", "no emoji", "no emoji at all", lost=("Use no emoji.",))
    assert "Answer with a bulleted list." in from_remarks(again).prompt.text


def test_without_words_every_sentence_gets_its_turn():
    prompt, found = Prompt("You help."), set()
    for number in range(12):
        prompt = from_remarks(ProposalRequest(prompt, number=number)).prompt
        found.add(prompt.text)
    assert len(found) == 12
    assert from_remarks(ProposalRequest(Prompt("You help."), number=3)) == from_remarks(
        ProposalRequest(Prompt("You help."), number=3)
    )


def test_mutation_reads_what_was_said():
    assert mutate_genome(A, 0.0, remarks=["too long"]) == A
    made = mutate_genome(PromptGenome({"system_role": "You help."}), 1.0, remarks=["be formal"])
    assert list(made.sections) == ["system_role", "tone"]
    assert "formal" in made.get_section("tone").lower()
    locked = PromptGenome({"role": "You help.", "tone": "Dry."}, frozenset({"tone"}))
    assert mutate_genome(locked, 1.0, remarks=["be formal"]).get_section("tone") == "Dry."


def test_a_guided_step_has_a_direction_and_a_strength():
    genome = PromptGenome({"role": "You help."})
    assert guided_mutation(genome, "shorter", 0.0) == genome
    mild, plain, strong = (
        guided_mutation(genome, "shorter", s).get_section("constraints") for s in (0.2, 0.5, 1.0)
    )
    assert plain == "- Answer in at most two short sentences."
    assert mild == "- Where it fits: " + plain[2:]
    assert strong == "- Above all: " + plain[2:]
    twice = guided_mutation(guided_mutation(genome, "shorter", 1.0), "shorter", 0.2)
    assert twice.get_section("constraints") == mild
    back = guided_mutation(guided_mutation(genome, "shorter", 0.5), "longer", 0.5)
    assert "short" not in back.to_prompt_text()
    with pytest.raises(UsageError):
        guided_mutation(genome, "shorter", 2.0)


def individuals(*fitness):
    return [
        Individual(PromptGenome({"role": f"Prompt number {i} of all."}), f, tries=5)
        for i, f in enumerate(fitness)
    ]


def test_elite_worst_and_diversity():
    population = Population(2, individuals(0.5, 0.9, 0.1))
    assert [one.fitness for one in population.elite()] == [0.9, 0.5]
    assert population.worst()[0].fitness == 0.1
    assert population.elite(1)[0].fitness == 0.9
    assert Population().diversity_score() == 0.0
    same = Population(2, [Individual(A), Individual(A)])
    other = Population(2, [Individual(A), Individual(B)])
    assert same.diversity_score() == 0.0 < other.diversity_score() <= 1.0


def test_pruning_goes_by_meaning():
    said = (
        "Answer in short sentences.",
        "Please answer in a short sentence.",
        "Do not answer in short sentences.",
    )
    population = Population(
        2, [Individual(PromptGenome({"role": text}), i / 10) for i, text in enumerate(said)]
    )
    assert population.prune_duplicates() == 1
    assert {one.genome.get_section("role") for one in population.individuals} == {said[1], said[2]}


def test_nobody_goes_unheard():
    population = Population(2, [*individuals(0.5, 0.9, 0.1, 0.2), Individual(B)])
    number = iter(range(100))
    children = population.evolve(
        lambda g, _: PromptGenome({**g.sections, "tone": f"Tone number {next(number)}"}),
        size=6,
        rng=random.Random(1),
    )
    assert B in [one.genome for one in population.individuals]
    assert len(children) == 3
    assert all(child in population.individuals and child.tries == 0 for child in children)
    assert children[0].start == pytest.approx(0.7)
    again = population.evolve(lambda g, _: g, size=6, least_tries=1)
    assert again == []
    assert all(child in population.individuals for child in children)


def test_one_parent_is_enough():
    population = Population(1, individuals(0.5))
    assert len(population.evolve(lambda g, r: PromptGenome({"role": f"New {r.random()}"}), size=3)) == 2


def test_fitness_is_the_mean_drawn_to_the_start():
    one = Individual(A, start=0.5)
    for reward in (1.0, 1.0):
        one.rated(reward)
    assert one.fitness == pytest.approx((2 + 2 * 0.5) / 4)
    assert Individual.from_dict(one.to_dict()) == one
