"""The exam of a judge: before it is believed, it judges answers of which the truth is known.

Two kinds of question, ``ASKED`` of each, half of them kept and half broken, on answers that were really recorded:

* **form**: the truth is a check by code ("contain a number", "use a list");
* **content**: the truth is verdicts by construction. To a recorded answer that shows no sign of an example a sentence with an example is added: it
  keeps "Give an example.". A recorded answer that shows no sign of one, as it stands, breaks it.

A judge passes a kind if the exact lower bound (Clopper & Pearson 1934, one-sided, 95 %) on its share of right verdicts is above ``CHANCE``: 25
right of 32. Both halves have the same size, so the share is the balanced accuracy, and always saying yes brings 16. It is believed if it passes
both. A judge that is right in 60 % passes one kind in 2.5 % of exams and both in fewer; one that is right in 90 % passes both in 97.6 %
(``tests/rules/test_exam.py`` computes it exactly). What is not said, or "none", is not right.
"""

from __future__ import annotations

import random
import re
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import cache
from math import comb
from typing import TYPE_CHECKING, NamedTuple

from clawback.feedback.endpoint import NoAnswer
from clawback.rules.checks import compiled
from clawback.rules.rule_judge import ANSWERS, RULES, RuledTurn, RuleJudge

if TYPE_CHECKING:
    from clawback.records import JsonObject
    from clawback.store import Store

ASKED = 32
"""Questions of each kind: with fewer, a judge that is right in 60 % cannot be told from one that is right in 90 %."""
DIFFERENT = 24
"""Recorded answers that the questions of one exam are at least taken from."""
CHANCE = 0.6
LEVEL = 0.05
EDITION = 1
"""Of the questions: who passed another edition sits this one."""
VALID_DAYS = 30
"""A model behind a name may change; after that the exam is held again."""
DAY = 86_400.0
LONGEST_ANSWER = 3000
"""Characters of an answer that is asked about."""
PREFIX = "rule-judge:"

FORM: tuple[tuple[str, str], ...] = (
    ("Use a list.", "list = yes"),
    ("Contain a number in digits.", "digits = yes"),
    ("Do not write in the first person (I, me, my, we, us, our).", "first person = no"),
    ("Address the reader as you.", "second person = yes"),
    ("Use no exclamation marks.", "exclamation marks = no"),
    ("End with a question.", "ends with question = yes"),
    ("Use no brackets.", "brackets = no"),
    ("Answer in one paragraph.", "paragraphs <= 1"),
)
"""(rule, check): asked as far as recorded answers both keep and break them."""


class Construction(NamedTuple):
    """A rule about content, signs of it (none may be in an answer that is said to break it), and sentences that keep it."""

    rule: str
    signs: str
    sentences: tuple[str, ...]


CONTENT: tuple[Construction, ...] = (
    Construction(
        "Give an example.",
        r"example|instance|e\.g|such as|like|say,|including|imagine|suppose|consider",
        (
            "For example, a bakery that tried this sold twice as much bread within a month.",
            "Take a family of four as an example: they needed two weekends for it.",
            "An example from everyday work is a nurse who writes the dose on a card before each round.",
            "To give an example, one school moved the lesson to nine o'clock and fewer pupils were late.",
        ),
    ),
    Construction(
        "Name a risk or a drawback.",
        r"risk|drawback|danger|careful|caution|warn|downside|disadvantage|however|\bbut\b|limit|problem|avoid|harm|cost|although|difficult|challeng|wrong|fail"
        r"|unfortunate|\bnot\b|n't",
        (
            "One drawback is that it can fail without any warning, and then the work of a day is lost.",
            "There is a risk in this: done too fast, it may cause damage that is hard to repair.",
            "The downside is the price, and some people have been hurt by doing it carelessly.",
            "Be aware of the danger that a small mistake here spoils everything that comes after.",
        ),
    ),
    Construction(
        "Compare it with something from daily life.",
        r"\blike\b|as if|similar|imagine|compar|analog|think of|reminds|\bas \w+ as\b|just as|metaphor",
        (
            "It is like packing a suitcase: what you need first should lie on top.",
            "Think of it as watering a plant, where a little each day does more than a flood once a month.",
            "You can compare it to learning to ride a bicycle, which looks impossible until it suddenly works.",
            "It works much the way a queue at a bakery does: whoever comes first is served first.",
        ),
    ),
    Construction(
        "Say where the information comes from.",
        r"source|accord|report|stud(?:y|ies)|research|survey|wiki|http|www|publish|journal|statistic|cited|based on|data",
        (
            "This comes from the yearly report of the national statistics office.",
            "The source of this is a study that a university published in a medical journal.",
            "According to the handbook of the manufacturer, this holds for all models.",
            "I take this from the encyclopaedia's article on the subject and from a survey of 2019.",
        ),
    ),
)  # fmt: skip


class ExamItem(NamedTuple):
    """One question of the exam."""

    kind: str
    rule: str
    pair: RuledTurn
    truth: bool


@dataclass(frozen=True, slots=True)
class ExamResult:
    """How a judge did. ``kinds``: kind → (right, questions that were asked: fewer where it could not pass any more). ``trouble``: why it was not held to the end, "" where it was."""

    judge: str
    date: float
    kinds: Mapping[str, tuple[int, int]]
    trouble: str = ""
    edition: int = EDITION

    @property
    def believed(self) -> bool:
        return (
            not self.trouble and bool(self.kinds) and all(passes(*counts) for counts in self.kinds.values())
        )

    @property
    def sentence(self) -> str:
        """What came out, for people."""
        if self.trouble:
            return f"{self.judge} was not examined: {self.trouble}"
        shares = ", ".join(f"{right} of {total} on {kind}" for kind, (right, total) in self.kinds.items())
        needed = least_right(ASKED)
        return f"{self.judge} was right in {shares} ({needed} of {ASKED} needed): " + (
            "believed" if self.believed else "not used"
        )

    def to_dict(self) -> JsonObject:
        return asdict(self) | {"believed": self.believed}


@cache
def least_right(questions: int) -> int:
    """The fewest right verdicts that chance of ``CHANCE`` reaches in at most ``LEVEL`` of exams; ``questions + 1`` where there is none.

    The same as a one-sided Clopper-Pearson lower bound of at least ``CHANCE``.
    """
    tail = 0.0
    for right in range(questions, -1, -1):
        tail += comb(questions, right) * CHANCE**right * (1 - CHANCE) ** (questions - right)
        if tail > LEVEL:
            return right + 1
    return 0


def passes(right: int, questions: int) -> bool:
    return questions >= ASKED and right >= least_right(questions)


def exam_items(answers: Sequence[RuledTurn], seed: int = 0) -> list[ExamItem]:
    """The questions, on recorded answers. Too few of a kind where these answers do not allow more."""
    random_ = random.Random(seed)
    pool = [
        pair for pair in dict.fromkeys(answers) if pair.answer.strip() and len(pair.answer) <= LONGEST_ANSWER
    ]
    random_.shuffle(pool)
    return [*_form_items(pool), *_content_items(pool, random_)]


def _form_items(pool: Sequence[RuledTurn]) -> list[ExamItem]:
    """Truth by code: as many of each rule as there are on the rarer side, dealt in turn."""
    sides: dict[bool, list[list[ExamItem]]] = {True: [], False: []}
    for rule, check in FORM:
        tell = compiled(check)
        items = [
            ExamItem("form", rule, pair, bool(value))
            for pair in pool
            if tell and (value := tell(*pair)) is not None
        ]
        good, bad = ([item for item in items if item.truth == truth] for truth in (True, False))
        size = min(len(good), len(bad))
        sides[True].append(good[:size])
        sides[False].append(bad[:size])
    return [*_dealt(sides[True], ASKED // 2), *_dealt(sides[False], ASKED // 2)]


def _content_items(pool: Sequence[RuledTurn], random_: random.Random) -> list[ExamItem]:
    """Truth by construction: half of the answers without a sign get a sentence, half stay."""
    keeping, breaking = [], []
    for construction in CONTENT:
        signs = re.compile(construction.signs, re.IGNORECASE)
        plain = [pair for pair in pool if not signs.search(pair.answer)]
        half = len(plain) // 2
        keeping.append(
            [
                ExamItem(
                    "content",
                    construction.rule,
                    _with(pair, random_.choice(construction.sentences), random_),
                    True,
                )
                for pair in plain[:half]
            ]
        )
        breaking.append(
            [ExamItem("content", construction.rule, pair, False) for pair in plain[half : 2 * half]]
        )
    return [*_dealt(keeping, ASKED // 2), *_dealt(breaking, ASKED // 2)]


def _with(pair: RuledTurn, sentence: str, random_: random.Random) -> RuledTurn:
    """The answer with a sentence before it, after it, or after its first paragraph."""
    parts = pair.answer.strip().split("\n\n")
    position = random_.choice((0, 1, len(parts)))
    return RuledTurn(pair.question, "\n\n".join([*parts[:position], sentence, *parts[position:]]))


def _dealt(piles: Sequence[Sequence[ExamItem]], most: int) -> list[ExamItem]:
    """One of each pile in turn, ``most`` in all."""
    rounds = max((len(pile) for pile in piles), default=0)
    return [pile[i] for i in range(rounds) for pile in piles if i < len(pile)][:most]


def examine(
    judge: RuleJudge, answers: Sequence[RuledTurn], *, seed: int = 0, now: Callable[[], float] = time.time
) -> ExamResult:
    """Hold the exam. Raises what the judge raises, but for calls without a verdict, which are not right."""
    items = exam_items(answers, seed)
    counts = {kind: sum(item.kind == kind for item in items) for kind in ("form", "content")}
    if len(set(answers)) < DIFFERENT:
        return ExamResult(judge.name, now(), {}, f"there are too few recorded answers (at least {DIFFERENT})")
    if few := [kind for kind, count in counts.items() if count < ASKED]:
        trouble = f"there are too few recorded answers for questions about {' and '.join(few)}"
        return ExamResult(judge.name, now(), {}, trouble)
    random.Random(seed + 1).shuffle(items)
    right, total = dict.fromkeys(counts, 0), dict.fromkeys(counts, 0)
    for item, value in _verdicts(judge, items):
        right[item.kind] += value is not None and abs(value - 0.5) > 1e-9 and (value > 0.5) == item.truth
        total[item.kind] += 1
        if total[item.kind] - right[item.kind] > ASKED - least_right(ASKED):
            break  # it cannot pass any more
    return ExamResult(judge.name, now(), {kind: (right[kind], total[kind]) for kind in counts})


def _verdicts(judge: RuleJudge, items: Sequence[ExamItem]) -> Iterator[tuple[ExamItem, float | None]]:
    """Each item with the verdict on it. As in use: several answers and several rules a call, of which the item's own is read."""
    for start in range(0, len(items), ANSWERS):
        batch = items[start : start + ANSWERS]
        rules = list(dict.fromkeys(item.rule for item in batch))[:RULES]
        try:
            rows = judge([item.pair for item in batch], rules)
        except NoAnswer:
            rows = [[None] * len(rules) for _ in batch]
        for row, item in zip(rows, batch, strict=True):
            yield item, row[rules.index(item.rule)]


def exam_of(
    store: Store,
    judge: RuleJudge,
    answers: Callable[[], Sequence[RuledTurn]],
    *,
    again: bool = False,
    now: Callable[[], float] = time.time,
) -> ExamResult:
    """The judge's stored result, if it is of this edition and not too old; else the exam is held and its result stored."""
    if (
        not again
        and (known := stored_result(store, judge.name))
        and known.edition == EDITION
        and now() - known.date < VALID_DAYS * DAY
    ):
        return known
    result = examine(judge, answers(), now=now)
    if not result.trouble:
        store.set(PREFIX + judge.name, result.to_dict())
    return result


def stored_result(store: Store, judge: str) -> ExamResult | None:
    """The result of a judge's last exam; None where it has not sat any."""
    known = store.get(PREFIX + judge)
    if not known:
        return None
    kinds = {kind: (int(right), int(total)) for kind, (right, total) in known["kinds"].items()}
    return ExamResult(known["judge"], known["date"], kinds, known.get("trouble", ""), known["edition"])
