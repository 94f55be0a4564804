"""A training run on an environment, optionally with ratings in the same steps.

Held-out tasks are played first, then rounds of training episodes, then the held-out tasks again; the result
is a version with its full record.

Every episode is in the store when it is over. A run that was killed resumes from its checkpoint, and episodes
already played are not played again.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING, Any

from clawback import feedback, release, store
from clawback.environments.core import EnvironmentSet
from clawback.environments.world_helpers import single_task_notice
from clawback.episode_jobs import episode_runs
from clawback.episode_jobs.episode_runs import DEFAULTS, PlayOptions, Wish, connected, players
from clawback.episode_jobs.reply_form import ReplyPlan, plan_replies
from clawback.errors import Busy, Stopped, UsageError
from clawback.jobs import inputs
from clawback.jobs.run_job import RunJob
from clawback.jobs.seams import Cluster, Rollout, chosen
from clawback.paths import Home
from clawback.progress import OnProgress, Progress
from clawback.records import Episode, Message, Run, Sample, Version
from clawback.release.version_registry import LOCK_SECONDS
from clawback.rollouts.action_form import MOST_UNREAD, cure
from clawback.rollouts.rounds import Collector, Dealing, HeldOutVerdict, compare, evaluate, orders

if TYPE_CHECKING:
    from clawback.policy import Policy
    from clawback.rollouts.concurrent import EpisodeSource
    from clawback.rollouts.group_judge import GroupJudge

BEFORE, HELD, AFTER = 1_000_000_000, 1_500_000_000, 2_000_000_000
"""Where the numbers of a run's held-out episodes begin. ``HELD``: before training, with replies held to actions."""
LOOKED_AT = 8
"""Held-out episodes that show whether replies name actions."""
HELD_TO = "held_to"
"""Name in a version's record of the replies that it was held to in the environment."""


@dataclass(frozen=True, slots=True)
class PlayResult:
    """What came of it."""

    run: Run
    version: Version
    verdict: HeldOutVerdict
    counts: Mapping[str, int]
    """Episodes by status."""

    @property
    def live(self) -> bool:
        return self.version.status == "live"


def learn(
    home: Home,
    wish: Wish,
    options: PlayOptions = DEFAULTS,
    *,
    worlds: EnvironmentSet | None = None,
    on_progress: OnProgress | None = None,
    **values: Any,
) -> PlayResult:
    """Make a version from episodes, from what is live now.

    Args:
        wish: what to play. An interrupted run of exactly this is resumed.
        worlds: in place of what ``wish.task`` names.
        values: changes of ``options`` by name.

    Raises ``Busy`` while another process trains, ``Stopped`` when somebody stops it, ``EnvironmentFailure`` where most worlds break,
    ``UsageError`` where no cluster answers.
    """
    from filelock import FileLock, Timeout

    options = replace(options, **values)
    home.create()
    try:
        with (
            FileLock(home.train_lock, timeout=LOCK_SECONDS),
            store.connect(home.database) as db,
            connected(options.ray) as cluster,
        ):
            job = _Job(home, db, on_progress)
            job.cluster = cluster
            return job.go(wish, options, worlds)
    except Timeout:
        raise Busy("A run is training already. `clawback status` shows how far it is.") from None


class _Job(RunJob):
    sentence_on_failure = "Its episodes are kept."
    again = "clawback env train --resume {id}"
    stopped_by = (Stopped, KeyboardInterrupt)
    stops_in = frozenset({"before", "train", "after"})
    cluster: Cluster | None = None
    """That plays the episodes in place of this process."""
    judge: GroupJudge | None = None
    """That rewards tries at one task by comparison."""
    noted = False
    """Whether the share of replies that name no action was looked at."""

    def go(self, wish: Wish, options: PlayOptions, worlds: EnvironmentSet | None) -> PlayResult:
        release.heal(self.db, self.home)
        seed = self.settings.training.seed if options.seed is None else options.seed
        overrides, resume = options.overrides, options.resume
        if resume is not None:
            wish = episode_runs.take_up(self.db, resume)
            seed = self.db.run(resume).seed
        if wish.draw or (self.cluster is None and resume is None):
            wish = replace(wish, draw=chosen(wish.draw, self.settings))
        if self.cluster is not None and (wish.draw or worlds is not None):
            raise UsageError(
                "A cluster's workers draw for themselves, in environments that they find by name: leave --ray out, or --draw and `worlds`."
            )
        self.judge = wish.group_judge()
        if self.judge is not None:
            overrides = {"estimator": "group", **overrides}
        worlds = worlds or wish.worlds(seed)
        if notice := single_task_notice(worlds):
            self.tell({"phase": "alert", "text": notice})
        run, policy = self.begin(wish, replace(options, seed=seed, overrides=overrides))
        with self.entered(run):
            version, before, after = self.version(run, policy, worlds, wish)
            verdict = compare(
                before,
                after,
                version=version.number,
                against=run.parent,
                confidence=self.settings.gate.confidence,
            )
            verdict = self.by_ratings(run, version, verdict)
            self.db.set_report(version.number, verdict.to_dict())
        if options.live and verdict.accepted:
            release.promote(self.db, self.home, version.number)
        counts = self.db.count_episodes(run.id)
        return PlayResult(self.db.run(run.id), self.db.version(version.number), verdict, counts)

    def begin(self, wish: Wish, options: PlayOptions) -> tuple[Run, Policy]:
        """The run, new or interrupted, and the policy that it starts from. ``options``: with a seed."""
        assert options.seed is not None
        dead = episode_runs.interrupted(self.db, wish, options.seed)
        parent = self.db.version(dead.parent) if dead is not None else self.db.live()
        self.tell({"phase": "load"})
        policy = self.policy(parent)
        preset = options.preset or self.settings.training.preset
        recipe = episode_runs.recipe_of(policy.info, wish, preset, options.overrides)
        if dead is not None:
            if options.resume is not None or episode_runs.is_same(dead, wish, options.seed, recipe):
                episode_runs.set_running(self.db, dead.id)
                return self.db.run(dead.id), policy
            if dead.status == "running":
                self.db.update_run(dead.id, status="stopped")
            if dead.parent != self.db.live().number:
                parent = self.db.live()
                policy = self.policy(parent)
        learned, held_out = self.ratings(wish)
        run = Run(
            base=policy.info.base if not parent.base else parent.base,
            base_revision=policy.info.revision,
            algorithm=recipe.algorithm,
            recipe=asdict(recipe),
            seed=options.seed,
            parent=parent.number,
            train_ids=learned,
            held_out_ids=held_out,
            pid=os.getpid(),
            progress={"phase": "start"},
            kind="episodes",
        )
        return self.db.start_run(run), policy

    def ratings(self, wish: Wish) -> tuple[tuple[int, ...], tuple[int, ...]]:
        """Feedback to learn from beside the episodes, and what is kept for the gate; none where the wish has none of it."""
        if not wish.ratings:
            return (), ()
        opinions = inputs.settled(self.db, self.settings)
        samples = feedback.samples(self.db, [f.id for f in opinions], raters=self.settings.training.raters)
        inputs.enough(samples)
        before = self.db.splits(s.turn_id for s in samples)
        train, held = feedback.split(samples, self.settings.gate.held_out, splits=before)
        return inputs.feedback_of(train, opinions), inputs.feedback_of(held, opinions)

    def policy(self, version: Version) -> Policy:
        """A version, to play. All of the distribution is drawn from while it learns, at the temperature that it answers with."""
        policy = release.load(self.home, version, self.settings)
        policy.sampling = replace(policy.sampling, top_p=1.0, top_k=0)
        return policy

    def version(
        self, run: Run, policy: Policy, worlds: EnvironmentSet, wish: Wish
    ) -> tuple[Version, Sequence[Episode], Sequence[Episode]]:
        """Held-out tasks, training, held-out tasks."""
        from clawback import engine
        from clawback.trainer import TrainingRun

        held = worlds.tasks("test")
        recipe = engine.recipe_from(run.recipe)
        rollout = Rollout(
            policy,
            worlds,
            wish,
            str(run.id),
            lambda p: self.enter(run, p),
            run.seed,
            recipe,
            lambda e: self.keep(run, e),
        )
        with players(self.home, rollout, self.cluster) as rollouts:
            before, plan = self.played_before(run, policy, rollouts, held, wish)
            collector = Collector(
                rollouts,
                Dealing(worlds.tasks("train"), run.seed, wish.groups, wish.size),
                wish.staleness,
                lambda numbers: self.db.played(run.id, numbers),
                lambda p: self.enter(run, self.playing(p, run)),
                grade=lambda groups: self.graded(run, groups),
            )
            about = {
                **asdict(wish),
                "environment": worlds.name,
                "held_out_tasks": min(len(held), wish.held_out),
                **({HELD_TO: list(plan.replies)} if plan.held else {}),
            }
            training = TrainingRun(
                policy,
                self.rated(run),
                recipe,
                seed=run.seed,
                prompts=self.prompts(run),
                out=self.folder(run),
                tell=lambda p: self.enter(run, self.noticed(p, worlds)),
            )
            form = plan.form(policy, worlds, wish, run.seed)
            result = engine.train_episodes(training, collector, about=about, form=form)
            rollouts.refreshed(wish.rounds)
            after = self.held_out(run, rollouts, held, wish, AFTER)
        before, after = map(list, self.compared(run, before, after))
        result.episodes.update(
            returned={"before": _mean(before), "after": _mean(after)},
            left_out={"failed": collector.failed, "stale": collector.stale},
            counts=self.db.count_episodes(run.id),
        )
        return release.propose(self.db, self.home, run, result), before, after

    def played_before(
        self, run: Run, policy: Policy, rollouts: EpisodeSource, held: Sequence[object], wish: Wish
    ) -> tuple[Sequence[Episode], ReplyPlan]:
        """Held-out episodes before training, and what is done about replies that name no action: a few episodes show whether they do."""
        few = replace(wish, held_out=min(wish.held_out, LOOKED_AT))
        episodes = self.held_out(run, rollouts, held, few, BEFORE)
        drawn_here = self.cluster is None and not wish.draw
        plan = plan_replies(policy, rollouts.worlds, wish, episodes, drawn_here=drawn_here)
        if plan.notice:
            self.noted = True
            self.tell({"phase": "alert", "text": plan.notice})
        if plan.held:  # what is compared is played under the same rule
            rollouts.refreshed(0)
        return self.held_out(run, rollouts, held, wish, HELD if plan.held else BEFORE), plan

    def noticed(self, progress: Progress, worlds: EnvironmentSet) -> Progress:
        """Progress, after a sentence where most replies of the first batch name no action."""
        share = progress.get("unparsable")
        if not self.noted and isinstance(share, float):
            self.noted = True
            if share > MOST_UNREAD:
                text = f"{share:.0%} of the replies of the first batch name no action. {cure(worlds)}"
                self.tell({"phase": "alert", "text": text})
        return progress

    def rated(self, run: Run) -> Sequence[Sample]:
        """What the run learns from beside its episodes: the same however often it is asked."""
        if not run.train_ids:
            return ()
        raters = self.settings.training.raters
        samples = feedback.samples(self.db, run.train_ids, raters=raters)
        return inputs.without_kept(self.db, run, samples, self.settings.gate.held_out)

    def prompts(self, run: Run) -> Sequence[Sequence[Message]]:
        """The person's own prompts for fresh answers, where the run learns from ratings, too."""
        if not run.train_ids:
            return ()
        held_out = inputs.kept_out(self.db, run)
        return inputs.prompts(self.db, held_out, run.created_at, self.settings.gate.held_out)

    def by_ratings(self, run: Run, version: Version, verdict: HeldOutVerdict) -> HeldOutVerdict:
        """The gate's word beside that of the held-out tasks, where the run learned from ratings. The tasks decide; the gate may turn the version away."""
        if not run.train_ids:
            return verdict
        report = release.gate(
            self.db,
            self.home,
            version.number,
            settings=self.settings,
            on_progress=lambda p: self.enter(run, p),
        )
        return replace(
            verdict,
            accepted=verdict.accepted and report.verdict != "rejected",
            reasons=(*verdict.reasons, f"by ratings {report.verdict}: {report.reasons[0]}"),
            rated=report.to_dict(),
        )

    @staticmethod
    def playing(report: Progress, run: Run) -> Progress:
        """How far a round's episodes are, as a place in the training that they are part of: one bar, not two by turns."""
        from clawback.engine import recipe_from
        from clawback.learning import EpisodeSettings

        settings = EpisodeSettings.of(recipe_from(run.recipe))
        each = settings.steps_a_round
        return {"phase": "train", "step": (report["round"] - 1) * each, "steps": settings.rounds * each} | {
            "round": report["round"], "rounds": settings.rounds
        }  # fmt: skip

    def held_out(
        self, run: Run, rollouts: EpisodeSource, tasks: Sequence[Any], wish: Wish, first: int
    ) -> Sequence[Episode]:
        asked = orders(tasks, wish.held_out, run.seed, first)
        name = "after" if first == AFTER else "before"
        known = self.db.played(run.id, [order.number for order in asked])
        return evaluate(
            rollouts,
            asked,
            played=known,
            tell=lambda done, all_: self.enter(run, {"phase": name, "step": done, "steps": all_}),
        )

    def graded(self, run: Run, groups: Sequence[Sequence[Episode]]) -> Sequence[Sequence[Episode]]:
        """With the judge's scores as rewards, where it rewards; they are stored."""
        if self.judge is None:
            return groups
        graded = []
        for group in self.judge.grade(groups):
            self.db.set_rewards([replace(e, run_id=run.id) for e in group])
            graded.append(group)
        return graded

    def compared(
        self, run: Run, base_episodes: Sequence[Episode], after: Sequence[Episode]
    ) -> tuple[Sequence[Episode], Sequence[Episode]]:
        """Held-out episodes; where a judge rewards, each pair of one task is scored together, and pairs without a score are left out."""
        if self.judge is None:
            return base_episodes, after
        pairs = [
            pair
            for pair in zip(base_episodes, after, strict=True)
            if "failed" not in {e.status for e in pair}
        ]
        scored = [pair for pair in self.graded(run, pairs) if pair]
        return [pair[0] for pair in scored], [pair[1] for pair in scored]

    def keep(self, run: Run, episodes: Sequence[Episode]) -> None:
        """Into the store, before anything is learned from them."""
        self.db.add_episodes([replace(e, run_id=run.id) for e in episodes])


def _mean(episodes: Sequence[Episode]) -> float:
    return sum(e.total for e in episodes) / max(1, len(episodes))
