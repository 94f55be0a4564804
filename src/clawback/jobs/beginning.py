"""What a new run on ratings learns from, with which recipe, and whether it is worth its time: everything before it is entered.

No run begins where there is nothing to gain over the live version, or nothing to read in the ratings. The store then knows why
(``feedback.due.NO_GAIN``), and runs begin by themselves again after as many further ratings as a run takes. Ratings that showed no pattern are read again
sooner, by a stricter limit (``feedback.due.significance``). Demonstrations, comparisons, rules and remarks need no reading.
"""

from __future__ import annotations

import json
import shlex
import shutil
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from clawback import config, feedback
from clawback.errors import NothingRead, NothingToGain, TrainingError, UsageError
from clawback.feedback import provenance
from clawback.feedback.due import NO_GAIN, READ_AGAIN
from clawback.feedback.turn_reward import keeps, prompt_key
from clawback.gate import headroom
from clawback.jobs import inputs, rule_reading, seams
from clawback.paths import Home
from clawback.progress import OnProgress
from clawback.records import GATE, Message, Run, Sample, Turn
from clawback.sources import barred_models, is_named

if TYPE_CHECKING:
    from collections.abc import Mapping

    from clawback.config import Config
    from clawback.policy import Policy
    from clawback.records import Feedback, Version
    from clawback.runs.run_options import RunOptions
    from clawback.store import Store
    from clawback.trainer import Recipe


MOST_TURNS = 1024
"""Newest turns that are looked through."""


def captured_answers(
    db: Store, prompts: Iterable[Sequence[Message]], learn_from: Sequence[str], until: float
) -> list[Sample]:
    """One sample for each such answer, oldest first. A prompt that the gate keeps for itself is not among ``prompts``, and so neither are its answers.

    Args:
        prompts: conversations that the run may ask (``inputs.prompts``).
        learn_from: patterns of models' names; empty: no answers.
        until: what was captured later is left out, so that a resumed run sees the same.
    """
    if not learn_from:
        return []
    known = {_key(messages) for messages in prompts}
    seen = provenance.as_seen_now(db)
    turns = [seen(one) for one in db.turns(limit=MOST_TURNS) if one.created_at <= until]
    usable = [one for one in turns if _is_usable(one, learn_from) and _key(one.messages) in known]
    return [
        Sample(one.id, one.messages, one.response, 0.0, ending=one.ending, model=one.model)
        for one in reversed(usable)
    ]


def _is_usable(turn: Turn, learn_from: Sequence[str]) -> bool:
    """Whether the turn is a complete answer in words of a named model, and nobody has refused that it is learned from."""
    complete = turn.trainable and bool(turn.response.strip()) and not (turn.cut or turn.calls)
    return complete and turn.version is None and turn.agent != GATE and is_named(turn.model, learn_from)


def _key(messages: Sequence[Message]) -> str:
    return json.dumps([dict(one) for one in messages], sort_keys=True, default=str)


def check_headroom(db: Store, settings: config.Config) -> None:
    """Raises ``NothingToGain`` where the live version's answers are liked nearly as much as they could be."""
    estimate = headroom.estimate(db, settings)
    if estimate is not None and estimate.nothing_to_gain:
        raise _skipped(db, NothingToGain, estimate.sentence())


def check_readable(
    home: Home, db: Store, policy: Policy, samples: Sequence[Sample], run: Run, tell: OnProgress
) -> None:
    """Raises ``NothingRead`` where the run would. Nothing has been measured, drawn or entered by then. ``run``: as it will be entered, with its number
    and recipe; its folder keeps a judge's verdicts."""
    from clawback import engine
    from clawback.rewards import reward_model
    from clawback.trainer import TrainingRun

    settings = config.load(home.config)
    if reward_model.grader(home, settings.reward)[0] is not None:
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
        if names := barred_models(samples, policy.info.base, recipe.learn_from):
            why += (
                f". Nor do ratings of another model's answers that may be learned: `clawback config set training.learn_from {shlex.quote(json.dumps(names))}`, "
                "once you have read its vendor's terms"
            )
        raise _skipped(db, NothingRead, why, after=after) from None


def _skipped(db: Store, kind: type[NothingToGain], why: str, **more: int) -> NothingToGain:
    """The error of a run that does not begin, entered in the store."""
    db.set(NO_GAIN, {"fresh": db.count_fresh(), "live": db.live().number, "why": why, **more})
    return kind(f"{why}. `clawback train --anyway` trains all the same.")


@dataclass(frozen=True, slots=True)
class RunRequest:
    """The options of a run together with what the settings say where an option says nothing."""

    settings: Config
    options: RunOptions
    live: Version
    algorithm: str
    values: Mapping[str, object]
    """Recipe values that the settings set."""

    @property
    def hosted(self) -> bool:
        """Whether a trainer elsewhere does the run."""
        return bool(self.settings.hosted.url)

    @property
    def several(self) -> bool:
        """Whether several processes share the run."""
        from clawback.runs import run_options

        return self.options.processes * run_options.machine_count() > 1

    @property
    def draws_elsewhere(self) -> bool:
        """Whether the options name something else that draws fresh answers."""
        return self.options.draw not in ("", seams.HERE)

    @property
    def is_shared(self) -> bool:
        """Whether more than this one process takes part in the run."""
        return self.hosted or self.several or self.options.shard or self.options.ray is not None


@dataclass(frozen=True, slots=True)
class RunRatings:
    """The ratings that a run learns from. ``held_out``: those on the gate's prompts."""

    feedback: Sequence[Feedback]
    train: list[Sample]
    held_out: list[Sample]

    def ids(self, samples: Sequence[Sample]) -> tuple[int, ...]:
        """Ids of all feedback on these turns."""
        return inputs.feedback_of(samples, self.feedback)


def algorithm(db: Store, settings: Config, options: RunOptions) -> str:
    """The name of the run's algorithm. Raises ``UsageError`` for one that nobody provides, and where no prompt is live to distil."""
    if options.fold and not db.live().prompt:
        raise UsageError("No prompt is live, so there is nothing to distil. `clawback prompts` learns one.")
    name = "distil" if options.fold else options.algorithm or settings.training.algorithm
    inputs.algorithm(name)
    return name


def request(home: Home, db: Store, settings: Config, options: RunOptions) -> RunRequest:
    """Raises ``UsageError`` for options that contradict each other, or that this home cannot do."""
    name = algorithm(db, settings, options)
    chosen = RunRequest(settings, options, db.live(), name, inputs.making(settings))
    if chosen.values.get("full"):
        inputs.check_full_training(home, elsewhere=chosen.is_shared or chosen.draws_elsewhere)
    return chosen


def ratings(db: Store, chosen: RunRequest) -> RunRatings:
    """Raises ``TrainingError`` where there is too little to learn from, ``NothingToGain`` where a run would gain nothing."""
    from clawback import engine

    raters, gate = chosen.settings.training.raters, chosen.settings.gate
    settled = inputs.settled(db, chosen.settings)
    ids = [f.id for f in settled]
    samples = feedback.samples(db, ids, raters=raters)
    train, held_out = feedback.split(samples, gate.held_out, splits=db.splits(s.turn_id for s in samples))
    if not train and len(settled) < db.count_feedback():
        raise TrainingError(
            "All ratings are in open conversations. With `credit` a run waits until they are closed "
            "(`clawback turns sessions`; [training] session_timeout)."
        )
    inputs.enough(samples)
    if not train:
        raise TrainingError(
            "All rated answers are to prompts that are kept for the gate: "
            "rate answers to a few other questions (`clawback good`, `bad`)."
        )
    if not (chosen.options.anyway or chosen.options.fold):
        check_headroom(db, chosen.settings)
    if engine.reads_words(chosen.algorithm):
        # Words alone are no evidence for the gate, but its prompts stay its own.
        words = feedback.samples(db, ids, feedback.SampleQuery(words=True), raters=raters)
        train += [s for s in words if not (s.rated or keeps(prompt_key(s.messages), gate.held_out))]
    return RunRatings(settled, train, held_out)


def drawing_engine_of(chosen: RunRequest) -> str:
    """What draws fresh answers in place of this process; "" for nothing. Raises ``UsageError`` where the options forbid it."""
    from clawback import engine

    options, draws = chosen.options, chosen.algorithm in engine.DRAWING
    if (options.ray or chosen.draws_elsewhere) and not draws:
        raise UsageError(
            f"--ray and --draw have others draw fresh answers, and {chosen.algorithm} draws none: leave them out."
        )
    if chosen.draws_elsewhere and (chosen.hosted or chosen.several or options.shard):
        raise UsageError("--draw is for a run of one process on this machine: leave out the other.")
    if chosen.is_shared or chosen.values.get("full") or not draws:
        return ""
    return seams.chosen(options.draw, chosen.settings)


def policy(chosen: RunRequest, tell: OnProgress) -> Policy:
    """The base model, with the live prompt unless the run learns that."""
    base = chosen.settings.model.base
    tell({"phase": "load", "model": Path(base).name})
    load = seams.hosted().policy if chosen.hosted else inputs.policy
    return load(chosen.settings, base, "" if chosen.options.fold else chosen.live.prompt)


def recipe(home: Home, db: Store, chosen: RunRequest, policy: Policy, tell: OnProgress) -> Recipe:
    """The recipe with the run's flags in it."""
    from clawback import engine

    settings, options = chosen.settings, chosen.options
    run_recipe = engine.recipe(
        policy.info, options.preset or settings.training.preset, chosen.algorithm, chosen.values
    )
    if run_recipe.algorithm in engine.DRAWING and not (chosen.hosted or options.fold):
        judge = None if chosen.several or options.shard else policy  # processes read in step
        run_recipe = rule_reading.with_rules(home, settings, db, run_recipe, tell, judge)
    if chosen.hosted:
        run_recipe = seams.hosted().recipe(home, settings, run_recipe)
    elif options.shard:
        run_recipe = engine.shardable(run_recipe)
    conditions = replace(
        run_recipe.conditions,
        shard=options.shard and not chosen.hosted,
        system=chosen.live.prompt if options.fold else "",
        processes=1 if chosen.hosted else options.processes,
        anyway=options.anyway,
        drift=(settings.gate.max_kl, settings.gate.max_kl_per_token),
    )
    run_recipe = replace(run_recipe, conditions=conditions)
    return run_recipe if options.anyway else _reading_again(db, settings, run_recipe)


def _reading_again(db: Store, settings: Config, run_recipe: Recipe) -> Recipe:
    """The recipe, by which ratings are trusted less easily where they were read before and showed no pattern."""
    from clawback.feedback.due import significance
    from clawback.rewards.reward_head import TRUSTED_BELOW

    level = significance(db, settings.training.threshold, TRUSTED_BELOW)
    if level == TRUSTED_BELOW:
        return run_recipe
    graded = {"trusted_below": level, **run_recipe.options.get("graded", {})}
    return replace(run_recipe, options={**run_recipe.options, "graded": graded})
