"""The gate for weights: measures whether a version is better than the live one, decides by the rule, and keeps the report."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from clawback import config, feedback
from clawback.errors import UsageError
from clawback.feedback import provenance
from clawback.gate import fresh, guards, questions
from clawback.gate.evidence import Drawing, GateRatings, measure, texts
from clawback.gate.fresh import VersionPair, question
from clawback.gate.report import Report, report_of
from clawback.paths import Home
from clawback.progress import OnProgress
from clawback.records import GATE_ANSWERS
from clawback.release import prompted
from clawback.release.version_registry import check, revision_of

if TYPE_CHECKING:
    from clawback.policy import Policy
    from clawback.records import Run, Sample, Version
    from clawback.rewards.views import Judge
    from clawback.store import Store


@dataclass(frozen=True)
class GateInputs:
    """What a version is judged with."""

    settings: config.Config
    policy: Policy | None = None
    """The base model where it is at hand: it need not be loaded again."""
    judge: Callable[[Policy], Judge | None] = lambda _: None
    """The verdicts on answers that the run's reader looked at."""
    tell: OnProgress = lambda _: None


def gate(
    store: Store,
    home: Home,
    number: int,
    *,
    settings: config.Config | None = None,
    policy: Policy | None = None,
    on_progress: OnProgress | None = None,
) -> Report:
    """Judge a version against the live one, and keep the report with it. It neither promotes nor rejects.

    ``policy`` saves loading the base model again where it is at hand.

    Raises ``UsageError`` for the base model and the live version itself, ``ModelError`` for damaged files.
    """
    tell: OnProgress = on_progress or (lambda _: None)
    return examine(store, home, number, GateInputs(settings or config.load(home.config), policy, tell=tell))


def examine(store: Store, home: Home, number: int, inputs: GateInputs) -> Report:
    """``gate``, with all that a run can give it."""
    settings = inputs.settings
    version, live, run = _judged(store, settings, number)
    samples = feedback.samples(store, raters=settings.training.raters)
    samples = feedback.evidence(samples)  # what a judge model says is none
    if not samples:
        raise UsageError(f"There is nothing to judge version {number} by: there are no ratings.")
    held = telling(store, unseen(store, samples, run, live), run, number)
    prompts, kept = fresh.prompts(store, settings.gate.held_out)
    if not prompts:
        raise UsageError(
            "There are no captured prompts to answer. Use your agent through `clawback serve` first."
        )
    from clawback.engine import recipe_from
    from clawback.learning import gate_answers

    count = gate_answers(recipe_from(run.recipe)) if run.recipe else GATE_ANSWERS
    policy = inputs.policy or base_of(run, settings, version.prompt)
    evidence, shown = measure(
        policy,
        _pair(version, live, run),
        GateRatings(samples, [s for s in samples if s.turn_id in held], inputs.judge(policy)),
        prompts,
        Drawing(settings.generation.max_tokens, run.seed, count),
        inputs.tell,
    )
    evidence = replace(
        evidence,
        unlearned=kept,
        rules=guards.measure(
            guards.checked(store),
            [question(messages) for messages in shown.prompts],
            texts(shown.candidate),
            texts(shown.live),
        ),
        questions=max(evidence.questions, len(questions.pairs(store, version.number, live.number))),
        answers=questions.answers(store, version.number, live.number),
    )
    opinion = fresh.opinion(home, shown)
    report, decision = report_of(store, version, live, evidence, settings.gate, opinion)
    if decision.asks:
        questions.put(store, version, live, shown)
    store.set_report(number, report.to_dict())
    return report


def _judged(store: Store, settings: config.Config, number: int) -> tuple[Version, Version, Run]:
    """The version, the live one and the version's run, where the two can be compared. Raises ``UsageError``, ``ModelError``."""
    version, live = store.version(number), store.live()
    if version.number in (0, live.number) or version.run_id is None:
        raise UsageError(
            f"Version {number} is {'the base model' if number == 0 else 'live'}: there is nothing to compare."
        )
    for compared in (version, live):
        check(compared)
    base = live.base or (settings.model.base if provenance.known(store) else version.base)
    if version.base != base:
        raise UsageError(
            f"Version {number} was trained on {version.base}, and {base} is live: the gate compares versions of one base. "
            "`clawback move --to MODEL` compares two models."
        )
    return version, live, store.run(version.run_id)


def _pair(version: Version, live: Version, run: Run) -> VersionPair:
    folded = not version.prompt and bool(live.prompt) and prompted.folds(run.recipe) == live.prompt
    candidate, current = (Path(one.path) if one.path else None for one in (version, live))
    return VersionPair(candidate, current, version.prompt, live.prompt, folded)


def unseen(store: Store, samples: Sequence[Sample], run: Run, live: Version) -> set[int]:
    """Turns whose ratings neither the candidate nor the live version has learned from: kept for the gate, or rated since."""
    learned = set(run.train_ids)
    if live.run_id is not None:
        learned |= set(store.run(live.run_id).train_ids)
    said = store.feedback(active=False, ids=learned)
    return {s.turn_id for s in samples} - {turn for f in said for turn in (f.turn_id, f.other_turn_id)}


def telling(store: Store, turns: set[int], run: Run, candidate: int) -> set[int]:
    """Those of the turns whose log-prob says something of a version: answers of the same base's, by another version. What another model wrote
    becomes likelier and less likely by length and habit, liked or not; and a version's own answers are likelier under it, whatever was said of them
    or of those that they were compared with."""
    own, about = {run.base, ""}, questions.sessions(candidate)
    seen = provenance.as_seen_now(store)
    found = [
        t for t in map(seen, store.turns_by_id(turns).values()) if t.version is not None or t.model in own
    ]
    return {t.id for t in found if t.version != candidate and not t.session.startswith(about)}


def base_of(run: Run, settings: config.Config, system: str = "") -> Policy:
    from clawback import engine

    model = settings.model
    policy = engine.load(
        run.base,
        revision=revision_of(settings, run.base, run.base_revision),
        dtype=model.dtype,
        load_in_4bit=model.load_in_4bit,
        device=model.load_device,
    )
    policy.configure(
        settings.generation, settings.model.chat_template_args, settings.training.thinking, system
    )
    return policy
