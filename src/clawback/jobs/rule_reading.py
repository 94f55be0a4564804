"""The rules in a run: sentences that answers are drawn under, and verdicts on answers as features of the reader.

Before a run the rules are tested on the ratings (``rules.rule_pass``). What a model may be told of becomes a candidate sentence of the run. Each rule
that stands, believed or not, is a feature of the reader: the ratings weigh it. Code judges what code can see; what it cannot see is judged by
the model of ``[judge]``, where that is a server's and has passed its exam (``rules.exam``).
"""

from __future__ import annotations

import hashlib
import json
import time
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING

from clawback import config
from clawback.errors import JudgeError
from clawback.feedback import rule_consent
from clawback.feedback.rule_consent import LIST
from clawback.files import append_line
from clawback.progress import OnProgress
from clawback.records import OWNER, Rule
from clawback.trainer import RunRules

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from clawback.paths import Home
    from clawback.policy import Policy
    from clawback.rules.rule_judge import RuledTurn, RuleJudge, Verdicts
    from clawback.rules.rule_pass import LearnOutcome
    from clawback.store import Store
    from clawback.trainer import Recipe, TrainingRun

    Floats = NDArray[np.float64]

MOST_CHECKED, MOST_JUDGED = 16, 8
"""Rules that are features of the reader: by code, and by a judge, who is asked about all of these in one call."""
CACHE = "verdicts.jsonl"


def learn(home: Home, settings: config.Config, db: Store, policy: Policy | None = None) -> LearnOutcome:
    """Test the rules on the ratings. ``policy``: as for ``judge_of``."""
    from clawback.rules import rule_pass

    judge = judge_of(home, settings.judge, db, policy)
    return rule_pass.learn(db, judge=judge, held_out=settings.gate.held_out)


def judge_of(
    home: Home, settings: config.JudgeSection, db: Store, policy: Policy | None = None
) -> RuleJudge | None:
    """The judge on a server, where one is set; else the base of the ``policy``, where it has passed its exam (``clawback rules learn --base``)."""
    from clawback.feedback.endpoint import CallBudget  # a run without rules asks no judge
    from clawback.jobs import judge_pass
    from clawback.rules.rule_judge import EndpointJudge

    if settings.api == judge_pass.LOCAL:
        return _proven_base(db, policy) if policy is not None else None
    budget = CallBudget(settings.max_calls, settings.max_seconds, settings.max_tokens)
    with suppress(JudgeError):  # no name, or no key: a run goes on without
        return EndpointJudge(judge_pass.asker(home, db, settings, budget), judge_pass.name_of(settings))
    return None


def _proven_base(db: Store, policy: Policy) -> RuleJudge | None:
    """A run holds no exam: it takes time, and the person starts it."""
    from clawback.jobs.base_judge import BaseJudge, judge_name
    from clawback.rules import exam

    result = exam.stored_result(db, judge_name(policy))
    if result is None or not result.believed or time.time() - result.date >= exam.VALID_DAYS * exam.DAY:
        return None
    return BaseJudge(policy)


def entry(db: Store, judge: RuleJudge | None) -> RunRules:
    """What of the rules goes into a run: a run that is taken up again sees the rules of its beginning."""
    from clawback.rules import exam
    from clawback.rules.checks import check_of

    rules = [
        rule
        for rule in db.rules("believed", "proposed")
        if rule.status == "believed" or not rule.author.startswith("rater:")
    ]
    believed_first = sorted(
        rules, key=lambda rule: (rule.status != "believed", rule.author != OWNER, -rule.id)
    )
    checked = [rule for rule in believed_first if check_of(rule)][:MOST_CHECKED]
    judged: list[Rule] = []
    if judge is not None and (result := exam.stored_result(db, judge.name)) is not None and result.believed:
        judged = [rule for rule in believed_first if not check_of(rule)][:MOST_JUDGED]
    to_say = rule_consent.distinct_rules_to_say(db)
    return RunRules(
        sentences=tuple(rule.text for rule in to_say),
        by_people=any(rule.author != LIST for rule in to_say),
        features=tuple((rule.text, rule.check) for rule in [*checked, *judged]),
        judge=judge.name if judge is not None and judged else "",
    )


def with_rules(
    home: Home,
    settings: config.Config,
    db: Store,
    recipe: Recipe,
    tell: OnProgress,
    policy: Policy | None = None,
) -> Recipe:
    """The recipe with the rules as they are now, after a test of them on the ratings. ``policy``: as for ``judge_of``."""
    tell({"phase": "rules"})
    outcome = learn(home, settings, db, policy)
    for note in [*outcome.notes, *(rule_consent.waiting_sentence([rule]) for rule in outcome.waiting)]:
        tell({"phase": "reward", "note": note})
    judge = judge_of(home, settings.judge, db, policy)
    rules = entry(db, judge)
    return replace(recipe, conditions=replace(recipe.conditions, rules=rules))


@dataclass
class RunJudge:
    """Verdicts ``[S, k]`` on answers, for the reader: by code, else by a judge, whose verdicts are kept in the folder of the run.

    What the judge does not say, or no longer can, is nan.
    """

    rules: Sequence[Rule]
    judge: RuleJudge | None = None
    file: Path | None = None
    tell: OnProgress = lambda _: None
    _known: dict[str, list[float | None]] = field(default_factory=dict)
    _stopped: bool = False

    def __post_init__(self) -> None:
        if self.file is not None and self.file.is_file():
            for line in self.file.read_text("utf-8").splitlines():
                with suppress(ValueError):  # a crash leaves a piece of the last line
                    self._known |= json.loads(line)

    def __call__(self, questions: Sequence[str], answers: Sequence[str]) -> Floats:
        import numpy as np

        from clawback.rules.checks import check_of

        verdicts = np.full((len(answers), len(self.rules)), np.nan)
        for column, rule in enumerate(self.rules):
            if check := check_of(rule):
                values = [
                    check(question, answer) for question, answer in zip(questions, answers, strict=True)
                ]
                verdicts[:, column] = [np.nan if value is None else value for value in values]
        unseen = [column for column, rule in enumerate(self.rules) if check_of(rule) is None]
        if unseen and self.judge is not None:
            from clawback.rules.rule_judge import RuledTurn

            pairs = [RuledTurn(*pair) for pair in zip(questions, answers, strict=True)]
            rows = self._judged(pairs, [self.rules[column].text for column in unseen])
            for row, values in enumerate(rows):
                verdicts[row, unseen] = [np.nan if value is None else value for value in values]
        return verdicts

    def _judged(self, pairs: Sequence[RuledTurn], texts: Sequence[str]) -> Verdicts:
        """The verdicts of the judge on answers, what it said before included."""
        from clawback.feedback.endpoint import NoAnswer

        keys = [_key(pair, texts) for pair in pairs]
        new = [i for i, key in enumerate(keys) if key not in self._known]
        for batch in _batches(new):
            if self._stopped or self.judge is None:
                break
            self.tell({"phase": "judge", "step": batch[0], "steps": len(pairs)})
            try:
                rows = self.judge([pairs[i] for i in batch], texts)
            except JudgeError as error:
                # The run goes on with what it has: a server that is gone must not cost what was drawn.
                self._stopped = not isinstance(error, NoAnswer)
                self.tell({"phase": "reward", "note": f"verdicts are missing from here on: {error}"})
                continue
            for i, row in zip(batch, rows, strict=True):
                self._known[keys[i]] = row
                if self.file is not None:
                    append_line(self.file, json.dumps({keys[i]: row}))
        nothing: list[float | None] = [None] * len(texts)
        return [self._known.get(key, nothing) for key in keys]


def _key(pair: RuledTurn, texts: Sequence[str]) -> str:
    return hashlib.sha256(json.dumps([*pair, *texts], ensure_ascii=False).encode()).hexdigest()


def _batches(places: Sequence[int]) -> Iterator[Sequence[int]]:
    from clawback.rules.rule_judge import ANSWERS

    for start in range(0, len(places), ANSWERS):
        yield places[start : start + ANSWERS]


def of_run(home: Home, settings: config.Config, db: Store, run: TrainingRun) -> RunJudge | None:
    """What judges answers in a run, from what was entered at its beginning; None without rules. ``run``: with its folder."""
    assert run.out is not None
    record = run.recipe.conditions.rules
    rules = [Rule(text, check) for text, check in record.features]
    if not rules:
        return None
    judge = judge_of(home, settings.judge, db, run.policy) if record.judge else None
    if judge is not None and judge.name != record.judge:
        judge = None  # the settings name another one by now
    return RunJudge(rules, judge, run.out / CACHE, run.tell)
