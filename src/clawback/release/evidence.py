"""What the gate measures: one set of base weights in memory, the adapters put on it in turn."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from clawback.records import Message, Sample, Turn
from clawback.release.rule import NORMAL, Evidence, Sampled

if TYPE_CHECKING:
    # Rolling back and asking what is wrong must work without what training needs: nothing heavy is imported here.
    from clawback.engine.torch.models.policy import Policy
    from clawback.engine.types import Completion
    from clawback.rewards.features import Features, Floats
    from clawback.rewards.reward_head import Head
    from clawback.rewards.rule_posterior import Bools, RulePosterior

ANSWERS = 96
"""Fresh answers from each version, unless the run was sized to less."""
LEAST_WHOLE = 8
"""Of fewer answers that ended nothing is told."""
MOST_LIKED = 48
"""Of the answers that were rated good, the newest are looked at;"""
FEWEST_LIKED = 4
"""and none where there are fewer: wrong taps are among them."""

OnProgress = Callable[[Mapping[str, Any]], None]
Conversation = Sequence[Message]
Witness = Callable[[Sequence[Conversation], "Sequence[Completion]", "Sequence[Completion]"], None]
"""(prompts, the candidate's answers, the live version's)."""


@dataclass(frozen=True, slots=True)
class Answers:
    """One version's fresh answers, and what the base model makes of them."""

    completions: list[Completion]
    hidden: Floats  # [answers, hidden + 1] pooled states of the base
    base: list[float]
    """log π_base of each answer, summed over its tokens."""
    kl: float
    """Σ log π - log π_base over an answer's tokens, mean over answers."""


def measure(
    policy: Policy,
    candidate: Path | None,
    live: Path | None,
    samples: Sequence[Sample],
    held: Sequence[Sample],
    prompts: Sequence[Conversation],
    *,
    max_tokens: int | None,
    seed: int,
    count: int = ANSWERS,
    tell: OnProgress = lambda _: None,
    witness: Witness | None = None,
    systems: tuple[str, str] = ("", ""),
    folded: bool = False,
) -> Evidence:
    """Compare two versions.

    The head that grades fresh answers is fitted on *all* ratings, those kept out of training included: it knows more than
    what the candidate was trained on, but it shares most of it. What is wholly independent of training is the shift on the
    held-back turns.

    Args:
        policy: the base model, or a policy on it; it is left with the candidate's adapter.
        candidate: the candidate's PEFT folder; that of the live version where only its prompt is another.
        live: that of the live version; None is the base model.
        samples: all rated samples, the held-back ones among them.
        held: those kept out of training.
        prompts: conversations to answer; they are repeated up to ``count``.
        max_tokens: longest answer that is drawn; None goes by the rated ones (``Policy.room``).
        witness: shown the prompts and both versions' answers. What it makes of them is no evidence.
        systems: the learned prompts that the candidate and the live version answer under. The base answers under the candidate's, and so does
            whatever compares: a prompt that was folded into the weights is to be needed no more.
        folded: the candidate is to do without a prompt what the live version does with it. It is compared with the middle between the live version's
            answers and the base's: to be better than that is to have kept more than half of what the prompt gives.
    """
    from clawback.rewards.features import Features

    asked = [prompts[i % len(prompts)] for i in range(count)]
    ids = [policy.encode(s).response for s in samples]
    limits = {"max_tokens": max_tokens or policy.room(ids), "seed": seed}

    tell({"phase": "gate", "step": 0, "steps": 4})
    policy.put(live)
    with speaking(policy, *systems):
        ours_before = answers(policy, asked, limits)
        held_before = per_token(policy, held)
    if systems[0] != systems[1]:
        seen = hidden(policy, asked, [list(c.ids) for c in ours_before.completions])
        ours_before = replace(ours_before, hidden=seen)
    tell({"phase": "gate", "step": 1, "steps": 4})
    if (candidate == live and not folded) or (live is None and systems[0] == systems[1]):
        from_base = ours_before.completions
    else:
        policy.put(None)
        from_base = [made for [made] in policy.generate(asked, **limits)]  # type: ignore[arg-type]
    base_logs = totals(policy, asked, from_base, base=True)
    prompt_kl = 0.0
    if folded:
        alone = totals(policy, asked, ours_before.completions, base=True)
        told = [sum(one.logprobs) for one in ours_before.completions]
        prompt_kl = sum(a - b for a, b in zip(told, alone, strict=True)) / len(asked)
    tell({"phase": "gate", "step": 2, "steps": 4})
    policy.put(candidate)
    ours = answers(policy, asked, limits)
    shifts = [after - before for after, before in zip(per_token(policy, held), held_before, strict=True)]
    neutral = totals(policy, asked, from_base)
    tell({"phase": "gate", "step": 3, "steps": 4})

    if witness is not None:
        witness(asked, ours.completions, ours_before.completions)
    # The same features that training looks through, ground anew on the base's answers of today.
    ended = whole(from_base)
    ground = ended if len(ended) >= LEAST_WHOLE else list(range(len(from_base)))
    from_base_ground = [from_base[i] for i in ground]
    ground_hidden = hidden(policy, [asked[i] for i in ground], [c.ids for c in from_base_ground])
    features = Features.ground(
        [c.answer_ids for c in from_base_ground], ground_hidden, [c.text for c in from_base_ground]
    )
    head = grade(policy, samples, ids, features)
    both = whole(ours.completions, ours_before.completions)
    pairs = [([a.completions[i] for i in both], a.hidden[both]) for a in (ours, ours_before)]
    if folded:
        pairs[1] = halfway(*pairs[1], from_base_ground, ground_hidden)
    says, share = agreed(samples, ids, features, from_base_ground, pairs[0][0], pairs[1][0])
    gain, variance = 0.0, 1.0  # nothing can be told apart
    if len(both) >= LEAST_WHOLE:
        looks = (features([c.answer_ids for c in made], seen, [c.text for c in made]) for made, seen in pairs)
        gain, variance = head.contrast(*looks)
    tokens = sum(len(c.ids) for c in from_base)
    base = sampled(policy, asked, from_base, base_logs)
    return Evidence(
        good=sum(s.reward > 0 for s in samples),
        bad=sum(s.reward < 0 for s in samples),
        liked=tuple(d for d, s in zip(shifts, held, strict=True) if s.reward > 0),
        disliked=tuple(d for d, s in zip(shifts, held, strict=True) if s.reward < 0),
        head_p=head.trust.p,
        head_correlation=head.trust.correlation,
        gain=gain,
        gain_sd=math.sqrt(variance),
        kl=ours.kl,
        perplexity_ratio=math.exp(min((sum(base_logs) - sum(neutral)) / max(tokens, 1), 50.0)),
        candidate=sampled(policy, asked, ours.completions, ours.base),
        live=base if live is None else sampled(policy, asked, ours_before.completions, ours_before.base),
        base=base,
        says=says,
        agreed=share,
        enjoyed=enjoyed(policy, samples),
        folded=folded,
        prompt_kl=prompt_kl,
    )


def halfway(
    live: list[Completion], live_hidden: Floats, base: Sequence[Completion], base_hidden: Floats
) -> tuple[list[Completion], Floats]:
    """The live version's answers and as many of the base's: their mean is half way between the two. With fewer of the base's it lies nearer to the
    live version, which asks for more."""
    import numpy as np

    some = min(len(live), len(base))
    return [*live, *base[:some]], np.concatenate([live_hidden, base_hidden[:some]])


@contextmanager
def speaking(policy: Policy, usual: str, system: str) -> Iterator[None]:
    """Under another learned prompt for a while."""
    if system == usual:
        yield
        return
    policy.chat.system = system
    try:
        yield
    finally:
        policy.chat.system = usual


def whole(*groups: Sequence[Completion]) -> list[int]:
    """Places at which the answers of all groups ended.

    What is compared are these alone. Ratings are of whole answers, so what is wanted of an answer's length or its end is not there to be
    seen in one that was cut off. Cutting both of a pair alike would hide it in both: a version that learned to be short
    would be shown as long as the other. How many were cut off is measured for itself, and guarded (``Sampled.finished``).
    """
    return [i for i, made in enumerate(zip(*groups, strict=True)) if all(one.finished for one in made)]


def answers(policy: Policy, asked: Sequence[Conversation], limits: dict[str, Any]) -> Answers:
    made = [c for [c] in policy.generate(asked, **limits)]
    ids = [list(c.ids) for c in made]
    base = totals(policy, asked, made, base=True)
    # Of its own answers a version's log-probs were recorded when they were drawn.
    kl = sum(sum(one.logprobs) - total for one, total in zip(made, base, strict=True)) / len(made)
    return Answers(made, hidden(policy, asked, ids), base, kl)


def hidden(policy: Policy, asked: Sequence[Conversation], ids: Sequence[Sequence[int]]) -> Floats:
    return policy.features(asked, [list(i) for i in ids]).double().numpy()


def totals(
    policy: Policy, asked: Sequence[Conversation], made: Sequence[Completion], base: bool = False
) -> list[float]:
    """Log-probability of each answer, summed over its tokens."""
    ids = [list(c.ids) for c in made]
    if base:
        with policy.base():
            values = policy.logprobs(asked, ids)
    else:
        values = policy.logprobs(asked, ids)
    return [float(v.sum()) for v in values]


def per_token(policy: Policy, samples: Sequence[Sample]) -> list[float]:
    """Mean log-probability of a response token of each sample."""
    import torch

    if not samples:
        return []
    with torch.no_grad():
        values = policy.scorer([policy.encode(s) for s in samples]).split()
    return [float(v.mean()) if len(v) else 0.0 for v in values]


def grade(
    policy: Policy, samples: Sequence[Sample], ids: Sequence[Sequence[int]], features: Features
) -> Head:
    """The gate's own head, on all ratings."""
    from clawback.engine.torch.sources.graded import GradingSettings
    from clawback.rewards import reward_head

    looks = features(ids, hidden(policy, [s.messages for s in samples], ids), [s.response for s in samples])
    return reward_head.fit(looks, [s.reward for s in samples], ridge=GradingSettings().ridge, spread=1.0)


def agreed(
    samples: Sequence[Sample],
    ids: Sequence[Sequence[int]],
    features: Features,
    base: Sequence[Completion],
    ours: Sequence[Completion],
    before: Sequence[Completion],
) -> tuple[float, float]:
    """How much more likely the ratings are if they are about something that is seen in answers, h, than if they are not (the logarithm); and
    the share of h, by how likely each is after all ratings, that more of our answers meet than before."""
    from clawback.rewards import rule_posterior

    def signs(made: Sequence[Completion]) -> Any:
        return features.signs([c.answer_ids for c in made], [c.text for c in made])

    rated = features.signs(ids, [s.response for s in samples])
    space = rule_posterior.Space.of(signs(base), features.manners)
    if not len(space.literals):
        return 0.0, 0.5  # the base says everything in one way: nothing can be told apart
    rewards = [s.reward for s in samples]
    says = rule_posterior.evidence(space, rated, rewards)
    if len(ours) < LEAST_WHOLE:
        return says, 0.5
    return says, agreement(rule_posterior.fit(space, rated, rewards), signs(ours), signs(before))


def agreement(taste: RulePosterior, ours: Bools, before: Bools) -> float:
    """Σ_h P(h) Φ(Δ_h / se_h) for answers with the signs ``ours [n, m]`` against those of ``before [n, m]``."""
    import numpy as np

    one, other = taste.met(ours), taste.met(before)
    # Of n answers in which k were met, (k + ½) / (n + 1): none in 96 is no proof of never.
    a, b = ((m.sum(axis=0) + 0.5) / (len(m) + 1) for m in (one, other))
    error = np.sqrt(a * (1 - a) / len(one) + b * (1 - b) / len(other))
    better = [NORMAL.cdf(z) for z in (a - b) / error]
    return float(taste.weights @ np.array(better))


def sampled(
    policy: Policy, asked: Sequence[Conversation], made: Sequence[Completion], base: Sequence[float]
) -> Sampled:
    """How answers are. ``base``: log-prob of each under the base model, given its own prompt."""
    from clawback.rewards import guards

    count = max(len(made), 1)
    tokens = max(sum(len(c.ids) for c in made), 1)
    questions = [Turn("", tuple(messages), "").prompt for messages in asked]
    relevance = None
    if (others := swapped(asked, questions)) is not None:
        elsewhere = totals(policy, others, made, base=True)
        relevance = (sum(base) - sum(elsewhere)) / tokens
    return Sampled(
        finished=sum(c.finished for c in made) / count,
        empty=sum(not c.text.strip() for c in made) / count,
        repeating=sum(guards.repeats(c.text) for c in made) / count,
        length=sum(len(c.answer_ids) for c in made) / count,
        whole=sum(guards.ends_whole(c.text) for c in made) / count,
        copied=sum(guards.copies(q, c.text) for q, c in zip(questions, made, strict=True)) / count,
        canned=guards.canned(questions, [c.text for c in made]),
        logprob=sum(base) / tokens,
        relevance=relevance,
    )


def swapped(asked: Sequence[Conversation], questions: Sequence[str]) -> list[Conversation] | None:
    """Another of the conversations for each, one that asks something else; None where all ask the same."""
    count = len(asked)
    others = []
    for i, question in enumerate(questions):
        # Half way round first: neighbours are often about the same thing.
        places = ((i + count // 2 + step) % count for step in range(count))
        other = next((j for j in places if questions[j] != question), None)
        if other is None:
            return None
        others.append(asked[other])
    return others


def enjoyed(policy: Policy, samples: Sequence[Sample]) -> Sampled | None:
    """The newest answers that were rated good, whoever gave them; None where there are too few."""
    from clawback.engine.types import Completion

    good = [s for s in samples if s.reward > 0 and s.response.strip()][-MOST_LIKED:]
    if len(good) < FEWEST_LIKED:
        return None
    ids = [tuple(policy.encode(s).response) for s in good]
    made = [Completion(s.response, i, (), True) for s, i in zip(good, ids, strict=True)]
    asked = [s.messages for s in good]
    return sampled(policy, asked, made, totals(policy, asked, made, base=True))
