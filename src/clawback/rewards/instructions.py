"""What a person says of answers, in sentences that a model can follow, and the features that a remark resembles.

A model that follows instructions knows already how to be brief or to use a list; it has to be told, not trained. So what the reward ensemble
has learned is turned into a few candidate sentences, and answers drawn under each show which of them helps (``sources.instructed``):

1. Remarks are sentences already: the person's own words.
2. Believed rules are sentences, too (``feedback.rule_consent``): proposed by the person or a model, and tested on the ratings.
3. The hand-written list comes last: each style feature, and each text statistic and grammatical feature that can be asked for, has a sentence for more of it and one for
   less. A feature counts by how much better the ensemble likes those of the base's own answers that have it than those that do not.
4. The two or three strongest of the list are also combined.

Patterns cover the most common remarks (``features.style_features``). Any other is compared with the sentences that each feature has ("use simpler words" is near
to "Use short, simple words."): cosine of tf-idf weights over the beginnings of words, the vector space model (Salton, Wong & Yang 1975). That is too coarse to
be trusted ("do not quote" is nearer to "Quote words that matter." than to its opposite), so it never counts as evidence: it only sets which features are tried
first, and the ratings decide what is meant.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from clawback.features.style_features import NAMES as STYLE_NAMES
from clawback.features.style_features import READ, SIGNS, Floats, Wish, manner
from clawback.features.text_statistics import GRAMMAR as GRAMMAR_NAMES
from clawback.features.text_statistics import NAMES as STATISTIC_NAMES
from clawback.features.text_statistics import grammar, text_statistics
from clawback.records import BETTER, Sample

SENTENCES: dict[str, tuple[str, str]] = {
    "words": ("Answer thoroughly and in detail.", "Answer in at most two short sentences."),
    "list": ("Answer with a bulleted list.", "Answer in plain paragraphs, without lists."),
    "emoji": ("Use a fitting emoji.", "Use no emoji."),
    "asks back": ("End with a question to me.", "Do not end with a question."),
    "exclaims": ("Be enthusiastic and use exclamation marks.", "Use no exclamation marks."),
    "casual": ("Write casually, as to a friend.", "Do not write casually."),
    "formal": ("Write formally.", "Do not write formally."),
    "apology": ("Say sorry where it is due.", "Do not apologise."),
    "hedge": ("Say what is uncertain.", "Be definite: no may, might or could."),
    "greeting": ("Begin with a friendly word.", "Start with the answer at once, without any opener."),
    "metric": ("Use metric units.", "Do not use metric units."),
    "imperial": ("Use imperial units.", "Do not use imperial units."),
    "number": ("Give numbers.", "Use no numbers."),
    "order": ("Go step by step: first, then, finally.", "Do not go step by step."),
    "you": ('Speak to me directly, as "you".', 'Do not speak to me: never say "you" or "your".'),
    "I": ('Write in the first person, as "I".', 'Do not write in the first person: never say "I", "we" or "our".'),
    "markup": ("Use Markdown: headings and bold words.", "Use no Markdown and no bold words."),
}  # fmt: skip
"""Style feature → a sentence for more of it, and one for less."""

COUNTED: dict[str, tuple[str, str]] = {
    "words a sentence": ("Use long sentences that flow.", "Use short sentences."),
    "letters a word": ("Use precise, learned words.", "Use short, simple words."),
    "paragraphs": ("Break the answer into short paragraphs.", "Answer in one paragraph."),
    "first sentence": ("Open with a full sentence that sets the scene.", "Open with a very short sentence."),
    "different words": ("Vary your words and how sentences begin.", "Keep to the same plain words."),
    "brackets": ("Add details in brackets.", "Use no brackets."),
    "quotation marks": ("Quote words that matter.", "Use no quotation marks."),
}  # fmt: skip
"""Text statistic → the same."""

GRAMMATICAL: dict[str, tuple[str, str]] = {
    "past tense": ("Write in the past tense.", "Write in the present tense."),
    "passive": ("Use the passive voice.", "Use the active voice."),
    "adverbs": ("Use adverbs.", "Use no adverbs."),
    "nominalisations": ("Use abstract terms.", "Prefer verbs to abstract terms."),
    "contractions": ("Use contractions.", "Use no contractions."),
    "not": ("Say what is not so.", "Put it positively, without negations."),
    "conditions": ("Use conditional clauses.", "Use no conditional clauses."),
    "sentence relatives": ("Use relative clauses.", "Use no relative clauses."),
    "amplifiers": ("Use intensifiers such as very.", "Use no intensifiers such as very."),
    "conjuncts": ("Link sentences: however, therefore, moreover.", "Use no linking words such as however."),
    "necessity": ("Say what must be done.", "Never say must, should or have to."),
    "prediction": ("Use will and shall.", "Do not use will or shall."),
    "first person plural": ('Write in the plural, as "we".', 'Never say "we" or "our".'),
    "wh-questions": ("Ask rhetorical questions.", "Ask no rhetorical questions."),
}  # fmt: skip
"""Grammatical feature → the same."""

ASKED: dict[str, tuple[str, str]] = SENTENCES | COUNTED | GRAMMATICAL
"""All features that can be asked for."""

SAME = (
    {"words", "sentences", "items", "paragraphs"},
    {"list", "paragraphs"},
    {"words a sentence", "first sentence"},
    {"casual", "formal"},
    {"metric", "imperial"},
)
"""Features of which one at most goes into a sentence said together with others."""
MOST_REMARKS = 4
MOST_RULES = 3
"""Believed rules that are tried, the clearest first, and all of them together."""
LONGEST_REMARK = 200
"""Characters; what is longer is a text that somebody put in, and no wish."""


@dataclass(frozen=True, slots=True)
class Instruction:
    """A sentence to be said after the prompt, and what is believed of it before it was tried."""

    text: str
    believed: float
    """Expected rating of the base's answers that meet it less that of the others; infinite for what the owner said, or said yes to."""

    @property
    def by_owner(self) -> bool:
        return math.isinf(self.believed)


_VERDICT = """
    again awful awfully bad badly best better correct correctly dislike disliked dumb error false fail failed fails fix garbage good great horrible
    incorrect incorrectly like liked love loved mediocre meh mistake nah no nonsense nope not ok okay poor poorly really redo retry right rubbish
    sorry stupid terrible terribly try ugh unhelpful unusable useless well worse worst worthless wrong wrongly yes
    a all an and another answer any are at but cannot can completely did didn do does doesn don entirely even fully hate hated i is isn it just me my
    nothing of on output please quite reply response s same so still t than that the then they thing think this to too totally very was wasn what work
    worked works you your"""
_VERDICT_WORDS = frozenset(_VERDICT.split())
"""Words that say how good an answer is, and those around them."""


def asks(remark: str) -> bool:
    """Whether a remark says more than how good an answer is.

    >>> asks("What does it cost?"), asks("Nope, that is wrong. Try again!"), asks("\N{THUMBS DOWN SIGN}")
    (True, False, False)
    """
    return any(word not in _VERDICT_WORDS for word in re.findall(r"[^\W\d_]+", remark.lower()))


def wishes(sample: Sample) -> list[str]:
    """What the owner asked for in words about an answer; edits are none."""
    own = [hint for hint in sample.hints if not hint.startswith(BETTER) and hint not in sample.foreign_hints]
    return [hint for hint in own if asks(hint)]


def of_remark(remark: str) -> str:
    """The instruction that a remark is. Another form is followed by more answers, and a run learned less under it (research/studies/2026-11-29-how-a-remark-is-put.md)."""
    return f"Please note: {remark}"


def candidates(
    texts: Sequence[str],
    rewards: Floats,
    remarks: Sequence[str] = (),
    limit: int = 7,
    rules: Sequence[str] = (),
) -> list[Instruction]:
    """The sentences that are worth a try, the likeliest first.

    Args:
        texts: ``n`` answers of the base.
        rewards: ``[n]`` what the person is expected to say of each.
        remarks: what they said about answers, in their own words.
        limit: how many at most.
        rules: sentences of believed rules, the clearest first. They come before the hand-written list, whose sentences they replace where equal.
    """
    single, said_of = _features(texts, rewards), ASKED
    said = list(dict.fromkeys(r.strip() for r in remarks if 0 < len(r.strip()) <= LONGEST_REMARK))
    found = [Instruction(of_remark(remark), np.inf) for remark in said[-MOST_REMARKS:]]
    found += _of_rules(rules, limit - len(found))
    listed = {instruction.text for instruction in found}
    single = [feature for feature in single if said_of[feature[0]][feature[1]] not in listed]
    best = [Instruction(said_of[name][less], gain) for name, less, gain in single]
    apart = _apart(single)
    together = [
        Instruction(" ".join(said_of[name][less] for name, less, _ in apart[:count]), sum(g for *_, g in apart[:count]))
        for count in (2, 3)
        if len(apart) >= count
    ]  # fmt: skip
    room = max(1, limit - len(found) - len(together))
    return (found + best[:1] + together + best[1:room])[:limit]


def _of_rules(rules: Sequence[str], room: int) -> list[Instruction]:
    """The rules alone, and together where there are several: a person who has two wants both."""
    chosen = list(dict.fromkeys(rule.strip() for rule in rules if rule.strip()))[
        : max(0, min(MOST_RULES, room))
    ]
    together = [" ".join(chosen)] if len(chosen) > 1 else []
    return [Instruction(text, np.inf) for text in [*chosen[:1], *together, *chosen[1:]][: max(0, room)]]


def _features(texts: Sequence[str], rewards: Floats) -> list[tuple[str, int, float]]:
    """(feature, 0 for more or 1 for less, difference of expected ratings), those that matter, strongest first."""
    found = []
    for name, column in _columns(texts).items():
        if name in SIGNS:
            there, lacking = column > 0, column <= 0
        else:
            low, high = np.quantile(column, (1 / 3, 2 / 3))
            there, lacking = column >= high, column <= low
        if min(there.sum(), lacking.sum()) < LEAST:
            continue
        gap = float(rewards[there].mean() - rewards[lacking].mean())
        error = float(np.sqrt(rewards[there].var() / there.sum() + rewards[lacking].var() / lacking.sum()))
        if abs(gap) > error:
            found.append((name, int(gap < 0), abs(gap)))
    return sorted(found, key=lambda one: -one[2])


def _columns(texts: Sequence[str]) -> dict[str, Floats]:
    """[n] of each feature that has a sentence."""
    parts = (
        (SENTENCES, STYLE_NAMES, manner),
        (COUNTED, STATISTIC_NAMES, text_statistics),
        (GRAMMATICAL, GRAMMAR_NAMES, grammar),
    )
    columns: dict[str, Floats] = {}
    for sentences, names, measure in parts:
        table = measure(texts)
        columns |= {name: table[:, names.index(name)] for name in sentences}
    return columns


LEAST = 3
"""Answers that have a feature, and that lack it, below which nothing is said of it."""


def _apart(single: Sequence[tuple[str, int, float]]) -> list[tuple[str, int, float]]:
    """The strongest features of different kinds."""
    chosen: list[tuple[str, int, float]] = []
    for one in single:
        if not any(one[0] in kind and other[0] in kind for kind in SAME for other in chosen):
            chosen.append(one)
    return chosen


STEM = 5
"""Letters of a word that are compared: "short" and "shorter", "sentence" and "sentences"."""

NEAR = 0.5
"""Similarity from which on a remark is taken to speak of the same thing."""

_WORD = re.compile(r"[^\W\d_]+")

Meant = tuple[str, bool]
"""A feature, and whether there should be more of it."""


def resembling(remark: str) -> dict[Meant, float]:
    """Similarity in (0, 1] of a remark to the sentence for more, or for less, of each feature; without those that it shares no word with."""
    said = _weighted(_stems(remark[:READ]))
    found = {
        meant: sum(weight * of.get(stem, 0.0) for stem, weight in said.items())
        for meant, of in _known().items()
    }
    return {meant: similarity for meant, similarity in found.items() if similarity > 0.0}


def near_to(remark: str) -> Wish:
    """The features that a remark is similar enough to that they may be meant."""
    near = sorted(resembling(remark).items(), key=lambda one: one[1])
    return {name: more for (name, more), similarity in near if similarity >= NEAR}


def _stems(text: str) -> Counter[str]:
    return Counter(word[:STEM] for word in _WORD.findall(text.lower()))


def _weighted(stems: Counter[str]) -> dict[str, float]:
    """tf-idf, of length 1."""
    rare = _rarity()
    most = math.log(len(ASKED) * 2 + 1)
    raw = {stem: (1 + math.log(count)) * rare.get(stem, most) for stem, count in stems.items()}
    length = math.sqrt(sum(value * value for value in raw.values())) or 1.0
    return {stem: value / length for stem, value in raw.items()}


@lru_cache(maxsize=1)
def _rarity() -> dict[str, float]:
    """Stem → inverse document frequency among the sentences."""
    sentences = [sentence for both in (ASKED).values() for sentence in both]
    within = Counter(stem for sentence in sentences for stem in _stems(sentence))
    return {stem: math.log((len(sentences) + 1) / (count + 1)) for stem, count in within.items()}


@lru_cache(maxsize=1)
def _known() -> dict[Meant, dict[str, float]]:
    return {
        (name, more): _weighted(_stems(sentence))
        for name, both in (ASKED).items()
        for more, sentence in zip((True, False), both, strict=True)
    }
