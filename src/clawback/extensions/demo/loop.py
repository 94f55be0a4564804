"""The demo's loop: answer, rate, train, judge, go live, by the same calls as everything else.

Only the person, who has a hidden taste, is simulated: turns are captured in a real store, each rating is a
row, the run is the one that ``clawback train`` makes, the gate decides, and the live version answers the next
round.
"""

from __future__ import annotations

import dataclasses
import random
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from clawback import config, feedback, jobs, release, store
from clawback.admin.rating_inbox import Inbox
from clawback.errors import NothingToGain, UsageError
from clawback.extensions.demo.worlds import mean, world
from clawback.paths import Home
from clawback.progress import OnProgress
from clawback.records import Turn

if TYPE_CHECKING:
    from clawback.extensions.demo.corpus import TopicPrompt
    from clawback.jobs import RunResult
    from clawback.policy import Policy
    from clawback.records import Version

RATINGS = 32
NOISE = 0.1
HELD_OUT = 128

Rate = Callable[["TopicPrompt", str], int | None]
"""A person: a prompt and an answer → +1, -1, 0 for "no opinion", or None for "enough"."""
Choose = Callable[["TopicPrompt", str, str], int | None]
"""The same person, of two answers: +1 if the first is better, -1 if the second, 0 and None as above."""


@dataclass(frozen=True, slots=True)
class Look:
    """Measurements of a version on prompts that nobody rated.

    ``satisfaction`` is the share of answers that fit the whole taste (None where nobody but the person knows
    it), ``facts`` the share of stated facts that are right (None where nobody can tell), ``kl`` the drift
    from the base in nats per answer, estimated on the version's own answers, ``habits`` the share of answers
    that show each axis of style.
    """

    version: int
    satisfaction: float | None
    facts: float | None
    kl: float
    habits: Mapping[str, float]
    answers: tuple[tuple[str, str], ...]
    """(prompt, answer) of all; the same version gives the same ones each time it is looked at."""


@dataclass(frozen=True, slots=True)
class Round:
    """One round: ratings given, what the run made of them, and how the live version answers after it."""

    number: int
    ratings: int
    good: int
    outcome: RunResult | None
    """None where there was nothing to gain, and so no run."""
    look: Look
    seconds: float
    enough: bool = False
    """The person stopped before all answers were rated."""
    questions: int = 0
    """How often the gate asked which of two answers is better."""
    why: str = ""
    """Why there was no run."""


class Demo:
    """A home, a person, and the rounds so far. ``taste`` is None where a real person rates: nobody can look into them.

    Raises ``UsageError`` for a taste that there is not, and for a folder with something in it: the demo writes settings
    and rates on its own account, which must never happen in a home that somebody uses.
    """

    def __init__(
        self,
        home: Home,
        taste: str | None,
        *,
        base: str = config.EMBEDDED,
        seed: int = 0,
        noise: float = NOISE,
        algorithm: str = "auto",
    ) -> None:
        self.world = world(base)
        if taste is not None and taste not in self.world.people:
            raise UsageError(f"There is no taste {taste!r}. There are: {'; '.join(self.world.people)}.")
        if home.root.exists() and (not home.root.is_dir() or any(home.root.iterdir())):
            raise UsageError(
                f"{home.root} is not an empty folder. The demo needs one of its own: name another with --home."
            )
        home.create()
        training = {"algorithm": algorithm, "seed": seed, "background": False}
        given = {name: dict(section) for name, section in self.world.settings.items()}
        config.save(
            home.config, given | {"model": {"base": base}, "training": given.get("training", {}) | training}
        )
        self.taste = self.world.people[taste] if taste is not None else None
        self.home, self.seed, self.noise = home, seed, noise
        self.person = random.Random(f"person {seed}")
        self.prompts: dict[str, TopicPrompt] = {}
        """By its text: what a simulated person reads beside the answer."""
        self.rounds: list[Round] = []
        self.latest: Look | None = None

    def live(self) -> tuple[Version, Policy]:
        with store.connect(self.home.database) as db:
            version = db.live()
        return version, release.load(self.home, version)

    def simulated(self, prompt: TopicPrompt, answer: str) -> int:
        """The simulated person's ratings, sometimes wrong."""
        if self.taste is None:
            raise UsageError("Nobody is there to rate: name a taste, or rate yourself.")
        return self.taste.rate(prompt, answer, self.person, self.noise)

    def chosen(self, prompt: TopicPrompt, first: str, second: str) -> int:
        """The simulated person's choice: the answer that they like; of two, or of none, either. Sometimes wrong."""
        if self.taste is None:
            raise UsageError("Nobody is there to choose: name a taste, or choose yourself.")
        likes = self.taste.fits(prompt, first), self.taste.fits(prompt, second)
        if likes[0] == likes[1]:
            return self.person.choice((1, -1))
        return (1 if likes[0] else -1) * (-1 if self.person.random() < self.noise else 1)

    def look(self, on_progress: OnProgress | None = None) -> Look:
        """Sample the live version's answers to prompts without ratings, with the same seed each time."""
        if on_progress:
            on_progress({"phase": "held out"})
        version, policy = self.live()
        asked = self.world.held_out(HELD_OUT, self.seed)
        conversations = [p.messages for p in asked]
        # In one piece: a small model answers 128 prompts in little more time than 32.
        made = [completion for [completion] in policy.generate(conversations, seed=10_000 + self.seed)]
        ids = [list(c.ids) for c in made]
        ours = policy.logprobs(conversations, ids)
        with policy.base():
            base = policy.logprobs(conversations, ids)
        pairs = [(prompt, completion.text) for prompt, completion in zip(asked, made, strict=True)]
        self.latest = Look(
            version=version.number,
            satisfaction=mean([self.taste.fits(*pair) for pair in pairs]) if self.taste else None,
            facts=self.world.facts(pairs),
            kl=mean([float((a - b).sum()) for a, b in zip(ours, base, strict=True)]),
            habits=self.world.habits([text for _, text in pairs]),
            answers=tuple((prompt.text, text) for prompt, text in pairs),
        )
        return self.latest

    def round(
        self,
        ratings: int = RATINGS,
        rate: Rate | None = None,
        on_progress: OnProgress | None = None,
        choose: Choose | None = None,
    ) -> Round | None:
        """One round: answer, collect ratings, train, judge. None when the person gave no rating at all."""
        began, number = time.monotonic(), len(self.rounds) + 1
        given = self.collect(ratings, rate or self.simulated, on_progress)
        told = [value for value in given if value]
        if not told:
            return None
        outcome, why, questions = None, "", 0
        try:
            outcome = jobs.train_once(self.home, on_progress=on_progress)
            outcome, questions = self.answer(outcome, choose or (self.chosen if rate is None else None))
        except NothingToGain as error:
            why = str(error)
        live = outcome is not None and outcome.live
        done = Round(
            number=number,
            ratings=len(told),
            good=sum(value > 0 for value in told),
            outcome=outcome,
            # A version that the gate turned away leaves the live one as it was: no need to ask it all again.
            look=self.look(on_progress) if live or not self.latest else self.latest,
            seconds=time.monotonic() - began,
            enough=len(given) < ratings,
            questions=questions,
            why=why,
        )
        self.rounds.append(done)
        return done

    def answer(self, outcome: RunResult, choose: Choose | None) -> tuple[RunResult, int]:
        """Let the person say which of two answers is better, as long as the gate asks. What became of the version then, and how many were asked."""
        asked, report = 0, outcome.report
        passed_over: set[int] = set()
        while report.again_at and choose is not None:
            pair = next((p for p in Inbox(self.home).questions() if p.first.id not in passed_over), None)
            if pair is None:
                break
            asked += 1
            way = choose(self.prompts[pair.first.prompt], pair.first.response, pair.second.response)
            if way is None:
                break
            passed_over.add(pair.first.id)
            if way:
                better, worse = (pair.first, pair.second) if way > 0 else (pair.second, pair.first)
                with store.connect(self.home.database) as db:
                    feedback.prefer(db, better.id, worse.id, source="demo")
                report = jobs.judge_waiting(self.home) or report
        with store.connect(self.home.database) as db:
            version = db.version(outcome.version.number)
        return dataclasses.replace(outcome, version=version, report=report), asked

    def collect(self, ratings: int, rate: Rate, on_progress: OnProgress | None = None) -> list[int]:
        """The live version answers new prompts; each answer is captured as a turn, and some are rated: those that the inbox asks
        about. The others' prompts are for fresh answers.

        One value an answer in the order of asking, 0 where the person had no opinion; shorter when they had enough.
        """
        if on_progress:
            on_progress({"phase": "answer"})
        version, policy = self.live()
        number, count = len(self.rounds), round(self.world.captured * ratings)
        asked = self.world.rated(count, count * number, self.seed)
        made = policy.generate([p.messages for p in asked], seed=1000 * self.seed + number)
        given: list[int] = []
        with store.connect(self.home.database) as db:
            with db.together():
                for prompt, [completion] in zip(asked, made, strict=True):
                    turn = Turn(
                        session=f"demo {number}",
                        messages=tuple(prompt.messages),
                        response=completion.text,
                        agent="demo",
                        version=version.number,
                        response_ids=completion.ids,
                        response_logprobs=completion.logprobs,
                    )
                    self.prompts[db.add_turn(turn).prompt] = prompt
            inbox = Inbox(self.home)
            shown: set[int] = set()
            while len(given) < ratings and (best := inbox.next(1, shown)):
                turn = best[0].turn
                shown.add(turn.id)
                value = rate(self.prompts[turn.prompt], turn.response)
                if value is None:
                    break
                if value:
                    feedback.rate(db, turn.id, value, source="demo")
                given.append(value)
        return given

    def rollback(self) -> Version:
        """Back to the version before, as ``clawback versions rollback`` does."""
        with store.connect(self.home.database) as db:
            return release.rollback(db, self.home)

    def forward(self, version: int) -> Version:
        with store.connect(self.home.database) as db:
            return release.promote(db, self.home, version)
