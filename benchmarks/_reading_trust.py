"""Who is trusted: people who toss a coin, and persons with a taste, by how well their taste is read."""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from benchmarks._reading_tastes import INSIDE, OUTSIDE
from benchmarks.reading import EACH, GROUND, RATED, RIDGE, _rows, auc, interval, taps

Floats = NDArray[np.float64]

GOOD = 0.35
"""Share of good taps of people who toss a coin."""
EVIDENCE = "evidence"


def trusted(
    here: Any, which: str, draws: int, counts: list[int], wrong: float, people: int
) -> dict[str, Any]:
    """Who is trusted: people who toss a coin, and persons with a taste, by how well their taste is read; by the product's test, and by evidence alone."""
    from clawback.rewards.reward_ensemble import RULES, Ratings, fit
    from clawback.rewards.reward_head import TRUSTED_BELOW
    from clawback.rewards.rule_posterior import Space
    from clawback.rewards.views import Views

    base = _rows(here.answers, range(0, here.rated, GROUND))
    views = Views.ground(base)
    space, seen = Space.of(views.signs(base), views.layout), views.view(here.answers)
    rng, rows = np.random.default_rng(7), []
    tossers = {EVIDENCE: 0, "product": 0}
    for _ in range(people):
        places = EACH * rng.choice(RATED, counts[0], replace=False) + rng.integers(EACH, size=counts[0])
        said = np.where(rng.random(counts[0]) < GOOD, 1.0, -1.0)
        made = fit(views, space, seen[places], Ratings(said))
        tossers["product"] += made.trust.trusted
        tossers[EVIDENCE] += by_evidence(views, space, seen[places], said) <= TRUSTED_BELOW
    for group, sets in (("inside", INSIDE), ("outside", OUTSIDE)):
        for taste, count, draw in itertools.product(sets[which], counts, range(draws)):
            fits = np.array(taste.fits(here.prompts, here.texts))
            places, said = taps(taste.name, fits, count, draw, wrong)
            made = fit(views, space, seen[places], Ratings(said))
            read = auc(made.score(seen[here.rated :], RULES, 0.0), fits[here.rated :])
            ps = {"product": made.trust.p, EVIDENCE: by_evidence(views, space, seen[places], said)}
            rows.append({"taste": taste.name, "group": group, "ratings": count, "auc": read, "p": ps})
    return {"tastes": which, "wrong": wrong, "people": people, "tossers": tossers, "rows": rows}


GROUNDS = ("fresh", "fresh and rated", "rated")
"""Answers on which is seen how answers vary, before the rated ones are read."""


def by_ground(here: Any, which: str, draws: int, counts: list[int], wrong: float) -> dict[str, Any]:
    """p of the product's test and AUC by what the reader has seen of how answers vary, of persons with a taste."""
    from clawback.rewards.reward_ensemble import RULES, Ratings, fit
    from clawback.rewards.rule_posterior import Space
    from clawback.rewards.views import Views

    fresh = _rows(here.answers, range(1, here.rated, GROUND))
    unseen, rows = _rows(here.answers, range(here.rated, len(here.texts))), []
    for group, sets in (("inside", INSIDE), ("outside", OUTSIDE)):
        for taste, count, draw in itertools.product(sets[which], counts, range(draws)):
            fits = np.array(taste.fits(here.prompts, here.texts))
            places, said = taps(taste.name, fits, count, draw, wrong)
            rated, row = _rows(here.answers, places), {"taste": taste.name, "group": group, "ratings": count}
            for name, ground in zip(GROUNDS, (fresh, fresh.with_others(rated), rated), strict=True):
                views = Views.ground(ground)
                space = Space.of(views.signs(ground), views.layout)
                made = fit(views, space, views.view(rated), Ratings(said))
                read = auc(made.score(views.view(unseen), RULES, 0.0), fits[here.rated :])
                row[name] = {"p": made.trust.p, "auc": read}
            rows.append(row)
    return {"tastes": which, "wrong": wrong, "rows": rows}


def ground_table(found: Mapping[str, Any]) -> str:
    from clawback.rewards.reward_head import TRUSTED_BELOW

    lines = [
        "| how answers vary is seen on | persons | AUC | read (AUC ≥ 0.75): trusted | not read: trusted |"
    ]
    lines.append("|" + " --- |" * 5)
    good = [row["fresh and rated"]["auc"] >= 0.75 for row in found["rows"]]
    for name in GROUNDS:
        trusted = [row[name]["p"] <= TRUSTED_BELOW for row in found["rows"]]
        read = [t for t, g in zip(trusted, good, strict=True) if g]
        rest = [t for t, g in zip(trusted, good, strict=True) if not g]
        mean = interval([row[name]["auc"] for row in found["rows"]])
        lines.append(f"| {name} | {len(trusted)} | {mean} | {sum(read)} of {len(read)} | {sum(rest)} of {len(rest)} |")  # fmt: skip
    return "\n".join(lines)


LOOKS = (32, 40, 48, 56, 64)
"""Ratings after which a person's are read, where they showed no pattern before."""
SCHEDULES = ("after 32 more, at most 8 %", "after 8 more, at most 2 %")


def by_looks(here: Any, which: str, draws: int, wrong: float, people: int) -> dict[str, Any]:
    """After how many ratings persons with a taste are trusted, and people who toss a coin: read again after 32 more, or after every 8 by a stricter limit."""
    rng, rows = np.random.default_rng(7), []
    for person in range(people):
        places = EACH * rng.choice(RATED, LOOKS[-1], replace=False) + rng.integers(EACH, size=LOOKS[-1])
        coin = np.where(rng.random(LOOKS[-1]) < GOOD, 1.0, -1.0)
        rows.append({"group": "coin", "taste": person, "p": _looks(here, places, coin)})
    for group, sets in (("inside", INSIDE), ("outside", OUTSIDE)):
        for taste, draw in itertools.product(sets[which], range(draws)):
            fits = np.array(taste.fits(here.prompts, here.texts))
            places, said = taps(taste.name, fits, LOOKS[-1], draw, wrong)
            rows.append({"group": group, "taste": taste.name, "p": _looks(here, places, said)})
    return {"tastes": which, "wrong": wrong, "people": people, "rows": rows}


def _looks(here: Any, places: Any, said: Floats) -> list[float]:
    """p after each look, of the rated answers alone, as a run decides."""
    from clawback.features.style_features import SHARES
    from clawback.rewards.reward_ensemble import learn

    found = []
    for count in LOOKS:
        rated = _rows(here.answers, places[:count])
        order = range(count)
        found.append(learn(rated, rated, said[:count], ridge=RIDGE, shares=SHARES, order=order).trust.p)
    return found


def looks_table(found: Mapping[str, Any]) -> str:
    from clawback.rewards.reward_head import TRUSTED_BELOW

    lines = ["| who | persons | read again | " + " | ".join(f"by {count}" for count in LOOKS) + " |"]
    lines.append("|" + " --- |" * (3 + len(LOOKS)))
    strict = [TRUSTED_BELOW] + [TRUSTED_BELOW / 4] * (len(LOOKS) - 1)
    rare = [TRUSTED_BELOW if count % LOOKS[0] == 0 else -1.0 for count in LOOKS]
    for group in ("inside", "outside", "coin"):
        ps = np.array([row["p"] for row in found["rows"] if row["group"] == group])
        for name, limits in zip(SCHEDULES, (rare, strict), strict=True):
            trusted = np.maximum.accumulate(ps <= np.array(limits), axis=1).sum(axis=0) if len(ps) else []
            lines.append(f"| {group} | {len(ps)} | {name} | {' | '.join(map(str, trusted))} |")
    return "\n".join(lines)


def by_evidence(views: Any, space: Any, rated: Any, said: Floats) -> float:
    """p of the log evidence of rules and kernels together, which was the whole test before."""
    from clawback.rewards.kernel_ensemble import Spectra
    from clawback.rewards.reward_head import permutation_test
    from clawback.rewards.rule_evidence import explained

    spectra = Spectra.of(views.kernels, rated.views, RIDGE)

    def evidence(dealt: Floats) -> Floats:
        log = spectra.evidence(dealt).reshape(-1, dealt.shape[1])
        kernels = np.logaddexp.reduce(log) - np.log(len(log))
        return np.asarray(np.logaddexp(kernels, explained(space, rated.signs, dealt)[0]))

    return permutation_test(said, evidence).p


def table(found: Mapping[str, Any]) -> str:
    from clawback.rewards.reward_head import TRUSTED_BELOW

    people, rows = found["people"], found["rows"]
    lines = ["| who | persons | trusted | by evidence alone |", "| --- | --- | --- | --- |"]
    if people:
        shares = [f"{found['tossers'][name] / people:.1%}" for name in ("product", EVIDENCE)]
        lines.append(f"| coin-tossers | {people} | {' | '.join(shares)} |")
    for name, low, high in (
        ("read: AUC ≥ 0.75", 0.75, 2.0),
        ("in between", 0.6, 0.75),
        ("not read: AUC < 0.6", -1.0, 0.6),
    ):
        some = [row for row in rows if low <= row["auc"] < high]
        shares = [
            interval([float(row["p"][way] <= TRUSTED_BELOW) for row in some]) for way in ("product", EVIDENCE)
        ]
        lines.append(f"| {name} | {len(some)} | {' | '.join(shares)} |")
    return "\n".join(lines)
