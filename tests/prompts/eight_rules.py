"""A small world with known answers: eight rules, of which each question needs two; feedback names one that is missing."""

import random

from clawback.prompts import Example, Outcome, Prompt, Proposal
from clawback.prompts.prompt import render, with_rule

RULES = [f"Rule {word} holds for {word}s." for word in ("alpha", "beta", "gamma", "delta", "kappa", "omega", "sigma", "theta")]  # fmt: skip
START = Prompt("You are a helpful assistant.")


def examples(count=40):
    return [
        Example.ask(f"Question {i}?", str(i), split="train" if i < count // 2 else "validation")
        for i in range(count)
    ]


NEEDS = {str(i): random.Random(f"needs{i}").sample(range(8), 2) for i in range(200)}


class World:
    """Counts what is asked of it."""

    def __init__(self, wrong=0.3, noise=0.0):
        self.tried = self.asked = 0
        self.wrong, self.noise = wrong, noise
        self.rng = random.Random(0)

    def evaluate(self, prompt, example):
        self.tried += 1
        missing = [RULES[i] for i in NEEDS[example.id] if RULES[i] not in prompt.text]
        score = 1 - len(missing) / 2 + self.rng.gauss(0, self.noise) * bool(self.noise)
        return Outcome(score, "\n".join(f"It lacks: {one}" for one in missing), "an answer")

    def propose(self, request):
        self.asked += 1
        rng = random.Random(request.number)
        lacking = [
            line.removeprefix("It lacks: ") for c in request.cases for line in c.outcome.feedback.splitlines()
        ]
        rule = (
            rng.choice(lacking)
            if lacking and rng.random() > self.wrong
            else f"Mind the {rng.randrange(999)}."
        )
        return Proposal(Prompt(render(with_rule(request.prompt.sections, "constraints", rule))))
