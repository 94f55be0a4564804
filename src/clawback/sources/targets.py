"""Feedback that is learned as it is, and who has to have written an answer for that.

Who wrote an answer, and whether it may be learned as it is.

A policy may learn its own answers and a person's edits. Answers of another model are learned only where the person
named that model in ``[training] learn_from``: the terms of many vendors forbid it, and only the person knows theirs.
Ratings of such answers are read in any case: that an answer was liked says what the person likes. And that one was
disliked may be learned, for this makes nothing of it likelier.

``may_learn`` decides, for every source of examples (``tests/engine/test_authorship.py`` lists them).

Feedback that is learned as it is: demonstrations and comparisons, which nobody has to read anything from.

A *demonstration* is an answer that should have been given: a person's edit, or a liked answer of another model where the
person allows to learn it. A *comparison* is two answers to one prompt of which one is better: a preference, or a liked and
a disliked answer. Both become targets of RPO (``rl/algorithms/rpo.py``): the better answer's likelihood, if it is a
demonstration or liked, and the pair.

A pair shows where its two answers part. Tokens that both begin with cancel out in the loss, so the worse answer counts up to
some tokens beyond the first difference.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING

from clawback.records import OWN_MODELS, Sample
from clawback.templates import Encoded

if TYPE_CHECKING:
    from clawback.policy import Policy
    from clawback.sources.graded import Grading


NONE_LEFT = (
    "All liked answers are of other models, and `[training] learn_from` names none of these. `clawback edit` shows what an answer should have "
    "been; `clawback config set training.learn_from '[\"NAME\"]'` allows a model whose terms you have read."
)


def is_foreign(sample: Sample, base: str) -> bool:
    """Whether another model than ``base`` and its versions wrote the response. An answer of an unknown model is not foreign, and an edit is a
    person's unless it names a model."""
    return sample.version is None and is_other(sample.model, base)


def is_other(model: str, base: str) -> bool:
    """Whether the name is that of another model than ``base`` and its versions; "" is not."""
    name = model.lower()
    if not name or name in OWN_MODELS or name.startswith("clawback/"):
        return False
    return _short(model) != _short(base)


def may_learn(sample: Sample, base: str, learn_from: Sequence[str]) -> bool:
    """Whether the response may be a target: the policy's own, a person's, or of a model that the person named."""
    return not is_foreign(sample, base) or is_named(sample.model, learn_from)


def barred_models(samples: Sequence[Sample], base: str, learn_from: Sequence[str]) -> list[str]:
    """Names of the models of which liked answers may not be learned."""
    return sorted({one.model for one in samples if one.reward > 0 and not may_learn(one, base, learn_from)})


def is_named(model: str, learn_from: Sequence[str]) -> bool:
    """Whether one of the patterns names the model, with or without its owner (``openai/gpt-4o`` or ``gpt-4o``)."""
    names = {model.lower(), _short(model)}
    return bool(model) and any(fnmatchcase(name, one.lower()) for name in names for one in learn_from)


def _short(name: str) -> str:
    """A model's name without the program that has it (``ollama:``), its owner or folder, and without what Ollama puts after a colon."""
    name = name.removeprefix("ollama:").removeprefix("lmstudio:")
    return name.rstrip("/").rsplit("/", 1)[-1].split(":")[0].lower()


@dataclass(frozen=True, slots=True)
class AnswerTarget:
    """A better answer, and a worse one to the same prompt if there is one."""

    better: Encoded
    worse: Encoded | None = None
    likelihood: float = 1.0
    """Weight of the better answer's own likelihood; 0: only the pair is learned."""


@dataclass(frozen=True, slots=True)
class DirectEvidence:
    """What samples show directly. ``edits`` and ``comparisons`` are targets in any run; of liked answers of other models a reader may choose."""

    edits: tuple[AnswerTarget, ...] = ()
    comparisons: tuple[AnswerTarget, ...] = ()
    answers: tuple[Encoded, ...] = ()
    """Liked answers of other models that may be learned."""

    @property
    def targets(self) -> tuple[AnswerTarget, ...]:
        """Those that no reader has to choose from."""
        return self.edits + self.comparisons

    @property
    def note(self) -> str:
        """What a plan's note adds for them; "" where no target is there."""
        return f"; beside them {self}" if self.targets else ""

    def __bool__(self) -> bool:
        return bool(self.targets or self.answers)

    def __str__(self) -> str:
        counts = (("edit", len(self.edits)), ("comparison", len(self.comparisons)))
        texts = [f"{count} {name}{'s' * (count > 1)}" for name, count in counts if count]
        if self.answers:
            texts.append(f"{len(self.answers)} liked answer{'s' * (len(self.answers) > 1)} of other models")
        return ", ".join(texts)


def evidence(samples: Sequence[Sample], policy: Policy, learn_from: Sequence[str]) -> DirectEvidence:
    """The demonstrations and comparisons among samples. Cut answers, and those that call tools, are never the better one."""
    base, encoded = policy.info.base, [policy.encode(sample) for sample in samples]
    liked = _liked(samples)

    def usable(index: int) -> bool:
        sample, one = samples[index], encoded[index]
        complete = bool(sample.response.strip()) and not (sample.cut or sample.has_calls or one.pixels)
        return complete and may_learn(sample, base, learn_from)

    edits: dict[int, AnswerTarget] = {}
    comparisons: list[AnswerTarget] = []
    raised: set[int] = set()
    for better, worse in find_pairs(samples, encoded):
        if not usable(better) or encoded[worse].pixels:
            continue
        target = AnswerTarget(encoded[better], encoded[worse])
        if samples[better].edited:
            edits.setdefault(better, target)
            continue
        weight = float(better in liked and better not in raised)
        raised.add(better)
        comparisons.append(replace(target, likelihood=weight))
    answers = []
    for place, sample in enumerate(samples):
        if not usable(place):
            continue
        if sample.edited:
            edits.setdefault(place, AnswerTarget(encoded[place]))
        elif place in liked and is_foreign(sample, base):
            answers.append(encoded[place])
    return DirectEvidence(tuple(edits[place] for place in sorted(edits)), tuple(comparisons), tuple(answers))


def room_for(policy: Policy, samples: Sequence[Sample], encoded: Sequence[Encoded]) -> tuple[int, bool]:
    """Tokens that a fresh answer may have, and whether that follows from answers of the policy itself or its like. What another model wrote may be many
    times as long."""
    pairs = zip(samples, encoded, strict=True)
    own = [one.response for sample, one in pairs if not is_foreign(sample, policy.info.base)]
    return policy.room(own or [one.response for one in encoded]), bool(own)


def _liked(samples: Sequence[Sample]) -> set[int]:
    """Places of the answers that somebody rated good. What a late rating credits to the turns before it is no opinion of them."""
    strongest: dict[int, float] = {}
    for sample in samples:
        for part in sample.parts:
            strongest[part.feedback_id] = max(strongest.get(part.feedback_id, 0.0), abs(part.value))
    return {
        place
        for place, sample in enumerate(samples)
        if sample.reward > 0
        and any(
            part.kind in ("rating", "reward") and part.value > 0 and part.value >= strongest[part.feedback_id]
            for part in sample.parts
        )
    }


def opening(better: Encoded, worse: Encoded, tokens: int) -> Encoded | None:
    """The worse answer up to ``tokens`` beyond where the two part; None where it is only the beginning of the better one."""
    shared = 0
    for left, right in zip(better.response, worse.response, strict=False):
        if left != right:
            break
        shared += 1
    if worse.question == better.question and shared == len(worse.response):
        return None
    first = shared if worse.question == better.question else 0
    return replace(worse, response=worse.response[: first + tokens])


def with_worse(grading: Grading, targets: Sequence[AnswerTarget]) -> list[AnswerTarget]:
    """The same, where the base has answered each prompt that no worse answer is known to."""
    known = {one.question: one for one in reversed(grading.base)}
    lacking = [
        one.better.question for one in targets if one.worse is None and one.better.question not in known
    ]
    if lacking:
        with grading.policy.base():
            drawn = grading.draw(list(dict.fromkeys(lacking)), 1, grading.generator(2, 2))
        known |= {one.question: one for one in drawn.answers}
    return [
        one if one.worse is not None else replace(one, worse=known[one.better.question]) for one in targets
    ]


def find_pairs(samples: Sequence[Sample], encoded: Sequence[Encoded]) -> list[tuple[int, int]]:
    """Places of (better, worse), in the order of the samples.

    Two samples are a pair when one piece of feedback speaks for the one and against the other: a preference of its two turns, an edit of
    what was said and what should have been. Besides, each answer that was liked is paired with each one to the same prompt
    that was disliked.
    """
    found: dict[tuple[int, int], None] = {}
    spoken: dict[int, list[tuple[float, int]]] = {}
    for place, sample in enumerate(samples):
        for part in sample.parts:
            spoken.setdefault(part.feedback_id, []).append((part.value, place))
    for said in spoken.values():
        (best, better), (worst, worse) = max(said), min(said)
        if best > 0 > worst:  # the extremes: a share of it may have gone on to turns before
            found[better, worse] = None

    prompts: dict[tuple[int, ...], list[int]] = {}
    for place, one in enumerate(encoded):
        prompts.setdefault(one.prompt, []).append(place)
    for places in prompts.values():
        liked = [p for p in places if samples[p].rated and samples[p].reward > 0]
        disliked = [p for p in places if samples[p].rated and samples[p].reward < 0]
        for better in liked:
            for worse in disliked:
                if (worse, better) not in found:
                    found[better, worse] = None
    return sorted(found)
