"""The gate's rule alone, on hundreds of simulated people: how often it errs, without training anything.

The base model answers 352 prompts nine times over, once. Everything after that is arithmetic: a person rates 32 of these answers
(one tap in ten wrong), what they may want is read out of seven eighths of the ratings as a run reads it, and the candidate is what picks, of eight
answers to a prompt, the one that promises most: about where training leads. Then the gate's own rule decides on
what the gate would see; where it asks for more ratings, the same person rates the candidate's answers and the base's, and it decides again. Four kinds of candidate: *learned* from the ratings,
from the same ratings *shuffled*, picking at *random* by a direction of its own, and *noise*: from people whose taps mean nothing, each with a share of good ones of their own.

Half of the tastes can be said in style features, half cannot. The rule was chosen on those for development; what is claimed are the figures of those for the test.
Held-back log-prob shifts are those of best of eight, ``7 log F(score)`` (F: the base's answers to that prompt), damped to the
drift that training has. Guards are left out: what they look at is not simulated.

    python -m benchmarks gate_rule                             # the test tastes
    python -m benchmarks gate_rule --tastes dev --people 60
    python -m benchmarks gate_rule --chosen                    # they rate what the inbox asks about, out of four times as many answers
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from clawback.config import Gate
from clawback.feedback import hold_out
from clawback.release import human_eval
from clawback.release.rule import MOST_LOOKS, Compared, Evidence, Sampled, decide
from clawback.rewards.reward_ensemble import RIDGE, RULES

Floats = NDArray[np.float64]
Bools = NDArray[np.bool_]
Ints = NDArray[np.int64]
Rated = tuple[Ints, Floats, Bools]
"""Numbers of the prompts whose first answer was rated, in order; the ratings; which of them are kept for the gate."""

RATED, CAPTURED, FRESH, NOISE, HELD, BEST = 32, 4, 96, 0.1, Gate().held_out, 8
DAMPED, PESSIMISM = 0.35, 0.5
IMPROVED = 0.10
KINDS = ("learned", "shuffled", "random", "noise")
TAPPED_GOOD = (0.15, 0.3, 0.5, 0.7)
"""Of people whose taps mean nothing."""
ASKED_FIRST = 4
"""Ratings before the inbox knows what to ask about (``jobs.inbox.FEWEST``)."""
FINE = Sampled(finished=1.0, empty=0.0, repeating=0.0, length=40.0)


@dataclass(frozen=True)
class Pool:
    """Answers of the base, nine to each prompt: what is seen in them, and ``[prompts, nine]`` of each how long they are and whom they please."""

    views: Any
    space: Any
    seen: Any  # all answers through the views, prompt by prompt
    texts: list[list[str]]
    tokens: Ints
    pleases: dict[str, NDArray[np.bool_]]


def pool(names: Sequence[str]) -> Pool:
    from clawback import engine
    from clawback.engine.embedded import corpus, tastes
    from clawback.rewards.rule_posterior import Space
    from clawback.rewards.views import Answers, Views

    policy = engine.load("embedded")
    asked = [*corpus.prompts("rated", 256, 0), *corpus.prompts("held_out", 96, 7)]
    made = policy.generate([p.messages for p in asked], samples=BEST + 1, seed=1)
    flat = [(i, c) for i, completions in enumerate(made) for c in completions]
    ids, texts = [list(c.ids) for _, c in flat], [c.text for _, c in flat]
    hidden = policy.features([asked[i].messages for i, _ in flat], ids).double().numpy()
    ground = list(range(BEST, FRESH * (BEST + 1), BEST + 1))
    questions = [asked[i].messages[-1]["content"] for i, _ in flat]

    def answers(rows: Sequence[int]) -> Answers:
        rows = list(rows)
        return Answers(
            [ids[i] for i in rows], [texts[i] for i in rows], hidden[rows], [questions[i] for i in rows]
        )

    views = Views.ground(answers(ground))
    shape = (len(asked), BEST + 1)
    return Pool(
        views,
        Space.of(views.signs(answers(ground)), views.layout),
        views.view(answers(range(len(flat)))),
        [[c.text for c in completions] for completions in made],
        np.array([len(one) for one in ids]).reshape(shape),
        {
            name: np.array([tastes.TASTES[name].fits(asked[i], c.text) for i, c in flat]).reshape(shape)
            for name in names
        },
    )


@dataclass(frozen=True)
class Person:
    """A taste, or none: then each tap is good with this probability."""

    taste: str
    good: float | None = None

    def taps(self, here: Pool, rated: Ints, rng: np.random.Generator, which: Ints | int = 0) -> Floats:
        """``which``: of the answers to each prompt."""
        if self.good is not None:
            return np.where(rng.random(len(rated)) < self.good, 1.0, -1.0)
        return np.where(here.pleases[self.taste][rated, which] ^ (rng.random(len(rated)) < NOISE), 1.0, -1.0)


def comes(here: Pool, person: Person, captured: Ints, most: int, rng: np.random.Generator) -> Rated:
    """Whatever comes is rated."""
    turns = captured[:most]
    kept = np.array([hold_out.chosen(i + 1, HELD) for i in range(most)])
    return turns, person.taps(here, turns, rng), kept


def chosen(here: Pool, person: Person, captured: Ints, most: int, rng: np.random.Generator) -> Rated:
    """What the inbox asks about is rated, out of what was captured; it does not look at what is kept for the gate."""
    from clawback.rewards.acquisition import Acquisition

    acquisition = Acquisition([here.texts[i][0] for i in captured])
    ratings: dict[int, float] = {}
    while len(ratings) < most:
        # Four times as many answers as ratings are there at any time.
        there = range(min(len(captured), CAPTURED * max(RATED, len(ratings) + 1)))
        left = [i for i in there if i not in ratings]
        known = {i: rating for i, rating in ratings.items() if not hold_out.chosen(i + 1, HELD)}
        place = left[-1] if len(known) < ASKED_FIRST else acquisition.next(known, left)[0][0]
        ratings[place] = float(person.taps(here, captured[place : place + 1], rng)[0])
    kept = np.array([hold_out.chosen(i + 1, HELD) for i in ratings])
    return captured[list(ratings)], np.array(list(ratings.values())), kept


def case(
    here: Pool, person: Person, kind: str, rng: np.random.Generator, gate: Gate, choose: bool = False
) -> dict[str, Any] | None:
    """One person and one candidate; None where there are fewer than two ratings of a sign, or only one sign to learn from."""
    order = rng.permutation(256)
    captured, asked = order[:-FRESH], order[-FRESH:]
    own = round(human_eval.OF_CANDIDATE * gate.more_ratings)
    most = RATED + (MOST_LOOKS - 1) * (gate.more_ratings - own)
    rated, ratings, kept = (chosen if choose else comes)(here, person, captured, most, rng)
    train = ~kept & (np.arange(most) < RATED)
    if min((ratings[:RATED] > 0).sum(), (ratings[:RATED] < 0).sum()) < 2 or np.ptp(ratings[train]) == 0:
        return None
    learned = rng.permutation(ratings[train]) if kind == "shuffled" else ratings[train]
    if kind == "random":
        style = here.seen.views["style"]
        promise = (style @ (rng.normal(size=style.shape[1]) * np.sqrt((style**2).mean(0)))).reshape(
            here.tokens.shape
        )
    else:
        ensemble = read(here, rated[train] * (BEST + 1), learned)
        promise = ensemble.score(here.seen, RULES, PESSIMISM).reshape(here.tokens.shape)
    best = 2 if kind == "random" else BEST
    picked = promise[asked, :best].argmax(1)
    of_own = person.taps(here, asked, rng, picked)
    nine, decisions = BEST + 1, []
    for looks in range(1, MOST_LOOKS + 1):
        more = (looks - 1) * own
        n = RATED + (looks - 1) * (gate.more_ratings - own)
        every = np.concatenate([rated[:n] * nine, asked[:more] * nine + picked[:more]])
        ensemble = read(here, every, np.concatenate([ratings[:n], of_own[:more]]))
        seen = evidence(here, ensemble, rated[:n], ratings[:n], ~train[:n], promise, asked, picked, best)
        compared = Compared(signs(of_own[:more]), signs(ratings[RATED:n]), signs(ratings[:RATED]))
        seen = replace(seen, compared=compared)
        decisions.append(decide(seen, gate, looks))
        if not decisions[-1].asks:
            break
    likes = here.pleases[person.taste]
    return {
        "kind": kind,
        "taste": person.taste,
        "tapped good": person.good,
        "gained": float(likes[asked, picked].mean() - likes[asked].mean()),
        "accepted": decisions[-1].accepted,
        "at once": decisions[0].accepted,
        "asked": len(decisions) - 1,
        "probability": decisions[0].probability,
    }


def signs(ratings: Floats) -> tuple[int, int]:
    return int((ratings > 0).sum()), int((ratings < 0).sum())


def evidence(
    here: Pool,
    ensemble: Any,
    rated: Ints,
    ratings: Floats,
    held: Bools,
    promise: Floats,
    asked: Ints,
    picked: Ints,
    best: int,
) -> Evidence:
    """What the gate would see: ``ratings [n]`` of the answers ``rated``, of which the candidate has learned all but those ``held``."""
    nine = BEST + 1
    sides = (here.seen[asked * nine + chosen] for chosen in (picked, BEST))
    contrast = ensemble.contrast(*sides, RULES, paired=True)
    scores = promise[rated]
    share = ((scores[:, 1:] < scores[:, :1]).sum(1) + 0.5) / (BEST + 1)
    shift = DAMPED * (best - 1) * np.log(share) / here.tokens[rated, 0]
    return Evidence(
        good=int((ratings > 0).sum()),
        bad=int((ratings < 0).sum()),
        liked=tuple(shift[held & (ratings > 0)].tolist()),
        disliked=tuple(shift[held & (ratings < 0)].tolist()),
        read_p=ensemble.trust.p,
        gain=contrast.gain,
        gain_sd=contrast.sd,
        better=contrast.better,
        kl=2.0,
        perplexity_ratio=1.0,
        candidate=FINE,
        live=FINE,
        base=FINE,
    )


def read(here: Pool, rows: Ints, ratings: Floats) -> Any:
    """What the ratings of these answers are about: the reader of the run and of the gate."""
    from clawback.rewards.reward_ensemble import fit

    return fit(here.views, here.space, here.seen[rows], ratings, ridge=RIDGE)


def table(rows: list[dict[str, Any]]) -> str:
    """Shares accepted, by what the candidate is in truth. Shuffled and random ones count where they did not improve."""
    from clawback.engine.embedded import tastes

    sayable = {*tastes.MAIN, *tastes.TEST_INSIDE}
    groups: dict[str, list[dict[str, Any]]] = {}
    for where, inside in (("style features can say", True), ("style features cannot say", False)):
        learned = [r for r in rows if r["kind"] == "learned" and (r["taste"] in sayable) == inside]
        groups |= {
            f"{where}: truly better": [r for r in learned if r["gained"] >= IMPROVED],
            f"{where}: … by 30 points": [r for r in learned if r["gained"] >= 0.3],
            f"{where}: better by less than 10 points": [r for r in learned if 0 < r["gained"] < IMPROVED],
            f"{where}: no better": [r for r in learned if r["gained"] <= 0],
        }
    for kind in ("shuffled", "random"):
        groups[kind] = [r for r in rows if r["kind"] == kind and r["gained"] < IMPROVED]
    noise = [r for r in rows if r["kind"] == "noise"]
    groups["random taps"] = noise
    for good in TAPPED_GOOD:
        groups[f"… {good:.0%} of them good"] = [r for r in noise if r["tapped good"] == good]
    lines = [
        "| candidates | cases | accepted at once | more asked for | accepted in the end |",
        "| --- " * 5 + "|",
    ]
    for name, of in groups.items():
        shares = (
            sum(map(bool, (r[what] for r in of))) / max(1, len(of))
            for what in ("at once", "asked", "accepted")
        )
        lines.append(f"| {name} | {len(of)} | " + " | ".join(f"{share:.0%}" for share in shares) + " |")
    accepted = [r for r in rows if r["kind"] == "learned" and r["accepted"]]
    little, worse = (sum(r["gained"] < least for r in accepted) for least in (IMPROVED, 1e-9))
    lines.append(
        f"\nOf {len(accepted)} accepted ones that learned from somebody's taste, {little} gained less than 10 points and {worse} nothing."
    )
    return "\n".join(lines)


def main(argv: list[str] | None = None) -> int:
    from clawback.engine.embedded import tastes

    parser = argparse.ArgumentParser(
        prog="python -m benchmarks gate_rule", description=__doc__.partition("\n")[0]
    )
    parser.add_argument("--tastes", choices=("dev", "test"), default="test")
    parser.add_argument("--people", type=int, default=30, help="of each taste and kind")
    parser.add_argument("--chosen", action="store_true", help="they rate what the inbox asks about")
    parser.add_argument("--kinds", nargs="*", choices=KINDS, default=KINDS)
    parser.add_argument("--confidence", type=float, default=Gate().confidence)
    parser.add_argument("--more-ratings", type=int, default=Gate().more_ratings, help="0: it never asks")
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args(argv)
    gate = Gate(confidence=options.confidence, more_ratings=options.more_ratings)
    names = tastes.TEST if options.tastes == "test" else tastes.DEV
    here = pool(names)
    rows = []
    for kind in options.kinds:
        rng = np.random.default_rng(options.seed)
        shares = TAPPED_GOOD if kind == "noise" else (None,)
        for taste in names:
            for number in range(options.people):
                person = Person(taste, shares[number % len(shares)])
                if (one := case(here, person, kind, rng, gate, options.chosen)) is not None:
                    rows.append(one)
    print(table(rows))
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
