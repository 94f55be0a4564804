"""The gate: measures whether a version is better than the live one, decides by a stated rule, and records the decision."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, fields, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from clawback import config, feedback
from clawback.errors import UsageError
from clawback.paths import Home
from clawback.records import GATE
from clawback.release import human_eval, prompted
from clawback.release.evidence import ANSWERS, Witness, measure
from clawback.release.fresh import OnProgress
from clawback.release.loading import revision_of
from clawback.release.registry import check
from clawback.release.rule import MOST_LOOKS, Compared, Evidence, Sampled, decide

if TYPE_CHECKING:
    from clawback.engine.torch.models.policy import Policy
    from clawback.records import Message, Run, Sample, Version
    from clawback.store import Store

MOST_PROMPTS = 256
EARLIER = {"read_p": 1.0, "better": 0.5}
"""What reports from before this was measured have in its place."""


@dataclass(frozen=True, slots=True)
class Opinion:
    """Mean score of fresh answers by the reward model, in [0, 1]: to be looked at, never a reason. A model must not put a version live."""

    name: str
    candidate: float
    live: float

    def __str__(self) -> str:
        return f"for information, {self.name}: candidate {self.candidate:.3f}, live {self.live:.3f}"


@dataclass(frozen=True, slots=True)
class Report:
    """What the gate found about a version, and what it made of it. Stored with the version, passed or not."""

    version: int
    against: int
    accepted: bool
    probability: float
    reasons: tuple[str, ...]
    evidence: Evidence
    reward_model: Opinion | None = None
    looks: int = 1
    """How often it has been judged with as many ratings as were asked for."""
    again_at: int = 0
    """Ratings since its run at which it is judged again; 0: it is decided."""
    by_hand: bool = False
    """Somebody put it live whatever was measured."""

    @property
    def verdict(self) -> str:
        return "accepted" if self.accepted else "waits" if self.again_at else "rejected"

    def summary(self) -> str:
        """One sentence."""
        return f"version {self.version} {self.verdict}: {self.reasons[0]}"

    def text(self) -> str:
        """The whole report, for a person."""
        e = self.evidence
        shown = {"candidate": e.candidate, "live": e.live, "base": e.base, "liked": e.enjoyed}
        columns = {name: of for name, of in shown.items() if of is not None}
        table = 28 * " " + "".join(f"{name:>10}" for name in columns)
        for label, name, form in (
            ("answers that end", "finished", "{:.0%}"),
            ("… with a whole ending", "whole", "{:.0%}"),
            ("empty answers", "empty", "{:.0%}"),
            ("answers that repeat", "repeating", "{:.0%}"),
            ("… the question", "copied", "{:.0%}"),
            ("… other answers", "canned", "{:.0%}"),
            ("tokens per answer", "length", "{:.0f}"),
            ("log-prob under the base", "logprob", "{:.2f}"),
            ("relevance, nats per token", "relevance", "{:.2f}"),
        ):
            cells = (getattr(of, name) for of in columns.values())
            row = "".join(f"{'–' if cell is None else form.format(cell):>10}" for cell in cells)
            table += f"\n  {label:<26}{row}"
        lines = [
            f"{self.verdict.capitalize()}: {self.reasons[0]}.",
            *(f"- {reason}" for reason in self.reasons[1:]),
            table,
        ]
        lines.append(
            f"  drift from the base {e.kl:.1f} nats per answer, perplexity of the base's text × {e.perplexity_ratio:.2f}"
        )
        if self.reward_model:
            lines.append(f"  {self.reward_model}")
        return "\n".join(lines)

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Report:
        known = {one.name for one in fields(Evidence)}
        evidence = EARLIER | {name: value for name, value in data["evidence"].items() if name in known}
        for name in ("candidate", "live", "base"):
            evidence[name] = Sampled(**evidence[name])
        if evidence.get("enjoyed"):
            evidence["enjoyed"] = Sampled(**evidence["enjoyed"])
        for name in ("liked", "disliked"):
            evidence[name] = tuple(evidence[name])
        counts = evidence.get("compared") or {}
        evidence["compared"] = Compared(**{name: tuple(count) for name, count in counts.items()})
        opinion = data.get("reward_model")
        return cls(
            **(
                dict(data)
                | {
                    "evidence": Evidence(**evidence),
                    "reasons": tuple(data["reasons"]),
                    "reward_model": Opinion(**opinion) if opinion else None,
                }
            )
        )


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
    version, live = store.version(number), store.live()
    if version.number in (0, live.number) or version.run_id is None:
        raise UsageError(
            f"Version {number} is {'the base model' if number == 0 else 'live'}: there is nothing to compare."
        )
    for one in (version, live):
        check(one)
    settings = settings or config.load(home.config)
    run = store.run(version.run_id)
    samples = feedback.samples(store, raters=settings.training.raters)
    samples = feedback.evidence(samples)  # what a judge model says is none
    if not samples:
        raise UsageError(f"There is nothing to judge version {number} by: there are no ratings.")
    compared, own = human_eval.compared(store, samples, version, live)
    # Its own answers are likelier under it whatever was said of them.
    kept_out = unseen(store, samples, run, live) - own
    from clawback.engine.budget import gate_answers
    from clawback.engine.recipe import recipe_from

    opinions: list[Opinion] = []
    look, drawn = witness(home, opinions), []

    def witnessed(*both: Any) -> None:
        drawn.append(both)
        if look is not None:
            look(*both)

    evidence = measure(
        policy or base_of(run, settings, version.prompt),
        Path(version.path) if version.path else None,
        Path(live.path) if live.path else None,
        samples,
        [s for s in samples if s.turn_id in kept_out],
        prompts(store, kept_out),
        max_tokens=settings.generation.max_tokens,
        seed=run.seed,
        count=gate_answers(recipe_from(run.recipe)) if run.recipe else ANSWERS,
        tell=on_progress or (lambda _: None),
        witness=witnessed,
        systems=(version.prompt, live.prompt),
        folded=not version.prompt and bool(live.prompt) and prompted.folds(run.recipe) == live.prompt,
    )
    evidence = replace(evidence, compared=compared)
    fresh = store.count_fresh()
    looks = looks_of(version, fresh)
    # What was decided about stays decided: only a candidate can wait, and none does for one that is judged by the way.
    decision = decide(evidence, settings.gate, looks if version.status == "candidate" else MOST_LOOKS)
    report = Report(
        number,
        live.number,
        decision.accepted,
        decision.probability,
        decision.reasons,
        evidence,
        opinions[0] if opinions else None,
        looks,
        fresh + decision.asks if decision.asks else 0,
    )
    if decision.asks and not evidence.folded:
        for both in drawn:
            human_eval.put(store, version, live, looks, decision.asks, *both)
    store.set_report(number, report.to_dict())
    return report


def looks_of(version: Version, fresh: int) -> int:
    """How often a version has been judged, this time included. A look is used up once the ratings have come that the last one asked for: a gate that is
    asked again before does not count."""
    if version.report is None or "evidence" not in version.report:
        return 1
    previous = Report.from_dict(version.report)
    return previous.looks + (0 < previous.again_at <= fresh)


def unseen(store: Store, samples: Sequence[Sample], run: Run, live: Version) -> set[int]:
    """Turns whose ratings neither the candidate nor the live version has learned from: kept for the gate, or rated since."""
    learned = set(run.train_ids)
    if live.run_id is not None:
        learned |= set(store.run(live.run_id).train_ids)
    said = store.feedback(active=False, ids=learned)
    return {s.turn_id for s in samples} - {turn for f in said for turn in (f.turn_id, f.other_turn_id)}


def witness(home: Home, opinions: list[Opinion]) -> Witness | None:
    """Puts the reward model's opinion into the list; None where there is no reward model, or none that can be used."""
    from clawback.engine.reading import Reader
    from clawback.errors import ClawbackError
    from clawback.records import Turn
    from clawback.rewards import files

    try:
        model, card = files.load(
            home.reward, lambda s: Reader(s.base, revision=s.revision, max_length=s.max_length)
        )
    except (
        ClawbackError
    ):  # information alone: a gate must not fail over it; `clawback reward eval` says what is wrong
        return None

    def look(asked: Any, ours: Any, theirs: Any) -> None:
        questions = [Turn("", tuple(messages), "").prompt for messages in asked]
        means = [
            float(model.score([(q, c.text) for q, c in zip(questions, made, strict=True)]).mean())
            for made in (ours, theirs)
        ]
        opinions.append(Opinion(card.name, *means))

    return look


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


def prompts(store: Store, kept_out: set[int]) -> list[tuple[Message, ...]]:
    """The person's own newest conversations up to their question; those of held-back turns come first."""
    turns = [
        t for t in store.turns(limit=MOST_PROMPTS) if t.kind == "main" and t.messages and t.agent != GATE
    ]
    turns.sort(key=lambda t: t.id not in kept_out)
    return [t.messages for t in turns]
