"""Rules: how many sentences are read, how well a check measures obedience, what the test on ratings believes, and which judges pass.

Answers are real ones of ten chat models to prompts of AlpacaEval, and have been rated by nobody here; persons are simulated and said so.

    python -m benchmarks rules                 # everything, some CPU minutes
    python -m benchmarks rules --part reading  # or: obedience, false, power, judges
"""

from __future__ import annotations

import argparse
import itertools
import json
import random
import re
import statistics
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from benchmarks._rule_sentences import LATER_TRAPS, TRAPS, WISHES, Wish
from clawback.feedback.endpoint import JudgeAnswer
from clawback.rules.checks import compiled, parse
from clawback.rules.exam import ASKED, exam_items, examine
from clawback.rules.proposers import distinct, from_list
from clawback.rules.rule_judge import EndpointJudge, RuledTurn
from clawback.rules.rule_test import LEVEL, rule_tests

Floats = NDArray[np.float64]

ROOT = Path(__file__).parent.parent
DATA = ROOT.parent / "shared" / "data" / "alpaca-eval-rated.jsonl"
RATINGS = (10, 32, 128)
WRONG = (0.1, 0.2, 0.3)
PEOPLE = 200
ANSWERS = 1200
"""Of the 4,999, in a fixed random order."""
PERMUTATIONS = 199
BALANCED = 0.1
"""Share of answers that keep a wish, and that break it, without which its obedience is measured on answers that are changed."""


def answers(path: Path) -> list[RuledTurn]:
    rows = [json.loads(line) for line in path.read_text("utf-8").splitlines() if line.strip()]
    pairs = [RuledTurn(row["prompt"], row["response"]) for row in rows if row["response"].strip()]
    random.Random(0).shuffle(pairs)
    return pairs


def reading() -> dict[str, Any]:
    """How many sentences are read, and how many of what only looks like a wish."""
    shares = {}
    for part in ("said", "other"):
        sentences = [sentence for wish in WISHES for sentence in getattr(wish, part)]
        shares[part] = (sum(bool(parse(sentence)) for sentence in sentences), len(sentences))
    different = sum(
        len({_sorted(check) for one in (*wish.said, *wish.other) if (check := parse(one))}) > 1
        for wish in WISHES
    )
    traps = (*TRAPS, *LATER_TRAPS)
    wrong = [trap for trap in traps if parse(trap)]
    return {"read": shares, "wishes read in two ways": different, "traps": len(traps), "traps read": wrong}


def _sorted(check: str) -> str:
    return "; ".join(sorted(check.split("; ")))


def obedience(pairs: Sequence[RuledTurn]) -> dict[str, Any]:
    """Balanced accuracy of the check of each wish against a truth that shares nothing with it, on real answers."""
    rows = {}
    for wish in WISHES:
        check = next(filter(None, map(parse, (*wish.said, *wish.other))))
        texts = [pair.answer for pair in pairs]
        truths = np.array([wish.truth(text) for text in texts], dtype=object)
        share = float(np.mean([truth is True for truth in truths]))
        if min(share, 1 - share) < BALANCED:
            texts += _changed(wish, texts[:400])
        rows[wish.name] = (check, round(_balanced(wish, check, texts), 4), round(share, 3))
    values = [value for _, value, _ in rows.values()]
    return {"wishes": rows, "least": min(values), "mean": round(statistics.fmean(values), 4)}


def _balanced(wish: Wish, check: str, texts: Sequence[str]) -> float:
    tell = compiled(check)
    assert tell is not None
    right: dict[bool, list[bool]] = {True: [], False: []}
    for text in texts:
        truth, verdict = wish.truth(text), tell("", text)
        if truth is not None and verdict is not None:
            right[truth].append((verdict == 1.0) == truth)
    return statistics.fmean(statistics.fmean(side) for side in right.values() if side)


def _changed(wish: Wish, texts: Sequence[str]) -> list[str]:
    """Answers changed so that the rarer side of a wish is there: how is fixed for all wishes, and the truth reads the result."""
    changes: tuple[Callable[[str], str], ...] = (
        lambda text: f"Sure, {text}",
        lambda text: f"{text}\n\n```python\nfor i in range(10):\n    print(i)\n```",
        lambda text: f"{text} 😀",
        lambda text: f"## Overview\n{text}",
        lambda text: f"{text} Would that help?",
        lambda text: f"{text} However, this is **important**; sorry.",
        lambda text: " ".join(text.split()[:30]),
        lambda text: f"{text} It costs 12 (or 13) euros!",
    )
    made = [change(text) for text, change in zip(texts, itertools.cycle(changes), strict=False)]
    return [text for text in made if wish.truth(text) is not None]


def matrix(pairs: Sequence[RuledTurn]) -> Floats:
    """``[rules, answers]``: verdicts of the hand-written list and of the wishes above."""
    listed = [rule.check for rule in distinct(from_list())]
    checks = list(dict.fromkeys([*listed, *(next(filter(None, map(parse, wish.said))) for wish in WISHES)]))
    rows = []
    for check in checks:
        tell = compiled(check)
        assert tell is not None
        rows.append([np.nan if (value := tell(*pair)) is None else value for pair in pairs])
    return np.array(rows, dtype=np.float64)


def false_rules(verdicts: Floats, people: int) -> dict[str, Any]:
    """People who toss a coin: the share of whom any rule is believed."""
    shares = {}
    for count in RATINGS:
        wrong = 0
        for person in range(people):
            generator = np.random.default_rng(person)
            columns = generator.choice(verdicts.shape[1], count, replace=False)
            taps = np.where(generator.random(count) < generator.uniform(0.3, 0.7), 1.0, -1.0)
            tests = rule_tests(verdicts[:, columns], taps, permutations=PERMUTATIONS, seed=person)
            wrong += any(test.believed for test in tests)
        shares[count] = wrong / people
    return {"rules": len(verdicts), "people": people, "level": LEVEL, "share with a false rule": shares}


def power(verdicts: Floats, people: int) -> dict[str, Any]:
    """People who like what keeps one rule, some taps wrong: how often that rule, or one that says the same, is believed."""
    balanced = [i for i, row in enumerate(verdicts) if 0.25 <= np.nanmean(row) <= 0.75]
    table: dict[str, Any] = {"rules that may be meant": len(balanced)}
    for count, share in itertools.product((32, 64, 128), WRONG):
        hits = others = 0
        for person in range(people):
            generator = np.random.default_rng(10_000 + person)
            meant = balanced[person % len(balanced)]
            columns = generator.choice(np.flatnonzero(~np.isnan(verdicts[meant])), count, replace=False)
            taps = np.where((verdicts[meant, columns] > 0.5) != (generator.random(count) < share), 1.0, -1.0)
            tests = rule_tests(verdicts[:, columns], taps, permutations=PERMUTATIONS, seed=person)
            hits += tests[meant].believed
            distinct_ = [i for i, test in enumerate(tests) if test.believed and test.explained_by < 0]
            others += sum(abs(_alike(verdicts[i], verdicts[meant])) < 0.2 for i in distinct_)
        table[f"{count} ratings, {share:.0%} wrong"] = {
            "believed": hits / people,
            "unrelated rules a person": others / people,
        }
    return table


def _alike(one: Floats, other: Floats) -> float:
    both = ~np.isnan(one) & ~np.isnan(other)
    if one[both].std() < 1e-9 or other[both].std() < 1e-9:
        return 0.0
    return float(np.corrcoef(one[both], other[both])[0, 1])


def judges(pairs: Sequence[RuledTurn], exams: int = 20) -> dict[str, Any]:
    """Played judges of known quality sit the exam on real answers: the share that passes, and how many homes allow an exam."""
    table: dict[str, Any] = {}
    generator = random.Random(1)
    for count in (24, 64):
        possible = 0
        for seed in range(10):
            items = exam_items(generator.sample(list(pairs), count), seed)
            possible += all(sum(item.kind == kind for item in items) >= ASKED for kind in ("form", "content"))
        table[f"an exam is possible with {count} answers"] = possible / 10
    for share in (0.5, 0.6, 0.7, 0.8, 0.9, 0.95):
        passed = 0
        for seed in range(exams):
            sample = random.Random(seed).sample(list(pairs), 48)
            truth = {(item.rule, item.pair.answer): item.truth for item in exam_items(sample, seed)}
            judge = EndpointJudge(_played(truth, share, seed), "played")
            passed += examine(judge, sample, seed=seed, now=lambda: 0.0).believed
        table[f"right in {share:.0%}: passes"] = passed / exams
    return table


def _played(truth: dict[tuple[str, str], bool], share: float, seed: int) -> Callable[[str, str], JudgeAnswer]:
    """A judge that says the truth in a share of its verdicts."""
    generator = random.Random(seed)

    def ask(_: str, user: str) -> JudgeAnswer:
        pieces = re.findall(r"<<(RULE|ANSWER) (\w+) \w+>>\n(.*?)\n<<end \w+>>", user, re.DOTALL)
        rules = {key: text for kind, key, text in pieces if kind == "RULE"}
        reply = {
            number: {
                letter: "yes" if truth.get((rule, text), False) == (generator.random() < share) else "no"
                for letter, rule in rules.items()
            }
            for kind, number, text in pieces
            if kind == "ANSWER"
        }
        return JudgeAnswer(json.dumps(reply), 1)

    return ask


def main(argv: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks rules", description=(__doc__ or "").partition("\n")[0]
    )
    parser.add_argument(
        "--part", choices=("reading", "obedience", "false", "power", "judges"), action="append"
    )
    parser.add_argument("--data", type=Path, default=DATA, help="a JSON object a line: prompt, response")
    parser.add_argument("--answers", type=int, default=ANSWERS)
    parser.add_argument("--people", type=int, default=PEOPLE)
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    options = parser.parse_args(argv)
    parts = options.part or ["reading", "obedience", "false", "power", "judges"]
    found: dict[str, Any] = {"reading": reading()} if "reading" in parts else {}
    if set(parts) - {"reading"}:
        pairs = answers(options.data)[: options.answers]
        if "obedience" in parts:
            found["obedience"] = obedience(pairs)
        if {"false", "power"} & set(parts):
            verdicts = matrix(pairs)
            found |= {"false rules": false_rules(verdicts, options.people)} if "false" in parts else {}
            found |= {"power": power(verdicts, options.people)} if "power" in parts else {}
        if "judges" in parts:
            found["judges"] = judges(pairs)
    print(json.dumps(found, indent=None if options.json else 2, ensure_ascii=False))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
