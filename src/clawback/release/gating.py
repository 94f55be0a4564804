"""The gate: is this version better than the live one? Measured, decided by a stated rule, and written down."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from clawback import config, feedback
from clawback.errors import UsageError
from clawback.paths import Home
from clawback.release.evidence import OnProgress, Witness, measure
from clawback.release.registry import check
from clawback.release.rule import Evidence, Sampled, decide

if TYPE_CHECKING:
    from clawback.engine.torch.policy import Policy
    from clawback.records import Message, Run
    from clawback.store import Store

MOST_PROMPTS = 256


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

    def summary(self) -> str:
        """One sentence."""
        verb = "accepted" if self.accepted else "rejected"
        return f"version {self.version} {verb}: {self.reasons[0]}"

    def text(self) -> str:
        """The whole report, for a person."""
        e = self.evidence
        rows: list[tuple[str, ...]] = [("", "candidate", "live", "base")]
        for label, name, form in (
            ("answers that end", "finished", "{:.0%}"),
            ("empty answers", "empty", "{:.0%}"),
            ("answers that repeat", "repeating", "{:.0%}"),
            ("tokens an answer", "length", "{:.0f}"),
        ):
            rows.append((label, *(form.format(getattr(s, name)) for s in (e.candidate, e.live, e.base))))
        table = "\n".join(f"  {row[0]:<22}{row[1]:>10}{row[2]:>8}{row[3]:>8}" for row in rows)
        verb = "Accepted" if self.accepted else "Rejected"
        lines = [f"{verb}: {self.reasons[0]}.", *(f"- {reason}" for reason in self.reasons[1:]), table]
        lines.append(
            f"  drift from the base {e.kl:.1f} nats an answer, perplexity of its text × {e.perplexity_ratio:.2f}"
        )
        if self.reward_model:
            lines.append(f"  {self.reward_model}")
        return "\n".join(lines)

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Report:
        evidence = dict(data["evidence"])
        for name in ("candidate", "live", "base"):
            evidence[name] = Sampled(**evidence[name])
        for name in ("liked", "disliked"):
            evidence[name] = tuple(evidence[name])
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
        raise UsageError(f"There is nothing to judge version {number} by: nobody's ratings stand.")
    kept_out = {f.turn_id for f in store.feedback() if f.id in set(run.held_out_ids)}
    opinions: list[Opinion] = []
    evidence = measure(
        policy or base_of(run, settings),
        Path(version.path),
        Path(live.path) if live.path else None,
        samples,
        [s for s in samples if s.turn_id in kept_out],
        prompts(store, kept_out),
        temperature=settings.generation.temperature,
        max_tokens=settings.generation.max_tokens,
        seed=run.seed,
        tell=on_progress or (lambda _: None),
        witness=_witness(home, opinions),
    )
    decision = decide(evidence, settings.gate)
    report = Report(
        number, live.number, decision.accepted, decision.probability, decision.reasons, evidence, *opinions
    )
    store.set_report(number, report.to_dict())
    return report


def _witness(home: Home, opinions: list[Opinion]) -> Witness | None:
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


def base_of(run: Run, settings: config.Config) -> Policy:
    from clawback import engine

    model = settings.model
    return engine.load(run.base, revision=model.revision, dtype=model.dtype, load_in_4bit=model.load_in_4bit)


def prompts(store: Store, kept_out: set[int]) -> list[tuple[Message, ...]]:
    """The person's own newest conversations up to their question; those of held-back turns come first."""
    turns = [t for t in store.turns(limit=MOST_PROMPTS) if t.kind == "main" and t.messages]
    turns.sort(key=lambda t: t.id not in kept_out)
    return [t.messages for t in turns]
