"""Answers that were never given: drawn from the policy round by round, graded, and handed out as examples. What for: ``imagine``."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np
import torch
from torch import Tensor

from clawback.engine.torch.adapter import merged
from clawback.engine.torch.chat import Encoded
from clawback.engine.torch.examples import Example
from clawback.engine.torch.experts import Answers, Experts, learn
from clawback.engine.torch.features import pooled
from clawback.engine.torch.generate import sample, stop_ids
from clawback.engine.torch.head import logprobs
from clawback.errors import TrainingError
from clawback.rewards.guards import repeats
from clawback.rewards.lens import SHARES, Floats
from clawback.rl import advantages

if TYPE_CHECKING:
    from clawback.engine.recipe import Recipe
    from clawback.engine.torch.policy import Policy
    from clawback.engine.types import Grader
    from clawback.rewards.terms import Terms

_T = TypeVar("_T")

_STRENGTH = {"careful": 2.0, "balanced": 1.0, "aggressive": 0.5}
"""Factor on the weight of the KL, by preset."""


@dataclass(frozen=True)
class Imagining:
    """Settings; any of them can be set in a recipe's ``extra``."""

    rounds: int = 24
    prompts: int = 8
    """Prompts a round."""
    samples: int = 8
    """Answers to each of them."""
    round_steps: int = 4
    """Optimizer steps that the answers of a round are shared out over."""
    grounding: int = 256
    """Answers of the base that show how answers vary."""
    rate: float = 5.0
    """Learning rate, in units of the recipe's."""
    exact_kl: float = 0.06
    """Weight of the KL, where an advantage of 1 is a standard deviation of the base's rewards."""
    cover: float = 0.9
    """Weight of KL(base ‖ policy) beside KL(policy ‖ base) in it."""
    max_kl: float = 5.0
    """Nats an answer; above it the weight of the KL grows by half from round to round."""
    ridge: float = 0.8
    """λ of the head, where an average answer has features of squared length 1."""
    conjunctions: float = 0.5
    """Share of the conjunctions in what is expected of an answer; the rest is the ridge's."""
    pessimism: float = 0.5
    """Standard deviations of its prediction that each expert takes off."""
    shares: tuple[float, float, float] = SHARES
    """Of manner, tokens and hidden states in what the ridge looks at."""
    cut_off: float = 2.0
    """Taken off the reward of an answer that did not end, or goes round in circles: as far as bad is from good."""
    replay: float = 0.25
    """Answers of the base for each fresh one, to hold the policy where it no longer goes by itself."""

    @classmethod
    def of(cls, recipe: Recipe) -> Imagining:
        given = {f.name: recipe.extra[f.name] for f in dataclasses.fields(cls) if f.name in recipe.extra}
        chosen = cls(**given)
        strength = 1.0 if "exact_kl" in given else _STRENGTH.get(recipe.preset, 1.0)
        return dataclasses.replace(chosen, exact_kl=chosen.exact_kl * strength)


@dataclass(frozen=True)
class _Seen:
    """What the base makes of some answers: hidden states that predict each token [T, H], its log-probs [T], features."""

    states: list[Tensor]
    ref: list[Tensor]
    hidden: Floats


class Imagination:
    """A source of examples: each round, fresh answers of the policy as it is, graded by the head.

    All it draws follows from the seed and the number of the round. Its state is the round that is being learned from.
    """

    fresh = True
    critic = None

    def __init__(
        self,
        policy: Policy,
        asked: Sequence[tuple[int, ...]],
        settings: Imagining,
        seed: int,
        room: int,
        grader: Grader | None = None,
        terms: Terms | None = None,
    ) -> None:
        self.policy, self.asked, self.settings = policy, list(asked), settings
        self.seed, self.room, self.grader, self.terms = seed, room, grader, terms
        self.steps = settings.rounds * settings.round_steps
        self.questions: dict[tuple[int, ...], str] = {}
        self.experts: Experts | None = None
        self.usual, self.scale = 0.0, 1.0
        """Mean reward of the base's answers, and the standard deviation of rewards among its answers to one prompt."""
        self.hold = 1.0
        """Factor on the KL term, grown where answers drift too far."""
        self.before: list[Encoded] = []
        """Answers of the base to the person's prompts."""
        self.round: list[Example] = []

    # ------------------------------------------------------------------------------------------------ the head

    def learn(
        self, rated: Sequence[Encoded], rewards: Floats, remarks: Sequence[tuple[Encoded, str]] = ()
    ) -> Experts:
        """See how the base answers, then fit the experts on the rated answers and on what was said about any."""
        answers, ended, shape = self._base_answers()
        base = self._seen(answers, self._look(answers).hidden)
        self.experts = learn(
            base,
            self._seen(rated, self._look(rated).hidden),
            rewards,
            [(one.response, self._texts([one])[0], said) for one, said in remarks],
            ridge=self.settings.ridge,
            shares=self.settings.shares,
            seed=self.seed,
        )
        self._measure(self._grade(answers, base.hidden, ended).reshape(shape))
        return self.experts

    def _seen(self, answers: Sequence[Encoded], hidden: Floats) -> Answers:
        return Answers([one.response for one in answers], self._texts(answers), hidden)

    def look_round(self) -> None:
        """See how the base answers and what the grader makes of it: nothing has to be fitted."""
        answers, ended, shape = self._base_answers()
        self._measure(self._grade(answers, None, ended).reshape(shape))

    def _base_answers(self) -> tuple[list[Encoded], list[bool], tuple[int, int]]:
        each = max(2, self.settings.grounding // len(self.asked))
        prompts = self.asked[: max(1, self.settings.grounding // each)]
        with self.policy.base():
            answers, _, ended = self._sample(prompts, each, -1)
        self.before = answers
        return answers, ended, (len(prompts), each)

    def _measure(self, groups: Floats) -> None:
        self.usual = float(groups.mean())
        self.scale = max(float(np.sqrt(groups.var(axis=1).mean())), 1e-6)

    def _grade(self, answers: Sequence[Encoded], hidden: Floats | None, ended: Sequence[bool]) -> Floats:
        """[S] rewards, in units of a rating."""
        if self.grader is not None:
            rewards = np.asarray(self.grader([self._read(one) for one in answers]), dtype=np.float64)
        elif self.experts is None or hidden is None:
            raise TrainingError("The reward head was not fitted.")
        else:
            seen, ours = self._seen(answers, hidden), self.settings
            rewards = self.experts.reward(seen, ours.conjunctions, ours.pessimism)
        if self.terms is not None:
            texts = [self._read(one) for one in answers]
            rewards = self.terms.add(rewards, texts, [len(one.response) for one in answers])
        whole = [end and not repeats(text) for end, text in zip(ended, self._texts(answers), strict=True)]
        return rewards - self.settings.cut_off * ~np.asarray(whole, dtype=bool)

    def _texts(self, answers: Sequence[Encoded]) -> list[str]:
        return [
            str(self.policy.tokenizer.decode(list(one.response), skip_special_tokens=True)) for one in answers
        ]

    def _read(self, one: Encoded) -> tuple[str, str]:
        """What was asked and answered, as text."""
        return self.questions.get(tuple(one.prompt), ""), self._texts([one])[0]

    # ---------------------------------------------------------------------------------------------- the source

    def examples(self, step: int) -> list[Example]:
        """The answers of a round are dealt out to its steps in a random order."""
        number, place = divmod(step, self.settings.round_steps)
        if place == 0 or not self.round:
            self.round = self._imagine(number)
        order = torch.randperm(len(self.round), generator=self._generator(number, 1))
        return [self.round[int(i)] for i in order.chunk(self.settings.round_steps)[place]]

    def _imagine(self, number: int) -> list[Example]:
        prompts = self._next(self.asked, self.settings.prompts, number, 2)
        answers, old, ended = self._sample(prompts, self.settings.samples, number)
        seen = self._look(answers)
        rewards = self._grade(answers, seen.hidden, ended)
        groups = torch.arange(len(prompts)).repeat_interleave(self.settings.samples)
        gains = advantages.group_normalised(torch.tensor(rewards / self.scale), groups, scale=False)
        drift = float(sum((o - r).sum() for o, r in zip(old, seen.ref, strict=True))) / len(answers)
        self.hold = self.hold * 1.5 if drift > self.settings.max_kl else max(1.0, self.hold / 1.5)
        shown = (rewards - self.usual) / self.scale
        fresh = [
            self._example(one, float(gain), o, float(reward), seen, i)
            for i, (one, gain, o, reward) in enumerate(zip(answers, gains, old, shown, strict=True))
        ]
        return fresh + self._replay(number, round(self.settings.replay * len(fresh)), float(shown.mean()))

    def _replay(self, number: int, count: int, reward: float) -> list[Example]:
        """Answers of the base, with nothing to gain: all they have is their KL, at places where the policy's own answers do not come by any more.

        As the pretraining mix of Ouyang et al. 2022 (InstructGPT, PPO-ptx), with the base's answers in place of its corpus, and its whole
        distribution in place of one token. ``reward``: the round's mean, so that what is shown of the round stays as it is.
        """
        answers = self._next(self.before, count, number, 4)
        if not answers:
            return []
        seen = self._look(answers)
        return [self._example(one, 0.0, seen.ref[i], reward, seen, i) for i, one in enumerate(answers)]

    def _example(self, one: Encoded, gain: float, old: Tensor, reward: float, seen: _Seen, i: int) -> Example:
        return Example(
            encoded=one,
            advantage=gain,
            old=old,
            ref=seen.ref[i],
            reward=reward,
            kl_weight=torch.full_like(old, self.hold),
            base=seen.states[i] if self.policy.scorer.fused_head else None,
        )

    def _next(self, of: Sequence[_T], count: int, number: int, purpose: int) -> list[_T]:
        """Of an endless row of shuffled decks, the few that round ``number`` deals with."""
        count, chosen = min(count, len(of)), []
        for position in range(number * count, (number + 1) * count):
            deck, place = divmod(position, len(of))
            order = torch.randperm(len(of), generator=self._generator(deck, purpose))
            chosen.append(of[int(order[place])])
        return chosen

    def _sample(
        self, prompts: Sequence[tuple[int, ...]], each: int, number: int
    ) -> tuple[list[Encoded], list[Tensor], list[bool]]:
        """Answers of the model as it stands, prompt by prompt, with their log-probs and whether they ended."""
        model = self.policy.model
        with merged(model) if self.policy.info.bucket == "micro" else nullcontext():
            groups = sample(
                model,
                prompts,
                samples=each,
                max_tokens=self.room,
                stop=stop_ids(model, self.policy.chat.end_id),
                seed=self._generator(number, 3),
            )
        flat = [(prompt, one) for prompt, group in zip(prompts, groups, strict=True) for one in group]
        return (
            [Encoded(tuple(prompt), one.ids) for prompt, one in flat],
            [torch.tensor(one.logprobs) for _, one in flat],
            [one.finished for _, one in flat],
        )

    @torch.no_grad()
    def _look(self, answers: Sequence[Encoded]) -> _Seen:
        """One pass of the base over the answers gives states, log-probs and features."""
        scorer, lengths = self.policy.scorer, [len(one.response) for one in answers]
        # One more token at the end, so that the last one of the answer is read as well; what it is does not matter.
        longer = [Encoded(one.prompt, (*one.response, 0)) for one in answers]
        with self.policy.base():
            parts = scorer.hidden(longer).split([n + 1 for n in lengths])
            if scorer.fused_head:
                targets = [torch.tensor(one.response, device=scorer.device) for one in answers]
                states = torch.cat([part[:-1] for part in parts])
                values, _ = logprobs(scorer.head, states, torch.cat(targets))
            else:
                values = scorer(answers).logprobs
        hidden = pooled(torch.cat([part[1:] for part in parts]), lengths)
        return _Seen([part[:-1] for part in parts], list(values.split(lengths)), hidden)

    def _generator(self, number: int, purpose: int) -> torch.Generator:
        return torch.Generator().manual_seed((self.seed * 1_000_003 + number + 1) * 8 + purpose)

    # ----------------------------------------------------------------------------------------------- the state

    def state(self) -> dict[str, Any]:
        """The round under way. What the base says of it is asked again: that is the same, and large."""
        return {
            "hold": self.hold,
            "answers": [
                [list(e.encoded.prompt), list(e.encoded.response), e.advantage, e.reward, e.old]
                for e in self.round
            ],
        }

    def restore(self, state: dict[str, Any]) -> None:
        self.hold = float(state["hold"])
        answers = [Encoded(tuple(prompt), tuple(response)) for prompt, response, *_ in state["answers"]]
        seen = self._look(answers) if answers else _Seen([], [], np.empty((0, 0)))
        self.round = [
            self._example(one, float(gain), old, float(reward), seen, i)
            for i, (one, (_, _, gain, reward, old)) in enumerate(zip(answers, state["answers"], strict=True))
        ]
