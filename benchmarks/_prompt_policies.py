"""Regret of the actor beside even choice and Thompson sampling; agreement and calibration of the critic on ratings that it has not seen.

Part of ``python -m benchmarks prompts``. The actor plays three bandits of 200 questions, learning every 10 ratings, each liked or not by chance. The critic reads
answers that are put together from pieces (length, list, emoji, greeting, units …) and a person whose taste is two of these, one rating in ten wrong.
"""

from __future__ import annotations

import random
import statistics
from typing import Any

QUESTIONS, EVERY, PLAYS = 200, 10, 20
BANDITS = {
    "2 prompts": ([0.8, 0.4], [0.8, 0.4]),
    "5 prompts": ([0.8, 0.5, 0.5, 0.4, 0.3], [0.8, 0.5, 0.5, 0.4, 0.3]),
    "2 prompts, by the question": ([0.8, 0.3], [0.3, 0.8]),
}
"""How often each prompt's answers are liked: to a why, and to a task."""
RATED = (20, 50, 100)
HELD_OUT, PEOPLE = 400, 20
TASTES = (
    ("list", True),
    ("emoji", False),
    ("short", True),
    ("greeting", False),
    ("exclaims", False),
    ("metric", True),
)
MISTAKES = 0.1


def measure() -> dict[str, Any]:
    return {"actor": _actors(), "critic": _critics(range(PEOPLE))}


def table(made: dict[str, Any]) -> str:
    lines = [
        "\n### Actor\n",
        "| actor | bandit | regret after 200 | best prompt's share of the last 50 |",
        "| --- | --- | --- | --- |",
    ]
    for name, bandits in made["actor"].items():
        for bandit, runs in bandits.items():
            regret, share = zip(*runs, strict=True)
            lines.append(
                f"| {name} | {bandit} | {statistics.fmean(regret):.1f} ± {statistics.stdev(regret):.1f} | {statistics.fmean(share):.2f} (least {min(share):.2f}) |"
            )
    lines += [
        "\n### Critic\n",
        "| ratings | agrees with the person's taste | always the same verdict | calibration error | of the true probabilities | as it says itself |",
        "| --- | --- | --- | --- | --- | --- |",
    ]
    for count, runs in made["critic"].items():
        columns = [
            statistics.fmean(run[key] for run in runs)
            for key in ("agrees", "always", "calibration", "chance", "says")
        ]
        lines.append(f"| {count} | " + " | ".join(f"{value:.2f}" for value in columns) + " |")
    return "\n".join(lines)


def _actors() -> dict[str, Any]:
    from clawback.extensions.rlprompt.actor import PromptActor, RandomActor, ThompsonActor

    kinds: dict[str, Any] = {
        "even choice": RandomActor,
        "GPRO": PromptActor,
        "Thompson sampling": ThompsonActor,
    }
    return {
        name: {bandit: [_play(kind(seed=seed), liked, seed) for seed in range(PLAYS)] for bandit, liked in BANDITS.items()}
        for name, kind in kinds.items()
    }  # fmt: skip


def _play(actor: Any, liked: tuple[list[float], list[float]], seed: int) -> tuple[float, float]:
    from clawback.extensions.rlprompt.actor import Transition

    rng, regret, batch, best = random.Random(f"play:{seed}"), 0.0, [], []
    ids = tuple(f"prompt {i}" for i in range(len(liked[0])))
    for number in range(QUESTIONS):
        kind = rng.randrange(2)
        query = ("Why is the sky blue?", "Write a short poem about the sea.")[kind]
        place, logprob = actor.choose(query, ids)
        regret += max(liked[kind]) - liked[kind][place]
        best.append(liked[kind][place] == max(liked[kind]))
        batch.append(
            Transition(query, ids[place], float(rng.random() < liked[kind][place]), logprob, "", ids)
        )
        if (number + 1) % EVERY == 0:
            actor.learn(batch)
            batch = []
    return regret, sum(best[-50:]) / 50


def _answer(rng: random.Random) -> tuple[str, dict[str, bool]]:
    """An answer, and which features it has."""
    has = {name: rng.random() < 0.5 for name, _ in TASTES}
    facts = [
        "it depends on the season",
        "most people wait a day",
        "the roots need air",
        "two of them are enough",
        "the old ones break first",
    ]
    rng.shuffle(facts)
    said = facts[: 1 if has["short"] else 4]
    body = (
        "\n".join(f"- {one}" for one in [*said, "that is all"])
        if has["list"]
        else ". ".join(one.capitalize() for one in said) + "."
    )
    opening = "Sure, happy to help. " if has["greeting"] else ""
    unit = " About 3 kg." if has["metric"] else " About 7 pounds."
    end = ("!" if has["exclaims"] else "") + (" 🙂" if has["emoji"] else "")
    return f"{opening}{body}{unit}{end}", has


def _critics(people: range) -> dict[int, list[dict[str, float]]]:
    from clawback.extensions.reward.measures import calibration_error, reliability
    from clawback.extensions.rlprompt.critic import Critic

    made: dict[int, list[dict[str, float]]] = {count: [] for count in RATED}
    for seed in people:
        rng = random.Random(f"critic:{seed}")
        taste = rng.sample(TASTES, 2)
        critic = Critic(every=10)
        unseen = [_answer(rng) for _ in range(HELD_OUT)]
        truth = [_likes(has, taste) for _, has in unseen]
        for number in range(1, max(RATED) + 1):
            text, has = _answer(rng)
            liked = _likes(has, taste) != (rng.random() < MISTAKES)
            critic.update("You are helpful.", f"Question {number}?", text, 1.0 if liked else -1.0)
            if number in made:
                scores = critic.scores([("You are helpful.", "A question?", text) for text, _ in unseen])
                known = [1 - MISTAKES if t else MISTAKES for t in truth]
                noisy = [float(t != (rng.random() < MISTAKES)) for t in truth]
                made[number].append(
                    {
                        "agrees": statistics.fmean(
                            (s > 0.5) == t for s, t in zip(scores, truth, strict=True)
                        ),
                        "always": max(statistics.fmean(truth), 1 - statistics.fmean(truth)),
                        "calibration": calibration_error(reliability(scores, noisy)),
                        "chance": calibration_error(reliability(known, noisy)),
                        "says": critic.agreement(50).share,
                    }
                )
    return made


def _likes(has: dict[str, bool], taste: list[tuple[str, bool]]) -> bool:
    """The first wish counts most: liked where it is met, and a coin's worth of the second where it is not is no liking."""
    return has[taste[0][0]] == taste[0][1] and (has[taste[1][0]] == taste[1][1] or not has["short"])
