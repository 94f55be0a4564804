"""The gate's rule alone, on hundreds of simulated people: how often it errs, without training anything.

The base model answers 352 prompts nine times over, once. Everything after that is arithmetic: a person rates 32 of these answers
(one tap in ten wrong), a head is fitted on four fifths of the ratings, and the candidate is what picks, of eight
answers to a prompt, the one that the head likes best: about where training leads. Then the gate's own rule decides on
what the gate would see. Four kinds of candidate: *learned* from the ratings, from the same ratings *shuffled*, picking at
*random* by a direction of its own, and *noise*: from a person whose taps mean nothing.

Held-back log-prob shifts are those of best of eight, ``7 log F(score)`` (F: the base's answers to that prompt), damped to the
drift that training has. Guards are left out: what they look at is not simulated.
"""

from __future__ import annotations

import argparse
import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from clawback.config import Gate
from clawback.release.rule import Evidence, Sampled, decide

Floats = NDArray[np.float64]

RATED, FRESH, NOISE, HELD, BEST = 32, 96, 0.1, 0.2, 8
DAMPED = 0.35
RIDGE = 0.4
IMPROVED = 0.10
KINDS = ("learned", "shuffled", "random", "noise")
FINE = Sampled(finished=1.0, empty=0.0, repeating=0.0, length=40.0)


@dataclass(frozen=True)
class Pool:
    """Answers of the base, ``[prompts, nine]`` of each: how they look to the head, how long they are, whom they please."""

    looks: Floats  # [prompts, nine, features]
    tokens: NDArray[np.int64]
    pleases: dict[str, NDArray[np.bool_]]


def pool() -> Pool:
    from clawback import engine
    from clawback.engine.embedded import corpus, tastes
    from clawback.engine.torch.features import Lens

    policy = engine.load("embedded")
    asked = [*corpus.prompts("rated", 256, 0), *corpus.prompts("held_out", 96, 7)]
    made = policy.generate([p.messages for p in asked], samples=BEST + 1, seed=1)
    flat = [(i, c) for i, completions in enumerate(made) for c in completions]
    ids = [list(c.ids) for _, c in flat]
    hidden = policy.features([asked[i].messages for i, _ in flat], ids).double().numpy()
    ground = range(BEST, FRESH * (BEST + 1), BEST + 1)
    looks = Lens.ground([ids[i] for i in ground], hidden[list(ground)])(ids, hidden)
    shape = (len(asked), BEST + 1)
    return Pool(
        looks.reshape(*shape, -1),
        np.array([len(one) for one in ids]).reshape(shape),
        {
            name: np.array([tastes.TASTES[name].fits(asked[i], c.text) for i, c in flat]).reshape(shape)
            for name in tastes.MAIN
        },
    )


def taps(here: Pool, taste: str, rated: NDArray[np.int64], kind: str, rng: np.random.Generator) -> Floats:
    if kind == "noise":
        return np.where(rng.random(len(rated)) < 0.3, 1.0, -1.0)
    return np.where(here.pleases[taste][rated, 0] ^ (rng.random(len(rated)) < NOISE), 1.0, -1.0)


def case(here: Pool, taste: str, kind: str, rng: np.random.Generator) -> dict[str, Any] | None:
    """One person and one candidate; None where there are fewer than two ratings of a sign."""
    from clawback.rewards.head import fit

    order = rng.permutation(256)
    rated, asked = order[:RATED], order[RATED : RATED + FRESH]
    ratings = taps(here, taste, rated, kind, rng)
    if min((ratings > 0).sum(), (ratings < 0).sum()) < 2:
        return None
    held = np.zeros(RATED, dtype=bool)
    for sign in (1.0, -1.0):
        of_sign = rng.permutation(np.flatnonzero(ratings == sign))
        held[of_sign[: round(HELD * len(of_sign))]] = True
    learned = ratings[~held]
    if kind == "shuffled":
        learned = rng.permutation(learned)
    looks = here.looks[rated, 0]
    weights = fit(looks[~held], learned, ridge=RIDGE, spread=1.0).weights
    best = BEST
    if kind == "random":
        weights = rng.normal(size=looks.shape[1]) * np.sqrt((here.looks**2).mean((0, 1)))
        best = 2
    picked = (here.looks[asked, :best] @ weights).argmax(1)
    head = fit(looks, ratings, ridge=RIDGE, spread=1.0)
    gain, variance = head.contrast(here.looks[asked, picked], here.looks[asked, BEST])
    scores = here.looks[rated] @ weights  # [rated, nine]
    share = ((scores[:, 1:] < scores[:, :1]).sum(1) + 0.5) / (BEST + 1)
    shift = DAMPED * (best - 1) * np.log(share) / here.tokens[rated, 0]
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
    )
    likes = here.pleases[taste]
    return {
        "kind": kind,
        "taste": taste,
        "gained": float(likes[asked, picked].mean() - likes[asked].mean()),
        "probability": decide(evidence, Gate()).probability,
    }


def table(rows: list[dict[str, Any]], confidences: tuple[float, ...] = (0.8, 0.85, 0.9, 0.95)) -> str:
    """Shares accepted. Learned ones count where they truly improved, shuffled and random ones where they did not."""
    columns = {
        "learned, truly better": [r for r in rows if r["kind"] == "learned" and r["gained"] >= IMPROVED],
        "… by 30 points": [r for r in rows if r["kind"] == "learned" and r["gained"] >= 0.3],
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
    parser = argparse.ArgumentParser(prog="python -m benchmarks gate_rule", description=__doc__)
    parser.add_argument("--people", type=int, default=60, help="of each taste and kind")
    options = parser.parse_args(argv)
    here = pool()
    rows = []
    for kind in KINDS:
        rng = np.random.default_rng(1)
        for taste in here.pleases:
            made = (case(here, taste, kind, rng) for _ in range(options.people))
            rows += [one for one in made if one is not None]
    print(table(rows))
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
