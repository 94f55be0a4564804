"""What can be known of a taste from N ratings: every way of reading them, on the same ratings, without training anything.

Answers of the base to prompts about topics that nobody rated are reweighted by exp(what is expected of them) until they are 2.5 nats away:
what an ideal optimiser would reach within that drift. So a way of reading costs milliseconds, and many can be told apart. Twelve tastes, one tap
in ten wrong, one answer a prompt.

    python -m benchmarks heads                   # about six minutes
    python -m benchmarks heads --draws 3 --only "the mean of both"
"""

from __future__ import annotations

import argparse
import dataclasses
import random
import statistics
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
NOISE, NATS, RIDGE = 0.1, 2.5, 0.8
PROMPTS, EACH = 320, 6
CAPTURED = 4
"""Turns for each that is rated, where it is chosen which one."""
EVERYDAY, HIDDEN, ALL = (0.0, 0.7, 0.3), (0.0, 0.0, 1.0), (0.5, 0.3, 0.2)


@dataclass
class Bank:
    """Answers of the base, and what can be seen of them."""

    prompts: list[Any]
    texts: list[str]
    ids: list[Any]
    looks: dict[tuple[float, float, float], Floats]
    signs: NDArray[np.bool_]

    def fits(self, taste: Any) -> NDArray[np.bool_]:
        return np.array([taste.fits(p, t) for p, t in zip(self.prompts, self.texts, strict=True)])


@dataclass
class World:
    rated: Bank
    asked: Bank
    space: Any
    features: Any


@dataclass
class Said:
    """Places of the rated answers in the bank, and what was said of each."""

    places: list[int]
    ratings: Floats
    remarks: list[tuple[int, str]]


Way = Callable[[World, Said, random.Random], Floats]
"""What is expected of every answer of the second bank."""


def world() -> World:
    """Answers to topics that are rated and to others; seconds per thousand."""
    from clawback import engine
    from clawback.extensions.demo import corpus
    from clawback.features.style_features import Features
    from clawback.rewards.rule_posterior import Space

    policy = engine.load("embedded")
    made = {}
    for split in ("rated", "held_out"):
        prompts = corpus.prompts(split, PROMPTS, 7)
        groups = policy.generate([p.messages for p in prompts], samples=EACH, seed=5)
        pairs = [(p, one) for p, group in zip(prompts, groups, strict=True) for one in group]
        ids = [one.ids for _, one in pairs]
        hidden = policy.features([p.messages for p, _ in pairs], [list(i) for i in ids]).numpy()
        made[split] = ([p for p, _ in pairs], [one.text for _, one in pairs], ids, hidden)
    _, texts, ids, hidden = made["rated"]
    features = Features.ground(ids, hidden, texts)
    banks = []
    for prompts, texts, ids, hidden in made.values():
        views = {
            s: dataclasses.replace(features, shares=s)(ids, hidden, texts) for s in (EVERYDAY, HIDDEN, ALL)
        }
        banks.append(Bank(prompts, texts, ids, views, features.signs(ids, texts)))
    return World(banks[0], banks[1], Space.of(banks[0].signs, features.manners), features)


# ------------------------------------------------------------------------------------------------------------ ways


def ridge(shares: tuple[float, float, float], pessimism: float = 0.0, thompson: bool = False) -> Way:
    def way(w: World, said: Said, rng: random.Random) -> Floats:
        from clawback.rewards import fit

        head = fit(w.rated.looks[shares][said.places], said.ratings, ridge=RIDGE, spread=1.0)
        looks = w.asked.looks[shares]
        if not thompson:
            return head.reward(looks, pessimism)
        mean, covariance = head.joint(looks[:600])
        drawn = np.random.default_rng(rng.randrange(2**32)).multivariate_normal(
            mean, covariance, method="eigh"
        )
        return np.concatenate([drawn, head.reward(looks[600:])])

    return way


def conjunctive(pessimism: float = 0.0) -> Way:
    def way(w: World, said: Said, _: random.Random) -> Floats:
        from clawback.rewards import rule_posterior

        w, remarks = _heard(w, said)
        taste = rule_posterior.fit(w.space, w.rated.signs[said.places], said.ratings, remarks)
        mean, sd = taste.predict(w.asked.signs)
        return mean - pessimism * sd

    return way


def _heard(w: World, said: Said) -> tuple[World, Floats | None]:
    """What the remarks say, among signs that hold the texts that they quote: nobody looks for a text that was not spoken of."""
    from clawback.features.style_features import SAYS, wishes
    from clawback.rewards.rule_posterior import Space

    wished = [(place, wish) for place, text in said.remarks for wish in wishes(text)]
    if not wished:
        return w, None
    phrases = sorted({n.removeprefix(SAYS) for _, wish in wished for n in wish if n.startswith(SAYS)})
    if phrases:
        features = dataclasses.replace(w.features, phrases=tuple(phrases))
        banks = [
            dataclasses.replace(bank, signs=features.signs(bank.ids, bank.texts))
            for bank in (w.rated, w.asked)
        ]
        w = World(*banks, Space.of(banks[0].signs, features.manners), features)
    total = np.zeros(len(w.space.literals))
    for place, wish in wished:
        wanted = {column: more for name, more in wish.items() for column in w.features.columns(name)}
        total += w.space.remarked(wanted, w.rated.signs[place])
    return w, total


def both(pessimism: float = 0.5, share: float = 0.5) -> Way:
    one, other = ridge(ALL, pessimism), conjunctive(pessimism)
    return lambda w, said, rng: (1 - share) * one(w, said, rng) + share * other(w, said, rng)


# -------------------------------------------------------------------------------------------------- what is said


def plain(w: World, taste: Any, count: int, rng: random.Random) -> Said:
    """Ratings of the base's answers, one to a prompt."""
    places = [EACH * p + rng.randrange(EACH) for p in rng.sample(range(PROMPTS), count)]
    return Said(places, _rate(w, taste, places, rng), [])


def talking(w: World, taste: Any, count: int, rng: random.Random) -> Said:
    """And a sentence about each that was rated bad."""
    said = plain(w, taste, count, rng)
    for place, rating in zip(said.places, said.ratings, strict=True):
        words = taste.remark(w.rated.prompts[place], w.rated.texts[place], rng) if rating < 0 else ""
        said.remarks += [(place, words)] if words else []
    return said


def edited(w: World, taste: Any, count: int, rng: random.Random) -> Said:
    """Every fourth bad answer is put right: another answer to the same prompt that fits, where the base has one, counts as good."""
    said = plain(w, taste, count, rng)
    fits = w.rated.fits(taste)
    for place in [p for p, r in zip(said.places, said.ratings, strict=True) if r < 0][::4]:
        first = place - place % EACH
        right = [p for p in range(first, first + EACH) if fits[p]]
        if right:
            said.places.append(rng.choice(right))
            said.ratings = np.append(said.ratings, 1.0)
    return said


def judged(w: World, taste: Any, count: int, rng: random.Random) -> Said:
    """A judge who is wrong three times in ten votes on three further answers for each that is rated, at a quarter of the weight."""
    said = plain(w, taste, count, rng)
    free = [p for p in range(PROMPTS) if p not in {place // EACH for place in said.places}]
    more = [EACH * p + rng.randrange(EACH) for p in rng.sample(free, min(len(free), (CAPTURED - 1) * count))]
    fits = w.rated.fits(taste)
    votes = [0.25 * (1 if fits[p] else -1) * (-1 if rng.random() < 0.3 else 1) for p in more]
    return Said([*said.places, *more], np.concatenate([said.ratings, votes]), [])


def chosen(w: World, taste: Any, count: int, rng: random.Random) -> Said:
    """Of four times as many turns those are rated that the inbox asks about, one after the other."""
    from clawback.rewards.acquisition import Acquisition

    captured = [
        EACH * p + rng.randrange(EACH) for p in rng.sample(range(PROMPTS), min(PROMPTS, CAPTURED * count))
    ]
    acquisition = Acquisition([w.rated.texts[p] for p in captured])
    ratings: dict[int, float] = {}
    while len(ratings) < count:
        [(place, _)] = acquisition.next(ratings, [i for i in range(len(captured)) if i not in ratings])
        ratings[place] = float(_rate(w, taste, [captured[place]], rng)[0])
    return Said([captured[place] for place in ratings], np.array(list(ratings.values())), [])


def _rate(w: World, taste: Any, places: Sequence[int], rng: random.Random) -> Floats:
    return np.array(
        [taste.rate(w.rated.prompts[p], w.rated.texts[p], rng, NOISE) for p in places], dtype=float
    )


Saying = Callable[[World, Any, int, random.Random], Said]
WAYS: dict[str, tuple[Way, Saying]] = {
    "ridge, pooled hidden states alone": (ridge(HIDDEN), plain),
    "ridge, tokens and hidden states": (ridge(EVERYDAY), plain),
    "ridge, manner, tokens and hidden states": (ridge(ALL), plain),
    "conjunctions": (conjunctive(), plain),
    "the mean of both": (both(0.0), plain),
    "the mean of both, pessimism 0.5": (both(), plain),
    "the mean of both, pessimism 1": (both(1.0), plain),
    "ridge (all), Thompson sampling": (ridge(ALL, thompson=True), plain),
    "both, the turns to rate chosen": (both(), chosen),
    "both, every fourth bad one put right": (both(), edited),
    "both, a judge on three times as many": (both(), judged),
    "both, with a sentence to each bad one": (both(), talking),
}


# ---------------------------------------------------------------------------------------------------- the measure


def reached(expected: Floats, fits: NDArray[np.bool_], nats: float = NATS) -> float:
    """Share that fits among the answers reweighted by exp(β expected), with β such that KL(new ‖ old) is ``nats``."""
    z = (expected - expected.mean()) / max(float(expected.std()), 1e-9)
    low, high = 0.0, 60.0
    for _ in range(40):
        beta = (low + high) / 2
        log = beta * z - (beta * z).max()
        p = np.exp(log) / np.exp(log).sum()
        kl = float(np.sum(p * np.log(np.maximum(p * len(p), 1e-300))))
        low, high = (beta, high) if kl < nats else (low, beta)
    return float(p @ fits)


def main(argv: list[str] | None = None) -> int:
    from tqdm import tqdm

    from clawback.extensions.demo import tastes

    parser = argparse.ArgumentParser(
        prog="python -m benchmarks heads", description=__doc__.partition("\n")[0]
    )
    parser.add_argument("--draws", type=int, default=8, help="draws of the ratings for each taste")
    parser.add_argument("--ratings", default="8,16,32,64,128")
    parser.add_argument("--only", default="", help="ways whose name holds this")
    options = parser.parse_args(argv)
    counts = [int(count) for count in options.ratings.split(",")]
    w = world()
    names = tastes.VARIED
    fits = {name: w.asked.fits(tastes.TASTES[name]) for name in names}
    lines = [
        "| way | " + " | ".join(f"{n} ratings" for n in counts) + " | by taste, at 32 |",
        "|" + " --- |" * (len(counts) + 2),
    ]
    for label, (way, say) in tqdm(WAYS.items(), file=sys.stderr, unit="way"):
        if options.only not in label:
            continue
        cells, by_taste = [], {}
        for count in counts:
            means = {}
            for name in names:
                scores = []
                for draw in range(options.draws):
                    rng = random.Random(f"{name} {draw} {count}")
                    said = say(w, tastes.TASTES[name], count, rng)
                    scores.append(reached(way(w, said, rng), fits[name]))
                means[name] = statistics.mean(scores)
            cells.append(f"{statistics.mean(means.values()):.2f}")
            by_taste = means if count == 32 else by_taste
        lines.append(
            f"| {label} | "
            + " | ".join(cells)
            + " | "
            + " ".join(f"{v:.2f}" for v in by_taste.values())
            + " |"
        )
    print("\n".join(lines))
    print("\nTastes: " + ", ".join(names))
    return 0


if __name__ == "__main__":
    sys.exit(main())
