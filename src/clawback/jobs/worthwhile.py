"""Whether a run is worth its minutes, asked before it begins: is there anything to gain over the live version, and can anything be read from the ratings?

Where not, no run begins, the store knows why (``feedback.due.NO_GAIN``), and runs begin by themselves again after as many further ratings as a run
takes. Ratings that showed no pattern are read again sooner, for a few more often decide, and by a stricter limit (``feedback.due.significance``). Demonstrations, comparisons, rules and remarks need no reading, so with any of them a run begins.
"""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from typing import TYPE_CHECKING

from clawback import config
from clawback.errors import NothingRead, NothingToGain
from clawback.feedback.due import NO_GAIN, READ_AGAIN
from clawback.gate import headroom
from clawback.jobs import rule_reading
from clawback.paths import Home
from clawback.progress import OnProgress
from clawback.records import Run, Sample

if TYPE_CHECKING:
    from clawback.policy import Policy
    from clawback.store import Store


def check_headroom(db: Store, settings: config.Config) -> None:
    """Raises ``NothingToGain`` where the live version's answers are liked nearly as much as they could be."""
    found = headroom.estimate(db, settings)
    if found is not None and found.nothing_to_gain:
        raise _skipped(db, NothingToGain, found.sentence())


def check_readable(
    home: Home, db: Store, policy: Policy, samples: Sequence[Sample], run: Run, tell: OnProgress
) -> None:
    """Raises ``NothingRead`` where the run would. Nothing has been measured, drawn or entered by then. ``run``: as it will be entered, with its number
    and recipe; its folder keeps a judge's verdicts."""
    from clawback import engine
    from clawback.learning import TrainingRun
    from clawback.rewards import reward_model

    settings = config.load(home.config)
    grader, _ = reward_model.grader(home, settings.reward)
    if grader is not None:
        return
    recipe, folder = engine.recipe_from(run.recipe), home.runs / str(run.id)
    training = TrainingRun(policy, samples, recipe, seed=run.seed, out=folder, tell=tell)
    judge = rule_reading.of_run(home, settings, db, training)
    try:
        engine.check_readable(policy, samples, recipe, seed=run.seed, judge=judge)
    except NothingRead as error:
        shutil.rmtree(folder, ignore_errors=True)
        after = max(1, settings.training.threshold // READ_AGAIN)
        why = (
            f"{error}. They are read again after {after} further ratings; `clawback inbox --rate` asks for those that tell most. An edit, an A or B, or a sentence on a bad answer needs no reading: "
            "`clawback train` learns it at once"
        )
        raise _skipped(db, NothingRead, why, after=after) from None


def _skipped(db: Store, kind: type[NothingToGain], why: str, **more: int) -> NothingToGain:
    """The error of a run that does not begin, entered in the store."""
    db.set(NO_GAIN, {"fresh": db.count_fresh(), "live": db.live().number, "why": why, **more})
    return kind(f"{why}. `clawback train --anyway` trains all the same.")
