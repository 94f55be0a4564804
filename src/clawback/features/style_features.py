"""Features of an answer for a reward model, and which of them a remark asks for.

What people like about answers is, for the most part, one of a few well-known properties: evaluations of chat models
control for length and markup before they compare anything else (Dubois et al. 2024, length-controlled AlpacaEval; Chatbot Arena's style
control), and style transfer speaks of formality and politeness. A reward head that knows them by name needs a fraction of the ratings that
one on hidden states alone needs (research/studies/2026-11-21-more-from-the-same-taps.md). Words are looked for in English; of an answer in another language, marks, numbers
and lengths remain.

A remark ("too long", "no emoji, please", "be formal") states what a rating leaves to be inferred. The most common remarks are covered, in English only. Any other is left
to the algorithms that read hints with the model itself (``opd``, ``combined``).

There are three kinds of features, standardised over answers that the base itself gives to the person's prompts:

* **Style.** Length, lists, tone, units and the like, by name: what most tastes are about.
* **Tokens.** Whether a token occurs at all, for tokens that occur in at least a tenth of those answers and are missing in
  at least a tenth. They capture how things are said (a word, a punctuation mark), not what is said, because the words
  of one topic are rare over all. So the head cannot learn to prefer or reject a fact.
* **Hidden states.** The mean of the base's last hidden states over the response, and the log of its length: what the
  other two miss. The *base*'s, with the adapter off, so that features mean the same in
  every version and ratings of old and new answers can be learned from together.

Their shares (``SHARES``) are a prior on where a taste shows: a few dozen ratings cannot find a direction among hundreds of hidden
units, most of which speak of the topic. Other layers, poolings and spaces: research/studies.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Bools = NDArray[np.bool_]

EMOJI = re.compile("[\U0001f300-\U0001faff\u2600-\u27bf]")
_ITEM = re.compile(
    r"^[ \t]*(?:[-*•]|\d{1,3}[.)])\s", re.MULTILINE
)  # [ \t]: with \s a run of blank lines takes quadratic time


def _words(*alternatives: str) -> re.Pattern[str]:
    return re.compile(rf"\b(?:{'|'.join(alternatives)})\b")


def _unit(*names: str) -> re.Pattern[str]:
    return re.compile(rf"\d\s?(?:{'|'.join(names)})(?![a-z])")


_CASUAL = _words(
    "hey", "hi", "yeah", "yep", "nope", "okay", "ok", "sure thing", "no problem", "no worries", "gonna", "wanna", "kinda", "stuff", "guys",
    "folks", "cool", "awesome", "grab", "a lot", "lots", "super", "(?:it|that|what|there|here|let)'s", r"[a-z]+'(?:ll|re|ve|d|m)", r"[a-z]+n't",
)  # fmt: skip
_FORMAL = _words(
    "certainly", "of course", "please", "kindly", "therefore", "however", "furthermore", "moreover", "additionally", "regarding", "would",
    "shall", "one (?:should|may|must)", "approximately", "typically",
)  # fmt: skip
_APOLOGY = _words("sorry", "apolog(?:y|ies|i[sz]e)", "unfortunately", "regret", "excuse me")
_HEDGE = _words(
    "may", "might", "could", "perhaps", "possibly", "probably", "usually", "roughly", "approximately", "var(?:y|ies)", "depends?", "careful",
    "caution", "note that", "not sure", "consult",
)  # fmt: skip
_GREETING = re.compile(
    r"^\W*(?:sure|certainly|of course|absolutely|great|no problem|okay|ok|yes|happy to|thanks?)\b"
)
_METRIC = _unit(
    "kg", "g", "grams?", "km", "cm", "mm", "m", "ml", "l", "lit(?:re|er)s?", "(?:kilo|centi)?met(?:re|er)s?", "square km",
    "(?:degrees )?celsius", "°c",
)  # fmt: skip
_IMPERIAL = _unit(
    "lbs?", "pounds?", "oz", "(?:fluid )?ounces?", "(?:square )?miles?", "feet", "foot", "ft", "inch(?:es)?", "yards?", "gallons?", "cups?",
    "(?:degrees )?fahrenheit", "°f",
)  # fmt: skip
_ORDER = _words("first", "second", "third", "then", "next", "finally", "lastly", "after that")
_YOU = _words("you", "your")
_I = _words("i", "me", "my", "we", "our")
_SENTENCE = re.compile(r"[.!?](?:\s|$)")
_MARKUP = re.compile(r"\*\*|^#|```|^\|", re.MULTILINE)


def _last(text: str) -> str:
    return EMOJI.sub("", text).rstrip()[-1:]


SIGNS: dict[str, Callable[[str], bool]] = {
    "list": lambda text: len(_ITEM.findall(text)) >= 2,
    "emoji": lambda text: bool(EMOJI.search(text)),
    "asks back": lambda text: _last(text) == "?",
    "exclaims": lambda text: "!" in text,
    "casual": lambda text: bool(_CASUAL.search(text)),
    "formal": lambda text: bool(_FORMAL.search(text)),
    "apology": lambda text: bool(_APOLOGY.search(text)),
    "hedge": lambda text: bool(_HEDGE.search(text)),
    "greeting": lambda text: bool(_GREETING.search(text)),
    "metric": lambda text: bool(_METRIC.search(text)),
    "imperial": lambda text: bool(_IMPERIAL.search(text)),
    "number": lambda text: any(c.isdigit() for c in text),
    "order": lambda text: bool(_ORDER.search(text)),
    "you": lambda text: bool(_YOU.search(text)),
    "I": lambda text: bool(_I.search(text)),
    "colon": lambda text: ":" in text,
    "markup": lambda text: bool(_MARKUP.search(text)),
}
"""What is there or not."""

COUNTS: dict[str, Callable[[str], float]] = {
    "words": lambda text: math.log1p(len(text.split())),
    "sentences": lambda text: math.log1p(len(_SENTENCE.findall(text))),
    "items": lambda text: math.log1p(len(_ITEM.findall(text))),
    "words a line": lambda text: (
        len(text.split()) / max(1, sum(bool(line.strip()) for line in text.split("\n")))
    ),
}
"""What there is more or less of."""

NAMES = (*SIGNS, *COUNTS)


def manner(texts: Sequence[str]) -> Floats:
    """``[S, len(NAMES)]`` style features of texts: signs as 0 or 1, then counts."""
    rows = [_row(text) for text in texts]
    return np.array(rows, dtype=np.float64).reshape(len(rows), len(NAMES))


@lru_cache(maxsize=2048)
def _row(text: str) -> tuple[float, ...]:
    """Kept, since what shows how answers vary is looked at again. In lower case once: a pattern that ignores case takes several times as long."""
    text = text.lower()
    return tuple(float(of(text)) for of in (*SIGNS.values(), *COUNTS.values()))


READ = 2000
"""Characters of a remark that are read; what is longer is text that somebody put in."""

Wish = dict[str, bool]
"""Style feature, or ``SAYS`` and a text → whether there should be (more of) it. Any one of them may be what is meant."""

SAYS = "says "
"""What stands before a text that somebody quotes: Stop saying "Great question"."""

LONGEST = 160
"""Characters of a sentence that is taken for a remark; longer ones are quotations, or tell of something else."""

_MORE: Wish = {"words": True, "sentences": True, "items": True}
_SHORT, _LONG = r"short(?:er)?|brief(?:er)?", r"long(?:er)?|endless"
_CONCEPTS: tuple[tuple[str, Wish], ...] = (
    # What is short or long comes first: "shorter sentences" does not ask for a shorter answer.
    *((rf"(?:{size}) {part}s?|{part}s?(?: that)?(?: are| is|'re)?(?: \w+)? (?:{size})", {name: more})
      for size, more in ((_SHORT, False), (_LONG, True))
      for part, name in (("sentence", "words a sentence"), ("word", "letters a word"), ("paragraph", "words a paragraph"))),
    (r"short(?:er|ly)?|brief(?:er|ly)?|concise(?:ly)?|terse(?:r|ly)?|succinct(?:ly)?|to the point|tl;?dr|compact", dict.fromkeys(_MORE, False)),
    (r"long(?:er)?|detail(?:s|ed)?|wordy|verbose|lengthy|rambl\w+|elaborate|expand|everything|thorough(?:ly)?|in[- ]depth|comprehensive", _MORE),
    (r"bullet(?:s|ed)?(?:[- ]points?)?|list(?:s|ed)?|itemi[sz]ed?", {"list": True}),
    (r"prose|paragraphs?|(?:full|whole|complete) sentences|flowing text", {"list": False}),
    (r"informal(?:ly)?|casual(?:ly)?|relax(?:ed)?|friend(?:ly)?|chatty|laid[- ]back|conversational", {"casual": True, "exclaims": True, "formal": False}),
    (r"formal(?:ly)?|professional(?:ly)?|business[- ]?like|serious(?:ly)?", {"formal": True, "casual": False, "exclaims": False}),
    (r"apolog\w+|sorry", {"apology": True}),
    (r"emojis?|emoticons?|smileys?", {"emoji": True}),
    (r"exclamations?(?: (?:marks?|points?))?|shout(?:ing)?", {"exclaims": True}),
    (r"caveats?|cautions?|disclaimers?|hedg\w+|warnings?|uncertain(?:ty)?|figures vary", {"hedge": True}),
    (r"questions?|ask(?:ing)?(?: me)?(?: back)?|follow[- ]?ups?", {"asks back": True}),
    (r"metric|celsius|kilomet\w+|kilograms?|kilos?", {"metric": True, "imperial": False}),
    (r"imperial|american units|us units|fahrenheit|miles|pounds|inches", {"imperial": True, "metric": False}),
    (r"markdown|markup|bold(?:face)?|headings?|headers?", {"markup": True}),
    (r"steps?|step[- ]by[- ]step|in order", {"order": True}),
    (r"number(?:s|ed)?|figures|statistics", {"number": True}),
    (r"greetings?|pleasantries|preambles?|openers?", {"greeting": True}),
)  # fmt: skip
_KNOWN = [(re.compile(rf"\b(?:{words})\b", re.IGNORECASE), wish) for words, wish in _CONCEPTS]
_NOT = re.compile(
    r"\b(?:no|not|don'?t|do not|never|without|avoid|less|fewer|too|stop|skip|drop|omit|remove|cut|leave out|lose|hate|dislike)\b",
    re.IGNORECASE,
)
_NOT_ENOUGH = re.compile(r"\b(?:not|n't)\b[^.;,]{0,160}?\benough\b", re.IGNORECASE)
_QUOTED = re.compile(rf"[\"“”«]([^\"“”«»\n]{{2,60}})[\"“”»]|({EMOJI.pattern})")
_PIECES = re.compile(r"[.!?;\n]++\s*+|,?(?<!\s)\s++(?:but|and)\s++|,\s++")


def wishes(text: str) -> list[Wish]:
    """What each part of a remark asks for; parts without anything known are left out.

    "Too long, and no apologies!" → fewer words; no apology. A part with a *no* or *too* before what it names
    asks for the opposite. A text in quotation marks, or an emoji, is taken literally.
    """
    text = text[:READ]
    found: list[Wish] = []
    for match in _QUOTED.finditer(text):
        before = _PIECES.split(text[: match.start()])[-1]
        quoted = match[1] or match[2]
        found.append({SAYS + quoted.strip().lower(): not _NOT.search(before)})
    for piece in _PIECES.split(_QUOTED.sub(" ", text)):
        if piece and len(piece) <= LONGEST and (wish := _wish(piece)):
            found.append(wish)
    return found


def _wish(piece: str) -> Wish | None:
    for pattern, wish in _KNOWN:
        if match := pattern.search(piece):
            turned = bool(_NOT.search(piece, 0, match.end())) and not _NOT_ENOUGH.search(piece)
            return {name: more != turned for name, more in wish.items()}
    return None


EVERYDAY = 0.1
"""A token counts when it occurs in at least this share of the base's answers, and is missing in as many."""
SHARES = (0.5, 0.3, 0.2)
"""Shares of style, tokens and hidden states in the squared length of an average answer's features."""
CUTS = (1 / 3, 1 / 2, 2 / 3)
"""Quantiles of a count among the base's answers: "more than that" is a sign."""
_LEAST_SPREAD = 0.05
"""A style feature that varies less than this is left out."""


@dataclass(frozen=True, slots=True)
class Features:
    """The features of answers that the reward head uses, standardised."""

    tokens: NDArray[np.int64]  # [k] ids of the everyday tokens
    share: Floats  # [k] of the base's answers that hold them
    mean: Floats  # [h] of the hidden features
    spread: Floats  # [h]
    usual: Floats  # [m] means of the style features
    varies: Floats  # [m] their standard deviations; 0 for one that is left out
    cuts: Floats  # [counts, cuts] of the style features that are counts
    phrases: tuple[str, ...] = ()  # texts that somebody spoke of, in lower case
    shares: tuple[float, float, float] = SHARES

    @classmethod
    def ground(cls, answers: Sequence[Sequence[int]], hidden: Floats, texts: Sequence[str]) -> Features:
        """From answers of the base to many prompts: their token ids, their ``features [S, h]``, and what they say."""
        held = [set(ids) for ids in answers]
        counts: dict[int, int] = {}
        for ids in held:
            for token in ids:
                counts[token] = counts.get(token, 0) + 1
        least, most = EVERYDAY * len(held), (1 - EVERYDAY) * len(held)
        tokens = np.array(sorted(t for t, n in counts.items() if least <= n <= most), dtype=np.int64)
        share = np.array([counts[int(t)] / len(held) for t in tokens])
        how = manner(texts)
        varies = np.where(how.std(0) > _LEAST_SPREAD, how.std(0), 0.0)
        cuts = np.quantile(how[:, len(SIGNS) :], CUTS, axis=0).T
        return cls(
            tokens,
            share,
            hidden.mean(0),
            np.maximum(hidden.std(0), 1e-8),
            how.mean(0),
            varies,
            cuts,
        )

    def __call__(self, answers: Sequence[Sequence[int]], hidden: Floats, texts: Sequence[str]) -> Floats:
        """``[S, m + k + h]``: an average answer of the base has squared length 1."""
        there = self._there(answers)
        chosen = self.varies > 0
        blocks = [
            (manner(texts) - self.usual)[:, chosen] / self.varies[chosen],
            (there - self.share) / np.sqrt(self.share * (1 - self.share)),
            (hidden - self.mean) / self.spread,
        ]
        shares = [share if block.shape[1] else 0.0 for share, block in zip(self.shares, blocks, strict=True)]
        weights = [
            share / sum(shares) / max(1, block.shape[1]) for share, block in zip(shares, blocks, strict=True)
        ]
        return np.hstack([block * np.sqrt(w) for block, w in zip(blocks, weights, strict=True)])

    @property
    def manners(self) -> int:
        """How many of the signs are style features or phrases; the others are tokens."""
        return len(SIGNS) + self.cuts.size + len(self.phrases)

    def signs(self, answers: Sequence[Sequence[int]], texts: Sequence[str]) -> NDArray[np.bool_]:
        """``[S, manners + k]`` binary features: style features that are present, counts above their cuts, phrases, tokens that occur."""
        how = manner(texts)
        there, counted = how[:, : len(SIGNS)] > 0, how[:, len(SIGNS) :]
        above = (counted[:, :, None] > self.cuts).reshape(len(how), self.cuts.size)
        says = np.array([[phrase in text.lower() for phrase in self.phrases] for text in texts], dtype=bool)
        return np.hstack([there, above, says.reshape(len(how), -1), self._there(answers) > 0])

    def columns(self, name: str) -> list[int]:
        """The columns of a style feature, or a phrase, among the signs: one, or one for each cut of a count.
        None for a phrase that is not tracked.
        """
        signs = len(SIGNS)
        if name.startswith(SAYS):
            phrase = name.removeprefix(SAYS)
            return [signs + self.cuts.size + i for i, one in enumerate(self.phrases) if one == phrase]
        place = NAMES.index(name)
        if place < signs:
            return [place]
        first = signs + (place - signs) * len(CUTS)
        return list(range(first, first + len(CUTS)))

    def _there(self, answers: Sequence[Sequence[int]]) -> Floats:
        held = [set(ids) for ids in answers]
        there = np.array([[int(t) in ids for t in self.tokens] for ids in held], dtype=np.float64)
        return there.reshape(len(held), len(self.tokens))
