"""What the gate measures: one set of base weights in memory, the adapters put on it in turn."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from clawback.records import Message, Sample
from clawback.release.rule import NORMAL, Evidence, Sampled

if TYPE_CHECKING:
    # Rolling back and asking what is wrong must work without what training needs: nothing heavy is imported here.
    from clawback.engine.torch.policy import Policy
    from clawback.engine.types import Completion
    from clawback.rewards.conjunctions import Bools, Conjunctions
    from clawback.rewards.head import Head
    from clawback.rewards.lens import Floats, Lens

ANSWERS = 96
"""Fresh answers from each version."""

OnProgress = Callable[[Mapping[str, Any]], None]
Conversation = Sequence[Message]
Witness = Callable[[Sequence[Conversation], "Sequence[Completion]", "Sequence[Completion]"], None]
"""(prompts, the candidate's answers, the live version's)."""


@dataclass(frozen=True, slots=True)
class Answers:
    """One version's fresh answers, and what the base model makes of them."""

    completions: list[Completion]
    hidden: Floats  # [answers, hidden + 1] pooled states of the base
    kl: float
    """Σ log π - log π_base over an answer's tokens, mean over answers."""


def measure(
    policy: Policy,
    candidate: Path,
    live: Path | None,
    samples: Sequence[Sample],
    held: Sequence[Sample],
    prompts: Sequence[Conversation],
    *,
    temperature: float,
    max_tokens: int,
    seed: int,
    tell: OnProgress = lambda _: None,
    witness: Witness | None = None,
) -> Evidence:
    """Compare two versions.

    The head that grades fresh answers is fitted on *all* ratings, those kept out of training included: it knows more than
    what the candidate was trained on, but it shares most of it. What is wholly independent of training is the shift on the
    held-back turns.

    Args:
        policy: the base model, or a policy on it; it is left with the candidate's adapter.
        candidate: the candidate's PEFT folder.
        live: that of the live version; None is the base model.
        samples: all rated samples, the held-back ones among them.
        held: those kept out of training.
        prompts: conversations to answer; they are repeated up to ``ANSWERS``.
        witness: shown the prompts and both versions' answers. What it makes of them is no evidence.
    """
    from clawback.rewards.lens import Lens

    asked = [prompts[i % len(prompts)] for i in range(ANSWERS)]
    limits = {"temperature": temperature, "max_tokens": max_tokens, "seed": seed}

    tell({"phase": "gate", "step": 0, "steps": 4})
    policy.put(live)
    ours_before = answers(policy, asked, limits)
    held_before = per_token(policy, held)
    tell({"phase": "gate", "step": 1, "steps": 4})
    if live is None:
        from_base = ours_before.completions
    else:
        policy.put(None)
        from_base = [made for [made] in policy.generate(asked, **limits)]  # type: ignore[arg-type]
    base_logs = totals(policy, asked, from_base, base=True)
    tell({"phase": "gate", "step": 2, "steps": 4})
    policy.put(candidate)
    ours = answers(policy, asked, limits)
    shifts = [after - before for after, before in zip(per_token(policy, held), held_before, strict=True)]
    neutral = totals(policy, asked, from_base)
    tell({"phase": "gate", "step": 3, "steps": 4})

    if witness is not None:
        witness(asked, ours.completions, ours_before.completions)
    # The same lens that training looks through, ground anew on the base's answers of today.
    lens = Lens.ground(
        [c.ids for c in from_base],
        hidden(policy, asked, [c.ids for c in from_base]),
        [c.text for c in from_base],
    )
    ids = [policy.encode(s).response for s in samples]
    head = grade(policy, samples, ids, lens)
    gain, variance = head.contrast(
        *(
            lens([c.ids for c in a.completions], a.hidden, [c.text for c in a.completions])
            for a in (ours, ours_before)
        )
    )
    says, share = agreed(samples, ids, lens, from_base, ours.completions, ours_before.completions)
    tokens = sum(len(c.ids) for c in from_base)
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
        candidate=sampled(ours.completions),
        live=sampled(ours_before.completions),
        base=sampled(from_base),
        says=says,
        agreed=share,
    )


def answers(policy: Policy, asked: Sequence[Conversation], limits: dict[str, Any]) -> Answers:
    made = [c for [c] in policy.generate(asked, **limits)]
    ids = [list(c.ids) for c in made]
    drift = zip(totals(policy, asked, made), totals(policy, asked, made, base=True), strict=True)
    kl = sum(a - b for a, b in drift) / len(made)
    return Answers(made, hidden(policy, asked, ids), kl)


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
    if not samples:
        return []
    values = policy.logprobs([s.messages for s in samples], [s.response_ids or s.response for s in samples])
    return [float(v.mean()) if len(v) else 0.0 for v in values]


def grade(policy: Policy, samples: Sequence[Sample], ids: Sequence[Sequence[int]], lens: Lens) -> Head:
    """The gate's own head, on all ratings."""
    from clawback.engine.torch.imagination import Imagining
    from clawback.rewards import head

    looks = lens(ids, hidden(policy, [s.messages for s in samples], ids), [s.response for s in samples])
    return head.fit(looks, [s.reward for s in samples], ridge=Imagining().ridge, spread=1.0)


def agreed(
    samples: Sequence[Sample],
    ids: Sequence[Sequence[int]],
    lens: Lens,
    base: Sequence[Completion],
    ours: Sequence[Completion],
    before: Sequence[Completion],
) -> tuple[float, float]:
    """How much more likely the ratings are if they are about something that is seen in answers, h, than if they are not (the logarithm); and
    the share of h, by how likely each is after all ratings, that more of our answers meet than before."""
    from clawback.rewards import conjunctions

    def signs(made: Sequence[Completion]) -> Any:
        return lens.signs([c.ids for c in made], [c.text for c in made])

    rated = lens.signs(ids, [s.response for s in samples])
    space = conjunctions.Space.of(signs(base), lens.manners)
    if not len(space.literals):
        return 0.0, 0.5  # the base says everything in one way: nothing can be told apart
    rewards = [s.reward for s in samples]
    taste = conjunctions.fit(space, rated, rewards)
    return conjunctions.evidence(space, rated, rewards), agreement(taste, signs(ours), signs(before))


def agreement(taste: Conjunctions, ours: Bools, before: Bools) -> float:
    """Σ_h P(h) Φ(Δ_h / se_h) for answers with the signs ``ours [n, m]`` against those of ``before [n, m]``."""
    import numpy as np

    one, other = taste.met(ours), taste.met(before)
    # Of n answers in which k were met, (k + ½) / (n + 1): none in 96 is no proof of never.
    a, b = ((m.sum(axis=0) + 0.5) / (len(m) + 1) for m in (one, other))
    error = np.sqrt(a * (1 - a) / len(one) + b * (1 - b) / len(other))
    better = [NORMAL.cdf(z) for z in (a - b) / error]
    return float(taste.weights @ np.array(better))


def sampled(made: Sequence[Completion]) -> Sampled:
    """The shape of a version's answers."""
    from clawback.rewards.guards import repeats

    count = max(len(made), 1)
    return Sampled(
        finished=sum(c.finished for c in made) / count,
        empty=sum(not c.text.strip() for c in made) / count,
        repeating=sum(repeats(c.text) for c in made) / count,
        length=sum(len(c.ids) for c in made) / count,
    )
