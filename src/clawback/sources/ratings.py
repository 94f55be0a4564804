"""Training on the ratings themselves, in several passes over them.

Several passes over the same ratings, each with the current policy as the old policy.

A clip around the policy that wrote an answer lets each token move by a quarter, once. To go over the same
answers again, each round takes the policy at its beginning as the old one (the proximal policy of Hilton et
al. 2021, arXiv:2110.00641), so that the clip is a trust region for a round and not for the run. Teacher
log-probs and values are recomputed with it.

Training on the ratings themselves: recorded answers and their feedback become examples, in the order given.

Nothing of another model's answer is made likelier unless the person named that model (``sources/targets.py``): liked answers
are left out, and disliked ones have no positive advantage.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Protocol, cast

import torch
from torch import Tensor

from clawback.errors import TrainingError
from clawback.policy import Policy
from clawback.records import BETTER
from clawback.rl import algorithms
from clawback.scoring import Scored
from clawback.sources.targets import NONE_LEFT, may_learn
from clawback.templates import Encoded
from clawback.trainer.examples import Plan, RatingSource, SourceState, TrainingExample
from clawback.trainer.torch_learner import ValueHead

if TYPE_CHECKING:
    from clawback.records import Sample
    from clawback.rl.algorithms import Algorithm
    from clawback.rl.curriculum import By
    from clawback.trainer.run import TrainingRun


_MADE = ("old", "token_advantages", "returns", "old_values")
"""What a round makes of its examples: its state."""


class Crediting(Protocol):
    """What an algorithm that needs values has beside ``advantages`` and ``loss``; see ``rl/algorithms/ppo.py``."""

    def credit(self, rewards: Tensor, values: Tensor, segment: Tensor) -> tuple[Tensor, Tensor]:
        """[S] rewards, [N] values, [N] segments → [N] advantages and [N] returns."""
        ...

    def paid(self, rewards: Tensor, segment: Tensor) -> Tensor:
        """[S], [N] → [N]: when each reward is given."""
        ...


class Rounds(RatingSource):
    """Each round: π_old is the policy of the moment, and the advantage that a teacher gives a token is log π_teacher − log π_old."""

    def __init__(self, policy: Policy, examples: Sequence[TrainingExample], **dealing: Any) -> None:
        super().__init__([[example] for example in examples], **dealing)
        self._policy = policy
        self._all = list(examples)
        self._round = -1

    def examples(self, step: int) -> list[TrainingExample]:
        number = step * self._per_step // len(self._all)
        if number != self._round:
            # The first round keeps what was recorded when the answers were sampled.
            self._set(self._begun(self._all, keep_old=number == 0))
            self._round = number
        return super().examples(step)

    @torch.no_grad()
    def _begun(self, examples: Sequence[TrainingExample], keep_old: bool) -> list[TrainingExample]:
        """The examples as a round begins."""
        if keep_old and all(one.teacher is None for one in examples):
            return list(examples)  # nothing would come of another pass
        scored = self._scored([example.encoded for example in examples])
        now = scored.logprobs.cpu().split(list(scored.lengths))
        return [
            dataclasses.replace(
                one,
                old=one.old if keep_old else values,
                token_advantages=None if one.teacher is None else one.teacher - values,
            )
            for one, values in zip(examples, now, strict=True)
        ]

    def _scored(self, encoded: Sequence[Encoded]) -> Scored:
        return self._policy.scorer(encoded)

    def _set(self, examples: Sequence[TrainingExample]) -> None:
        self._all = list(examples)
        self._units = [[example] for example in self._all]

    def state(self) -> SourceState:
        return {"round": self._round, "made": [[getattr(e, name) for name in _MADE] for e in self._all]}

    def restore(self, state: SourceState) -> None:
        self._round = int(state["round"])
        made = [dict(zip(_MADE, row, strict=True)) for row in state["made"]]
        self._set([dataclasses.replace(e, **row) for e, row in zip(self._all, made, strict=True)])


class Valued(Rounds):
    """Each round besides: token advantages and returns by the value head of the moment."""

    critic: ValueHead

    def __init__(
        self, policy: Policy, algorithm: object, examples: Sequence[TrainingExample], **dealing: object
    ) -> None:
        super().__init__(policy, examples, **dealing)
        self._algorithm = cast(Crediting, algorithm)
        self._kept = [_written(example) for example in examples]
        self._lengths = [len(places) for places in self._kept]
        self._segment = torch.repeat_interleave(torch.arange(len(examples)), torch.tensor(self._lengths))
        self._rewards = torch.tensor([example.advantage for example in examples])
        self._hidden = self._read()
        states = self._written_states()
        self.critic = ValueHead(states.shape[1]).to(states.device)
        nothing = torch.zeros(len(self._segment))
        _, hoped = self._algorithm.credit(self._rewards, nothing, self._segment)
        self.critic.fit(states, hoped.to(states.device))

    @torch.no_grad()
    def _begun(self, examples: Sequence[TrainingExample], keep_old: bool) -> list[TrainingExample]:
        if self._round >= 0:  # else nothing has been learned since they were read
            self._hidden = self._read()
        begun = super()._begun(examples, keep_old)
        values = self.critic(self._written_states()).cpu()
        advantages, returns = self._algorithm.credit(self._rewards, values, self._segment)
        columns = [self._scattered(begun, column) for column in (advantages, returns, values)]
        return [
            dataclasses.replace(one, token_advantages=a, returns=r, old_values=v)
            for one, a, r, v in zip(begun, *columns, strict=True)
        ]

    @torch.no_grad()
    def _read(self) -> Tensor:
        """[N, H] of all tokens of all answers, as the policy is now."""
        return self._policy.scorer.hidden([example.encoded for example in self._all])

    def _scored(self, encoded: Sequence[Encoded]) -> Scored:
        scorer = self._policy.scorer
        return scorer.of_hidden(encoded, self._hidden) if scorer.fused_head else scorer(encoded)

    def _written_states(self) -> Tensor:
        """[N, H] of the tokens that the policy wrote."""
        lengths = [len(example.encoded.response) for example in self._all]
        parts = self._hidden.split(lengths)
        chosen = [part[places.to(part.device)] for part, places in zip(parts, self._kept, strict=True)]
        return torch.cat(chosen).float()

    def _scattered(self, examples: Sequence[TrainingExample], values: Tensor) -> list[Tensor]:
        """[written tokens of all] → [tokens] of each, 0 for those that the policy did not write."""
        blank = [torch.zeros(len(example.encoded.response)) for example in examples]
        parts = zip(blank, self._kept, values.split(self._lengths), strict=True)
        return [zeros.index_put((places,), part) for zeros, places, part in parts]


def _written(example: TrainingExample) -> Tensor:
    """Places of the tokens that the policy wrote."""
    count = len(example.encoded.response)
    return torch.arange(count) if example.mask is None else example.mask.nonzero()[:, 0].cpu()


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
        from clawback.sources.teacher import taught

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
        from clawback.sources.targets import find_pairs

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
        from clawback.rl import curriculum

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


def _easy_first(units: Sequence[list[TrainingExample]], by: By) -> list[list[TrainingExample]]:
    """In order of difficulty; a pair is as clear as its two are on average, and as long as both."""
    clear = [sum(abs(example.reward) for example in unit) / len(unit) for unit in units]
    from clawback.rl import curriculum

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
