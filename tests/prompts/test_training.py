"""The three phases as one loop: the answer first, the rating later, and a restart in between loses nothing."""

import pytest

from clawback.errors import NotFound, UsageError
from clawback.prompts import (
    ActorCriticParams,
    Critic,
    EvolutionaryParams,
    HybridOptimizationFlow,
    HybridReward,
    Population,
    PromptActor,
    PromptGenome,
    RandomActor,
    ScalarReward,
    ScriptedLLM,
    TrainingConfig,
    TrainingLoop,
)

GENOMES = [
    PromptGenome({"role": f"You are a {kind} assistant."}) for kind in ("helpful", "friendly", "technical")
]


def says(messages):
    """Long unless the prompt asks for short answers."""
    return (
        "Yes."
        if "short" in messages[0]["content"]
        else "Yes, and there is very much to be said about it. " * 4
    )


def made(seed=0, answers=1, actor=None):
    config = TrainingConfig(
        EvolutionaryParams(
            population_size=6, elite_size=2, mutation_rate=1.0, evolution_interval=2, least_tries=1
        ),
        ActorCriticParams(num_candidates=4, update_interval=5, answers=answers),
        bootstrap_queries=3,
        seed=seed,
    )
    llm = ScriptedLLM(says)
    return TrainingLoop(
        config,
        HybridOptimizationFlow(
            llm, Population(), actor or PromptActor(seed=seed), Critic(every=10), HybridReward()
        ),
    )


def person(query, response):
    return float(len(response) < 20)


def lived(loop, count, start=0):
    for number in range(start, start + count):
        shown = loop.answer(f"Question {number}?")
        loop.feedback(
            shown.id, person(shown.query, shown.response), "too long" if len(shown.response) > 20 else ""
        )


def test_it_learns_what_is_liked():
    loop = made()
    loop.run_initialization(GENOMES, lambda q, responses, _: person(q, responses[0]))
    assert [one.tries for one in loop.flow.population.individuals] == [1, 1, 1]
    lived(loop, 80)
    assert "short" in loop.best.text
    late = [loop.answer(f"Late {i}?") for i in range(20)]
    assert sum(person(s.query, s.response) for s in late) >= 14
    before = len(loop.flow.population)
    loop.run_refinement(min_fitness_threshold=0.5)
    assert loop.phase == "refinement"
    assert 1 <= len(loop.flow.population) < before


def test_one_call_an_answer_and_k_where_they_are_asked_for():
    loop = made()
    loop.run_initialization(GENOMES)
    loop.answer("Hi?")
    assert loop.flow.llm.usage.calls == 1
    wide = made(answers=3)
    wide.run_initialization(GENOMES)
    shown = wide.answer("Hi?")
    assert wide.flow.llm.usage.calls == 3
    assert len(shown.others) == 2
    wide.feedback(shown.id, 1.0)
    assert len(wide.batch) == 3
    assert len({t.group for t in wide.batch}) == 1


def test_a_rating_finds_its_answer_however_late():
    loop = made()
    loop.run_initialization(GENOMES)
    first, second = loop.answer("One?"), loop.answer("Two?")
    assert loop.feedback(second.id, 1.0).query == "Two?"
    assert loop.feedback(first.id, 0.0).query == "One?"
    with pytest.raises(NotFound):
        loop.feedback(first.id, 1.0)
    with pytest.raises(UsageError):
        loop.feedback(loop.answer("Three?").id, 5.0)


def test_a_preference_is_a_preference():
    loop = made()
    loop.run_initialization(GENOMES)
    one, other = loop.answer("One?"), loop.answer("Two?")
    loop.prefer(one.id, other.id)
    assert [t.reward for t in loop.batch] == [1.0, 0.0]
    assert len({t.group for t in loop.batch}) == 1
    with pytest.raises(NotFound):
        loop.prefer(one.id, other.id)


def test_a_restart_anywhere_changes_nothing(tmp_path):
    straight = made(1)
    straight.run_initialization(GENOMES)
    lived(straight, 33)
    broken = made(1)
    broken.run_initialization(GENOMES)
    for start in range(0, 33, 3):
        lived(broken, 3, start)
        broken.save(tmp_path / "loop.json")
        broken = made(1)
        broken.load(tmp_path / "loop.json")
    assert broken.to_dict() == straight.to_dict()


def test_answers_that_wait_survive_a_restart(tmp_path):
    loop = made(2)
    loop.run_initialization(GENOMES)
    shown = loop.answer("One?")
    loop.save(tmp_path / "loop.json")
    again = made(2)
    again.load(tmp_path / "loop.json")
    assert again.feedback(shown.id, 1.0).response_shown == shown.response
    (tmp_path / "loop.json").write_text('{"format": 1}')
    with pytest.raises(UsageError, match="damaged"):
        again.load(tmp_path / "loop.json")
    with pytest.raises(NotFound):
        again.load(tmp_path / "none.json")


def test_without_prompts_there_is_no_answer():
    with pytest.raises(UsageError, match="no prompt"):
        made().answer("Hi?")


def test_each_term_is_reported_and_has_its_sign():
    reward = HybridReward()
    base = {
        "human_feedback": 0.5,
        "critic_score": 0.5,
        "response_coherence": 0.5,
        "tokens_used": 100,
        "safety_penalty": 0.1,
    }
    assert set(reward.report(base).terms) == {"feedback", "critic", "coherence", "tokens", "safety"}
    assert reward(base) == pytest.approx(sum(reward.report(base).terms.values()))
    for key, better in (
        ("human_feedback", 1),
        ("critic_score", 1),
        ("response_coherence", 1),
        ("tokens_used", -1),
        ("safety_penalty", -1),
    ):
        more = base | {key: base[key] * 2}
        assert (reward(more) > reward(base)) == (better > 0), key
    assert (
        HybridReward(lambda_feedback=1.0, lambda_critic=0.5)({"human_feedback": 1.0, "critic_score": 0.0})
        == 1.0
    )
    assert reward.report({}).terms == {}
    for wrong in ({"lambda_tokens": 0.001}, {"lambda_safety": 1.0}, {"lambda_feedback": -1.0}):
        with pytest.raises(UsageError, match="wrong side"):
            HybridReward(**wrong)
    with pytest.raises(UsageError, match="no number"):
        reward({"human_feedback": "good"})
    assert ScalarReward(default=0.2)({}) == 0.2


def test_an_even_actor_works_too():
    loop = made(actor=RandomActor())
    loop.run_initialization(GENOMES)
    assert loop.step("Hi?", person).human_feedback in (0.0, 1.0)
    assert loop.step(
        "Hi?", 0.7, coherence=0.5, tokens_used=100.0, safety_penalty=0.0
    ).reward_total == pytest.approx(0.7 + 0.8 * 0.5 + 0.3 * 0.5 - 0.02, abs=0.2)
