"""The views of an answer that a reward model uses: its text, its prompt, and the base's hidden states for both; all standardised over the base's answers.

| view | what is in it |
| --- | --- |
| style | the style features (``features``), by name |
| statistics | sentence and word lengths, variety, punctuation, layout (``text_statistics``): any language |
| fields | how many words of each lexical field (``lexical_fields``), by the same embeddings: any language |
| meanings | what the words mean together (``word_meanings``), where the base's embeddings are at hand: any language |
| grammar | tense, voice, persons, subordination, degree, … (``text_statistics``): English |
| tokens, rates | which everyday tokens occur, and how often: function words, in any language that the tokenizer knows |
| named | the features that the person's remarks are about, where there are remarks |
| relation | how the answer relates to its prompt: words in common, and ratio of lengths |
| prompt | length and kind of the question, its everyday words |
| hidden, further states | layers of the base on answer and prompt (``scoring.pooling``) |
| judged | verdicts on believed or proposed rules, where somebody judges them (``Judge``) |

The same as binary features (signs) is the input of the rules (``rule_posterior``): style, tokens, statistics and grammar cut at quantiles, signs of the prompt,
and verdicts.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from clawback.features import style_features
from clawback.features.style_features import SAYS, SHARES, Features, Floats
from clawback.features.text_statistics import GRAMMAR, grammar, text_statistics
from clawback.features.text_statistics import NAMES as STATISTICS
from clawback.rewards.kernel_ensemble import Kernel
from clawback.rewards.rule_posterior import (
    ASKED_SIGN,
    JUDGED_SIGN,
    MANNER,
    STATISTIC_SIGN,
    TOKEN_SIGN,
    SignLayout,
)

if TYPE_CHECKING:
    from clawback.features.lexical_fields import LexicalFields
    from clawback.features.word_meanings import WordMeanings, WordVectors

Bools = NDArray[np.bool_]

CUTS = (0.2, 0.35, 0.5, 0.65, 0.8)
"""Quantiles of a statistic among the base's answers: "more than that" is a sign."""
FURTHEST = 4.0
"""Standard deviations at which a statistic is cut off: an answer unlike all others must not outweigh them."""
ASKED_WORDS = 0.06
"""A word of prompts counts when it is in at least this share of them."""
OPENING = 12
"""Words of an answer that may take up the question's."""
NAMED = "named"
MEANINGS = "meanings"
Judge = Callable[[Sequence[str], Sequence[str]], Floats]
"""(questions, answers) → ``[S, k]`` how surely each answer keeps each of ``k`` rules, in [0, 1]; nan where that was not judged."""

VERDICT_THRESHOLD = 0.5
"""A verdict above this says that the rule is kept."""
JUDGED = "judged"
_NUMBERED = {
    name: place for place, name in reversed([*enumerate([*style_features.NAMES, *STATISTICS, *GRAMMAR])])
}
_WORD = re.compile(r"\w+")
_ALIKE = 512
"""Answers of the base among which distances are measured."""


@dataclass(frozen=True, slots=True)
class Answers:
    """``n`` answers: token ids, what they say, the base's ``hidden [n, h]`` of them; where they are known, the text of each one's prompt,
    and further states of the base by name, ``[n, …]`` each (``scoring.pooling.read``); ``verdicts [n, k]`` where they were judged."""

    ids: Sequence[Sequence[int]]
    texts: Sequence[str]
    hidden: Floats
    prompts: Sequence[str] = ()
    states: Mapping[str, Floats] = field(default_factory=dict)
    verdicts: Floats | None = None
    words: WordVectors | None = None
    """The base's embeddings of tokens, where they are at hand."""

    def judged(self, judge: Judge) -> Answers:
        """The same answers with verdicts; those that have been judged are not judged again."""
        if self.verdicts is not None:
            return self
        questions = self.prompts or [""] * len(self.texts)
        return replace(self, verdicts=rule_verdicts(judge, questions, self.texts))

    def with_others(self, others: Answers) -> Answers:
        """These answers and then others, looked at in the same way. Verdicts are left out: answers are judged as they are looked at."""
        return Answers(
            [*self.ids, *others.ids],
            [*self.texts, *others.texts],
            np.concatenate([self.hidden, others.hidden]),
            [*self.prompts, *others.prompts],
            {name: np.concatenate([values, others.states[name]]) for name, values in self.states.items()},
            words=self.words or others.words,
        )


@dataclass(frozen=True, slots=True)
class Viewed:
    """``n`` answers in all views: view → ``[n, d]``, and ``signs [n, m]``."""

    views: Mapping[str, Floats]
    signs: Bools

    def __getitem__(self, rows: Any) -> Viewed:
        return Viewed({name: values[rows] for name, values in self.views.items()}, self.signs[rows])


@dataclass(frozen=True, slots=True)
class Standard:
    """Means and spreads ``[d]`` over answers of the base; what does not vary there has none."""

    mean: Floats
    spread: Floats

    @classmethod
    def of(cls, values: Floats) -> Standard:
        spread = values.std(0)
        return cls(values.mean(0), np.where(spread > 1e-6, spread, np.inf))

    def __call__(self, values: Floats) -> Floats:
        return np.asarray(np.clip((values - self.mean) / self.spread, -FURTHEST, FURTHEST))


@dataclass(frozen=True, slots=True)
class Views:
    """The views of answers, standardised on answers of the base."""

    features: Features
    prompt_words: tuple[str, ...]
    """Everyday words of the prompts; with no prompts known there is neither ``prompt`` nor ``relation``."""
    knows_prompts: bool
    standards: Mapping[str, Standard]
    cuts: Floats  # [columns] limits of the statistics, as signs
    cut_of: NDArray[np.int64]  # [columns] which statistic
    kernels: tuple[Kernel, ...] = ()
    named: tuple[str, ...] = ()
    """Style features and statistics that somebody spoke of: a view of their own."""
    judge: Judge | None = None
    usual: Floats = field(default_factory=lambda: np.zeros(0))  # [k] mean verdict on the base's answers
    fields: LexicalFields | None = None
    meanings: WordMeanings | None = None

    @classmethod
    def ground(
        cls,
        base: Answers,
        phrases: Sequence[str] = (),
        shares: tuple[float, float, float] = SHARES,
        named: Sequence[str] = (),
        judge: Judge | None = None,
    ) -> Views:
        """From answers of the base to many prompts. ``phrases``: texts that somebody spoke of, in lower case; ``named``: features that they did;
        ``judge``: what says how surely an answer keeps each of some rules."""
        features = replace(
            Features.ground(base.ids, base.hidden, base.texts), phrases=tuple(phrases), shares=shares
        )
        knows = len(base.prompts) == len(base.texts) > 0
        held = [set(_words(prompt)) for prompt in base.prompts] if knows else []
        every = sorted(set().union(*held)) if held else []
        share = {word: sum(word in one for one in held) / len(held) for word in every}
        asked = tuple(w for w in every if ASKED_WORDS <= share[w] <= 1 - ASKED_WORDS)
        bare = cls(
            features, asked, knows, {}, np.zeros(0), np.zeros(0, dtype=np.int64), (), tuple(named), judge
        )
        base = bare.judged(base)
        if base.words is not None:
            from clawback.features.lexical_fields import LexicalFields
            from clawback.features.word_meanings import WordMeanings

            fields = LexicalFields.of(base.ids, base.words)
            bare = replace(bare, fields=fields, meanings=WordMeanings.of(base.ids, base.words))
        if base.verdicts is not None:
            bare = replace(bare, usual=mean_verdicts(base.verdicts))
        raw = bare._raw(base)
        standards = {name: Standard.of(values) for name, values in raw.items()}
        limits, own = _cuts(bare._numbers(base))
        made = replace(bare, standards=standards, cuts=limits, cut_of=own)
        return replace(made, kernels=made._kernels(made(base)))

    def __call__(self, answers: Answers) -> dict[str, Floats]:
        """View → ``[n, d]``."""
        return {name: self.standards[name](values) for name, values in self._raw(answers).items()}

    def view(self, answers: Answers) -> Viewed:
        """The views and the signs of answers."""
        answers = self.judged(answers)
        return Viewed(self(answers), self.signs(answers))

    def judged(self, answers: Answers) -> Answers:
        """The answers with their verdicts: each is judged once."""
        return answers if self.judge is None else answers.judged(self.judge)

    def signs(self, answers: Answers) -> Bools:
        """``[n, m]``: those of ``Features``, statistics above their cuts, signs of the prompt, rules that are kept."""
        parts = [self.features.signs(answers.ids, answers.texts)]
        parts.append(self._numbers(answers)[:, self.cut_of] > self.cuts)
        if self.knows_prompts:
            parts.append(self._asked_signs(answers.prompts))
        if self.judge is not None:
            parts.append(self._verdicts(answers) > VERDICT_THRESHOLD)
        return np.hstack(parts)

    def response_signs(self, ids: Sequence[int], text: str) -> Bools:
        """``[m]`` signs of one answer without its prompt, because remarks are about answers."""
        own = self.features.signs([ids], [text])[0]
        counted = _text_numbers([text])[0]
        of_text = self.cut_of < len(counted)
        above = of_text & (np.append(counted, np.inf)[np.where(of_text, self.cut_of, -1)] > self.cuts)
        rest = np.zeros(len(self.layout.kinds) - len(own) - len(above), dtype=bool)
        return np.concatenate([own, above, rest])

    def columns(self, name: str) -> list[int]:
        """Where a style feature, a phrase, a text statistic or a grammatical feature is among the signs, one place for each cut of a number; none for what is not looked for."""
        if name.startswith(SAYS) or name in style_features.NAMES:
            return self.features.columns(name)
        first = self.features.manners + len(self.features.tokens)
        return [first + int(i) for i in np.flatnonzero(self.cut_of == (*STATISTICS, *GRAMMAR).index(name))]

    @property
    def layout(self) -> SignLayout:
        """What the columns of ``signs`` are."""
        manners, tokens = self.features.manners, len(self.features.tokens)
        kinds = [MANNER] * manners + [TOKEN_SIGN] * tokens + [STATISTIC_SIGN] * len(self.cuts)
        kinds += [ASKED_SIGN] * self._asked_signs([""]).shape[1] if self.knows_prompts else []
        kinds += [JUDGED_SIGN] * len(self.usual)
        own = np.full(len(kinds), -1, dtype=np.int64)
        own[manners + tokens : manners + tokens + len(self.cuts)] = self.cut_of
        return SignLayout(np.array(kinds, dtype=np.int64), own)

    def _raw(self, answers: Answers) -> dict[str, Floats]:
        ids, tokens = answers.ids, self.features.tokens
        made = {
            "style": style_features.manner(answers.texts),
            "statistics": text_statistics(answers.texts),
            "grammar": grammar(answers.texts),
            "hidden": np.asarray(answers.hidden, dtype=np.float64),
            **{name: np.asarray(values, dtype=np.float64) for name, values in answers.states.items()},
        }
        if len(tokens):
            counts = np.array(
                [np.bincount(_places(one, tokens), minlength=len(tokens) + 1)[:-1] for one in ids]
            )
            made["tokens"] = (counts > 0).astype(np.float64)
            made["rates"] = np.sqrt(counts / np.maximum([[len(one)] for one in ids], 1))
        if self.fields is not None and self.fields.count:
            made["fields"] = np.sqrt(self.fields(ids) / np.maximum([[len(one)] for one in ids], 1))
        if self.meanings is not None and len(self.meanings.tokens):
            made[MEANINGS] = self.meanings(ids)
        if self.named:
            made[NAMED] = np.hstack([made["style"], made["statistics"], made["grammar"]])[
                :, [_NUMBERED[n] for n in self.named]
            ]
        if self.knows_prompts:
            made["relation"] = relation(answers.prompts, answers.texts)
            made["prompt"] = np.hstack(
                [style_features.manner(answers.prompts), text_statistics(answers.prompts), self._asks(answers.prompts)]
            )  # fmt: skip
        if self.judge is not None:
            made[JUDGED] = self._verdicts(answers)
        return made

    def _verdicts(self, answers: Answers) -> Floats:
        """``[n, k]``: what was not judged counts as the base's answers do in the mean."""
        values = self.judged(answers).verdicts
        assert values is not None
        return np.where(np.isnan(values), self.usual, values)

    def _numbers(self, answers: Answers) -> Floats:
        """``[n, …]`` what is cut into signs."""
        parts = [_text_numbers(answers.texts)]
        if self.knows_prompts:
            parts.append(relation(answers.prompts, answers.texts))
        if self.fields is not None:
            parts.append(self.fields(answers.ids))
        return np.hstack(parts)

    def _asks(self, prompts: Sequence[str]) -> Floats:
        held = [set(_words(prompt)) for prompt in prompts]
        return np.array([[w in one for w in self.prompt_words] for one in held], dtype=np.float64).reshape(
            len(held), len(self.prompt_words)
        )

    def _asked_signs(self, prompts: Sequence[str]) -> Bools:
        """``[n, …]``: style of the prompt, its length above three limits, its everyday words."""
        how = style_features.manner(prompts)[:, : len(style_features.SIGNS)] > 0
        length = np.array([[len(_words(prompt))] for prompt in prompts])
        return np.hstack([how, length > np.array([[8, 16, 32]]), self._asks(prompts) > 0])

    def _kernels(self, base: Mapping[str, Floats]) -> tuple[Kernel, ...]:
        """A linear kernel on every view, an RBF on the small ones, and style where the question is alike."""
        size = {name: float(np.mean(np.sum(x * x, 1))) for name, x in base.items()}
        made = [Kernel("linear", (name,), size[name]) for name in base if size[name] > 0]
        for name in ("style", "statistics"):
            x = base[name][:_ALIKE]
            apart = np.sum(x * x, 1)[:, None] + np.sum(x * x, 1) - 2 * x @ x.T
            if (median := float(np.median(apart))) > 1e-9:
                made.append(Kernel("rbf", (name,), median))
        if self.knows_prompts and size["prompt"] > 0 and size["style"] > 0:
            both = np.sum(base["prompt"] ** 2, 1) * np.sum(base["style"] ** 2, 1)
            made.append(Kernel("product", ("prompt", "style"), float(both.mean())))
        return tuple(made)


def _text_numbers(texts: Sequence[str]) -> Floats:
    """``[n, …]`` the statistics of each text, then its grammar."""
    return np.hstack([text_statistics(texts), grammar(texts)])


def relation(prompts: Sequence[str], texts: Sequence[str]) -> Floats:
    """``[n, 4]``: share of the prompt's words that the answer says, of the answer's that are the prompt's, of the prompt's that its opening says;
    and the logarithm of how many times as long it is."""
    rows = []
    for prompt, text in zip(prompts, texts, strict=True):
        asked, said = set(_words(prompt)), _words(text)
        first, different = set(said[:OPENING]), set(said)
        rows.append(
            [
                len(asked & different) / max(len(asked), 1),
                len(asked & different) / max(len(different), 1),
                len(asked & first) / max(len(first), 1),
                math.log1p(len(text)) - math.log1p(len(prompt)),
            ]
        )
    return np.array(rows, dtype=np.float64).reshape(len(rows), 4)


def _words(text: str) -> list[str]:
    return _WORD.findall(text.lower())


def _places(ids: Sequence[int], tokens: NDArray[np.int64]) -> NDArray[np.int64]:
    """Where each id is among the sorted ``tokens``; ``len(tokens)`` for one that is not."""
    found = np.asarray(ids, dtype=np.int64)
    place = np.searchsorted(tokens, found)
    right = np.append(tokens, -1)[place] == found
    return np.where(right, place, len(tokens))


def _cuts(numbers: Floats) -> tuple[Floats, NDArray[np.int64]]:
    """Limits, and the column each is of."""
    limits, own = [], []
    for column, values in enumerate(numbers.T):
        for limit in np.unique(np.quantile(values, CUTS)):
            limits.append(float(limit))
            own.append(column)
    return np.array(limits), np.array(own, dtype=np.int64)


def rule_verdicts(judge: Judge, questions: Sequence[str], answers: Sequence[str]) -> Floats:
    """``[S, k]`` verdicts of a judge. Raises ``ValueError`` where they have another form."""
    values = np.asarray(judge(questions, answers), dtype=np.float64)
    if values.ndim != 2 or len(values) != len(answers):
        raise ValueError(f"a judge of {len(answers)} answers gave verdicts of the shape {values.shape}")
    if np.nanmin(values, initial=0.0) < 0.0 or np.nanmax(values, initial=1.0) > 1.0:
        raise ValueError("a verdict is a number from 0 to 1")
    return values


def mean_verdicts(values: Floats) -> Floats:
    """``[k]`` mean verdict on each rule; ½ for one that was never judged."""
    judged = ~np.isnan(values)
    count = judged.sum(axis=0)
    sums = np.where(judged, values, 0.0).sum(axis=0)
    return np.where(count > 0, sums / np.maximum(count, 1), 0.5)
