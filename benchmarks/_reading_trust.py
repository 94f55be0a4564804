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
    from clawback.rewards.reward_ensemble import RULES, fit
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
        made = fit(views, space, seen[places], said, ridge=RIDGE)
        tossers["product"] += made.trust.trusted
        tossers[EVIDENCE] += by_evidence(views, space, seen[places], said) <= TRUSTED_BELOW
    for group, sets in (("inside", INSIDE), ("outside", OUTSIDE)):
        for taste, count, draw in itertools.product(sets[which], counts, range(draws)):
            fits = np.array(taste.fits(here.prompts, here.texts))
            places, said = taps(taste.name, fits, count, draw, wrong)
            made = fit(views, space, seen[places], said, ridge=RIDGE)
            read = auc(made.score(seen[here.rated :], RULES, 0.0), fits[here.rated :])
            ps = {"product": made.trust.p, EVIDENCE: by_evidence(views, space, seen[places], said)}
            rows.append({"taste": taste.name, "group": group, "ratings": count, "auc": read, "p": ps})
    return {"tastes": which, "wrong": wrong, "people": people, "tossers": tossers, "rows": rows}


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
