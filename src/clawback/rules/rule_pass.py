"""One pass over the rules: propose, check, test on the ratings, store. Cheap where nothing is new.

1. Proposals come in (``proposers``): remarks, a model, files that the owner names, the hand-written list. What stands already stays as it is.
2. Each rule is checked on the rated answers: by code where code can see it, else by a judge that has passed its exam (``exam``).
3. All rules are tested at once on the ratings that a run may learn from (``trial``); what is held out for the gate is left out.
4. A rule is believed if the ratings speak for it, or if the owner said it of all answers and the ratings do not clearly speak against it. The
   others are dropped with the reason, and tested again when there are more ratings. A rule that was withdrawn is left alone.

A believed rule of a model, of a file or of anybody but the owner waits for the owner's yes before it goes into a prompt (``rule_consent.may_be_said``).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from clawback.errors import JudgeError
from clawback.feedback.endpoint import Ask
from clawback.feedback.rated_examples import examples_of, rated_samples, sides
from clawback.feedback.rule_consent import LIST, waiting_rules, wording
from clawback.records import OWNER, JsonObject, Rule, RuleStatus, Sample, Turn
from clawback.rules import proposers
from clawback.rules.checks import check_of
from clawback.rules.exam import ExamResult, exam_of
from clawback.rules.rule_judge import RuledTurn, RuleJudge, judge_turns
from clawback.rules.rule_test import Floats, RuleTest, rule_tests

if TYPE_CHECKING:
    from clawback.store import Store

FEWEST = 8
"""Rated answers below which nothing is tested."""
JUDGED = 64
"""Rated answers that a judge is asked about: each costs a part of a call for every rule that code cannot check."""
MOST_JUDGED = 24
"""Rules that a judge is asked about."""
EXAMINED = 200
"""Newest answers from which the questions of an exam are taken."""
STATE = "rules:learned"


@dataclass(frozen=True, slots=True)
class LearnOutcome:
    """What a pass did."""

    ratings: int
    tested: int = 0
    new: int = 0
    """Proposals that were not known."""
    believed: tuple[Rule, ...] = ()
    waiting: tuple[Rule, ...] = ()
    """Believed, and not spoken before the owner has said yes."""
    dropped: tuple[Rule, ...] = ()
    against: tuple[Rule, ...] = ()
    """The owner's own, which the ratings speak against."""
    unjudged: int = 0
    """Rules that nobody can check: no judge, or none that is believed."""
    exam: ExamResult | None = None
    notes: tuple[str, ...] = ()
    unchanged: bool = False
    """Nothing was new; nothing was done."""

    def to_dict(self) -> JsonObject:
        return asdict(self) | {"exam": self.exam.to_dict() if self.exam else None}


def learn(
    store: Store,
    *,
    judge: RuleJudge | None = None,
    proposer: tuple[Ask, str] | None = None,
    files: Sequence[Path] = (),
    held_out: float = 0.125,
    again: bool = False,
) -> LearnOutcome:
    """One pass.

    Args:
        judge: says what code cannot see; it sits its exam first.
        proposer: a model that reads liked beside disliked answers (what asks it, its name).
        files: rules files of agents that the owner names (``proposers.from_file``).
        held_out: share of the ratings that is kept for the gate and not looked at (``config.Training.held_out``).
        again: also where nothing is new.

    Raises ``UsageError`` for a file that cannot be read. What a judge or a model cannot do is in ``notes``.
    """
    samples = rated_samples(store, held_out)
    notes: list[str] = []
    from_files = [rule for path in files for rule in _from_file(path, notes)]
    new = _store_proposals(store, [*proposers.from_remarks(store), *from_files])
    if not again and not new and store.get(STATE) == _state(store, samples, judge, proposer):
        return _outcome(store, LearnOutcome(len(samples), notes=tuple(notes), unchanged=True))
    if proposer is not None:
        new += _store_proposals(store, _from_model(store, samples, *proposer, notes))
    rules = _rules_to_test(store)
    exam = _exam(store, judge, rules, notes) if judge else None
    believed_judge = judge if exam is not None and exam.believed else None
    verdicts = _verdicts(store, rules, samples, believed_judge, notes)
    tests = rule_tests(verdicts, [sample.reward for sample in samples])
    against = _store_results(store, rules, tests, len(samples), believed_judge.name if believed_judge else "")
    store.set(STATE, _state(store, samples, judge, proposer))
    unjudged = sum(
        not rule.check and bool(np.isnan(row).all()) for rule, row in zip(rules, verdicts, strict=True)
    )
    return _outcome(
        store,
        LearnOutcome(
            len(samples),
            len(rules),
            new,
            against=tuple(against),
            unjudged=unjudged,
            exam=exam,
            notes=tuple(notes),
        ),
    )


def _rules_to_test(store: Store) -> list[Rule]:
    """All that stand, and the sentences of the list that are not stored.

    Of rules with the same verdicts the first counts: the owner's, then ours, then what waits for a yes.
    """
    stored = store.rules()
    texts = {wording(rule.text) for rule in stored}
    fresh = [rule for rule in proposers.from_list() if wording(rule.text) not in texts]
    standing = [rule for rule in stored if rule.status != "withdrawn"]
    return sorted([*standing, *fresh], key=_trust)


def _trust(rule: Rule) -> int:
    return 0 if rule.author == OWNER else 1 if rule.author == LIST else 2


# ------------------------------------------------------------------------------------------------ proposals


def _store_proposals(store: Store, proposals: Iterable[Rule]) -> int:
    """Store those that are not known; how many that were. The owner's word makes a rule that somebody else proposed their own."""
    known = {wording(rule.text) for rule in store.rules()}
    count = 0
    for rule in proposers.distinct(proposals):
        if wording(rule.text) not in known:
            store.add_rule(replace(rule, text=str(store.clean(rule.text)), status="proposed"))
            known.add(wording(rule.text))
            count += 1
    return count


def _from_file(path: Path, notes: list[str]) -> list[Rule]:
    rules = proposers.from_file(path)
    if not rules:
        notes.append(f"{path.name} holds no line, in English, that says how answers should be.")
    elif len(rules) == proposers.MOST_OF_FILE:
        notes.append(f"Of {path.name} the first {proposers.MOST_OF_FILE} rules are read.")
    return rules


def _from_model(store: Store, samples: Sequence[Sample], ask: Ask, name: str, notes: list[str]) -> list[Rule]:
    if sum(map(len, sides(samples))) < FEWEST:
        return []
    try:
        return proposers.from_model(ask, name, examples_of(store, samples, proposers.EACH))
    except JudgeError as error:
        notes.append(f"{name} proposed nothing: {error}")
        return []


# ------------------------------------------------------------------------------------------------ verdicts


def _exam(store: Store, judge: RuleJudge, rules: Sequence[Rule], notes: list[str]) -> ExamResult | None:
    """The judge's result; None where it is not needed, or cannot be asked."""
    if all(rule.check for rule in rules):
        return None

    def answers() -> list[RuledTurn]:
        turns = store.turns(limit=EXAMINED, kind="main")
        return [
            RuledTurn(turn.prompt, turn.response)
            for turn in turns
            if turn.trainable and turn.response and not turn.cut
        ]

    try:
        result = exam_of(store, judge, answers)
    except JudgeError as error:
        notes.append(f"{judge.name} was not examined: {error}")
        return None
    if not result.believed:
        notes.append(result.sentence)
    return result


def _verdicts(
    store: Store, rules: Sequence[Rule], samples: Sequence[Sample], judge: RuleJudge | None, notes: list[str]
) -> Floats:
    """``[rules, samples]``; nan where nobody can tell."""
    verdicts = np.full((len(rules), len(samples)), np.nan)
    questions = [Turn("", sample.messages, sample.response).prompt for sample in samples]
    for row, rule in zip(verdicts, rules, strict=True):
        if check := check_of(rule):
            values = [
                check(question, sample.response) for question, sample in zip(questions, samples, strict=True)
            ]
            row[:] = [np.nan if value is None else value for value in values]
    unseen = [rule for rule in rules if not check_of(rule) and rule.id][-MOST_JUDGED:]
    if judge is None or not unseen:
        return verdicts
    turns = store.turns_by_id({sample.turn_id for sample in samples})
    as_recorded = [
        i
        for i, sample in enumerate(samples)
        if sample.turn_id in turns and turns[sample.turn_id].response == sample.response
    ][-JUDGED:]
    try:
        judged = judge_turns(store, judge, unseen, [turns[samples[i].turn_id] for i in as_recorded])
    except JudgeError as error:
        notes.append(f"{judge.name} could not be asked: {error}")
        return verdicts
    if judged.stopped:
        notes.append(f"{judge.name} was not asked about everything: {judged.stopped}")
    row_of = {rule.id: number for number, rule in enumerate(rules) if rule.id}
    for rule in unseen:
        for i in as_recorded:
            verdicts[row_of[rule.id], i] = judged.verdicts.get((rule.id, samples[i].turn_id), np.nan)
    return verdicts


# ------------------------------------------------------------------------------------------------ results


def _store_results(
    store: Store, rules: Sequence[Rule], tests: Sequence[RuleTest], ratings: int, judge: str
) -> list[Rule]:
    """Enter what the test made of each rule; the owner's rules that the ratings speak against."""
    against: list[Rule] = []
    numbers: list[int] = []
    with store.together():
        for rule, test in zip(rules, tests, strict=True):
            if not rule.id and test.believed and test.explained_by < 0 and ratings >= FEWEST:
                rule = store.add_rule(rule)
            numbers.append(rule.id)
        for rule, test, number in zip(rules, tests, numbers, strict=True):
            if not number:
                continue
            status, why = verdict(rule, test, ratings)
            evidence = _evidence(rule, test, judge) | {"why": why, "ratings": ratings}
            evidence["explained_by"] = numbers[test.explained_by] if test.explained_by >= 0 else 0
            entered = store.update_rule(number, status, evidence)
            if entered.author == OWNER and test.against and ratings >= FEWEST:
                against.append(entered)
    return against


def _evidence(rule: Rule, test: RuleTest, judge: str) -> JsonObject:
    """What stays of how the rule came about, and what the test says."""
    origin = {
        name: rule.evidence[name]
        for name in ("remark", "feedback", "general", "accepted")
        if name in rule.evidence
    }
    numbers = {
        name: round(value, 4) if isinstance(value, float) else value for name, value in test.to_dict().items()
    }
    return origin | numbers | {"judge": "" if rule.check else judge}


def verdict(rule: Rule, test: RuleTest, ratings: int) -> tuple[RuleStatus, str]:
    """(status, why) of a rule after its test."""
    # What the owner entered or accepted stays, whatever the ratings say; what was a remark has to be about all answers.
    entered = bool(rule.evidence.get("accepted")) or (rule.author == OWNER and rule.status == "believed")
    by_word = entered or (rule.author == OWNER and bool(rule.evidence.get("general")))
    if ratings < FEWEST:
        return ("believed" if by_word else rule.status), f"there are only {ratings} ratings to test it on"
    if test.passes + test.broken == 0:
        why = "code cannot check it, and no judge that is believed has"
        return ("believed" if by_word else "proposed"), why
    if (entered or rule.author == OWNER) and test.against:
        why = f"your ratings speak against it: you like {_share(test.liked_kept)} of the answers that keep it and {_share(test.liked_broken)} of the others"
        return ("believed" if entered else "proposed"), why
    if test.believed:
        return "believed", f"the ratings speak for it (p = {test.p:.3g} over all rules)"
    if by_word:
        return "believed", "your word; the ratings neither confirm nor deny it"
    if not test.passes or not test.broken:
        return (
            "dropped",
            f"all rated answers {'keep' if test.passes else 'break'} it, so that the ratings say nothing about it",
        )
    return "dropped", f"the ratings do not speak for it (p = {test.p:.2g} over all rules)"


def _share(rating: float) -> str:
    return f"{(rating + 1) / 2:.0%}"


def _outcome(store: Store, outcome: LearnOutcome) -> LearnOutcome:
    return replace(
        outcome,
        believed=tuple(store.rules("believed")),
        waiting=tuple(waiting_rules(store)),
        dropped=tuple(store.rules("dropped")),
    )


def _state(
    store: Store, samples: Sequence[Sample], judge: RuleJudge | None, proposer: tuple[Ask, str] | None
) -> list[Any]:
    """What a pass depends on: where it is the same, its outcome is."""
    rules = store.rules()
    return [
        max((sample.newest for sample in samples), default=0),
        len(samples),
        round(sum(sample.reward for sample in samples), 6),
        len(rules),
        max((rule.id for rule in rules), default=0),
        sum(rule.status == "withdrawn" for rule in rules),
        judge.name if judge else "",
        proposer[1] if proposer else "",
    ]
