"""What can be read of a person from their ratings, on real answers of six chat models; nothing is trained.

Answers of six models to 500 prompts of AlpacaEval, two to each prompt. Of 250 prompts, answers are rated (one a prompt, one tap in ten wrong), and
every answer to the other 250 is graded: the AUC says how often a liked one is put above one that is not. Settings are chosen on the
``development`` tastes; what is reported is the ``test`` tastes (benchmarks/_reading_tastes.py).

    python -m benchmarks reading                        # text alone: some CPU minutes
    python -m benchmarks reading --states FOLDER        # and hidden states of that model, read once and kept in bench-results/
    python -m benchmarks reading --trust                # how many coin-tossers are trusted, and how many true tastes
    python -m benchmarks reading --grounds              # trust, where fresh answers, rated ones or both show how answers vary
    python -m benchmarks reading --looks --tossers 100  # after how many ratings a person is trusted, if read again sooner
    python -m benchmarks reading --quality [--states FOLDER]   # taps by whether an answer was good (_reading_quality.py)
    python -m benchmarks reading --judge 0.9            # content tastes, with verdicts of which nine in ten are right (_reading_judge.py)
"""

from __future__ import annotations

import argparse
import itertools
import json
import random
import statistics
import sys
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from benchmarks._reading_tastes import INSIDE, OUTSIDE

Floats = NDArray[np.float64]
Grades = NDArray[np.float64]

ROOT = Path(__file__).parent.parent
DATA = ROOT.parent / "shared" / "data" / "alpaca-eval-rated.jsonl"
MODELS = (
    "claude-2",
    "vicuna-7b-v1.5",
    "gemma-7b-it",
    "gpt-3.5-turbo-1106",
    "oasst-sft-pythia-12b",
    "chatglm2-6b",
)
EACH, RATED = 2, 250
"""Answers to each prompt; prompts that may be rated."""
NOISE, RIDGE, SHARES = 0.1, 0.8, (0.5, 0.3, 0.2)
STATE_TOKENS = 192
"""Tokens of an answer that hidden states are read of: reading all would cost twice as much."""
TOSSERS = 2_000
GROUND = 8
"""With fewer answers of the base, as a run has them: one in so many of those that may be rated."""
CHANGES = ("the same", "the opposite", "another taste")
EARLIER = 64
"""Ratings before a change of mind."""


@dataclass(frozen=True)
class Pool:
    """All answers: of the prompts that may be rated first."""

    prompts: list[str]
    texts: list[str]
    answers: Any  # rewards.views.Answers

    @property
    def rated(self) -> int:
        return RATED * EACH


def items(path: Path) -> list[tuple[str, str]]:
    """(prompt, answer), ``EACH`` a prompt, prompts in a fixed random order."""
    by: dict[str, dict[str, str]] = {}
    for line in path.read_text("utf-8").splitlines():
        if line.strip() and (one := json.loads(line))["model"] in MODELS:
            by.setdefault(one["prompt"], {})[one["model"]] = one["response"]
    prompts = list(by)
    random.Random(0).shuffle(prompts)
    return [
        (prompt, by[prompt][model])
        for number, prompt in enumerate(prompts)
        for model in random.Random(number + 1).sample(MODELS, EACH)
    ]


def pool(path: Path, states: str | None) -> Pool:
    from clawback.rewards.views import Answers

    pairs = items(path)
    prompts, texts = [p for p, _ in pairs], [t for _, t in pairs]
    ids, further = _ids(texts), {}
    if states:
        further = read_states(states, pairs)
    made = Answers(ids, texts, _topics(texts), prompts, further)
    return Pool(prompts, texts, made)


def _ids(texts: list[str]) -> list[list[int]]:
    """Words in place of a model's tokens."""
    import re

    numbers: dict[str, int] = {}
    return [[numbers.setdefault(w, len(numbers)) for w in re.findall(r"\w+|[^\w\s]", t)] for t in texts]


def _topics(texts: list[str]) -> Floats:
    """``[n, 64]``: latent semantic analysis of the words, in place of hidden states where no model reads."""
    from sklearn.decomposition import TruncatedSVD
    from sklearn.feature_extraction.text import TfidfVectorizer

    counted = TfidfVectorizer(min_df=3, sublinear_tf=True).fit(texts[: RATED * EACH])
    words = counted.transform(texts)
    made: Floats = TruncatedSVD(64, random_state=0).fit(words[: RATED * EACH]).transform(words)
    return made


def read_states(folder: str, pairs: list[tuple[str, str]]) -> dict[str, Floats]:
    """What layers of that model make of the answers; from bench-results/ where they were read before."""
    from clawback import engine
    from clawback.scoring.pooling import read
    from clawback.templates.chat_tokens import Encoded

    policy = engine.load(folder)
    kept = ROOT / "bench-results" / f"reading-{policy.info.revision[-12:]}.npz"
    if kept.is_file():
        with np.load(kept) as found:
            return {name: found[name].astype(np.float64) for name in found.files}
    encoded = []
    for prompt, text in pairs:
        one = policy.chat.encode([{"role": "user", "content": prompt}], text, None, limits=(256, 2048))
        encoded.append(Encoded(one.prompt, (*one.response[:-1][: STATE_TOKENS - 1], policy.chat.end_id)))
    made = read(policy.scorer, encoded)
    kept.parent.mkdir(exist_ok=True)
    np.savez(kept, **{name: values.astype(np.float32) for name, values in made.items()})
    return made


def taps(
    taste: str, fits: NDArray[np.bool_], count: int, draw: int, wrong: float = NOISE
) -> tuple[NDArray[np.int64], Floats]:
    """Places of the rated answers, and their ratings."""
    rng = random.Random(f"{taste} {draw} {count}")
    places = np.array([EACH * p + rng.randrange(EACH) for p in rng.sample(range(RATED), count)])
    ratings = [(1 if fits[i] else -1) * (-1 if rng.random() < wrong else 1) for i in places]
    return places, np.array(ratings, dtype=np.float64)


Reader = Callable[[NDArray[np.int64], Floats], Grades]


def readers(here: Pool) -> dict[str, Reader]:
    """Ways of reading: grades of all answers from places that were rated and their ratings."""
    from clawback.rewards import fit, rule_posterior
    from clawback.rewards.kernel_ensemble import Spectra
    from clawback.rewards.rule_evidence import evidence
    from clawback.rewards.views import Answers, Views

    every, base = here.answers, _rows(here.answers, range(here.rated))
    views = Views.ground(base)
    signs, space = views.signs(every), rule_posterior.Space.of(views.signs(base), views.layout)
    seen = views(every)
    features = views.features
    old_space = rule_posterior.Space.of(features.signs(base.ids, base.texts), features.manners)
    old_signs = features.signs(every.ids, every.texts)
    looks = features(every.ids, every.hidden, every.texts)
    assert isinstance(every, Answers)

    def spectra(places: NDArray[np.int64]) -> Spectra:
        return Spectra.of(views.kernels, {name: x[places] for name, x in seen.items()}, RIDGE)

    def before(places: NDArray[np.int64], said: Floats) -> Grades:
        ridge = fit(looks[places], said, ridge=RIDGE, spread=1.0).reward(looks)
        return (
            0.5 * ridge + 0.5 * rule_posterior.fit(old_space, old_signs[places], said).predict(old_signs)[0]
        )

    def rules(places: NDArray[np.int64], said: Floats) -> Grades:
        return rule_posterior.fit(space, signs[places], said).predict(signs)[0]

    def kernels(places: NDArray[np.int64], said: Floats) -> Grades:
        return spectra(places).fit(said).predict(seen)[0]

    def both(places: NDArray[np.int64], said: Floats) -> Grades:
        made = spectra(places).fit(said)
        odds = evidence(space, signs[places], said) - made.log_bayes
        share = 1 / (1 + np.exp(-np.clip(odds, -30, 30)))
        grades: Grades = share * rules(places, said) + (1 - share) * made.predict(seen)[0]
        return grades

    return {
        "before: ridge and conjunctions": before,
        "rules": rules,
        "kernels": kernels,
        "both, by their evidence": both,
    }


def _rows(answers: Any, rows: Iterable[int]) -> Any:
    from clawback.rewards.views import Answers

    places = list(rows)
    return Answers(
        [answers.ids[i] for i in places],
        [answers.texts[i] for i in places],
        answers.hidden[places],
        [answers.prompts[i] for i in places],
        {name: values[places] for name, values in answers.states.items()},
    )


def auc(grades: Grades, liked: NDArray[np.bool_]) -> float:
    """How often a liked answer has a higher grade than another; ties count half (Mann-Whitney)."""
    from scipy.stats import mannwhitneyu

    found = mannwhitneyu(grades[liked], grades[~liked], method="asymptotic").statistic
    return float(found) / (int(liked.sum()) * int((~liked).sum()))


def interval(values: Sequence[float]) -> str:
    """Mean and 95 % interval over persons (Student's t)."""
    from scipy.stats import t

    if len(values) < 2:
        return " ".join(f"{value:.2f}" for value in values)
    half = t.ppf(0.975, len(values) - 1) * statistics.stdev(values) / len(values) ** 0.5
    return f"{statistics.mean(values):.2f} ± {half:.2f}"


def run(
    here: Pool, which: str, counts: list[int], draws: int, only: str, wrong: float = NOISE
) -> dict[str, Any]:
    """AUC by way, taste and number of ratings, of which a share ``wrong`` says the opposite."""
    ways = {name: way for name, way in readers(here).items() if only in name}
    rows = []
    for group, sets in (("inside", INSIDE), ("outside", OUTSIDE)):
        for taste in sets[which]:
            fits = np.array(taste.fits(here.prompts, here.texts))
            row: dict[str, Any] = {"taste": taste.name, "group": group, "statistic": taste.statistic, "base": float(fits.mean())}  # fmt: skip
            for count in counts:
                found: dict[str, list[float]] = {name: [] for name in ways}
                for draw in range(draws):
                    places, said = taps(taste.name, fits, count, draw, wrong)
                    if np.ptp(said) == 0:
                        continue
                    for name, way in ways.items():
                        found[name].append(auc(way(places, said)[here.rated :], fits[here.rated :]))
                row[str(count)] = {name: statistics.mean(values) for name, values in found.items() if values}
            rows.append(row)
            print(taste.name, {c: {n: round(v, 2) for n, v in row[str(c)].items()} for c in counts}, file=sys.stderr)  # fmt: skip
    return {"tastes": which, "rows": rows, "ways": list(ways)}


def changes(here: Pool, which: str, draws: int, later: list[int], wrong: float) -> dict[str, Any]:
    """After ``EARLIER`` ratings by one taste, ``later`` ones by its opposite, by another one, or by the same: how often a change is found, and after how
    much processor time."""
    from clawback.rewards.reward_ensemble import EvidenceOverTime, Ratings, last_change
    from clawback.rewards.rule_posterior import Space
    from clawback.rewards.views import Views

    base = _rows(here.answers, range(0, here.rated, GROUND))
    views = Views.ground(base)
    space, seen = Space.of(views.signs(base), views.layout), views.view(here.answers)
    rows = []
    for group, sets in (("inside", INSIDE), ("outside", OUTSIDE)):
        for number, taste in enumerate(sets[which]):
            fits, other = (
                np.array(one.fits(here.prompts, here.texts)) for one in (taste, sets[which][number - 1])
            )
            for count, change, draw in itertools.product(later, CHANGES, range(draws)):
                places, ratings = taps(taste.name, fits, EARLIER + count, draw, wrong)
                if change == "the opposite":
                    ratings[EARLIER:] *= -1
                elif change == "another taste":
                    ratings[EARLIER:] *= np.where(fits == other, 1, -1)[places[EARLIER:]]
                started = time.process_time()
                over_time = EvidenceOverTime(views, space, seen[places], Ratings(ratings), RIDGE)
                row: dict[str, Any] = {
                    "taste": taste.name,
                    "group": group,
                    "later": count,
                    "changed": change,
                    "found": last_change(over_time, len(ratings)),
                    "seconds": time.process_time() - started,
                }
                rows.append(row)
            print(taste.name, [(r["later"], r["changed"], r["found"]) for r in rows if r["taste"] == taste.name], file=sys.stderr)  # fmt: skip
    return {"tastes": which, "wrong": wrong, "rows": rows}


def changes_table(found: Mapping[str, Any]) -> str:
    lines = ["| tastes | ratings after | now wanted | found | seconds, most |", "|" + " --- |" * 5]
    cells = sorted({(r["group"], r["later"], r["changed"]) for r in found["rows"]})
    for cell in cells:
        rows = [r for r in found["rows"] if (r["group"], r["later"], r["changed"]) == cell]
        slowest = max(r["seconds"] for r in rows)
        lines.append(f"| {' | '.join(map(str, cell))} | {sum(r['found'] > 0 for r in rows)} of {len(rows)} | {slowest:.1f} |")  # fmt: skip
    return "\n".join(lines)


def table(found: Mapping[str, Any], counts: list[int]) -> str:
    ways = found["ways"]
    lines = ["| taste | liked | " + " | ".join(f"{way}, {c}" for way in ways for c in counts) + " |"]
    lines.append("|" + " --- |" * (2 + len(ways) * len(counts)))

    def cells(rows: list[Any]) -> str:
        return " | ".join(f"{statistics.mean(r[str(c)][w] for r in rows):.2f}" for w in ways for c in counts)

    for group in ("inside", "outside"):
        rows = [r for r in found["rows"] if r["group"] == group]
        for r in rows:
            star = " \\*" if r["statistic"] else ""
            lines.append(f"| {r['taste']}{star} | {r['base']:.2f} | {cells([r])} |")
        lines.append(f"| **{group}: mean of {len(rows)}** | | {cells(rows)} |")
    plain = [r for r in found["rows"] if r["group"] == "outside" and not r["statistic"]]
    lines.append(f"| outside, without \\* | | {cells(plain)} |")
    return "\n".join(lines) + "\n\n\\*: what the taste measures is nearly one of the text statistics."


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks reading", description=__doc__.partition("\n")[0]
    )
    parser.add_argument("--data", type=Path, default=DATA, help="JSONL with prompt, response, model")
    parser.add_argument("--tastes", choices=("test", "development"), default="test")
    parser.add_argument("--ratings", default="32,128")
    parser.add_argument("--draws", type=int, default=4, help="draws of the ratings for each taste")
    parser.add_argument("--wrong", type=float, default=NOISE, help="share of taps that are wrong")
    parser.add_argument("--states", help="folder of a causal model whose hidden states are read as well")
    parser.add_argument("--only", default="", help="ways whose name holds this")
    parser.add_argument("--trust", action="store_true", help="who is trusted, in place of AUC")
    parser.add_argument("--grounds", action="store_true", help="trust by what was seen of how answers vary")
    parser.add_argument("--looks", action="store_true", help="after how many ratings a person is trusted")
    parser.add_argument("--change", action="store_true", help="whether a change of mind is found")
    parser.add_argument("--judge", type=float, help="share of right verdicts of a judge that is played")
    parser.add_argument("--quality", action="store_true", help="taps by graded preferences")
    parser.add_argument("--tossers", type=int, default=TOSSERS, help="people who toss a coin, with --trust")
    options = parser.parse_args(argv)
    if not options.data.is_file():
        print(f"Skipped: there is no {options.data}. Name the answers with --data.", file=sys.stderr)
        return 0
    results = ROOT / "bench-results"
    results.mkdir(exist_ok=True)
    if options.quality:
        from benchmarks import _reading_quality

        counts = [int(count) for count in options.ratings.split(",")]
        found = _reading_quality.quality(options.data, MODELS, options.states, counts, options.draws, results)
        (results / "reading-quality.json").write_text(json.dumps(found, indent=2))
        print(_reading_quality.table(found))
        return 0
    here = pool(options.data, options.states)
    counts = [int(count) for count in options.ratings.split(",")]
    if options.trust:
        from benchmarks import _reading_trust

        found = _reading_trust.trusted(
            here, options.tastes, options.draws, counts, options.wrong, options.tossers
        )
        (results / "reading-trust.json").write_text(json.dumps(found, indent=2))
        print(_reading_trust.table(found))
        return 0
    if options.looks:
        from benchmarks import _reading_trust

        found = _reading_trust.by_looks(here, options.tastes, options.draws, options.wrong, options.tossers)
        (results / "reading-looks.json").write_text(json.dumps(found, indent=2))
        print(_reading_trust.looks_table(found))
        return 0
    if options.grounds:
        from benchmarks import _reading_trust

        found = _reading_trust.by_ground(here, options.tastes, options.draws, counts, options.wrong)
        (results / "reading-grounds.json").write_text(json.dumps(found, indent=2))
        print(_reading_trust.ground_table(found))
        return 0
    if options.judge is not None:
        from benchmarks import _reading_judge

        found = _reading_judge.judged(
            here, options.tastes, options.judge, counts, options.draws, options.wrong
        )
        (results / f"reading-judge-{options.judge:g}.json").write_text(json.dumps(found, indent=2))
        print(_reading_judge.table(found))
        return 0
    if options.change:
        found = changes(here, options.tastes, options.draws, counts, options.wrong)
        (results / "reading-change.json").write_text(json.dumps(found, indent=2))
        print(changes_table(found))
        return 0
    found = run(here, options.tastes, counts, options.draws, options.only, options.wrong)
    (results / "reading.json").write_text(json.dumps(found, indent=2))
    print(table(found, counts))
    return 0


if __name__ == "__main__":
    sys.exit(main())
