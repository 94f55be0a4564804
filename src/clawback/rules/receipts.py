"""Receipts of rules: how often each was kept, by model and week, and which ratings speak for it.

Checks by code run here, on demand, over the recorded answers; each result is stored, so that a later call reads only what is new.
What a judge said is read from the store and never asked for here.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import date
from typing import TYPE_CHECKING

from clawback.records import JsonObject, Rule, Turn, with_keys
from clawback.rules.checks import check_of
from clawback.store.rule_tables import Checked

if TYPE_CHECKING:
    from clawback.records import Sample
    from clawback.store import Store
    from clawback.store.rule_tables import ObedienceCount, RuleVerdict, TurnText

Check = Callable[[str, str], float | None]

BATCH = 1_000
"""Answers that are read and checked in one transaction."""
FEW = 5_000
"""Answers that a page or an agent's command checks at most, newest first; a terminal command checks all."""
BREACHES = 20
"""Breaches that are listed."""
_PIECES = re.compile(r"[^\n.!?]+[.!?]*[\"')\]*_`]*|\n")


@dataclass(frozen=True, slots=True)
class KeptShare:
    """Of ``checked`` answers ``passes`` keep the rule."""

    passes: int = 0
    checked: int = 0

    def __add__(self, other: KeptShare) -> KeptShare:
        return KeptShare(self.passes + other.passes, self.checked + other.checked)

    def to_dict(self) -> dict[str, int]:
        """For the API and ``--json``."""
        return {"kept": self.passes, "checked": self.checked}

    def text(self) -> str:
        """``83 % (10 of 12)``; "–" where nothing was checked."""
        return (
            f"{100 * self.passes / self.checked:.0f} % ({self.passes:,} of {self.checked:,})"
            if self.checked
            else "–"
        )


@dataclass(frozen=True, slots=True)
class RuleRatings:
    """The rated turns that speak for a rule (liked answers that keep it, disliked ones that break it) and against it."""

    liked_kept: tuple[int, ...] = ()
    liked_broken: tuple[int, ...] = ()
    disliked_kept: tuple[int, ...] = ()
    disliked_broken: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class Breach:
    """An answer that breaks a rule. ``excerpt`` is the piece of it that does, "" where no single piece does; ``line`` counts from 1."""

    turn: int
    created_at: float
    agent: str
    model: str
    excerpt: str = ""
    line: int = 0

    def to_dict(self) -> JsonObject:
        """For the API and ``--json``."""
        return with_keys(asdict(self), {"excerpt": "place"})


@dataclass(frozen=True, slots=True)
class Receipt:
    """How one rule was kept."""

    rule: Rule
    overall: KeptShare
    last_week: KeptShare
    """Of the newest week, up to this one, in which anything was checked for any rule."""
    models: Mapping[str, KeptShare]
    weeks: Mapping[str, KeptShare]
    """By the date of each week's Monday, oldest first."""
    judged: bool
    """Whether a judge checks it, because code cannot."""


# --------------------------------------------------------------------------------------------------- bringing up to date


def update(db: Store, most: int | None = None) -> int:
    """Check the answers that no check by code has seen yet: new ones first, then older ones from the newest back. Returns how many were read.

    Args:
        most: answers that are read at most, per direction; None: all.
    """
    checks = _checks(db.rules())
    if not checks:
        return 0
    newest = db.newest_main()
    stored = db.checked_ranges()
    ranges = {number: stored.get(number, (newest + 1, newest)) for number in checks}
    read = _recheck(db, checks, most)
    read += _forward(db, checks, ranges, newest, most)
    return read + _backward(db, checks, ranges, most)


def _checks(rules: Iterable[Rule]) -> dict[int, Check]:
    checks = {rule.id: check_of(rule) for rule in rules if rule.check and rule.status != "withdrawn"}
    return {number: check for number, check in checks.items() if check is not None}


def _forward(db: Store, checks: Mapping[int, Check], ranges: dict[int, tuple[int, int]], newest: int, most: int | None) -> int:  # fmt: skip
    """Answers that came since the last call, oldest first."""
    after, read = min(high for _, high in ranges.values()), 0
    while after < newest and (most is None or read < most):
        answers = db.answers(after, newest + 1, _size(most, read))
        due = [(one, number) for one in answers for number in checks if one.id > ranges[number][1]]
        read += len(answers)
        after = answers[-1].id if answers else newest
        ranges.update({number: (low, max(high, after)) for number, (low, high) in ranges.items()})
        _store(db, checks, due, ranges)
    return read


def _backward(db: Store, checks: Mapping[int, Check], ranges: dict[int, tuple[int, int]], most: int | None) -> int:  # fmt: skip
    """Answers from before a rule was there, newest first."""
    before, read = max(low for low, _ in ranges.values()), 0
    while before > 1 and (most is None or read < most):
        answers = db.answers(0, before, _size(most, read), newest_first=True)
        due = [(one, number) for one in answers for number in checks if one.id < ranges[number][0]]
        read += len(answers)
        before = answers[-1].id if answers else 1
        ranges.update({number: (min(low, before), high) for number, (low, high) in ranges.items()})
        _store(db, checks, due, ranges)
    return read


def _size(most: int | None, read: int) -> int:
    return BATCH if most is None else min(BATCH, most - read)


def _recheck(db: Store, checks: Mapping[int, Check], most: int | None) -> int:
    """Answers that changed since they were checked."""
    read = 0
    while turns := db.rechecks(_size(most, read)):
        answers = db.answers_by_id(turns)
        with db.together():
            _store(db, checks, [(one, number) for one in answers for number in checks])
            db.drop_rechecks(turns)
        read += len(turns)
    return read


def _store(
    db: Store,
    checks: Mapping[int, Check],
    due: Sequence[tuple[TurnText, int]],
    ranges: Mapping[int, tuple[int, int]] | None = None,
) -> None:
    """Check, and store the results with how far the checks have come."""
    results = [
        (number, one.id, checks[number](one.question, one.response))
        for one, number in due
        if one.response.strip()
    ]
    with db.together():
        db.add_rule_checks(
            [Checked(number, turn, kept) for number, turn, kept in results if kept is not None]
        )
        if ranges is not None:
            db.set_checked_ranges(ranges)


# ----------------------------------------------------------------------------------------------------------- reading


def receipts(db: Store, rules: Sequence[Rule] | None = None) -> list[Receipt]:
    """What is known of these rules (of all but those that were withdrawn), as far as answers were checked: call ``update`` before."""
    rules = [rule for rule in db.rules() if rule.status != "withdrawn"] if rules is None else rules
    counts = db.obedience(rules[0].id if len(rules) == 1 else None)
    # A turn of a clock that was wrong may be dated years ahead: it would stay the last week for as long.
    today = date.today().isoformat()
    newest = max((one.week for one in counts if one.week <= today), default="")
    by_rule: dict[int, list[ObedienceCount]] = {}
    for one in counts:
        by_rule.setdefault(one.rule_id, []).append(one)
    return [_receipt(rule, by_rule.get(rule.id, []), newest) for rule in rules]


def _receipt(rule: Rule, counts: Sequence[ObedienceCount], newest: str) -> Receipt:
    models: dict[str, KeptShare] = {}
    weeks: dict[str, KeptShare] = {}
    for one in counts:
        share = KeptShare(one.passes, one.checked)
        models[one.model] = models.get(one.model, KeptShare()) + share
        weeks[one.week] = weeks.get(one.week, KeptShare()) + share
    overall = sum(weeks.values(), KeptShare())
    busiest = dict(sorted(models.items(), key=lambda item: -item[1].checked))
    return Receipt(rule, overall, weeks.get(newest, KeptShare()), busiest, weeks, not rule.check)


def table(db: Store, rule: Rule) -> dict[str, dict[str, KeptShare]]:
    """Model → week → how often the rule was kept."""
    shares: dict[str, dict[str, KeptShare]] = {}
    for one in db.obedience(rule.id):
        shares.setdefault(one.model, {})[one.week] = KeptShare(one.passes, one.checked)
    return shares


def ratings(db: Store, rule: Rule, samples: Sequence[Sample]) -> RuleRatings:
    """Which of the rated answers keep and break a rule. ``samples``: of ``feedback.samples``.

    The correction of an answer is a liked answer of the same turn.
    """
    verdicts = _rated_by_code(rule, samples) if rule.check else _rated_by_judge(db, rule, samples)
    groups: dict[tuple[bool, bool], list[int]] = {}
    for turn, reward, kept in verdicts:
        groups.setdefault((reward > 0, kept >= 0.5), []).append(turn)
    order = ((True, True), (True, False), (False, True), (False, False))
    return RuleRatings(*(tuple(groups.get(key, ())) for key in order))


def _rated_by_code(rule: Rule, samples: Sequence[Sample]) -> list[tuple[int, float, float]]:
    """(turn, reward, kept)"""
    if (check := check_of(rule)) is None:
        return []
    results = [
        (one, check(Turn("", one.messages, one.response).prompt, one.response))
        for one in samples
        if one.reward
    ]
    return [(one.turn_id, one.reward, kept) for one, kept in results if kept is not None]


def _rated_by_judge(db: Store, rule: Rule, samples: Sequence[Sample]) -> list[tuple[int, float, float]]:
    """The same from what judges said of the answers themselves; of their corrections nothing is known."""
    rewards: dict[int, float] = {}
    for one in samples:
        rewards[one.turn_id] = min(one.reward, rewards.get(one.turn_id, 1.0))
    verdicts = db.verdicts_of(rule, rewards)
    return [(turn, rewards[turn], kept) for turn, kept in sorted(verdicts.items()) if rewards[turn]]


def breaches(db: Store, rule: Rule, limit: int = BREACHES, end_id: int | None = None) -> list[Breach]:
    """Answers that break the rule, newest first, with the place where code can say it."""
    verdicts = db.breaches(rule, limit, end_id)
    check = check_of(rule) if rule.check else None
    answers = {one.id: one for one in db.answers_by_id(one.turn_id for one in verdicts)} if check else {}
    return [_breach(one, answers.get(one.turn_id), check) for one in verdicts]


def _breach(verdict: RuleVerdict, answer: TurnText | None, check: Check | None) -> Breach:
    place, line = locate(check, answer.question, answer.response) if check and answer else ("", 0)
    return Breach(verdict.turn_id, verdict.created_at, verdict.agent, verdict.model, place, line)


def locate(check: Check, question: str, response: str) -> tuple[str, int]:
    """The first piece of an answer without which (and without others like it) the answer would keep the rule, and its line.

    ("", 0) where there is no such piece: the answer is too long as a whole, say, or lacks something.
    """
    pieces = [(one[0], one.start()) for one in _PIECES.finditer(response) if one[0].strip()][:400]
    broken = [(text, at) for text, at in pieces if _breaks(check(question, text))]
    if not broken or len(broken) == len(pieces) > 1:
        return "", 0
    places = {at for _, at in broken}
    rest = "".join(one[0] for one in _PIECES.finditer(response) if one.start() not in places)
    if rest.strip() and _breaks(check(question, rest)):
        return "", 0
    text, at = broken[0]
    start = at + len(text) - len(text.lstrip())
    return " ".join(text.split()), response.count("\n", 0, start) + 1


def _breaks(obedience: float | None) -> bool:
    return obedience is not None and obedience < 0.5


# ------------------------------------------------------------------------------------------------ as a regression test


def as_json(receipt: Receipt) -> JsonObject:
    """For the API and ``--json``."""
    rule = receipt.rule
    return {
        "id": rule.id, "text": rule.text, "author": rule.author, "status": rule.status, "created_at": rule.created_at,
        "check": rule.check, "judged": receipt.judged, "evidence": dict(rule.evidence),
        **receipt.overall.to_dict(), "last_week": receipt.last_week.to_dict(),
        "models": [{"model": name, **one.to_dict()} for name, one in receipt.models.items()],
    }  # fmt: skip
