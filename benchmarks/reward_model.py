"""Reward models on AlpacaEval's scores: trained on some models' answers and some prompts, tested on other models and other prompts.

Ten models answered 500 prompts each, and a judge said how likely each answer is to beat a reference (0 to 1; most are near 0, so
ranks are learned). A split tests on four models and two fifths of the prompts, and trains on the other six models' answers to the
other prompts: nothing in the test was seen in any way. The splits turn round, so that every model is tested in two of five.

``length``: characters of the answer. ``similarity``: nearness to liked answers less that to disliked ones, on pooled hidden states.
``bag of words``: ridge regression on log word counts (λ = 300, the best of 30, 300 and 2,000 in a pilot). ``encoder``: ours, an ensemble of three.
``MiniLM`` (only with ``--minilm``): all-MiniLM-L6-v2, frozen, under a ridge whose strength is chosen by prompts within the training answers.
``states`` (only with ``--states MODEL``): ours on the hidden states of that model in place of the embedded one's.
``MiniLM, fine-tuned`` (only with ``--fine-tune``, slow): the product's way with an encoder, all-MiniLM-L6-v2 beside ours, one member, three epochs.
``small BERT`` (only with ``--small-bert``, slow): our training on a word-piece BERT with random weights.

Intervals are 95 %, by drawing the 500 prompts again (paired: the same draws for all methods and splits). The spread over splits,
that is over which models are tested, is given beside them.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from clawback.extensions.reward import encoder as encoders
from clawback.extensions.reward import measures, similarity
from clawback.extensions.reward.encoder import EncoderSettings
from clawback.extensions.reward.rated import RatedAnswer
from clawback.features.state_features import Looks
from clawback.learning.reading import BaseModelReader

Floats = NDArray[np.float64]
Rows = NDArray[np.int64]

ROOT = Path(__file__).parent.parent
DATA = ROOT.parent / "shared" / "data" / "alpaca-eval-rated.jsonl"
TESTED_MODELS, PROMPT_BLOCKS, TESTED_BLOCKS = 4, 5, 2
RIDGE = 300.0
READ = 192
"""Tokens of an answer that a larger model reads."""


@dataclass(frozen=True)
class Pool:
    """All answers, who wrote them, and what the embedded model makes of them."""

    rated: list[RatedAnswer]
    models: list[str]
    looks: Looks
    others: Looks | None = None
    """What another causal model makes of them."""

    def of(self, rows: Rows) -> list[RatedAnswer]:
        return [self.rated[i] for i in rows]

    def look(self, pairs: Sequence[tuple[str, str]]) -> Looks:
        """As the reader, from what was read already."""
        return self._of(self.looks, pairs)

    def look_otherwise(self, pairs: Sequence[tuple[str, str]]) -> Looks:
        if self.others is None:
            raise SystemExit("Name a model: --states MODEL")
        return self._of(self.others, pairs)

    def _of(self, looks: Looks, pairs: Sequence[tuple[str, str]]) -> Looks:
        place = {r.pair: i for i, r in enumerate(self.rated)}
        rows = [place[pair] for pair in pairs]
        return Looks(looks.states[rows], [looks.tokens[i] for i in rows], looks.shapes[rows])


def pool(path: Path, most: int | None, states: str | None = None) -> Pool:
    lines = [json.loads(line) for line in path.read_text("utf-8").splitlines() if line.strip()]
    if most:
        kept = sorted({line["prompt"] for line in lines})[:most]
        lines = [line for line in lines if line["prompt"] in set(kept)]
    rated = [RatedAnswer(line["prompt"], line["response"], float(line["score"])) for line in lines]
    print(f"reading {len(rated)} answers with the embedded model …", file=sys.stderr)
    pairs, models = [r.pair for r in rated], [line["model"] for line in lines]
    here = Pool(rated, models, BaseModelReader("embedded")(pairs))
    if states is None:
        return here
    print(f"reading them with {states} …", file=sys.stderr)
    return replace(here, others=BaseModelReader(states, max_length=READ)(pairs))


def split(here: Pool, number: int, seed: int) -> tuple[Rows, Rows]:
    """(train, test) rows of a split: neither models nor prompts in common."""
    rng = np.random.default_rng(seed)
    models = rng.permutation(sorted(set(here.models)))
    prompts = rng.permutation(sorted({r.prompt for r in here.rated}))
    tested = {models[(2 * number + i) % len(models)] for i in range(TESTED_MODELS)}
    blocks = np.array_split(prompts, PROMPT_BLOCKS)
    asked = {str(p) for i in range(TESTED_BLOCKS) for p in blocks[(number + i) % PROMPT_BLOCKS]}
    ours = np.array([m in tested for m in here.models])
    unseen = np.array([r.prompt in asked for r in here.rated])
    return np.flatnonzero(~ours & ~unseen), np.flatnonzero(ours & unseen)


def by_length(here: Pool, train: Rows, test: Rows, seed: int) -> Floats:
    del train, seed
    return np.array([float(len(r.response)) for r in here.of(test)])


def by_similarity(here: Pool, train: Rows, test: Rows, seed: int) -> Floats:
    del seed
    targets = measures.shares([r.value for r in here.of(train)])
    return similarity.fit(here.looks.states[train], targets).score(here.looks.states[test])


def by_words(here: Pool, train: Rows, test: Rows, seed: int) -> Floats:
    del seed
    from sklearn.feature_extraction.text import CountVectorizer
    from sklearn.linear_model import Ridge

    words = CountVectorizer(min_df=3)
    seen = np.log1p(words.fit_transform(r.response for r in here.of(train)).toarray())
    asked = np.log1p(words.transform(r.response for r in here.of(test)).toarray())
    targets = measures.shares([r.value for r in here.of(train)])
    made: Floats = Ridge(alpha=RIDGE).fit(seen, targets).predict(asked)
    return made


def by_encoder(here: Pool, train: Rows, test: Rows, seed: int) -> Floats:
    key = (id(here), seed)
    if key not in _SCORED:
        made = encoders.fit(here.of(train), EncoderSettings(targets="ranks"), look=here.look, seed=seed)
        _SCORED[key] = made.encoder.score([r.pair for r in here.of(test)])
    return _SCORED[key]


_SCORED: dict[tuple[int, int], Floats] = {}
"""By split: asked for twice where MiniLM is put beside it."""


def by_states(here: Pool, train: Rows, test: Rows, seed: int) -> Floats:
    made = encoders.fit(here.of(train), EncoderSettings(targets="ranks"), look=here.look_otherwise, seed=seed)
    return made.encoder.score([r.pair for r in here.of(test)])


def by_fine_tuned(here: Pool, train: Rows, test: Rows, seed: int) -> Floats:
    from benchmarks import _minilm

    with tempfile.TemporaryDirectory() as folder:
        place = str(_minilm.unpacked(Path(folder)))
        settings = EncoderSettings(encoder=place, targets="ranks", members=1, epochs=3, max_length=128)
        made = encoders.fit(here.of(train), settings, look=here.look, seed=seed)
        print(f"the encoder's share: {made.history[0]['share']:.2f}", file=sys.stderr)
        return made.encoder.score([r.pair for r in here.of(test)])


def by_small_bert(here: Pool, train: Rows, test: Rows, seed: int) -> Floats:
    from benchmarks import _small_bert

    with tempfile.TemporaryDirectory() as folder:
        texts = [text for r in here.of(train) for text in r.pair]
        _small_bert.make(Path(folder), texts, max_length=256, dropout=0.1, seed=seed)
        settings = EncoderSettings(
            encoder=folder, targets="ranks", max_length=256, epochs=4, patience=1, learning_rate=2e-3
        )
        made = encoders.fit(here.of(train), settings, look=here.look, seed=seed)
        return made.encoder.score([r.pair for r in here.of(test)])


def _minilm_features(here: Pool) -> Floats:
    """[answers, features], read once."""
    from benchmarks import _minilm

    if id(here) not in _READ:
        with tempfile.TemporaryDirectory() as folder:
            place = _minilm.unpacked(Path(folder))
            print(f"reading {len(here.rated)} answers with MiniLM …", file=sys.stderr)
            _READ[id(here)] = _minilm.pairs(
                place, [r.prompt for r in here.rated], [r.response for r in here.rated]
            )
    return _READ[id(here)]


_READ: dict[int, Floats] = {}


def by_minilm(here: Pool, train: Rows, test: Rows, seed: int) -> Floats:
    del seed
    from benchmarks import _minilm

    read = _minilm_features(here)
    targets = np.array(measures.shares([r.value for r in here.of(train)]))
    return _minilm.ridge(read[train], targets, read[test], [r.prompt for r in here.of(train)])


def by_both(here: Pool, train: Rows, test: Rows, seed: int) -> Floats:
    """Mean of the ranks that the two give."""
    one, other = by_minilm(here, train, test, seed), by_encoder(here, train, test, seed)
    return np.array(measures.shares(one)) + np.array(measures.shares(other))


METHODS: dict[str, Callable[[Pool, Rows, Rows, int], Floats]] = {
    "length": by_length,
    "similarity": by_similarity,
    "bag of words": by_words,
    "encoder": by_encoder,
    "states": by_states,
    "MiniLM, fine-tuned": by_fine_tuned,
    "small BERT": by_small_bert,
    "MiniLM": by_minilm,
    "MiniLM + encoder": by_both,
}


def run(here: Pool, names: Sequence[str], splits: int, seed: int, draws: int) -> dict[str, Any]:
    """ρ of each method on each split, its mean with an interval, and by how much the encoder is ahead."""
    tests, said = [], []
    for number in range(splits):
        train, test = split(here, number, seed)
        started = time.process_time()
        said.append({name: METHODS[name](here, train, test, seed + number) for name in names})
        tests.append(test)
        print(f"split {number + 1}: {len(train)} answers learned from, {len(test)} tested on, "
              f"{time.process_time() - started:.0f} s", file=sys.stderr)  # fmt: skip
    values = np.array([r.value for r in here.rated])
    prompts = sorted({r.prompt for r in here.rated})
    place = {p: i for i, p in enumerate(prompts)}
    of_prompt = np.array([place[r.prompt] for r in here.rated])

    def rhos(weights: NDArray[np.int64] | None) -> Floats:
        """``[splits, methods]``; ``weights [prompts]``: how often each prompt was drawn."""
        rows = []
        for test, scores in zip(tests, said, strict=True):
            times = np.ones(len(test), dtype=np.int64) if weights is None else weights[of_prompt[test]]
            again = np.repeat(np.arange(len(test)), times)
            rows.append([measures.spearman(scores[n][again], values[test][again]) for n in names])
        return np.array(rows)

    plain = rhos(None)
    rng = np.random.default_rng(seed)
    many = len(prompts)
    drawn = np.array(
        [rhos(np.bincount(rng.integers(many, size=many), minlength=many)).mean(0) for _ in range(draws)]
    )
    ours = list(names).index("encoder")

    def summary(at: Floats, draws_of: Floats) -> dict[str, Any]:
        low, high = np.quantile(draws_of, [0.025, 0.975])
        return {"mean": float(at.mean()), "low": float(low), "high": float(high), "splits": at.tolist()}

    return {
        "rho": {n: summary(plain[:, i], drawn[:, i]) for i, n in enumerate(names)},
        "ahead": {
            n: summary(plain[:, ours] - plain[:, i], drawn[:, ours] - drawn[:, i])
            for i, n in enumerate(names)
            if i != ours
        },
    }


def table(found: dict[str, Any]) -> str:
    lines = [
        "| method | Spearman's ρ | by split | the encoder is ahead by | by split |",
        "| --- | --- | --- | --- | --- |",
    ]
    for name, rho in found["rho"].items():
        cells = []
        for one in (rho, found["ahead"].get(name)):
            if one is None:
                cells += ["", ""]
                continue
            cells.append(f"{one['mean']:.3f} [{one['low']:.3f}, {one['high']:.3f}]")
            cells.append(" ".join(f"{x:.2f}" for x in one["splits"]))
        lines.append(f"| {name} | " + " | ".join(cells) + " |")
    return "\n".join(lines)


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks reward_model", description=__doc__)
    parser.add_argument("--data", type=Path, default=DATA, help="JSONL with prompt, response, model, score")
    parser.add_argument("--prompts", type=int, help="only that many prompts (default: all)")
    parser.add_argument("--splits", type=int, default=5)
    parser.add_argument("--draws", type=int, default=1000, help="bootstrap draws")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--small-bert", action="store_true")
    parser.add_argument("--states", metavar="MODEL", help="also ours on the hidden states of this model")
    parser.add_argument(
        "--fine-tune", action="store_true", help="also all-MiniLM-L6-v2 as the product has it"
    )
    parser.add_argument("--minilm", action="store_true", help="also all-MiniLM-L6-v2, frozen, under a ridge")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args(argv)
    if not options.data.is_file():
        print(f"Skipped: there is no {options.data}. Name the scored answers with --data.", file=sys.stderr)
        return 0
    asked = {
        "states": bool(options.states),
        "MiniLM, fine-tuned": options.fine_tune,
        "small BERT": options.small_bert,
        "MiniLM": options.minilm,
        "MiniLM + encoder": options.minilm,
    }
    names = [name for name in METHODS if asked.get(name, True)]
    started = time.process_time()
    found = run(
        pool(options.data, options.prompts, options.states),
        names,
        options.splits,
        options.seed,
        options.draws,
    )
    found["cpu_seconds"] = time.process_time() - started
    results = ROOT / "bench-results"
    results.mkdir(exist_ok=True)
    (results / "reward_model.json").write_text(json.dumps(found, indent=2))
    print(json.dumps(found) if options.json else table(found))
    print(f"{found['cpu_seconds']:.0f} s of CPU", file=sys.stderr)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
