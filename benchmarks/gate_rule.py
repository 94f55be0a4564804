"""The gate's rule alone, on hundreds of simulated people: how often it errs and how much it asks, without training anything.

The base model answers 256 prompts once and 48 kept prompts 24 times. Everything after that is arithmetic. A person rates 32 of the 256 answers, some
taps wrong; what they may want is read out of seven eighths of the ratings as a run reads it. A version draws, for each of 16 kept prompts, six
answers: with chance m the one of eight answers of the base that promises most, else any. ``m`` is chosen so that the version is better by exactly as
much as its kind says, in the share of answers that the person likes. Then the gate's own rule decides: its reader, fitted on all 32 ratings, grades the
answers, the questions are chosen as the gate chooses them, and the person says which of two answers is better: the one that they like, wrong as often as
their taps are, and by a coin where they like both or neither.

* *better*: by 25 points. *same*: another draw of the live version's answers. *shuffled*: has learned from the ratings in another order, *other*: from somebody with
  another taste; both count where they are no better (by at most 0 points). *noise*: learned from taps that mean nothing, and whoever tapped so
  compares by a coin.
* *content*: the live version has learned the person's taste from 32 ratings and is liked in at least 85 of 100 cases; 32 of its answers are rated. Is there
  anything to gain (``gate.headroom``)? If so, a version that has learned from all 64 ratings comes before the gate.

Half of the tastes can be said in style features, half cannot. Guards, held-out shifts and rules are left out: all can only turn down more of the versions that are no better,
or accept at once.

    python -m benchmarks gate_rule                             # the test tastes
    python -m benchmarks gate_rule --tastes dev --people 4
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from clawback.config import GateSection
from clawback.feedback import turn_reward
from clawback.gate import headroom, questions
from clawback.gate.guards import AnswerStatistics
from clawback.gate.rule import Evidence, decide
from clawback.records import Part, Sample
from clawback.rewards.reward_ensemble import RIDGE, RULES

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

RATED, CAPTURED, PROMPTS, EACH = 32, 256, 48, 24
ASKED, ANSWERS, BEST = 16, 6, 8
GAIN, CONTENT = 0.25, 0.85
HELD = GateSection().held_out
KINDS = ("better", "same", "shuffled", "other", "noise", "content")
FINE = AnswerStatistics(finished=1.0, empty=0.0, repeating=0.0, length=40.0)


@dataclass(frozen=True)
class Pool:
    """Answers of the base: to the captured prompts one each, then to the kept ones; what is seen in them, and whom they please."""

    views: Any
    space: Any
    seen: Any
    prompts: list[str]
    texts: list[str]
    pleases: dict[str, NDArray[np.bool_]]

    def row(self, prompt: int, answer: int) -> int:
        return CAPTURED + prompt * EACH + answer

    def kept(self) -> Ints:
        """``[prompts, answers]`` rows of the answers to kept prompts."""
        return CAPTURED + np.arange(PROMPTS * EACH).reshape(PROMPTS, EACH)


def pool(names: Sequence[str]) -> Pool:
    from clawback import engine
    from clawback.extensions.demo import corpus, tastes
    from clawback.rewards.rule_posterior import Space
    from clawback.rewards.views import Answers, Views

    policy = engine.load("embedded")
    captured, kept = corpus.prompts("rated", CAPTURED, 0), corpus.prompts("held_out", PROMPTS, 7)
    made = [*policy.generate([p.messages for p in captured], samples=1, seed=1)]
    made += policy.generate([p.messages for p in kept], samples=EACH, seed=2)
    asked = [*captured, *kept]
    flat = [(asked[i], c) for i, completions in enumerate(made) for c in completions]
    ids, texts = [list(c.ids) for _, c in flat], [c.text for _, c in flat]
    hidden = policy.features([p.messages for p, _ in flat], ids).double().numpy()
    prompts = [p.text for p, _ in flat]

    def answers(count: int) -> Answers:
        return Answers(ids[:count], texts[:count], hidden[:count], prompts[:count])

    views = Views.ground(answers(CAPTURED))
    pleases = {name: np.array([tastes.TASTES[name].fits(p, c.text) for p, c in flat]) for name in names}
    space = Space.of(views.signs(answers(CAPTURED)), views.layout)
    return Pool(views, space, views.view(answers(len(flat))), prompts, texts, pleases)


def read(here: Pool, rows: Ints, ratings: Floats, trust: bool = True) -> Any:
    """What the ratings of these answers are about: the reader of the run and of the gate. ``trust``: whether it says how far it is to be trusted, too."""
    from clawback.rewards import reward_ensemble

    fit = reward_ensemble.fit
    if not trust:  # the permutations take most of the time
        fit = partial(_untrusted, fit)
    return fit(here.views, here.space, here.seen[rows], ratings, ridge=RIDGE)


def _untrusted(fit: Any, *given: Any, **named: Any) -> Any:
    from unittest.mock import patch

    with patch("clawback.rewards.reward_ensemble.permutation_test"):
        return fit(*given, **named)


@dataclass(frozen=True)
class Person:
    """A taste, and the share of taps and choices that are wrong; without a taste a coin."""

    taste: str | None
    wrong: float

    def taps(self, here: Pool, rows: Ints, rng: np.random.Generator) -> Floats:
        if self.taste is None:
            return np.where(rng.random(len(rows)) < 0.5, 1.0, -1.0)
        return np.where(here.pleases[self.taste][rows] ^ (rng.random(len(rows)) < self.wrong), 1.0, -1.0)

    def prefers_first(self, here: Pool, first: int, second: int, rng: np.random.Generator) -> bool:
        likes = (False, False) if self.taste is None else here.pleases[self.taste][[first, second]]
        if likes[0] == likes[1]:
            return bool(rng.random() < 0.5)
        return bool(likes[0] != (rng.random() < self.wrong))


@dataclass(frozen=True)
class Version:
    """Draws the best of ``BEST`` answers by a promise with chance ``m``, else any answer."""

    promise: Floats  # [prompts, answers]
    m: float

    def draw(self, here: Pool, prompts: Ints, count: int, rng: np.random.Generator) -> Ints:
        """``[prompts × count]`` rows."""
        rows = []
        for prompt in np.repeat(prompts, count):
            some = rng.permutation(EACH)[:BEST]
            best = some[self.promise[prompt, some].argmax()]
            rows.append(here.row(prompt, int(best if rng.random() < self.m else some[0])))
        return np.array(rows)

    def share(self, here: Pool, taste: str, seed: int = 0) -> float:
        """Of answers that somebody with the taste likes."""
        rows = self.draw(here, np.arange(PROMPTS), 40, np.random.default_rng(seed))
        return float(here.pleases[taste][rows].mean())


def learned(here: Pool, rows: Ints, ratings: Floats) -> Floats:
    """What promises most, by seven eighths of the ratings."""
    train = np.array([not turn_reward.keeps(turn_reward.text_key(here.prompts[row]), HELD) for row in rows])
    if np.ptp(ratings[train]) == 0:
        train[:] = True
    made = read(here, rows[train], ratings[train], trust=False)
    return np.asarray(made.score(here.seen[here.kept().ravel()], RULES, 0.5)).reshape(PROMPTS, EACH)


def case(
    here: Pool, person: Person, kind: str, names: Sequence[str], rng: np.random.Generator
) -> dict[str, Any] | None:
    """One person and one candidate; None where it is none of its kind."""
    rated = rng.permutation(CAPTURED)[:RATED]
    ratings = person.taps(here, rated, rng)
    if min((ratings > 0).sum(), (ratings < 0).sum()) < 2:
        return None
    live = Version(np.zeros((PROMPTS, EACH)), 0.0)
    told = ratings
    if kind == "shuffled":
        told = rng.permutation(ratings)
    if kind == "other":
        told = Person(str(rng.choice([n for n in names if n != person.taste])), person.wrong).taps(
            here, rated, rng
        )
        if np.ptp(told) == 0:
            return None
    promise = learned(here, rated, told)
    if kind == "content":
        return content(here, person, Version(promise, 1.0), rated, ratings, rng)
    m = 0.0 if kind == "same" else 1.0
    if person.taste is not None:
        gained = Version(promise, 1.0).share(here, person.taste) - live.share(here, person.taste)
        if kind == "better":
            if gained < GAIN:
                return None
            m = GAIN / gained
        elif kind in ("shuffled", "other") and gained > 0:
            return None
    return judged(here, person, Version(promise, m), live, read(here, rated, ratings), ratings, rng)


def judged(
    here: Pool,
    person: Person,
    candidate: Version,
    live: Version,
    reader: Any,
    ratings: Floats,
    rng: np.random.Generator,
) -> dict[str, Any]:
    """What the gate makes of a version, by the person's answers."""
    prompts = rng.permutation(PROMPTS)[:ASKED]
    ours, theirs = (version.draw(here, prompts, ANSWERS, rng) for version in (candidate, live))
    asked = [here.prompts[row] for row in ours]
    grades = [list(map(float, reader.score(here.seen[rows], RULES, 0.0))) for rows in (ours, theirs)]
    texts = [[here.texts[row] for row in rows] for rows in (ours, theirs)]
    pairs = questions.matched(asked, *grades)
    chosen = questions.informative(pairs, asked, *texts)[: questions.MOST]
    contrast = reader.contrast(here.seen[ours], here.seen[theirs], RULES, paired=True)
    seen = Evidence(
        good=int((ratings > 0).sum()),
        bad=int((ratings < 0).sum()),
        liked=(),
        disliked=(),
        read_p=reader.trust.p,
        gain=contrast.gain,
        gain_sd=contrast.sd,
        better=contrast.better,
        kl=2.0,
        perplexity_ratio=1.0,
        candidate=FINE,
        live=FINE,
        base=FINE,
        questions=len(chosen),
    )
    decision, answers = decide(seen, GateSection()), []
    while decision.asks:
        pair = chosen[len(answers)]
        answers.append(person.prefers_first(here, int(ours[pair.candidate]), int(theirs[pair.live]), rng))
        decision = decide(replace(seen, answers=tuple(answers)), GateSection())
    return {"accepted": decision.accepted, "questions": len(answers), "run": True}


def content(
    here: Pool, person: Person, live: Version, rated: Ints, ratings: Floats, rng: np.random.Generator
) -> dict[str, Any] | None:
    """Somebody who likes what the live version says."""
    assert person.taste is not None
    if live.share(here, person.taste) < CONTENT:
        return None
    answers = live.draw(here, rng.permutation(PROMPTS), 3, rng)[: 4 * RATED]
    tapped = rng.permutation(answers)[:RATED]
    taps = person.taps(here, tapped, rng)
    own = [
        _sample(here, 1000 + i, int(row), float(tap))
        for i, (row, tap) in enumerate(zip(tapped, taps, strict=True))
    ]
    before = [
        _sample(here, i, int(row), float(tap))
        for i, (row, tap) in enumerate(zip(rated, ratings, strict=True))
    ]
    captured = {2000 + i: (here.prompts[row], here.texts[row]) for i, row in enumerate(answers)}
    found = headroom.of([*before, *own], own, captured)
    if found is not None and found.nothing_to_gain:
        return {"accepted": False, "questions": 0, "run": False}
    rows, every = np.concatenate([rated, tapped]), np.concatenate([ratings, taps])
    candidate = Version(learned(here, rows, every), 1.0)
    return judged(here, person, candidate, live, read(here, rows, every), every, rng)


def _sample(here: Pool, number: int, row: int, reward: float) -> Sample:
    asked = ({"role": "user", "content": here.prompts[row]},)
    return Sample(number, asked, here.texts[row], reward, (Part(number, "rating", reward, 1.0),))


def wilson(share: float, count: int, z: float = 1.96) -> tuple[float, float]:
    """The 95 % interval of a share (Wilson 1927)."""
    if not count:
        return 0.0, 1.0
    middle, wide = (
        share + z * z / (2 * count),
        z * (share * (1 - share) / count + z * z / (4 * count**2)) ** 0.5,
    )
    return (middle - wide) / (1 + z * z / count), (middle + wide) / (1 + z * z / count)


def line(name: str, rows: list[dict[str, Any]]) -> str:
    count = max(len(rows), 1)
    accepted = sum(r["accepted"] for r in rows) / count
    low, high = wilson(accepted, len(rows))
    asked = [r["questions"] for r in rows]
    return (
        f"| {name} | {len(rows)} | {sum(r['run'] for r in rows) / count:.0%} | {sum(n == 0 for n in asked) / count:.0%} "
        f"| {sum(asked) / count:.1f} | {max(asked, default=0)} | **{accepted:.1%}** ({low:.1%} to {high:.1%}) |"
    )


def main(argv: list[str] | None = None) -> int:
    from clawback.extensions.demo import tastes

    parser = argparse.ArgumentParser(
        prog="python -m benchmarks gate_rule", description=__doc__.partition("\n")[0]
    )
    parser.add_argument("--tastes", choices=("dev", "test"), default="test")
    parser.add_argument("--people", type=int, default=10, help="of each taste and kind")
    parser.add_argument("--kinds", nargs="*", choices=KINDS, default=KINDS)
    parser.add_argument(
        "--wrong", nargs="*", type=float, default=(0.1, 0.2), help="share of taps and choices"
    )
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args(argv)
    names = tastes.TEST if options.tastes == "test" else tastes.DEV
    sayable = {*tastes.MAIN, *tastes.TEST_INSIDE}
    here = pool(names)
    print("| candidates | cases | a run | nothing asked | questions | at most | accepted |")
    print("| --- " * 7 + "|")
    for wrong in options.wrong:
        for kind in options.kinds:
            rng = np.random.default_rng(options.seed)
            rows = []
            for taste in names:
                for _ in range(options.people):
                    person = Person(None if kind == "noise" else taste, wrong)
                    if (one := case(here, person, kind, names, rng)) is not None:
                        rows.append(one | {"sayable": taste in sayable})
            print(line(f"{kind}, {wrong:.0%} wrong", rows), flush=True)
            if kind == "better":
                for inside, word in ((True, "can be said"), (False, "cannot be said")):
                    print(
                        line(
                            f"… taste that {word} in style features",
                            [r for r in rows if r["sayable"] == inside],
                        )
                    )
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
