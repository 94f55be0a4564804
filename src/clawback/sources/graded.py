"""Sampling, scoring by the base, and grading of answers: what rollouts, instructions and distillation share."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import Tensor

from clawback.errors import TrainingError
from clawback.features.style_features import SHARES, Floats
from clawback.rewards.overoptimization import copies, repeats
from clawback.rewards.rating_likelihood import Ints
from clawback.rewards.reward_ensemble import (
    RIDGE,
    RULES,
    Answers,
    Ratings,
    ReadingSettings,
    RewardEnsemble,
    learn,
)
from clawback.rewards.reward_head import TRUSTED_BELOW
from clawback.sampling import Chance, DrawSettings
from clawback.scoring import pooled, token_logprobs
from clawback.templates import Encoded

if TYPE_CHECKING:
    from clawback.trainer.recipe import Recipe
    from clawback.trainer.run import TrainingRun

Prompt = tuple[int, ...]
GradesByRule = Callable[[Sequence[Encoded], Sequence[tuple[str, str]]], Floats]
"""(answers, their questions and texts) → grades ``[S]`` in [-1, 1] by rules (``rule_grades.RuleGrades``)."""


@dataclass(frozen=True)
class Drawn:
    """Answers of the policy, prompt by prompt, with their log-probs [T] and whether each ended."""

    answers: list[Encoded]
    logprobs: list[Tensor]
    ended: list[bool]


@dataclass(frozen=True)
class Seen:
    """The base model's results for some answers, on the CPU: hidden states that predict each token [T, H], its log-probs [T], features [S, h].

    For a real model there are no features (h = 0): text alone predicts as well
    (research/studies/2026-11-22-reading-real-answers.md), and to have the base read every answer that is drawn takes a
    fifth of a run.
    """

    states: list[Tensor]
    ref: list[Tensor]
    hidden: Floats

    def of(self, places: Sequence[int]) -> Seen:
        """Those of some of the answers."""
        return Seen(
            [self.states[i] for i in places], [self.ref[i] for i in places], self.hidden[list(places)]
        )


@dataclass(frozen=True, slots=True)
class Graded:
    """An answer to a prompt and what it is expected to be rated. ``encoded`` has the prompt without any sentence."""

    encoded: Encoded
    reward: float
    complete: bool
    """It says something that its question does not, ends (both as far as the base's own answers do), and does not repeat itself."""


@dataclass(frozen=True)
class GradingSettings:
    """How answers are graded; any of them can be set in ``training.options.graded``."""

    grounding: int = 256
    """Answers of the base that show how answers vary."""
    ridge: float = RIDGE
    """λ of the head, where an average answer has features of squared length 1."""
    conjunctions: float = RULES
    """Share of the rule posterior in what is expected of an answer; the rest is the ridge's."""
    pessimism: float = 0.5
    """Standard deviations of its prediction that each takes off."""
    shares: tuple[float, float, float] = SHARES
    """Of style, tokens and hidden states in what the ridge looks at."""
    cut_off: float = 2.0
    """Taken off the reward of an answer that did not end, or repeats itself: the distance from bad to good."""
    trusted_below: float = TRUSTED_BELOW
    """P-value up to which ratings are trusted; less where they were read before and a few are new (``feedback.due.significance``)."""
    shortest: float = 0.4
    """Of the mean length of liked answers or of the base's, whichever are shorter: so long are learned answers in the mean. Few tastes object to a
    stub, and the gate wants 0.35 of the version's own answers."""

    @classmethod
    def of(cls, recipe: Recipe) -> GradingSettings:
        # Answers of a real model are long, and each shows more: fewer will do.
        full = 256 if recipe.bucket == "micro" else 64
        settings = recipe.part("graded")
        given = {f.name: settings[f.name] for f in fields(cls) if f.name in settings}
        return cls(**{"grounding": max(32, round(full * recipe.size)), **given})


class Grading:
    """Samples answers from a policy and predicts their reward.

    ``ground`` or ``learn`` comes first: they draw answers of the base, the reference for everything else.
    """

    def __init__(
        self,
        run: TrainingRun,
        settings: GradingSettings,
        room: int,
        questions: Mapping[Prompt, str] | None = None,
    ) -> None:
        self.policy, self.settings, self.seed = run.policy, settings, run.seed
        self.recipe, self.tell = run.recipe, run.tell
        self.sampler = run.sampler
        self.room = room
        """Tokens that an answer may have."""
        self.follows_base = False
        """Another model wrote all rated answers, so that the base's own answers say how long a fresh one may be."""
        self.grader, self.terms, self.judge = run.grader, run.terms, run.judge
        self.by_rules: GradesByRule | None = None
        """Grades by rules, beside the ensemble's."""
        self.unread_words = False
        """Whether somebody said what neither the ensemble nor a judge can check. Then what is learned is preferred to the
        base's own answers alone: the worst of what is drawn under such a sentence are found by how they end, and not by that."""
        self.questions = questions or {}
        """Token ids of a prompt → what the person said in it, for a grader that reads text."""
        self.ensemble: RewardEnsemble | None = None
        self.shape = (0, 0)
        """Prompts that the base has answered, and answers to each."""
        self.base: list[Encoded] = []
        """Answers of the base to the person's prompts, with what they are worth ``base_rewards [S]``."""
        self.base_rewards: Floats = np.zeros(0)
        self.base_ended: list[bool] = []
        self.base_copied = 0.0
        """Share of the base's answers that only copy their question."""
        self.base_seen = Seen([], [], np.zeros((0, 0)))
        self.shortest = 1.0
        """Tokens that answers have in the mean, at least, or they are stubs."""
        self.relevant: Floats | None = None
        """How relevant answers of the base are to what was asked, once that was measured (``instructed.relevance``)."""
        self.usual, self.scale = 0.0, 1.0
        """Mean reward of the base's answers, and the standard deviation of rewards among its answers to one prompt."""
        self.base_graded: list[Graded] = []
        """The same answers by what is expected of them, nothing taken off."""
        self.typical, self.spread = 0.0, 1.0
        """Mean and standard deviation of that among those that are whole."""

    # ----------------------------------------------------------------------------------------------- the base

    def learn(
        self,
        prompts: Sequence[Prompt],
        rated: Sequence[Encoded],
        rewards: Floats,
        remarks: Sequence[tuple[Encoded, str]] = (),
        order: Sequence[int] = (),
        kinds: Ints | None = None,
    ) -> RewardEnsemble:
        """See how the base answers, then fit the ensemble on the rated answers and on what was said about any.

        ``order`` ``[n]`` grows with the time of each rating: those from before a change of mind are left out. ``kinds`` ``[n]``: of feedback.
        """
        shape = self.draw_base(prompts)
        liked = [len(one.response) for one, reward in zip(rated, rewards, strict=True) if reward > 0]
        usual = [len(one.response) for one in self.base]
        self.shortest = self.settings.shortest * min(float(np.mean(some)) for some in (liked, usual) if some)
        # How answers vary is seen on the rated ones, too. They may be shorter than fresh ones, or another model's, and a limit that was
        # cut from fresh answers alone would not divide them.
        fresh = self.seen(self.base, self.base_seen.hidden)
        self.ensemble = self.read(rated, rewards, remarks, order, fresh, kinds)
        self.shape = shape
        self._measure(shape)
        return self.ensemble

    def read(
        self,
        rated: Sequence[Encoded],
        rewards: Floats,
        remarks: Sequence[tuple[Encoded, str]] = (),
        order: Sequence[int] = (),
        fresh: Answers | None = None,
        kinds: Ints | None = None,
    ) -> RewardEnsemble:
        """The ensemble that the ratings and remarks make, on the rated answers and, where there are any, ``fresh`` ones of the base."""
        seen = self.seen(rated, self.hidden(rated))
        return learn(
            seen if fresh is None else fresh.with_others(seen),
            seen,
            Ratings(rewards, order, kinds),
            [(one.response, self.texts([one])[0], said) for one, said in remarks],
            ReadingSettings(
                self.settings.ridge, self.settings.shares, self.seed, self.settings.trusted_below
            ),
            self.judge,
        )

    def regrade(self, by_rules: GradesByRule) -> None:
        """Grade by rules, too, from here on, the base's answers first."""
        self.by_rules = by_rules
        self._measure(self.shape)

    def ground(self, prompts: Sequence[Prompt]) -> None:
        """See how the base answers and how the grader rates that: nothing has to be fitted."""
        self._measure(self.draw_base(prompts))

    def draw_base(self, prompts: Sequence[Prompt], count: int = 0) -> tuple[int, int]:
        """See how the base answers, without grading it: how many prompts, and answers to each; at least two, or one where only ``count`` answers are
        drawn in all, fewer than ``grounding``."""
        most = min(count or self.settings.grounding, self.settings.grounding)
        each = max(1 if count else 2, most // len(prompts))
        prompts = prompts[: max(1, most // each)]
        with self.policy.base():
            drawn = self.draw(prompts, each, self.generator(-1, 3))
        self.base, self.base_ended = drawn.answers, drawn.ended
        self.base_copied = float(self._copied(self.base, self.texts(self.base)).mean())
        if self.follows_base:
            ended = [one.response for one, whole in zip(self.base, self.base_ended, strict=True) if whole]
            self.room = min(self.room, self.policy.room(ended)) if ended else self.room
        self.base_seen = self.look(self.base)
        return len(prompts), each

    def _measure(self, shape: tuple[int, int]) -> None:
        expected = self.expected(self.base, self.base_seen.hidden)
        broken = self.broken(self.base, self.base_ended)
        self.base_rewards = expected - self.settings.cut_off * broken
        self.base_graded = _graded(self.base, expected, broken)
        whole = [one.reward for one in self.base_graded if one.complete] or expected.tolist()
        self.typical, self.spread = float(np.mean(whole)), max(float(np.std(whole)), 1e-6)
        groups = self.base_rewards.reshape(shape)
        self.usual = float(groups.mean())
        self.scale = max(float(np.sqrt(groups.var(axis=1).mean())), 1e-6)

    # -------------------------------------------------------------------------------------- drawing and grading

    def draw(self, prompts: Sequence[Prompt], each: int, generator: torch.Generator) -> Drawn:
        """``each`` answers of the model as it stands to each prompt."""
        policy, merge = self.policy, self.policy.info.bucket == "micro"
        chance = Chance.of_seed(len(prompts), each, self.room, policy.sampling.truncates, generator)
        if self.sampler is not None:
            groups = self.sampler(policy, prompts, chance, merge)
        else:
            groups = policy.sample(
                prompts, DrawSettings(samples=each, max_tokens=self.room, seed=chance), merge=merge
            )
        encoded = [
            (self.policy.chat.encoded(prompt, one.ids), one)
            for prompt, group in zip(prompts, groups, strict=True)
            for one in group
        ]
        return Drawn(
            [answer for answer, _ in encoded],
            [torch.tensor(one.logprobs[answer.thought :]) for answer, one in encoded],
            [one.finished for _, one in encoded],
        )

    @torch.no_grad()
    def look(self, answers: Sequence[Encoded]) -> Seen:
        """One pass of the base over the answers gives states, log-probs and features."""
        scorer, lengths = self.policy.scorer, [len(one.response) for one in answers]
        # One more token at the end, so that the last one of the answer is read as well; what it is does not matter.
        longer = [replace(one, response=(*one.response, 0)) for one in answers]
        with self.policy.base():
            parts = scorer.hidden(longer).split([n + 1 for n in lengths])
            if scorer.fused_head:
                targets = [torch.tensor(one.response, device=scorer.device) for one in answers]
                states = torch.cat([part[:-1] for part in parts])
                values, _ = token_logprobs(scorer.head, states, torch.cat(targets))
            else:
                values = scorer(answers).logprobs
        hidden = np.zeros((len(answers), 0))
        if self.policy.info.reads_states:
            hidden = pooled(torch.cat([part[1:] for part in parts]), lengths)
        return Seen([part[:-1].cpu() for part in parts], list(values.cpu().split(lengths)), hidden)

    def hidden(self, answers: Sequence[Encoded]) -> Floats:
        """``[S, h]`` features of answers that need not be read otherwise."""
        if not self.policy.info.reads_states:
            return np.zeros((len(answers), 0))
        return self.look(answers).hidden

    def seen(self, answers: Sequence[Encoded], hidden: Floats) -> Answers:
        """The answers in the form that the ensemble takes."""
        asked = [self.questions.get(one.question, "") for one in answers]
        ids, words = [one.response for one in answers], self.policy.word_vectors
        return Answers(ids, self.texts(answers), hidden, asked, words=words)

    def grade(self, answers: Sequence[Encoded], hidden: Floats | None, ended: Sequence[bool]) -> Floats:
        """``[S]`` rewards, in units of a rating; ``cut_off`` less for those that are broken."""
        return self.expected(answers, hidden) - self.settings.cut_off * self.broken(answers, ended)

    def judged(self, answers: Sequence[Encoded], ended: Sequence[bool]) -> list[Graded]:
        """Answers with their grades and features."""
        return _graded(answers, self.expected(answers, self.hidden(answers)), self.broken(answers, ended))

    def worth(self, answer: Graded) -> float:
        """What it is expected to be rated; ``cut_off`` less if it is broken."""
        return answer.reward - (0.0 if answer.complete else self.settings.cut_off)

    def expected(self, answers: Sequence[Encoded], hidden: Floats | None) -> Floats:
        """``[S]`` predicted ratings."""
        texts = self.texts(answers)
        asked = [
            (self.questions.get(one.question, ""), text) for one, text in zip(answers, texts, strict=True)
        ]
        if self.grader is not None:
            rewards = np.asarray(self.grader(asked), dtype=np.float64)
        elif self.ensemble is None or hidden is None:
            raise TrainingError("The reward head was not fitted.")
        else:
            seen = Answers([one.response for one in answers], texts, hidden, [prompt for prompt, _ in asked])
            rewards = self.ensemble.reward(seen, self.settings.conjunctions, self.settings.pessimism)
            if self.by_rules is not None:
                rewards = rewards + self.by_rules(answers, asked)
        if self.terms is not None:
            rewards = self.terms.add(rewards, asked, [len(one.response) for one in answers])
        return np.asarray(rewards, dtype=np.float64)

    def broken(self, answers: Sequence[Encoded], ended: Sequence[bool]) -> Floats:
        """``[S]`` 1 for an answer that is empty or repeats itself. One that was cut off, or only copies its question, counts as broken to the extent
        that the base's own answers end, or say something: where half of those are cut off for lack of room, a cut says nothing; where
        texts are to be corrected, a copy says nothing.
        """
        cut = ~np.asarray(ended, dtype=bool) * max(0.0, 2 * float(np.mean(self.base_ended or [True])) - 1)
        texts = self.texts(answers)
        copied = self._copied(answers, texts) * max(0.0, 1 - 2 * self.base_copied)
        bad = [not text.strip() or repeats(text) for text in texts]
        return np.maximum(np.asarray(bad, dtype=np.float64), np.maximum(cut, copied))

    def _copied(self, answers: Sequence[Encoded], texts: Sequence[str]) -> Floats:
        """``[S]`` 1 for an answer that says little more than its question."""
        asked = [self.questions.get(one.question, "") for one in answers]
        return np.array([copies(q, a) for q, a in zip(asked, texts, strict=True)], dtype=float)

    def texts(self, answers: Sequence[Encoded]) -> list[str]:
        return [
            str(self.policy.tokenizer.decode(list(one.response), skip_special_tokens=True)) for one in answers
        ]

    def generator(self, number: int, purpose: int) -> torch.Generator:
        """A random generator that depends on the seed, a number (of a round) and its purpose."""
        return torch.Generator().manual_seed((self.seed * 1_000_003 + number + 1) * 8 + purpose)


def _graded(answers: Sequence[Encoded], expected: Floats, broken: Floats) -> list[Graded]:
    return [Graded(*row) for row in zip(answers, map(float, expected), map(bool, broken == 0), strict=True)]
