"""Reward models as a job: from the store's ratings or a file to a model in the home, what it is worth, and its word as a grader.

Only people's ratings are learned from, and of these only what is not kept for the gate: the turns held back there are what a reward
model is watched by here (``watch``).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from clawback import config, feedback, store
from clawback.errors import Busy, TrainingError, UsageError
from clawback.extensions.reward import encoder as encoders
from clawback.extensions.reward import measures, reward_files, similarity
from clawback.extensions.reward.measures import Interval
from clawback.extensions.reward.rated import (
    RatedAnswer,
    folds,
    hold_out,
    mark,
    of_samples,
    read,
    scored_lines,
)
from clawback.features.state_features import Looks
from clawback.jobs import judge_pass
from clawback.learning import BaseModelReader
from clawback.paths import Home
from clawback.records import Turn
from clawback.rewards import HELD_OUT, overoptimization
from clawback.rewards.composite import UNIT, Range
from clawback.rewards.composite import scale as scaled
from clawback.rewards.rating_likelihood import Floats

if TYPE_CHECKING:
    from clawback.extensions.reward.encoder import Encoder, EncoderSettings
    from clawback.progress import OnProgress
    from clawback.records import JsonObject

Embed = Callable[[Sequence[RatedAnswer]], Floats]
AT_ONCE = 64
LEAST_WATCHED = 4
"""Rated answers of a version under which nothing is said about it."""


@dataclass(frozen=True, slots=True)
class Compared:
    """A baseline: its ρ, and by how much the reward model's is above it on the same answers."""

    name: str
    spearman: Interval
    ahead: Interval


@dataclass(frozen=True, slots=True)
class Evaluation:
    """What a reward model is worth on answers to prompts that it has not seen. Ratings and scores are in [0, 1]."""

    rows: int
    prompts: int
    left_out: int
    """Answers to prompts that it learned from: they prove nothing."""
    spearman: Interval
    mse: float
    calibration_error: float
    reliability: tuple[measures.Bin, ...]
    disagreement: float
    """Mean standard deviation between the members."""
    baselines: tuple[Compared, ...]

    def to_dict(self) -> JsonObject:
        return asdict(self)

    def text(self) -> str:
        """All of it, for a person."""
        lines = [
            f"Spearman's ρ {self.spearman} on {self.rows} answers to {self.prompts} prompts that it has not seen",
            f"error {self.mse:.4f} (squared), calibration {self.calibration_error:.3f}, disagreement {self.disagreement:.3f}",
        ]
        lines += [f"  {b.name:<12} ρ {b.spearman}, the model is ahead by {b.ahead}" for b in self.baselines]
        lines.append(f"  {'answers':>8}{'predicted':>11}{'true':>8}")
        lines += [f"  {b.count:>8}{b.predicted:>11.2f}{b.true:>8.2f}" for b in self.reliability]
        if self.left_out:
            lines.append(f"{self.left_out} answers to prompts that it learned from were left out.")
        return "\n".join(lines)


@dataclass(frozen=True, slots=True)
class RewardModelResult:
    """A model that was trained and saved, its training by member, and its hold-out (None: nothing was held out)."""

    name: str
    rows: int
    members: tuple[dict[str, float], ...]
    held_out: Evaluation | None

    def to_dict(self) -> JsonObject:
        return asdict(self)


def reader(settings: EncoderSettings) -> BaseModelReader:
    """What reads pairs with the causal model of these settings."""
    return BaseModelReader(settings.base, revision=settings.revision, max_length=settings.max_length)


def load(home: Home) -> tuple[Encoder, reward_files.Card]:
    """The reward model of this home; see ``reward_files.load``."""
    return reward_files.load(home.reward, reader)


def ratings(
    home: Home, data: Path | None = None, scale: str = "auto", *, all_of_them: bool = False
) -> list[RatedAnswer]:
    """Scored answers of a file, or of the store; there, turns kept for the gate only with ``all_of_them``.

    Raises ``TrainingError`` where there are none.
    """
    if data is not None:
        found = read(data, scale)
    else:
        with store.connect(home.database) as db:
            settings = config.load(home.config)
            training = settings.training
            query = feedback.SampleQuery(newest=training.newest)
            samples = feedback.evidence(feedback.samples(db, query=query, raters=training.raters))
            if not all_of_them:
                # Those of the next run, too: a model that grades for a run must not have learned what the run is judged by.
                before = db.splits(s.turn_id for s in samples)
                samples, _ = feedback.split(samples, settings.gate.held_out, splits=before)
            found = of_samples(samples, {s.turn_id: db.turn(s.turn_id).version for s in samples})
    if not found:
        raise TrainingError(
            "There are no rated answers to learn from: rate some first, or name a file with --data."
        )
    return found


def train(
    home: Home,
    rated: Sequence[RatedAnswer],
    settings: EncoderSettings,
    *,
    seed: int = 0,
    held_out: float = 0.2,
    on_progress: OnProgress | None = None,
) -> RewardModelResult:
    """Train on all but a share of the prompts, save, and say what it is worth on that share.

    Raises ``Busy`` while another process does the same, and what ``encoder.fit`` raises.
    """
    from filelock import FileLock, Timeout

    home.create()
    learned, held = hold_out([r.prompt for r in rated], held_out, seed)
    try:
        with FileLock(home.reward_lock, timeout=0):
            look = reader(settings)
            made = encoders.fit(
                [rated[i] for i in learned], settings, look=look, seed=seed, on_progress=on_progress
            )
            card = reward_files.Card(
                settings=asdict(settings),
                calibration=made.encoder.calibration,
                trained=tuple(sorted({mark(rated[i].prompt) for i in learned})),
                rows=len(learned),
                seed=seed,
                members=len(made.encoder.members),
                base=look.identity,
                share=made.history[0].get("share", 0.0),
            )
            card = reward_files.save(home.reward, made.encoder, card)
    except Timeout:
        raise Busy("A reward model is being trained already in another process.") from None
    evaluation = measure(made.encoder, [rated[i] for i in held]) if len(held) > 1 else None
    with store.connect(home.database) as db:  # for the report
        db.set(HELD_OUT, evaluation.to_dict() if evaluation else None)
    return RewardModelResult(card.name, len(learned), made.history, evaluation)


def evaluate(home: Home, rated: Sequence[RatedAnswer], embed: Embed | None = None) -> Evaluation:
    """The saved model on the answers to prompts that it has not seen.

    ``embed`` gives vectors of answers, for the similarity baseline; it needs some answers that the model learned from.
    Raises ``UsageError`` where there are no such answers.
    """
    model, card = load(home)
    known = set(card.trained)
    unseen = [r for r in rated if mark(r.prompt) not in known]
    learned = [r for r in rated if mark(r.prompt) in known]
    if len(unseen) < 2:
        raise UsageError(
            "All of these answers are to prompts that the model learned from, which proves nothing. Rate others, or train with a larger --hold-out."
        )
    near = _nearness(embed, learned, unseen) if embed else None
    return measure(model, unseen, left_out=len(learned), near=near)


def measure(
    model: Encoder, rated: Sequence[RatedAnswer], *, left_out: int = 0, near: Floats | None = None
) -> Evaluation:
    """What the model is worth on these, beside the length of the answers and, where given, their nearness to liked ones."""
    each = model.each([r.pair for r in rated])
    return assess(each.mean(0), model.expected(each.mean(0)), each.std(0), rated, left_out, near)


def assess(
    scores: Floats,
    expected: Floats,
    spread: Floats,
    rated: Sequence[RatedAnswer],
    left_out: int,
    near: Floats | None,
) -> Evaluation:
    true = np.array([r.value for r in rated])
    groups = [mark(r.prompt) for r in rated]
    others = {"length": np.array([float(len(r.response)) for r in rated])}
    if near is not None:
        others["similarity"] = near
    table = measures.reliability(expected, true)
    return Evaluation(
        rows=len(rated),
        prompts=len(set(groups)),
        left_out=left_out,
        spearman=measures.interval(scores, true, groups),
        mse=measures.mse(expected, true),
        calibration_error=measures.calibration_error(table),
        reliability=table,
        disagreement=float(spread.mean()),
        baselines=tuple(
            Compared(n, measures.interval(o, true, groups), measures.ahead(scores, o, true, groups))
            for n, o in others.items()
        ),
    )


@dataclass(frozen=True, slots=True)
class ScoredAnswer:
    """An answer's score in [0, 1]; ``expected`` (calibrated) and ``doubt`` only where an ensemble gave it."""

    reward: float
    expected: float | None = None
    doubt: float | None = None

    def to_dict(self, target: Range = UNIT) -> dict[str, float]:
        """On another scale; what is not there is left out."""
        made = {"reward": scaled(self.reward, UNIT, target)}
        if self.expected is not None and self.doubt is not None:
            made["expected"] = scaled(self.expected, UNIT, target)
            made["doubt"] = self.doubt * (target[1] - target[0])
        return made


def pairs(path: Path) -> list[tuple[str, str]]:
    """(prompt, response) of every line, rated or not. Raises ``UsageError`` for a line that cannot be read, or none at all."""
    found = [(Turn("", said, response).prompt, response) for _, said, response, _ in scored_lines(path)]
    if not found:
        raise UsageError(f"There are no answers in {path}.")
    return found


def score(
    home: Home,
    pairs: Sequence[tuple[str, str]],
    *,
    judge: bool = False,
    on_progress: OnProgress | None = None,
) -> tuple[str, list[ScoredAnswer]]:
    """Who scored, and the scores, by the reward model or the judge of the settings.

    Raises ``JudgeError`` where the judge cannot be asked, brings nothing to read, or its budget is used up.
    """
    tell, made = on_progress or (lambda _: None), []
    if judge:
        name, generative = judge_pass.generative(home)
        for number, pair in enumerate(pairs):
            tell({"phase": "score", "step": number, "steps": len(pairs)})
            made += [ScoredAnswer(value) for value in generative.score([pair])]
    else:
        model, card = load(home)
        name = card.name
        for start in range(0, len(pairs), AT_ONCE):
            tell({"phase": "score", "step": start, "steps": len(pairs)})
            each = model.each(pairs[start : start + AT_ONCE])
            means = each.mean(0)
            rows = zip(means, model.expected(means), each.std(0), strict=True)
            made += [ScoredAnswer(float(m), float(e), float(d)) for m, e, d in rows]
    tell({"phase": "score", "step": len(pairs), "steps": len(pairs)})
    return name, made


def cross_validate(
    rated: Sequence[RatedAnswer],
    settings: EncoderSettings,
    count: int,
    *,
    seed: int = 0,
    embed: Embed | None = None,
    on_progress: OnProgress | None = None,
) -> Evaluation:
    """Train ``count`` ensembles, each on all folds but one, and look at what they say of the fold that they have not seen."""
    scores, expected, spread = (np.zeros(len(rated)) for _ in range(3))
    near = np.zeros(len(rated)) if embed else None
    tell = on_progress or (lambda _: None)
    look = _once(reader(settings), rated)
    for number, (learned, tested) in enumerate(folds([r.prompt for r in rated], count, seed), 1):
        inside, outside = [rated[i] for i in learned], [rated[i] for i in tested]

        def follow(p: Mapping[str, object], fold: int = number) -> None:
            tell({**p, "phase": f"fold {fold} {p.get('phase', '')}"})

        model = encoders.fit(inside, settings, look=look, seed=seed, on_progress=follow).encoder
        each = model.each([r.pair for r in outside])
        # Ensembles of different folds have different levels: ranks within the fold can be put together.
        scores[tested], spread[tested] = measures.shares(each.mean(0)), each.std(0)
        expected[tested] = model.expected(each.mean(0))
        if embed and near is not None:
            said = _nearness(embed, inside, outside)
            near[tested] = measures.shares(said) if said is not None else 0.0
    return assess(scores, expected, spread, rated, 0, near)


def _once(
    look: BaseModelReader, rated: Sequence[RatedAnswer]
) -> Callable[[Sequence[tuple[str, str]]], Looks]:
    """The same reader, with everything read beforehand: each fold asks for the same answers again."""
    pairs = list(dict.fromkeys(r.pair for r in rated))
    read = look(pairs)
    place = {pair: i for i, pair in enumerate(pairs)}

    def looks_of(pairs: Sequence[tuple[str, str]]) -> Looks:
        rows = [place[pair] for pair in pairs]
        return Looks(read.states[rows], [read.tokens[i] for i in rows], read.shapes[rows])

    return looks_of


def _nearness(embed: Embed, learned: Sequence[RatedAnswer], judged: Sequence[RatedAnswer]) -> Floats | None:
    """Similarity to liked less to disliked answers; None where the learned ones were all rated alike, or there are none."""
    if len({r.value for r in learned}) < 2:
        return None
    return similarity.fit(embed(learned), [r.value for r in learned]).score(embed(judged))


def base_vectors(home: Home) -> Embed:
    """Pooled hidden states of the base model that the settings name."""
    model = config.load(home.config).model
    look = BaseModelReader(model.base, revision=model.revision)
    return lambda rated: look([r.pair for r in rated]).states


def watch(model: Encoder, rated: Sequence[RatedAnswer], trained: Sequence[str]) -> overoptimization.Gap:
    """Whether the proxy and the people have parted, version by version, on rated answers that the model did not learn from."""
    known = set(trained)
    by_version: dict[int, list[RatedAnswer]] = {}
    for one in rated:
        if one.version is not None and mark(one.prompt) not in known:
            by_version.setdefault(one.version, []).append(one)
    checks = [
        overoptimization.check(model.expected(model.score([r.pair for r in of])), [r.value for r in of])
        for _, of in sorted(by_version.items())
        if len(of) >= LEAST_WATCHED
    ]
    return overoptimization.gap(checks)
