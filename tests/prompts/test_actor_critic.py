"""The actor shifts to what is liked, the critic learns what that is, and says how far it can be believed."""

import json
import random

import numpy as np
import pytest

from clawback.errors import UsageError
from clawback.extensions.reward.measures import calibration_error, reliability
from clawback.extensions.rlprompt.actor import context, relative
from clawback.prompts import (
    CandidateResponse,
    Critic,
    GPROOptimizer,
    MockCritic,
    Prompt,
    PromptActor,
    RandomActor,
    ThompsonActor,
    Transition,
)

IDS = ("worse", "better")


def taught(actor, liked, ratings=120, seed=0, ids=IDS):
    rng, batch = random.Random(seed), []
    for number in range(ratings):
        query = ("Why is it so?", "Write a poem.")[number % 2]
        place, logprob = actor.choose(query, ids)
        batch.append(
            Transition(query, ids[place], float(rng.random() < liked(query)[place]), logprob, "", ids)
        )
        if len(batch) == 10:
            actor.learn(batch)
            batch = []
    return actor


@pytest.mark.parametrize("kind", [PromptActor, ThompsonActor])
def test_the_better_prompt_gets_most_of_the_picks(kind):
    for seed in range(5):
        actor = taught(kind(seed=seed), lambda _: (0.4, 0.8), seed=seed)
        picks = [actor.choose("Why is it so?", IDS)[0] for _ in range(100)]
        assert np.mean(picks) > 0.8


def test_an_even_choice_learns_nothing():
    actor = taught(RandomActor(seed=1), lambda _: (0.0, 1.0))
    assert 0.35 < np.mean([actor.choose("Why?", IDS)[0] for _ in range(200)]) < 0.65


def test_it_tells_kinds_of_questions_apart():
    actor = taught(
        PromptActor(seed=2), lambda q: (0.9, 0.1) if q.startswith("Why") else (0.1, 0.9), ratings=200
    )
    assert actor.probabilities("Why is it so?", IDS)[0] > 0.8
    assert actor.probabilities("Write a poem.", IDS)[1] > 0.8


def test_advantages_are_of_groups():
    batch = [
        Transition("q", i, r, 0.0, g)
        for i, r, g in (("a", 1, "x"), ("b", 0, "x"), ("a", 5, "y"), ("b", 5, "y"), ("a", 9, "z"))
    ]
    assert relative(batch).tolist() == [1.0, -1.0, 0.0, 0.0, 0.0]
    assert relative([Transition("q", "a", r, 0.0) for r in (1.0, 3.0)]).tolist() == [-1.0, 1.0]


def test_a_preference_moves_two_prompts_apart():
    actor = PromptActor()
    actor.learn(
        [
            Transition("Why?", "a", 1.0, np.log(0.5), "1", ("a", "b")),
            Transition("Why?", "b", 0.0, np.log(0.5), "1", ("a", "b")),
        ]
    )
    assert actor.probabilities("Why?", ["a", "b"])[0] > 0.5


def test_the_gradient_is_that_of_the_clipped_surrogate():
    """Against finite differences of the objective itself, at one step of a small rate."""
    rng, ids, queries = (
        np.random.default_rng(0),
        ("a", "b", "c"),
        ("Why so?", "Write 3 lines.", "Fix the code"),
    )
    actor = PromptActor(explore=0.05, optimizer=GPROOptimizer(learning_rate=1e-6, clip=0.2, epochs=1))
    start = {id: rng.normal(size=7) * 0.3 for id in ids}
    batch = [Transition(q, ids[i % 3], float(i), np.log(rng.uniform(0.2, 0.6)), "", ids if i % 2 else ids[: 2 + (i % 3 == 2)]) for i, q in enumerate(queries * 3)]  # fmt: skip

    def objective(weights):
        total = 0.0
        for one, advantage in zip(batch, relative(batch), strict=True):
            scores = np.array([weights[id] @ context(one.query) for id in one.among])
            soft = np.exp(scores) / np.exp(scores).sum()
            chance = 0.95 * soft[one.among.index(one.prompt_id)] + 0.05 / len(one.among)
            ratio = chance / np.exp(one.logprob)
            total += min(ratio * advantage, np.clip(ratio, 0.8, 1.2) * advantage)
        return total / len(batch)

    actor.weights = {id: row.copy() for id, row in start.items()}
    actor.learn(batch)
    for id in ids:
        step = (actor.weights[id] - start[id]) / 1e-6
        for place in range(7):
            up, down = ({k: v.copy() for k, v in start.items()} for _ in range(2))
            up[id][place] += 1e-6
            down[id][place] -= 1e-6
            assert step[place] == pytest.approx((objective(up) - objective(down)) / 2e-6, abs=1e-5)


@pytest.mark.parametrize("kind", [PromptActor, ThompsonActor, RandomActor])
def test_an_actor_goes_on_after_a_restart(kind):
    actor = taught(kind(seed=3), lambda _: (0.4, 0.8), ratings=40)
    again = kind()
    again.restore(json.loads(json.dumps(actor.to_dict())))
    assert [again.choose("Why?", IDS) for _ in range(20)] == [actor.choose("Why?", IDS) for _ in range(20)]
    with pytest.raises(UsageError):
        actor.choose("Why?", [])


def test_an_actor_chooses_among_answers():
    shown = [CandidateResponse("A", "worse", 0), CandidateResponse("B", "better", 1)]
    actor = taught(PromptActor(), lambda _: (0.0, 1.0), ids=tuple(Prompt(c.system_prompt).id for c in shown))
    assert actor.select_response("Why?", shown) == 1


FACTS = (
    "It depends on the season.",
    "The roots need air.",
    "Two of them are enough.",
    "Most people wait a day.",
)


def answers(count, seed):
    rng = random.Random(seed)
    for number in range(count):
        said = rng.sample(FACTS, rng.randint(2, 4))
        listed = rng.random() < 0.5
        yield f"Question {number}?", ("\n".join(f"- {s}" for s in said) if listed else " ".join(said)), listed


def test_the_critic_learns_a_taste_and_knows_how_well():
    critic, rng = Critic(every=10), random.Random(5)
    assert critic.score("You help.", "Q?", "A.") == 0.5
    assert str(critic.agreement()).startswith("nothing is known")
    for query, text, liked in answers(60, 1):
        critic.update("You help.", query, text, 1.0 if liked != (rng.random() < 0.1) else -1.0)
    unseen = list(answers(200, 2))
    scores = critic.scores([("You help.", q, t) for q, t, _ in unseen])
    assert np.mean((scores > 0.5) == [liked for *_, liked in unseen]) > 0.95
    said = critic.agreement()
    assert said.low < said.share <= said.high
    assert said.share > said.always
    assert said.count == 50  # each was predicted before it was learned, but for the first ten
    assert said.brier < 0.2


def test_without_a_taste_the_critic_does_not_pretend():
    critic, rng = Critic(every=10), random.Random(6)
    for query, text, _ in answers(60, 3):
        critic.update("You help.", query, text, rng.choice((1.0, -1.0)))
    assert critic.agreement().low < 0.5
    assert abs(critic.scores([("You help.", q, t) for q, t, _ in answers(50, 4)]) - 0.5).mean() < 0.25


def test_of_answers_that_the_critic_gives_seven_in_ten_about_seven_are_liked():
    """Eight people whose ratings are wrong one time in ten: what it says, in five bins, against what is said about answers that it has not seen."""
    scores, liked = [], []
    for seed in range(8):
        critic, rng = Critic(every=10), random.Random(seed)
        for query, text, likes in answers(60, 100 + seed):
            critic.update("You help.", query, text, 1.0 if likes != (rng.random() < 0.1) else -1.0)
        unseen = list(answers(200, 200 + seed))
        scores.extend(critic.scores([("You help.", q, t) for q, t, _ in unseen]))
        liked.extend(float(likes != (rng.random() < 0.1)) for *_, likes in unseen)
    assert calibration_error(reliability(scores, liked)) < 0.05
    assert np.ptp(scores) > 0.6, "saying the same of all would be calibrated too"


def test_ratings_by_chance_are_not_taken_for_a_taste():
    """By what it fits, a model of many features looks sure; by what it says of ratings that it does not know, it does not."""
    critic, rng = Critic(every=10), random.Random(11)
    for query, text, _ in answers(100, 12):
        critic.update("You help.", query, text, rng.choice((1.0, -1.0)))
    assert abs(critic.scores([("You help.", q, t) for q, t, _ in answers(100, 13)]) - 0.5).mean() < 0.1


def test_the_critic_goes_on_after_a_restart():
    critic = Critic(every=10)
    for query, text, liked in answers(25, 7):
        critic.update("You help.", query, text, 1.0 if liked else -1.0)
    again = Critic()
    again.restore(json.loads(json.dumps(critic.to_dict())))
    for query, text, liked in answers(10, 8):
        assert again.score("You help.", query, text) == pytest.approx(critic.score("You help.", query, text))
        for one in (critic, again):
            one.update("You help.", query, text, 1.0 if liked else -1.0)
    assert again.agreement() == critic.agreement()


def test_a_constant_critic_is_constant():
    assert MockCritic(default_score=0.3).score("s", "q", "any") == 0.3
