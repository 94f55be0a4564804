"""What the gate found about a version, for adapters and prompts alike."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields, replace
from typing import TYPE_CHECKING, Any

from clawback.gate import questions
from clawback.gate.guards import AnswerStatistics, RuleObedience
from clawback.gate.rule import Decision, Evidence, decide, error_left, most_questions
from clawback.records import JsonObject, with_keys

if TYPE_CHECKING:
    from clawback.config import GateSection, TrialSection
    from clawback.paths import Home
    from clawback.records import Turn, Version
    from clawback.store import Store

EARLIER = {"read_p": 1.0, "better": 0.5}
"""What reports from before this was measured have in its place."""
ANSWERERS = ("candidate", "live", "base", "enjoyed")
"""Those whose answers are in the evidence."""


@dataclass(frozen=True, slots=True)
class ReaderOpinion:
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
    reward_model: ReaderOpinion | None = None
    looks: int = 1
    """How often it has been judged."""
    again_at: int = 0
    """Answers to the gate's questions at which it is judged again (``Store.count_gate_answers``); 0: it is decided."""
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
        lines = [
            f"{self.verdict.capitalize()}: {self.reasons[0]}.",
            *(f"- {reason}" for reason in self.reasons[1:]),
        ]
        if not (e.candidate.length or e.live.length or e.base.length):
            return "\n".join([*lines, "No answers were drawn for it."])
        shown = {"candidate": e.candidate, "live": e.live, "base": e.base, "liked": e.enjoyed}
        columns = {name: of for name, of in shown.items() if of is not None}
        table = 28 * " " + "".join(f"{name:>10}" for name in columns)
        for label, name, form in (
            ("answers that end", "finished", "{:.0%}"),
            ("… with a whole ending", "complete", "{:.0%}"),
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
        lines += [
            table,
            f"  drift from the base {e.kl:.1f} nats per answer, perplexity of the base's text × {e.perplexity_ratio:.2f}",
        ]
        if self.reward_model:
            lines.append(f"  {self.reward_model}")
        return "\n".join(lines)

    def to_dict(self) -> JsonObject:
        evidence = with_keys(asdict(self.evidence), {"unlearned": "kept"})
        evidence |= {name: of.to_dict() for name in ANSWERERS if (of := getattr(self.evidence, name))}
        return asdict(self) | {"evidence": evidence}

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Report:
        known = {one.name for one in fields(Evidence)}
        stored = with_keys(data["evidence"], {"kept": "unlearned"})
        evidence = EARLIER | {name: value for name, value in stored.items() if name in known}
        for name in ANSWERERS:
            if evidence.get(name):
                evidence[name] = AnswerStatistics(**with_keys(evidence[name], {"whole": "complete"}))
        for name in ("liked", "disliked"):
            evidence[name] = tuple(evidence[name])
        # Earlier reports counted ties apart: where among the answers they came is not known.
        ties = data["evidence"].get("ties", 0)
        evidence["answers"] = (*evidence.get("answers", ()), *[None] * ties)
        evidence["rules"] = tuple(RuleObedience(**one) for one in evidence.get("rules", ()))
        opinion = data.get("reward_model")
        return cls(
            **(
                dict(data)
                | {
                    "evidence": Evidence(**evidence),
                    "reasons": tuple(data["reasons"]),
                    "reward_model": ReaderOpinion(**opinion) if opinion else None,
                }
            )
        )


def report_of(
    store: Store,
    version: Version,
    live: Version,
    evidence: Evidence,
    settings: GateSection,
    opinion: ReaderOpinion | None = None,
) -> tuple[Report, Decision]:
    """The rule's decision about a version, as a report that is not kept yet. Only a candidate can wait: what was decided about stays decided."""
    decision = decide(evidence, settings, may_ask=version.status == "candidate")
    looks = version.report.get("looks", 1) if version.report and "evidence" in version.report else 0
    again_at = store.count_gate_answers(version.number) + decision.asks if decision.asks else 0
    report = Report(
        version.number,
        live.number,
        decision.accepted,
        decision.probability,
        decision.reasons,
        evidence,
        opinion,
        looks + 1,
        again_at,
    )
    return report, decision


def answered(store: Store, version: Version, settings: GateSection) -> Report | None:
    """The report anew, from the answers to the questions that were put; the measurements stand as they are, and no model is loaded.

    None where nothing was put, or another version is live than the one it was compared with: then it has to be measured.
    """
    if version.report is None or "evidence" not in version.report:
        return None
    previous, live = Report.from_dict(version.report), store.live()
    if previous.against != live.number or not questions.pairs(store, version.number, live.number):
        return None
    pair = version.number, live.number
    evidence = replace(previous.evidence, answers=questions.answers(store, *pair))
    report, _ = report_of(store, version, live, evidence, settings, previous.reward_model)
    store.set_report(version.number, report.to_dict())
    return report


def open_questions(store: Store, settings: GateSection) -> list[tuple[Turn, Turn]]:
    """The pairs of answers that still have to be compared for the gate to decide, in the order of asking. None is left where the answers decide already."""
    found: list[tuple[Turn, Turn]] = []
    for waiting in (store.waiting(), store.waiting(prompts=True)):
        if waiting is None:
            continue
        version, live = store.version(waiting[0]), store.live()
        if version.report is None or "evidence" not in version.report:
            continue
        evidence = Report.from_dict(version.report).evidence
        pairs = questions.pairs(store, version.number, live.number)
        answers = questions.answers(store, version.number, live.number)
        most = most_questions(evidence, settings)
        if questions.verdict(error_left(evidence, 1 - settings.confidence), most, answers):
            continue
        unanswered = [pair for pair in pairs if not questions.is_settled(store, *pair)]
        found += unanswered[: most - len(answers)]
    return found


def settle(store: Store, home: Home, report: Report, tried: TrialSection | None = None) -> Version:
    """Do as the report says: live, rejected, or still a candidate that waits for answers or for the person's yes: to its new sentences, to an adapter that was adopted. ``tried``: with a
    share above 0 what is accepted answers that share of the sessions first."""
    from clawback.release import prompted, version_registry

    version = store.version(report.version)
    if version.status != "candidate":
        return version
    if report.accepted:
        if prompted.unseen(store, version) or version_registry.FOREIGN in version.origin:
            return version
        if tried is not None and tried.share > 0 and _tries(store, version, tried):
            return version
        return version_registry.promote(store, home, version.number)
    if not report.again_at:
        store.reject(version.number)
    return store.version(version.number)


def _tries(store: Store, version: Version, tried: TrialSection) -> bool:
    """Whether a trial of the version has begun: one at a time."""
    from clawback.release import trial

    if trial.running(store) is not None:
        return False
    trial.begin(store, version.number, tried.share, tried.alpha, time.time())
    return True
