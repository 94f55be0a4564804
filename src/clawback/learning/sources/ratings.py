"""Training on the ratings themselves: recorded answers and their feedback become examples, in the order given.

Nothing of another model's answer is made likelier unless the person named that model (``learning/authorship.py``): liked answers
are left out, and disliked ones have no positive advantage.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from clawback.errors import TrainingError
from clawback.learning.authorship import NONE_LEFT, may_learn
from clawback.learning.examples import Plan, RatingSource, TrainingExample
from clawback.learning.sources.epochs import Rounds, Valued
from clawback.models import Encoded
from clawback.records import BETTER
from clawback.rl import algorithms, curriculum

if TYPE_CHECKING:
    from clawback.learning.run import TrainingRun
    from clawback.policy import Policy
    from clawback.records import Sample
    from clawback.rl.algorithms import Algorithm


def from_ratings(run: TrainingRun, algorithm: Algorithm) -> Plan:
    """A run on the ratings themselves: advantages once, in the order given, and log-probs of the start once.

    ``old`` is what was recorded when the answer was sampled, where it was; else the policy as it is now.

    Raises:
        TrainingError: nothing among the samples is of the kind that the algorithm learns from.
    """
    policy, wants = run.policy, algorithms.needs(algorithm)
    allowed = _allowed(run, wants)
    samples = _usable(allowed, wants, algorithm.name)
    foreign = [not may_learn(sample, policy.info.base, run.recipe.learn_from) for sample in samples]
    encoded = [policy.encode(sample) for sample in samples]
    rewards = torch.tensor([sample.reward for sample in samples], dtype=torch.float32)
    advantages, baseline = algorithm.advantages(rewards, _groups(encoded), run.baseline)
    advantages = torch.where(torch.tensor(foreign), advantages.clamp(max=0.0), advantages)
    with torch.no_grad():
        with policy.base():
            ref = policy.scorer(encoded).split()
        # A fresh adapter changes nothing, so its policy is the base: no need to ask twice.
        start = policy.scorer(encoded).split() if policy.moved else ref
    examples = [
        TrainingExample(
            one,
            float(a),
            _recorded(sample, s, one.thought),
            r,
            sample.reward,
            mask=_mask(sample, s, one.thought),
        )
        for one, a, sample, s, r in zip(encoded, advantages, samples, start, ref, strict=True)
    ]
    if "teacher" in wants:
        from clawback.learning.sources.teacher import taught

        examples = taught(policy, examples, samples, int(getattr(algorithm, "top_k", 0)))
    if "mismatched" in wants:
        examples = _mismatched(policy, examples)
    return Plan(
        algorithm,
        _dealt(run, samples, examples, algorithm),
        algorithm.name,
        _left_out(run, allowed),
        baseline,
    )


def _allowed(run: TrainingRun, wants: frozenset[str]) -> list[Sample]:
    """The samples without what would make another model's answer likelier. Raises ``TrainingError`` where nothing liked is left.

    An algorithm with a critic gives advantages of its own, which may be positive for any answer, so it is given no such answer at all.
    """
    base, learn_from = run.policy.info.base, run.recipe.learn_from

    def is_allowed(sample: Sample) -> bool:
        return (sample.reward <= 0 and "values" not in wants) or may_learn(sample, base, learn_from)

    barred = [sample for sample in run.samples if not is_allowed(sample)]
    allowed = [sample for sample in run.samples if is_allowed(sample)]
    by_words = bool({"hints", "teacher"} & wants)
    if barred and not any(sample.reward > 0 or (by_words and sample.hints) for sample in allowed):
        # A run would only push answers down, and what is said in their place nobody has rated.
        raise TrainingError(NONE_LEFT)
    texts = {(sample.turn_id, f"{BETTER}\n{sample.response.strip()}") for sample in barred if sample.edited}
    return [_without_hints(sample, texts) for sample in allowed] if texts else allowed


def _without_hints(sample: Sample, texts: set[tuple[int, str]]) -> Sample:
    """The sample without the edits that must not be learned: a teacher that reads one says the same."""
    hints = tuple(hint for hint in sample.hints if (sample.turn_id, hint) not in texts)
    return dataclasses.replace(sample, hints=hints) if len(hints) < len(sample.hints) else sample


def _left_out(run: TrainingRun, allowed: Sequence[Sample]) -> str:
    """What a note says of samples that were not learned; "" for none."""
    count = len(run.samples) - len(allowed)
    if not count:
        return ""
    liked = sum(sample.reward > 0 for sample in run.samples) - sum(sample.reward > 0 for sample in allowed)
    kind = "liked answers" if liked == count else "answers"
    return f"{count} {kind} of other models left out ([training] learn_from names none of them)"


def _usable(samples: Sequence[Sample], wants: frozenset[str], name: str) -> list[Sample]:
    """Those that the algorithm has a use for."""
    if "hints" in wants:
        kept, missing = [sample for sample in samples if sample.hints], "critiques or edits"
    elif "teacher" in wants:
        kept, missing = [s for s in samples if s.hints or s.rated], "ratings, critiques or edits"
    else:
        kept, missing = [sample for sample in samples if sample.rated], "ratings"
    if not kept:
        raise TrainingError(f"There is nothing for {name} to learn from: it needs {missing}.")
    return kept


def _dealt(
    run: TrainingRun, samples: Sequence[Sample], examples: list[TrainingExample], algorithm: Algorithm
) -> RatingSource:
    """The source that hands the examples out, in the units that the algorithm wants."""
    policy, recipe, wants, each = run.policy, run.recipe, algorithms.needs(algorithm), 1
    units = [[example] for example in examples]
    if "pairs" in wants:
        from clawback.learning.sources.targets import find_pairs

        pairs, each = find_pairs(samples, [example.encoded for example in examples]), 2
        base, learn_from = policy.info.base, recipe.learn_from
        pairs = [pair for pair in pairs if may_learn(samples[pair[0]], base, learn_from)]
        if not pairs:
            raise TrainingError(
                f"There is nothing for {algorithm.name} to learn from: it needs pairs (`clawback prefer`, `clawback edit`, or "
                "a good and a bad answer to the same prompt)."
            )
        units = [[dataclasses.replace(examples[i], paired=True) for i in pair] for pair in pairs]
    many, easy = len(units), recipe.curriculum != "off"
    if recipe.curriculum != "off":
        units, many = _easy_first(units, recipe.curriculum), sum(curriculum.sizes(len(units)))
    dealing: dict[str, Any] = {
        "steps": recipe.steps_for(each * many),
        "per_step": max(1, recipe.batch * recipe.accumulation // each),
        "seed": run.seed,
        "easy": easy,
    }
    if "values" in wants:
        return Valued(policy, algorithm, [example for [example] in units], **dealing)
    if "proximal" in wants:
        return Rounds(policy, [example for [example] in units], **dealing)
    return RatingSource(units, **dealing)


def _easy_first(units: Sequence[list[TrainingExample]], by: curriculum.By) -> list[list[TrainingExample]]:
    """In order of difficulty; a pair is as clear as its two are on average, and as long as both."""
    clear = [sum(abs(example.reward) for example in unit) / len(unit) for unit in units]
    lengths = [sum(example.counted for example in unit) for unit in units]
    return [units[place] for place in curriculum.easy_first(clear, lengths, by)]


@torch.no_grad()
def _mismatched(policy: Policy, examples: list[TrainingExample]) -> list[TrainingExample]:
    """Each prompt with the next one's answer, and what the base makes of it."""
    others = examples[1:] + examples[:1]
    odd = [
        dataclasses.replace(e.encoded, response=o.encoded.response)
        for e, o in zip(examples, others, strict=True)
    ]
    with policy.base():
        ref = [float(values.sum()) for values in policy.scorer(odd).split()]
    return [
        dataclasses.replace(example, mismatched=one, mismatched_ref=value)
        for example, one, value in zip(examples, odd, ref, strict=True)
    ]


def _mask(sample: Sample, values: Tensor, thought: int = 0) -> Tensor | None:
    """Which of the response tokens that are left the policy wrote; None for all."""
    if sample.response_mask is None or sample.response_ids is None or all(sample.response_mask):
        return None
    return torch.tensor(sample.response_mask[thought : thought + len(values)], dtype=torch.bool)


def _recorded(sample: Sample, otherwise: Tensor, thought: int = 0) -> Tensor:
    """The log-probs that were recorded with the tokens, where they are whole and sane."""
    recorded = sample.response_logprobs
    if recorded is None or sample.response_ids is None or len(recorded) - thought < len(otherwise):
        return otherwise
    recorded = recorded[thought:]
    if not all(math.isfinite(value) and value <= 0 for value in recorded):
        return otherwise
    return torch.tensor(recorded[: len(otherwise)], dtype=torch.float32, device=otherwise.device)


def _groups(encoded: Sequence[Encoded]) -> Tensor:
    """[S] int64: answers to the same prompt share a number."""
    numbers: dict[tuple[tuple[int, ...], str], int] = {}
    asked = [(one.question, one.pixels.digest if one.pixels else "") for one in encoded]
    return torch.tensor([numbers.setdefault(key, len(numbers)) for key in asked], dtype=torch.int64)
