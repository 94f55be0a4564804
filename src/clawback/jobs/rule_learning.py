"""A pass that learns rules from ratings: which model reads along, what it would be sent, and what it may cost.

The model is that of ``[judge]`` where it is a server that the person named; without one, rules come from remarks, files and the list, and
code alone checks them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from clawback import config, store
from clawback.errors import Busy
from clawback.feedback.endpoint import CallBudget
from clawback.feedback.rated_examples import examples_of, pieces_of, rated_samples
from clawback.jobs import judge_pass
from clawback.paths import Home
from clawback.rules import rule_reminders
from clawback.rules.proposers import EACH
from clawback.rules.rule_judge import EndpointJudge, RuleJudge
from clawback.rules.rule_pass import LearnOutcome, learn

if TYPE_CHECKING:
    from clawback.feedback.endpoint import Ask


@dataclass(frozen=True, slots=True)
class LearnPlan:
    """What a pass would read, and who would be sent what. ``model`` is "" where nothing leaves this machine."""

    ratings: int
    model: str
    url: str
    sent: tuple[tuple[str, str], ...]
    """(heading, text) of the answers that the model is shown first, redacted. A judge is shown these and others like them."""


def plan(home: Home, *, code_only: bool = False) -> LearnPlan:
    """Computed without asking anybody."""
    loaded = config.load(home.config)
    remote = loaded.judge.api != judge_pass.LOCAL and not code_only
    with store.connect(home.database) as db:
        samples = rated_samples(db, loaded.gate.held_out)
        sent = tuple(pieces_of(examples_of(db, samples, EACH))) if remote else ()
    model = judge_pass.name_of(loaded.judge) if remote else ""
    return LearnPlan(len(samples), model, loaded.judge.url if remote else "", sent)


def base_judge(settings: config.Config) -> RuleJudge:
    """The base model as a judge, loaded for that. Raises ``ModelError``, ``MissingExtra``, ``JudgeError``."""
    from clawback.jobs import inputs
    from clawback.jobs.base_judge import BaseJudge

    return BaseJudge(inputs.policy(settings, settings.model.base))


def learn_once(
    home: Home,
    *,
    files: Sequence[Path] = (),
    again: bool = False,
    code_only: bool = False,
    by_base: bool = False,
) -> LearnOutcome:
    """One pass. ``by_base``: the base model on this machine judges what code cannot see, where it passes the exam.

    Raises ``Busy`` while the judge runs elsewhere, ``JudgeError`` where its settings are incomplete, ``ModelError`` where the base cannot be loaded.
    """
    from filelock import FileLock, Timeout

    loaded = config.load(home.config)
    settings = loaded.judge
    home.create()
    try:
        with FileLock(home.judge_lock, timeout=0), store.connect(home.database) as db:
            how: dict[str, Any] = {}
            if by_base:
                how = {"judge": base_judge(loaded)}
            elif settings.api != judge_pass.LOCAL and not code_only:
                budget = CallBudget(settings.max_calls, settings.max_seconds, settings.max_tokens)
                ask: Ask = judge_pass.asker(home, db, settings, budget)
                name = judge_pass.name_of(settings)
                how = {"judge": EndpointJudge(ask, name), "proposer": (ask, name)}
            outcome = learn(db, files=files, held_out=loaded.gate.held_out, again=again, **how)
            rule_reminders.write(home, db)
    except Timeout:
        raise Busy("The judge is running already in another process.") from None
    return outcome
