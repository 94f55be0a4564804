"""Answer, rate, train, judge, go live: through the same calls as everything else, with a person who has a hidden taste.

Nothing is simulated but the person: turns are captured in a real store, each tap is a row, the run is the one that
``clawback train`` makes, the gate decides, and the live version answers the next round.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from clawback import config, feedback, jobs, release, store
from clawback.engine.embedded import corpus, tastes
from clawback.errors import UsageError
from clawback.jobs.training import OnProgress
from clawback.paths import Home
from clawback.records import Turn

if TYPE_CHECKING:
    from clawback.engine.torch.policy import Policy
    from clawback.jobs import Outcome
    from clawback.records import Version

RATINGS = 32
NOISE = 0.1
HELD_OUT = 128
SHOWN = 3
"""Prompts whose answers are shown side by side."""

Rate = Callable[[corpus.Prompt, str], int | None]
"""A person: a prompt and an answer → +1, -1, or None for "enough"."""


@dataclass(frozen=True, slots=True)
class Look:
    """How a version answers prompts that nobody rated.

    ``satisfaction`` is the share of answers that fit the whole taste, ``facts`` the share of stated facts that are
    right, ``kl`` the drift from the base in nats an answer, estimated on the version's own answers.
    """

    version: int
    satisfaction: float
    facts: float
    kl: float
    answers: tuple[tuple[str, str], ...]
    """(prompt, answer) of the first few."""


@dataclass(frozen=True, slots=True)
class Round:
    """One round: ratings given, what the run made of them, and how the live version answers after it."""

    number: int
    ratings: int
    good: int
    outcome: Outcome
    look: Look
    seconds: float


class Demo:
    """A home, a person, and the rounds so far."""

    def __init__(
        self, home: Home, taste: str, *, seed: int = 0, noise: float = NOISE, algorithm: str = "auto"
    ) -> None:
        if taste not in tastes.TASTES:
            raise UsageError(f"There is no taste {taste!r}. There are: {'; '.join(tastes.TASTES)}.")
        home.create()
        training = {"algorithm": algorithm, "seed": seed, "background": False}
        config.save(home.config, {"model": {"base": config.EMBEDDED}, "training": training})
        self.home, self.taste, self.seed, self.noise = home, tastes.TASTES[taste], seed, noise
        self.person = random.Random(f"person {seed}")
        self.rounds: list[Round] = []

    def live(self) -> tuple[Version, Policy]:
        with store.connect(self.home.database) as db:
            version = db.live()
        return version, release.load(self.home, version)

    def simulated(self, prompt: corpus.Prompt, answer: str) -> int:
        """What the simulated person taps: now and then the wrong key."""
        return self.taste.rate(prompt, answer, self.person, self.noise)

    def look(self) -> Look:
        """Ask the live version what nobody has rated answers to, with the same seed each time."""
        version, policy = self.live()
        asked = corpus.prompts("held_out", HELD_OUT, self.seed)
        conversations = [p.messages for p in asked]
        made = [c for [c] in policy.generate(conversations, seed=10_000 + self.seed)]
        checks = [corpus.check_facts(p, c.text) for p, c in zip(asked, made, strict=True)]
        ids = [list(c.ids) for c in made]
        ours = policy.logprobs(conversations, ids)
        with policy.base():
            base = policy.logprobs(conversations, ids)
        return Look(
            version=version.number,
            satisfaction=sum(self.taste.fits(p, c.text) for p, c in zip(asked, made, strict=True))
            / len(asked),
            facts=sum(c.right for c in checks) / max(1, sum(c.stated for c in checks)),
            kl=sum(float((a - b).sum()) for a, b in zip(ours, base, strict=True)) / len(asked),
            answers=tuple((p.text, c.text) for p, c in zip(asked[:SHOWN], made, strict=False)),
        )

    def round(
        self, ratings: int = RATINGS, rate: Rate | None = None, on_progress: OnProgress | None = None
    ) -> Round | None:
        """Answer, be rated, train, be judged. None when the person gave no rating at all."""
        began, number = time.monotonic(), len(self.rounds) + 1
        given = self.collect(ratings, rate or self.simulated)
        if not given:
            return None
        outcome = jobs.train_once(self.home, on_progress=on_progress)
        done = Round(
            number=number,
            ratings=len(given),
            good=sum(value > 0 for value in given),
            outcome=outcome,
            look=self.look(),
            seconds=time.monotonic() - began,
        )
        self.rounds.append(done)
        return done

    def collect(self, ratings: int, rate: Rate) -> list[int]:
        """The live version answers new prompts; each answer is captured as a turn and rated."""
        version, policy = self.live()
        number = len(self.rounds)
        asked = corpus.prompts("rated", ratings * (number + 1), self.seed)[-ratings:]
        made = policy.generate([p.messages for p in asked], seed=1000 * self.seed + number)
        given: list[int] = []
        with store.connect(self.home.database) as db:
            for prompt, [completion] in zip(asked, made, strict=True):
                turn = db.add_turn(
                    Turn(
                        session=f"demo {number}",
                        messages=tuple(prompt.messages),
                        response=completion.text,
                        agent="demo",
                        version=version.number,
                        response_ids=completion.ids,
                        response_logprobs=completion.logprobs,
                    )
                )
                value = rate(prompt, completion.text)
                if value is None:
                    break
                feedback.rate(db, turn.id, value, source="demo")
                given.append(value)
        return given

    def rollback(self) -> Version:
        """Back to the version before, as ``clawback rollback`` does."""
        with store.connect(self.home.database) as db:
            return release.rollback(db, self.home)

    def forward(self, version: int) -> Version:
        with store.connect(self.home.database) as db:
            return release.promote(db, self.home, version)
