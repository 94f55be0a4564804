"""The gate's rule alone, on hundreds of simulated people: how often it errs, without training anything.

The base model answers 352 prompts nine times over, once. Everything after that is arithmetic: a person rates 32 of these answers
(one tap in ten wrong), what they may want is read out of seven eighths of the ratings as a run reads it, and the candidate is what picks, of eight
answers to a prompt, the one that promises most: about where training leads. Then the gate's own rule decides on
what the gate would see. Four kinds of candidate: *learned* from the ratings, from the same ratings *shuffled*, picking at
*random* by a direction of its own, and *noise*: from a person whose taps mean nothing.

Held-back log-prob shifts are those of best of eight, ``7 log F(score)`` (F: the base's answers to that prompt), damped to the
drift that training has. Guards are left out: what they look at is not simulated.

    python -m benchmarks gate_rule
    python -m benchmarks gate_rule --chosen      # they rate what the inbox asks about, out of four times as many answers
"""

from __future__ import annotations

import argparse
import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from clawback.config import Gate
from clawback.release.evidence import agreement
from clawback.release.rule import Evidence, Sampled, decide

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

RATED, CAPTURED, FRESH, NOISE, HELD, BEST = 32, 4, 96, 0.1, 0.125, 8
DAMPED, RIDGE, PESSIMISM = 0.35, 0.8, 0.5
IMPROVED = 0.10
KINDS = ("learned", "shuffled", "random", "noise")
FINE = Sampled(finished=1.0, empty=0.0, repeating=0.0, length=40.0)


@dataclass(frozen=True)
class Pool:
    """Answers of the base, ``[prompts, nine]`` of each: how they look to the head, what is seen in them, how long they are, whom they please."""

    looks: Floats  # [prompts, nine, features]
    signs: NDArray[np.bool_]  # [prompts, nine, signs]
    space: Any
    texts: list[list[str]]
    tokens: Ints
    pleases: dict[str, NDArray[np.bool_]]


def pool() -> Pool:
    from clawback import engine
    from clawback.engine.embedded import corpus, tastes
    from clawback.rewards.conjunctions import Space
    from clawback.rewards.lens import Lens

    policy = engine.load("embedded")
    asked = [*corpus.prompts("rated", 256, 0), *corpus.prompts("held_out", 96, 7)]
    made = policy.generate([p.messages for p in asked], samples=BEST + 1, seed=1)
    flat = [(i, c) for i, completions in enumerate(made) for c in completions]
    ids, texts = [list(c.ids) for _, c in flat], [c.text for _, c in flat]
    hidden = policy.features([asked[i].messages for i, _ in flat], ids).double().numpy()
    ground = list(range(BEST, FRESH * (BEST + 1), BEST + 1))
    lens = Lens.ground([ids[i] for i in ground], hidden[ground], [texts[i] for i in ground])
    signs = lens.signs(ids, texts)
    shape = (len(asked), BEST + 1)
    return Pool(
        lens(ids, hidden, texts).reshape(*shape, -1),
        signs.reshape(*shape, -1),
        Space.of(signs[ground], lens.manners),
        [[c.text for c in completions] for completions in made],
        np.array([len(one) for one in ids]).reshape(shape),
        {
            name: np.array([tastes.TASTES[name].fits(asked[i], c.text) for i, c in flat]).reshape(shape)
            for name in tastes.MAIN
        },
    )


def taps(here: Pool, taste: str, rated: Ints, kind: str, rng: np.random.Generator) -> Floats:
    if kind == "noise":
        return np.where(rng.random(len(rated)) < 0.3, 1.0, -1.0)
    return np.where(here.pleases[taste][rated, 0] ^ (rng.random(len(rated)) < NOISE), 1.0, -1.0)


def chosen(
    here: Pool, taste: str, captured: Ints, kind: str, rng: np.random.Generator
) -> tuple[Ints, Floats]:
    """What the inbox asks about, out of what was captured, and how it is rated."""
    from clawback.rewards.deck import Deck

    deck = Deck([here.texts[i][0] for i in captured])
    ratings: dict[int, float] = {}
    while len(ratings) < RATED:
        [(place, _)] = deck.next(ratings, [i for i in range(len(captured)) if i not in ratings])
        ratings[place] = float(taps(here, taste, captured[place : place + 1], kind, rng)[0])
    return captured[list(ratings)], np.array(list(ratings.values()))


def case(
    here: Pool, taste: str, kind: str, rng: np.random.Generator, choose: bool = False
) -> dict[str, Any] | None:
    """One person and one candidate; None where there are fewer than two ratings of a sign."""
    from clawback.rewards import conjunctions
    from clawback.rewards.head import fit

    order = rng.permutation(256)
    rated, asked = order[:RATED], order[-FRESH:]
    if choose:
        rated, ratings = chosen(here, taste, order[: CAPTURED * RATED], kind, rng)
    else:
        ratings = taps(here, taste, rated, kind, rng)
    if min((ratings > 0).sum(), (ratings < 0).sum()) < 2:
        return None
    held = held_out(ratings, rng)
    learned = rng.permutation(ratings[~held]) if kind == "shuffled" else ratings[~held]
    promise = reading(here, rated[~held], learned)
    if kind == "random":
        weights = rng.normal(size=here.looks.shape[2]) * np.sqrt((here.looks**2).mean((0, 1)))
        promise = here.looks @ weights
    best = 2 if kind == "random" else BEST
    picked = promise[asked, :best].argmax(1)
    head = fit(here.looks[rated, 0], ratings, ridge=RIDGE, spread=1.0)
    gain, variance = head.contrast(here.looks[asked, picked], here.looks[asked, BEST])
    scores = promise[rated]
    share = ((scores[:, 1:] < scores[:, :1]).sum(1) + 0.5) / (BEST + 1)
    shift = DAMPED * (best - 1) * np.log(share) / here.tokens[rated, 0]
    taste_ = conjunctions.fit(here.space, here.signs[rated, 0], ratings)
    evidence = Evidence(
        good=int((ratings > 0).sum()),
        bad=int((ratings < 0).sum()),
        liked=tuple(shift[held & (ratings > 0)].tolist()),
        disliked=tuple(shift[held & (ratings < 0)].tolist()),
        head_p=head.trust.p,
        head_correlation=head.trust.correlation,
        gain=gain,
        gain_sd=math.sqrt(variance),
        kl=2.0,
        perplexity_ratio=1.0,
        candidate=FINE,
        live=FINE,
        base=FINE,
        says=conjunctions.evidence(here.space, here.signs[rated, 0], ratings),
        agreed=agreement(taste_, here.signs[asked, picked], here.signs[asked, BEST]),
    )
    likes = here.pleases[taste]
    return {
        "kind": kind,
        "taste": taste,
        "gained": float(likes[asked, picked].mean() - likes[asked].mean()),
        "probability": decide(evidence, Gate()).probability,
    }


def held_out(ratings: Floats, rng: np.random.Generator) -> NDArray[np.bool_]:
    """An eighth of each sign."""
    held = np.zeros(len(ratings), dtype=bool)
    for sign in (1.0, -1.0):
        of_sign = rng.permutation(np.flatnonzero(ratings == sign))
        held[of_sign[: round(HELD * len(of_sign))]] = True
    return held


def reading(here: Pool, rated: Ints, ratings: Floats) -> Floats:
    """``[prompts, nine]`` what a run expects of every answer: the mean of both experts."""
    from clawback.rewards import conjunctions
    from clawback.rewards.head import fit

    shape = here.tokens.shape
    ridge = fit(here.looks[rated, 0], ratings, ridge=RIDGE, spread=1.0)
    taste = conjunctions.fit(here.space, here.signs[rated, 0], ratings)
    flat = here.signs.reshape(-1, here.signs.shape[2])
    mean, sd = taste.predict(flat)
    both = ridge.reward(here.looks.reshape(len(flat), -1), PESSIMISM) + mean - PESSIMISM * sd
    return both.reshape(shape)


def table(rows: list[dict[str, Any]], confidences: tuple[float, ...] = (0.8, 0.85, 0.9, 0.95)) -> str:
    """Shares accepted. Learned ones count where they truly improved, or became no better; shuffled and random ones where they did not improve."""
    columns = {
        "learned, truly better": [r for r in rows if r["kind"] == "learned" and r["gained"] >= IMPROVED],
        "… by 30 points": [r for r in rows if r["kind"] == "learned" and r["gained"] >= 0.3],
        "learned, no better": [r for r in rows if r["kind"] == "learned" and r["gained"] <= 0],
        "shuffled": [r for r in rows if r["kind"] == "shuffled" and r["gained"] < IMPROVED],
        "random": [r for r in rows if r["kind"] == "random" and r["gained"] < IMPROVED],
        "noise": [r for r in rows if r["kind"] == "noise"],
    }
    names = " | ".join(f"{name} ({len(of)})" for name, of in columns.items())
    lines = [f"| `confidence` | {names} |", "| --- " * (len(columns) + 1) + "|"]
    for asked in confidences:
        shares = (sum(r["probability"] >= asked for r in of) / max(1, len(of)) for of in columns.values())
        lines.append(f"| {asked:g} | " + " | ".join(f"{share:.1%}" for share in shares) + " |")
    return "\n".join(lines)


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks gate_rule", description=__doc__.partition("\n")[0]
    )
    parser.add_argument("--people", type=int, default=60, help="of each taste and kind")
    parser.add_argument("--chosen", action="store_true", help="they rate what the inbox asks about")
    options = parser.parse_args(argv)
    here = pool()
    rows = []
    for kind in KINDS:
        rng = np.random.default_rng(1)
        for taste in here.pleases:
            made = (case(here, taste, kind, rng, options.chosen) for _ in range(options.people))
            rows += [one for one in made if one is not None]
    print(table(rows))
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
