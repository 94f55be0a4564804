"""A training run on feedback: feedback → samples → train → candidate → gate → live, one at a time.

Every step is recorded in the store before the next begins, so a run that was killed anywhere resumes where it
was: the lock is the operating system's and is released when its process dies, and whoever holds it knows that
a run which is still marked as running has no live process.
"""

from __future__ import annotations

import gc
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from clawback import feedback, release, store
from clawback.errors import Busy, ModelError, Stopped, UsageError
from clawback.feedback.due import NO_GAIN
from clawback.gate import adapter_gate
from clawback.gate.report import Report, answered, settle
from clawback.jobs import beginning, inputs, rule_reading, seams
from clawback.jobs.run_job import PROGRESS_SECONDS, RunJob, plays
from clawback.paths import Home
from clawback.progress import ANNOUNCEMENTS, OnProgress, Progress
from clawback.records import Run, Sample, Version
from clawback.release import prompted
from clawback.release.version_registry import LOCK_SECONDS, check
from clawback.runs import trigger
from clawback.runs.run_options import DEFAULTS, RunOptions

if TYPE_CHECKING:
    from clawback.jobs.rule_reading import RunJudge
    from clawback.jobs.seams import ServedSampler
    from clawback.policy import Policy
    from clawback.rewards.terms import RewardTerms
    from clawback.store import Store
    from clawback.trainer import Recipe


@dataclass(frozen=True, slots=True)
class RunResult:
    """The result of a run: the version it made, the gate's verdict, and whether it is live now."""

    run: Run
    version: Version
    report: Report
    prompt: Version | None = None
    """The sentence that a rejected version was to learn, as a prompt: what the gate made of it."""

    @property
    def live(self) -> bool:
        return self.version.status == "live"


def train_once(
    home: Home, options: RunOptions = DEFAULTS, *, on_progress: OnProgress | None = None, **values: object
) -> RunResult:
    """Make one version from all feedback that stands, judge it, and put it live if it is better. ``values``: changes of ``options`` by name.

    An interrupted run is finished first (its own settings count then). Raises ``Busy``
    while another process trains, ``Stopped`` when somebody stops it, ``TrainingError`` when there is nothing to learn from, ``NothingToGain``
    when the live version's answers are liked nearly as much as they could be, ``NothingRead`` when the ratings cannot be told from chance yet;
    any failure is entered in the run.
    """
    from filelock import FileLock, Timeout

    options = options.changed(**values)
    home.create()
    try:
        # Held until the version is live: two runs must not learn from the same ratings.
        with FileLock(home.train_lock, timeout=LOCK_SECONDS), store.connect(home.database) as db:
            job = _Job(home, db, on_progress, options)
            beginning.algorithm(db, job.settings, options)  # a slip of the pen costs no loading of a model
            seams.check_extensions(job.settings, options)
            if options.draw:
                seams.chosen(options.draw, job.settings)
            if options.resume is not None:
                job.take_up(options.resume)
            return job.go()
    except Timeout:
        raise Busy("A run is training already. `clawback status` shows how far it is.") from None


def judge_waiting(home: Home, *, on_progress: OnProgress | None = None) -> Report | None:
    """Judge again the version that the gate asks about, if enough of its questions are answered by now, and act on
    the verdict. None: there is none, or too few. Raises ``Busy`` while another process trains.
    """
    from filelock import FileLock, Timeout

    try:
        with FileLock(home.train_lock, timeout=LOCK_SECONDS), store.connect(home.database) as db:
            return _Job(home, db, on_progress).judge_waiting()
    except Timeout:
        raise Busy("A run is training already. `clawback status` shows how far it is.") from None


class _Job(RunJob):
    """One call of ``train_once``: what its steps share."""

    sentence_on_failure = "Your ratings are safe."
    again = "clawback runs resume"
    vllm: ServedSampler | None = None
    preparing: int | None = None
    """The run that is being prepared now."""

    def __init__(
        self, home: Home, db: Store, on_progress: OnProgress | None, options: RunOptions = DEFAULTS
    ) -> None:
        super().__init__(home, db, on_progress)
        self.options = options

    def go(self) -> RunResult:
        if self.options.ray is not None:
            seams.cluster().check(self.options.ray)
        release.heal(self.db, self.home)
        run, policy = self.interrupted(), None
        try:
            if run is None:
                with self.preparation():
                    # First, so that the new version is compared with what came of it.
                    self.judge_waiting()
                    run, policy = self.begin()
            with self.entered(run):
                version = self.candidate(run, policy)
                # The gate loads what is on disk: what it judged is what will answer. Two bases in memory are one too many.
                del policy
                gc.collect()
                self.give_up_waiting(run)
                report = self.judge(version)
                prompt = self.propose_sentence(run, version)
        finally:
            if self.vllm is not None:
                self.vllm.close()
        return RunResult(self.db.run(run.id), self.db.version(version.number), report, prompt)

    # ------------------------------------------------------------------------------------------------- begin

    @contextmanager
    def preparation(self) -> Iterator[None]:
        """A context manager: within it the run is shown as one that is being prepared."""
        options = self.options
        number = options.prepared or trigger.prepare(self.db, self.settings, options.algorithm, options.seed)
        self.preparing = number
        self.db.update_run(number, pid=os.getpid())
        name, balance = Path(self.settings.model.base).name, feedback.balance(self.db)
        text = f"Run {number}: {name} learns from your ratings ({balance.good} good, {balance.bad} bad)."
        self.tell({"phase": "run", "text": text, "run": number})
        try:
            self.tell({"phase": "preparation"})
            yield
        except Stopped as error:
            self.db.end_preparation(number, str(error))
            raise
        except BaseException:
            if not self.options.prepared:  # whoever asked is told here and now
                self.db.drop_preparation(number)
            raise
        finally:
            self.preparing = None

    def tell(self, progress: Progress) -> None:
        """While a run is prepared, also into its row. Raises ``Stopped`` where somebody wants it to stop."""
        super().tell(progress)
        if self.preparing is None or progress.get("phase") in ANNOUNCEMENTS:
            return
        now = time.monotonic()
        if progress.get("phase") != self.phase or now - self.told >= PROGRESS_SECONDS:
            self.told, self.phase = now, str(progress.get("phase"))
            self.db.update_run(self.preparing, progress=progress)
            if self.db.stop_wanted(self.preparing):
                raise Stopped(f"Run {self.preparing} was stopped before it had begun. Your ratings are safe.")

    def take_up(self, number: int) -> None:
        """Mark a stopped run as running again. Raises ``UsageError`` for any other, and where a newer one has begun since."""
        run = self.db.run(number)
        newest = next((r for r in self.db.runs(limit=1000, ids=False) if r.kind != "prompt"), run)
        if plays(run):
            raise UsageError(
                f"Run {number} plays episodes: `clawback env train --resume {number}` continues it."
            )
        if run.status != "stopped":
            raise UsageError(
                f"Run {number} was not stopped (it is {run.status}), so there is nothing to resume."
            )
        if newest.id != number:
            raise UsageError(
                f"Run {newest.id} has begun since run {number} was stopped. `clawback train` begins a new one."
            )
        self.db.update_run(
            number, status="running", error="", finished_at=None, stop_at=None, pid=os.getpid()
        )

    def interrupted(self) -> Run | None:
        """The run that a dead process left behind, if it can be resumed."""
        run = self.db.active_run()
        if run is None:
            return None
        if plays(run):  # `clawback env train` resumes it
            self.db.update_run(run.id, status="stopped")
            return None
        standing = {f.id for f in self.db.feedback(ids=run.train_ids)}
        if not standing.issuperset(run.train_ids):
            self.fail(run, "it was interrupted, and some of its feedback has been taken back since")
            return None
        self.db.update_run(run.id, pid=os.getpid())
        return run

    def begin(self) -> tuple[Run, Policy]:
        """Enter a new run with everything that goes into it. The policy comes along, loaded once."""
        from clawback import engine

        request = beginning.request(self.home, self.db, self.settings, self.options)
        ratings = beginning.ratings(self.db, request)
        draw = beginning.drawing_engine_of(request)
        if request.hosted:
            seams.hosted().present(self.home, self.settings, request.algorithm)
        policy = beginning.policy(request, self.tell)
        recipe = beginning.recipe(self.home, self.db, request, policy, self.tell)
        run = self.run_of(request, ratings, policy, recipe)
        self.check_readable(request, run, recipe, policy)
        if draw:
            recipe = replace(recipe, conditions=replace(recipe.conditions, draw=draw))
            self.vllm = seams.vllm().sampler(self.home, self.settings, policy, recipe, draw, self.tell)
        if recipe.full:
            from clawback.learning.run_budget import choose

            choose(policy, recipe)  # now, so that what does not fit leaves no run behind
        if recipe.algorithm in engine.DRAWING and not request.hosted:
            held_out = {s.turn_id for s in ratings.held_out}
            recipe = self.fitted(run, recipe, policy, ratings.train, held_out)
        assert self.preparing is not None
        begun = self.db.begin_run(self.preparing, replace(run, recipe=asdict(recipe)))
        self.db.set(NO_GAIN, None)
        self.sweep(begun)
        return begun, policy

    def run_of(
        self, request: beginning.RunRequest, ratings: beginning.RunRatings, policy: Policy, recipe: Recipe
    ) -> Run:
        """The run as it is entered, without a number so far."""
        seed = self.options.seed
        return Run(
            base=self.settings.model.base,
            base_revision=policy.info.revision,
            algorithm=recipe.algorithm,
            recipe=asdict(recipe),
            seed=self.settings.training.seed if seed is None else seed,
            parent=request.live.number,
            train_ids=ratings.ids(ratings.train),
            held_out_ids=ratings.ids(ratings.held_out),
            created_at=time.time(),
            pid=os.getpid(),
            progress={"phase": "start"},
        )

    def check_readable(self, request: beginning.RunRequest, run: Run, recipe: Recipe, policy: Policy) -> None:
        """Raises ``NothingRead`` where a run that would read the ratings cannot tell them from chance."""
        options = self.options
        if recipe.algorithm != "auto" or recipe.reward or request.hosted:
            return
        if options.fold or options.shard or options.anyway:
            return
        self.tell({"phase": "read"})
        samples, _ = self.samples(run, recipe, policy)
        numbered = replace(run, id=self.preparing or 0)  # its number, if it begins
        beginning.check_readable(self.home, self.db, policy, samples, numbered, self.tell)

    def fitted(self, run: Run, recipe: Recipe, policy: Policy, train: list[Sample], held: set[int]) -> Recipe:
        """The recipe at the largest size that fits the budget. ``held``: turns that are kept for the gate."""
        from clawback.learning import run_budget
        from clawback.trainer import TrainingRun

        self.tell({"phase": "measure"})
        prompts = inputs.prompts(self.db, held, run.created_at, self.settings.gate.held_out)
        allowed = run_budget.Allowed(inputs.budget(self.settings), run.parent > 0, self.home.speeds)
        others = beginning.captured_answers(self.db, prompts, recipe.learn_from, run.created_at)
        training = TrainingRun(policy, train, recipe, prompts=prompts, captured=others, tell=self.tell)
        sized, forecast = run_budget.fit(training, allowed, self.vllm)
        self.tell(
            {
                "phase": "estimate",
                "text": str(forecast),
                "seconds": forecast.seconds,
                "bytes": forecast.bytes,
            }
        )
        return sized

    # ------------------------------------------------------------------------------------------------- train

    def candidate(self, run: Run, policy: Policy | None) -> Version:
        """The version that the run makes; at once where it was made before an interruption."""
        if run.version is not None:
            return self.db.version(run.version)
        from clawback import engine
        from clawback.trainer import TrainingRun

        recipe: Recipe = engine.recipe_from(run.recipe)
        away = seams.is_hosted(recipe)
        if policy is None:
            system = prompted.of_run(self.db, run)[0]
            policy = (seams.hosted().policy if away else inputs.policy)(self.settings, run.base, system)
        from clawback.jobs import beginning
        from clawback.rewards import reward_model

        samples, terms = self.samples(run, recipe, policy)
        grader, why = reward_model.grader(self.home, self.settings.reward)
        if why:
            self.tell({"phase": "reward", "note": why})
        with self._tracked(run) as tell:
            training = TrainingRun(policy, samples, recipe, seed=run.seed, out=self.folder(run), tell=tell)
            if away:
                result = seams.hosted().train(self.home, self.settings, run, training)
            else:
                held, share = inputs.kept_out(self.db, run), self.settings.gate.held_out
                prompts = inputs.prompts(self.db, held, run.created_at, share)
                others = beginning.captured_answers(self.db, prompts, recipe.learn_from, run.created_at)
                judge = rule_reading.of_run(self.home, self.settings, self.db, training)
                draw = seams.chosen(
                    self.options.draw or recipe.conditions.draw or seams.HERE,
                    self.settings,
                )
                if draw and self.vllm is None:
                    self.vllm = seams.vllm().sampler(self.home, self.settings, policy, recipe, draw, tell)
                with seams.sampler(self.options.ray, self.vllm, recipe, tell) as sampler:
                    result = engine.train(
                        policy,
                        samples,
                        recipe,
                        seed=run.seed,
                        out=self.folder(run),
                        prompts=prompts,
                        on_progress=tell,
                        resume=True,
                        grader=grader,
                        terms=terms,
                        sampler=sampler,
                        captured=others,
                        judge=judge,
                    )
        self.db.update_run(run.id, algorithm=result.algorithm)
        return release.propose(self.db, self.home, run, result)

    @contextmanager
    def _tracked(self, run: Run) -> Iterator[OnProgress]:
        """What reports the run's progress: to the store, and to the trackers that the settings name."""
        shown = self.settings.tracking
        if not shown.to:
            yield lambda progress: self.enter(run, progress)
            return
        from clawback.jobs import tracking

        with tracking.track(shown.to, self.home.logs, f"run-{run.id:04d}", run.recipe, shown.names) as track:
            yield tracking.both(lambda progress: self.enter(run, progress), track)

    def samples(self, run: Run, recipe: Recipe, policy: Policy) -> tuple[list[Sample], RewardTerms | None]:
        """What the run learns from, and what its rewards add up from. The same however often it is asked: only the run decides."""
        from clawback import engine

        query = feedback.SampleQuery(
            words=engine.reads_words(run.algorithm),
            credit=recipe.credit,
            min_turns=recipe.min_turns,
            until=run.created_at,
        )
        samples = feedback.samples(self.db, run.train_ids, query, raters=recipe.raters)
        samples = inputs.without_kept(self.db, run, samples, self.settings.gate.held_out)
        terms = _reward_terms(recipe)
        if terms is not None:
            self.tell({"phase": "reward", "note": f"Rewards add up: {terms}"})
            samples = [terms.of(one, len(policy.encode(one).response)) for one in samples]
        return samples, terms

    # ------------------------------------------------------------------------------------------------- judge

    def judge(self, version: Version) -> Report:
        """Ask the gate, and do as it says. After an interruption: what was decided stays decided."""
        if version.status != "candidate" and version.report is not None and "evidence" in version.report:
            return Report.from_dict(version.report)
        run = self.db.run(version.run_id or 0)
        tell = (lambda p: self.enter(run, p)) if run.status == "running" else self.tell
        judge = partial(self._judge_of, run, tell)
        inputs = adapter_gate.GateInputs(self.settings, judge=judge, tell=tell)
        report = adapter_gate.examine(self.db, self.home, version.number, inputs)
        settle(self.db, self.home, report, self.settings.trial)
        return report

    def _judge_of(self, run: Run, tell: OnProgress, policy: Policy) -> RunJudge | None:
        """What judged answers in a run, with the verdicts that are kept in its folder."""
        from clawback import engine
        from clawback.trainer import TrainingRun

        if not run.recipe:
            return None
        training = TrainingRun(policy, (), engine.recipe_from(run.recipe), out=self.folder(run), tell=tell)
        return rule_reading.of_run(self.home, self.settings, self.db, training)

    def propose_sentence(self, run: Run, version: Version) -> Version | None:
        """Where a version was rejected that was to learn a sentence: the sentence as a prompt, judged like any other. Prompt and adapter have one history,
        and what the ratings say need not be lost because the weights did not take it."""
        if self.db.version(version.number).status != "rejected" or prompted.folds(run.recipe):
            return None
        prompt = prompted.of_sentence(self.db, run, release.sentence_of(version))
        if prompt is None:
            return None
        if prompt.report is None:
            self.judge(prompt)
        return self.db.version(prompt.number)

    def judge_waiting(self) -> Report | None:
        """Judge the version again that waits for answers, if they are there."""
        waiting = self.db.waiting()
        if waiting is None or self.db.count_gate_answers(waiting[0]) < waiting[1]:
            return None
        version = self.db.version(waiting[0])
        try:
            check(version)
        except ModelError:  # a damaged file must not keep the next run from beginning
            self.db.reject(version.number)
            return None
        report = answered(self.db, version, self.settings.gate)
        if report is None:
            return self.judge(version)
        settle(self.db, self.home, report, self.settings.trial)
        return report

    def give_up_waiting(self, run: Run) -> None:
        """A run takes all ratings there are: its version has learned what an older one waits for. Not before there is a version, for a run can fail; and what
        was answered about the older one while the run trained still decides about it."""
        self.judge_waiting()
        waiting = self.db.waiting()
        if waiting is not None and self.db.version(waiting[0]).run_id != run.id:
            self.db.reject(waiting[0])


def _reward_terms(recipe: Recipe) -> RewardTerms | None:
    """What counts beside the feedback, where the settings name anything."""
    if not (recipe.reward.get("weights") or recipe.reward.get("verifiers")):
        return None
    from clawback.rewards.terms import read

    return read(recipe.reward)
