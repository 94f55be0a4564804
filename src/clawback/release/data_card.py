"""The data card of each version: what it was trained on, and which groups of ratings differ; also used by ``clawback runs report``.

A group (a rater, a language, a length, an agent) *leans* where the 95 % Wilson interval of its share of good ratings leaves out the share of all
others. That shows that the ratings differ there, not why: long answers may be worse, or one rater stricter.
"""

from __future__ import annotations

import math
import re
import unicodedata
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from clawback.store import Store

FEW = 8
"""Ratings under which a group is not judged."""
_COMMON = {
    "English": [
        "the",
        "and",
        "is",
        "are",
        "what",
        "how",
        "you",
        "of",
        "to",
        "in",
        "that",
        "it",
        "for",
        "with",
        "can",
        "this",
        "do",
    ],
    "German": [
        "der",
        "die",
        "das",
        "und",
        "ist",
        "ein",
        "eine",
        "nicht",
        "wie",
        "ich",
        "mit",
        "auf",
        "für",
        "was",
        "zu",
        "den",
        "sich",
    ],
    "French": [
        "le",
        "la",
        "les",
        "et",
        "est",
        "un",
        "une",
        "des",
        "que",
        "pour",
        "dans",
        "pas",
        "je",
        "vous",
        "comment",
        "qui",
        "du",
    ],
    "Spanish": [
        "el",
        "la",
        "los",
        "las",
        "y",
        "es",
        "un",
        "una",
        "que",
        "para",
        "por",
        "con",
        "como",
        "no",
        "en",
        "qué",
        "de",
    ],
    "Italian": [
        "il",
        "lo",
        "la",
        "gli",
        "e",
        "è",
        "un",
        "una",
        "che",
        "per",
        "con",
        "come",
        "non",
        "di",
        "sono",
        "del",
    ],
    "Portuguese": [
        "o",
        "a",
        "os",
        "as",
        "e",
        "é",
        "um",
        "uma",
        "que",
        "para",
        "por",
        "com",
        "como",
        "não",
        "em",
        "do",
        "da",
    ],
    "Dutch": [
        "de",
        "het",
        "een",
        "en",
        "is",
        "niet",
        "van",
        "ik",
        "met",
        "wat",
        "hoe",
        "voor",
        "dat",
        "op",
        "te",
        "zijn",
    ],
}
_SCRIPTS = (
    "CYRILLIC",
    "GREEK",
    "ARABIC",
    "HEBREW",
    "DEVANAGARI",
    "HANGUL",
    "HIRAGANA",
    "KATAKANA",
    "CJK",
    "THAI",
)


@dataclass(frozen=True, slots=True)
class StandingRating:
    """One rating that stands."""

    turn_id: int
    value: float
    rater: str
    agent: str
    version: int | None
    words: int
    language: str
    topic: str
    at: float


@dataclass(frozen=True, slots=True)
class OpinionGroup:
    """A part of the ratings: how many, the share of good ones with its interval, and whether it leans away from the others."""

    name: str
    count: int
    good: float
    low: float
    high: float
    leans: bool


def opinions(store: Store, feedback_ids: Collection[int] | None = None) -> list[StandingRating]:
    """The newest rating of each person and turn, oldest first; of this feedback alone where named."""
    from clawback.feedback.calibrate import ratings

    made = []
    for given in ratings(store.feedback(ids=feedback_ids)):
        if not given.value:
            continue
        turn = store.turn(given.turn_id)
        words = len(turn.response.split())
        tongue = language(f"{turn.prompt} {turn.response}")
        made.append(
            StandingRating(
                turn.id,
                given.value,
                given.author,
                turn.agent,
                turn.version,
                words,
                tongue,
                topic(turn.prompt, turn.response),
                given.created_at,
            )
        )
    return made


def language(text: str) -> str:
    """A guess: by script, else by common words of seven languages; "other" where neither tells."""
    letters = [c for c in text[:2000] if c.isalpha()]
    if not letters:
        return "other"
    scripts = Counter(
        next((s for s in _SCRIPTS if unicodedata.name(c, "").startswith(s)), "LATIN") for c in letters
    )
    script, count = scripts.most_common(1)[0]
    if script != "LATIN" and count > len(letters) / 2:
        return "Chinese or Japanese" if script in ("CJK", "HIRAGANA", "KATAKANA") else script.capitalize()
    words = re.findall(r"[^\W\d_]+", text.lower())[:400]
    hits = {name: sum(w in common for w in words) for name, common in _COMMON.items()}
    best = max(hits, key=lambda name: hits[name])
    return best if hits[best] >= max(1, len(words) // 20) else "other"


def length(opinion: StandingRating) -> str:
    """In words, by steps."""
    for limit, name in ((30, "up to 30 words"), (100, "31 to 100"), (300, "101 to 300")):
        if opinion.words <= limit:
            return name
    return "more than 300"


_TOPICS = {
    "code": "code function python javascript rust bug error test tests compile script repo class api regex sql git traceback exception refactor",
    "numbers": "calculate sum equation percent average probability number solve math maths integral how_many",
    "writing": "write essay email letter poem story draft rewrite rephrase summarise summarize summary translate tone headline",
    "planning": "plan schedule trip travel recipe cook budget organise organize checklist steps",
    "advice": "should recommend advice best worth choose better prefer suggest",
    "facts": "what who when where why explain mean difference history capital define",
}


def topic(prompt: str, response: str) -> str:
    """What kind of thing was asked for: a guess by words that stand for six kinds, the rarer kind where several fit; "other" where none does."""
    if "```" in response or "```" in prompt:
        return "code"
    words = set(re.findall(r"[^\W\d_]+", prompt.lower()[:4000]))
    hits = {name: len(words & set(of.split())) for name, of in _TOPICS.items()}
    best = max(
        hits, key=lambda name: hits[name]
    )  # of equals the first: "facts" is asked in nearly every question
    return best if hits[best] else "other"


BY: dict[str, Callable[[StandingRating], str]] = {
    "rater": lambda o: o.rater,
    "topic": lambda o: o.topic,
    "language": lambda o: o.language,
    "length": length,
    "agent": lambda o: o.agent,
}


def groups(opinions: Sequence[StandingRating], key: Callable[[StandingRating], str]) -> list[OpinionGroup]:
    """The parts, largest first."""
    names = Counter(key(one) for one in opinions)
    good = Counter(key(one) for one in opinions if one.value > 0)
    every, liked = len(opinions), sum(good.values())
    made = []
    for name, count in sorted(names.items(), key=lambda item: (-item[1], item[0])):
        low, high = wilson(good[name], count)
        others = (liked - good[name]) / (every - count) if every > count else None
        leans = count >= FEW and every - count >= FEW and others is not None and not low <= others <= high
        made.append(OpinionGroup(name, count, good[name] / count, low, high, leans))
    return made


def wilson(good: int, count: int, z: float = 1.959964) -> tuple[float, float]:
    """95 % interval of a share (Wilson 1927)."""
    if not count:
        return 0.0, 1.0
    share, square = good / count, z * z / count
    middle = (share + square / 2) / (1 + square)
    half = z * math.sqrt(share * (1 - share) / count + square / (4 * count)) / (1 + square)
    return max(0.0, middle - half), min(1.0, middle + half)


def markdown(store: Store, feedback_ids: Collection[int], version: int) -> str:
    """The data card of a version: numbers alone, nothing that was said."""
    said = opinions(store, set(feedback_ids))
    turns = [store.turn(number) for number in sorted({one.turn_id for one in said})]
    kinds = Counter(str(f.kind) for f in store.feedback(ids=feedback_ids))
    lines = [f"# Data of version {version}", ""]
    lines.append(f"- {len(turns)} rated turns, {len(said)} ratings, {len({o.rater for o in said})} raters")
    lines.append("- feedback: " + _counted(kinds))
    lines.append("- consent: " + _counted(Counter(t.consent or "not asked" for t in turns)))
    lines.append("- licences: " + _counted(Counter(t.licence or "none named" for t in turns)))
    lines += _raters(store, set(feedback_ids))
    lines += [
        "",
        "Ratings by group; a group that leans differs from all others by more than chance (95 %).",
        "",
    ]
    for title, key in BY.items():
        lines += [f"| {title} | ratings | good | interval | leans |", "| --- | --- | --- | --- | --- |"]
        lines += [
            f"| {_cell(g.name)} | {g.count} | {g.good:.2f} | {g.low:.2f} to {g.high:.2f} | {'yes' if g.leans else ''} |"
            for g in groups(said, key)
        ]
        lines.append("")
    return "\n".join(lines)


def _raters(store: Store, feedback_ids: Collection[int]) -> list[str]:
    """How far the people agree whom it learned from, what each weighs, and on how many answers they part."""
    from clawback.feedback import calibrate
    from clawback.feedback.calibrate import agreed, ratings, sign

    said = [f for f in store.feedback(ids=feedback_ids) if f.kind == "rating"]
    newest = {(f.author, f.turn_id): f.value for f in ratings(said)}
    people, turns = sorted({s for s, _ in newest}), sorted({t for _, t in newest})
    if len(people) < 2:
        return []
    by_turn = {t: [newest[p, t] for p in people if (p, t) in newest] for t in turns}
    apart = sum({1, -1} <= {sign(v) for v in values} for values in by_turn.values())
    alpha = calibrate.krippendorff_alpha([[newest.get((p, t)) for t in turns] for p in people], "interval")
    weights = agreed(said)
    lines = [f"- rated by several: {sum(len(v) > 1 for v in by_turn.values())}, of which some liked and others did not: {apart}"]  # fmt: skip
    lines.append(f"- Krippendorff's alpha: {'not defined' if alpha is None else f'{alpha:.2f}'}")
    lines.append("- weights: " + ", ".join(f"{_cell(p)} {weights.get(p, 1.0):.2f}" for p in people))
    return lines


def _counted(counts: Counter[str]) -> str:
    return ", ".join(f"{_cell(name)} {count}" for name, count in counts.most_common()) or "none"


def _cell(text: str) -> str:
    return " ".join(text.replace("|", "/").replace("`", "'").split())[:80]


def leaning(opinions: Sequence[StandingRating]) -> Iterable[tuple[str, OpinionGroup]]:
    """(which kind, group) of all that lean."""
    return [(title, g) for title, key in BY.items() for g in groups(opinions, key) if g.leans]
