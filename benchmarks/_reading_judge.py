"""A judge that is played: verdicts on proposed attributes from their known truth, some of them turned round.

A person likes one content taste. It is among ``PROPOSED`` attributes: other tastes of the same set, and some that are random. Every verdict is right with the
same probability. What the ratings make of them is measured as everything else in ``benchmarks.reading``; and an exam of ``EXAM`` answers with known truth
says whether the judge is believed at all.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from benchmarks._reading_tastes import CONTENT, OUTSIDE

Floats = NDArray[np.float64]

PROPOSED = 12
RANDOM = 3
"""Attributes among them that are tosses of a coin, of shares from 0.1 to 0.9."""
EXAM = 48
"""Answers with known truth in the exam, half of which keep the rule."""
SURE, RIGHT = 0.05, 0.7
"""A judge is believed where a judge that is right in ``RIGHT`` of the cases would do as well with at most this probability."""


def truths(prompts: Sequence[str], texts: Sequence[str], which: str, name: str, draw: int) -> Floats:
    """``[n, PROPOSED]`` whether each answer has each attribute; the taste ``name`` is one of them."""
    rng = random.Random(f"proposed {name} {draw}")
    others = [taste for taste in OUTSIDE[which] if taste.name != name]
    chosen = rng.sample(others, PROPOSED - RANDOM - 1)
    chosen += [taste for taste in OUTSIDE[which] if taste.name == name]
    columns = [np.array(taste.fits(prompts, texts), dtype=np.float64) for taste in chosen]
    tosses = np.random.default_rng(rng.randrange(2**32))
    shares = tosses.uniform(0.1, 0.9, RANDOM)
    columns += [(tosses.random(len(texts)) < share).astype(np.float64) for share in shares]
    rng.shuffle(columns)
    return np.array(columns).T


def played(true: Floats, right: float, draw: int) -> Floats:
    """The verdicts of a judge that is right with this probability."""
    rng = np.random.default_rng([draw, round(1000 * right)])
    return np.where(rng.random(true.shape) < right, true, 1.0 - true)


def believed(right: float, rng: np.random.Generator) -> bool:
    """Whether a judge that is right with this probability passes the exam."""
    from scipy.stats import binomtest

    correct = int((rng.random(EXAM) < right).sum())
    return bool(binomtest(correct, EXAM, RIGHT, alternative="greater").pvalue <= SURE)


def judged(here: Any, which: str, right: float, counts: Sequence[int], draws: int, wrong: float) -> dict[str, Any]:  # fmt: skip
    """AUC by taste and person: without a judge, and with the verdicts of one that is right with this probability."""
    from benchmarks.reading import _rows, auc, taps
    from clawback.rewards.reward_ensemble import RULES, Ratings, learn

    rows = []
    tastes = [taste for taste in OUTSIDE[which] if taste.name in CONTENT[which]]
    for taste in tastes:
        fits = np.array(taste.fits(here.prompts, here.texts))
        for draw in range(draws):
            verdicts = played(truths(here.prompts, here.texts, which, taste.name, draw), right, draw)
            known = dict(zip(here.texts, verdicts, strict=True))

            def judge(_: Sequence[str], answers: Sequence[str], known: dict[str, Floats] = known) -> Floats:
                return np.array([known[text] for text in answers])

            for count in counts:
                places, ratings = taps(taste.name, fits, count, draw, wrong)
                if np.ptp(ratings) == 0:
                    continue
                row: dict[str, Any] = {"taste": taste.name, "ratings": count, "draw": draw}
                base, rated = _rows(here.answers, range(0, here.rated, 4)), _rows(here.answers, places)
                rest = _rows(here.answers, range(here.rated, len(here.texts)))
                for name, source in (("alone", None), ("judge", judge)):
                    made = learn(base, rated, Ratings(ratings), judge=source)
                    row[name] = auc(made.reward(rest, RULES, 0.0), fits[here.rated :])
                    row[f"{name}, p"] = made.trust.p
                rows.append(row)
    rng = np.random.default_rng(0)
    passed = float(np.mean([believed(right, rng) for _ in range(2000)]))
    return {"tastes": which, "right": right, "wrong": wrong, "passed": passed, "rows": rows}


def table(found: dict[str, Any]) -> str:
    from benchmarks.reading import interval

    lines = ["| ratings | taste | AUC, text alone | AUC, with the judge | trusted, alone | trusted, judge |"]
    lines.append("|" + " --- |" * 6)
    for count in sorted({row["ratings"] for row in found["rows"]}):
        every = [row for row in found["rows"] if row["ratings"] == count]
        for name in [*dict.fromkeys(row["taste"] for row in every), "**all**"]:
            rows = [row for row in every if name in (row["taste"], "**all**")]
            shown = [interval([row[way] for row in rows]) for way in ("alone", "judge")]
            trusted = [sum(row[f"{way}, p"] <= 0.08 for row in rows) for way in ("alone", "judge")]
            cells = [*shown, *(f"{one} of {len(rows)}" for one in trusted)]
            lines.append(f"| {count} | {name} | " + " | ".join(cells) + " |")
    lines.append(f"\nA judge that is right in {found['right']:.0%} passes the exam in {found['passed']:.1%}.")
    return "\n".join(lines)
