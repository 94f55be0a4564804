"""Statistics of a text that need no model: stylometry in any language, grammar in English.

**Stylometry**: lengths of sentences and words, variety, punctuation, layout; no word lists. The measures are those of authorship attribution (Stamatatos 2009, "A survey of modern authorship attribution methods", lexical and
character features) and the inputs of the common readability formulas (letters a word, words a sentence: Smith & Senter 1967). They need no
language: a word is a run of letters, a sentence ends at a full stop of any script or at the end of a line. Han, kana and Thai, which
write without spaces, are counted by the character.

**Grammar**: tense, voice, persons, subordination, negation, modality, degree, …, as rates a word. The features are those of Biber 1988 ("Variation across Speech and Writing", appendix II), the common set of register studies, as far as closed classes of words and
endings show them without a tagger. His lists of places, times and verbs of speech and thought are left out: they are about content. What sentences
begin with is counted as by style(1) of GNU Diction. In another language nothing is found, and what never varies is no feature.
"""

from __future__ import annotations

import math
import re
import statistics
import zlib
from collections import Counter
from collections.abc import Sequence
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]

READ = 8000
"""Characters of a text that are looked at."""
OPENING = 60
"""Words among which variety is counted: it falls with the length of a text, so all are given the same."""
LONG_WORD = 8

_WORD = re.compile(r"[\u3040-\u30ff\u3400-\u9fff\u0e00-\u0e7f]|[^\W\d_]+(?:['’][^\W\d_]+)*")
_SENTENCE = re.compile(r"(?<=[.!?…])[\"'”’)]*\s+|(?<=[。！？])|\n+")
_PARAGRAPH = re.compile(r"\n[ \t]*\n")
_MARKS = {
    "commas": ",，、،",
    "full stops": ".。",
    "exclamation marks": "!！",
    "question marks": "?？",
    "colons": ":：",
    "semicolons": ";；",
    "dashes": "-–—",
    "brackets": "()[]（）",
    "quotation marks": '"“”«»「」',
    "asterisks": "*_#`|",
}

NAMES = (
    "words a sentence", "spread of sentence lengths", "longest sentence", "first sentence", "last line",
    "sentences", "paragraphs", "words a paragraph", "longest paragraph", "lines", "words",
    "letters a word", "share of long words", "share of short words", "longest word",
    "different words", "words said once", "most said word", "compressed size",
    "capitals", "digits", "other letters", *_MARKS,
)  # fmt: skip


def text_statistics(texts: Sequence[str]) -> Floats:
    """``[S, len(NAMES)]``: counts and lengths as logarithms, rates as square roots (their spread then hardly depends on their mean)."""
    rows = [_row(text[:READ]) for text in texts]
    return np.array(rows, dtype=np.float64).reshape(len(rows), len(NAMES))


@lru_cache(maxsize=4096)
def _row(text: str) -> tuple[float, ...]:
    found = [len(words) for part in _SENTENCE.split(text) if (words := _WORD.findall(part))] or [0]
    words = _WORD.findall(text)
    lower = [word.lower() for word in words]
    sizes = [len(word) for word in words] or [0]
    paragraphs = [len(_WORD.findall(part)) for part in _PARAGRAPH.split(text) if part.strip()] or [0]
    lines = [line for line in text.split("\n") if line.strip()] or [""]
    opening = lower[:OPENING]
    times = Counter(lower)
    count, mean = max(len(words), 1), statistics.fmean(found)
    data = text.encode()
    return (
        math.log1p(mean),
        statistics.pstdev(found) / max(mean, 1.0),
        math.log1p(max(found)),
        math.log1p(found[0]),
        math.log1p(len(_WORD.findall(lines[-1]))),
        math.log1p(len(found)),
        math.log1p(len(paragraphs)),
        math.log1p(statistics.fmean(paragraphs)),
        math.log1p(max(paragraphs)),
        math.log1p(len(lines)),
        math.log1p(len(words)),
        statistics.fmean(sizes),
        sum(size >= LONG_WORD for size in sizes) / count,
        sum(size <= 3 for size in sizes) / count,
        math.log1p(max(sizes)),
        len(set(opening)) / max(len(opening), 1),
        sum(n == 1 for n in times.values()) / count,
        max(times.values(), default=0) / count,
        len(zlib.compress(data, 6)) / max(len(data), 1),
        math.sqrt(sum(word[0].isupper() for word in words) / count),
        math.sqrt(sum(c.isdigit() for c in text) / max(len(text), 1)),
        math.sqrt(sum(c.isalpha() and not c.isascii() for c in text) / max(len(text), 1)),
        *(math.sqrt(sum(text.count(mark) for mark in marks) / count) for marks in _MARKS.values()),
    )


"""Characters of a text that are looked at."""

_BE = "am|is|are|was|were|be|been|being"
_IRREGULAR = (
    "became|began|bought|brought|built|came|caught|chose|did|drew|fell|felt|found|gave|got|grew|had|heard|held|kept|knew|led|left|lost|"
    "made|meant|met|paid|ran|rose|said|sat|saw|sent|spent|spoke|stood|taught|thought|told|took|was|went|were|won|wrote"
)
_PARTICIPLE = r"(?:\w{2,}ed|\w{2,}wn|\w{2,}ung|made|done|found|given|taken|seen|held|kept|built|written|chosen|driven|known|set|put)"
_PREPOSITION = (
    "about|across|after|against|along|among|around|as|at|before|behind|between|by|despite|during|except|for|from|in|into|like|of|off|on|onto|"
    "over|through|throughout|to|toward|towards|under|until|upon|via|with|within|without"
)
_MODAL = "can|could|may|might|must|ought|shall|should|will|would"


def _words(alternatives: str) -> re.Pattern[str]:
    return re.compile(rf"\b(?:{alternatives})\b")


def _starts(alternatives: str) -> re.Pattern[str]:
    return re.compile(rf"(?:^|[.!?]\s+|\n[\s*#>•-]*)(?:{alternatives})\b")


FEATURES: dict[str, re.Pattern[str]] = {
    # Tense, aspect and voice
    "past tense": _words(rf"\w{{2,}}ed|{_IRREGULAR}"),
    "perfect": _words(rf"(?:has|have|had|having)(?: \w+)? {_PARTICIPLE}"),
    "progressive": _words(rf"(?:{_BE}) \w{{3,}}ing"),
    "present of be, have, do": _words("am|is|are|has|have|do|does"),
    "passive": _words(rf"(?:{_BE})(?: \w+ly)? {_PARTICIPLE}"),
    "passive with an agent": _words(rf"(?:{_BE})(?: \w+ly)? {_PARTICIPLE} by"),
    "main verb be": _words(rf"(?:{_BE}) (?:a|an|the|this|that|my|your|his|her|its|our|their)"),
    "existential there": _words(rf"there (?:{_BE}|exists?)"),
    # Nouns and adjectives
    "nominalisations": _words(r"\w{3,}(?:tions?|ments?|ness|nesses|ity|ities)"),
    "gerunds": _words(r"\w{3,}ing"),
    "adjectives by ending": _words(r"\w{3,}(?:al|ful|ous|ive|ic|able|ible|less)"),
    # Persons
    "first person": _words("i|me|my|mine|myself"),
    "first person plural": _words("we|us|our|ours|ourselves"),
    "second person": _words("you|your|yours|yourself|yourselves"),
    "third person": _words("he|she|they|him|her|them|his|hers|their|theirs|himself|herself|themselves"),
    "it": _words("it|its|itself"),
    "demonstratives": _words("this|these|those"),
    "indefinite persons": _words(
        "(?:any|every|some|no)(?:body|one|thing)|none|nobody|others?|each|both|either"
    ),
    # Subordination
    "that": _words("that"),
    "who, which": _words("who|whom|whose|which"),
    "sentence relatives": re.compile(r", (?:which|who|where|whose)\b"),
    "wh-clauses": _words("what|where|when|how|why|whatever|whenever|wherever"),
    "causes": _words("because|since"),
    "concessions": _words("although|though|even if|despite"),
    "conditions": _words("if|unless|provided"),
    "other subordinators": _words(
        "while|whilst|whereas|whereby|until|once|so that|such that|as long as|as soon as|as if"
    ),
    "infinitives": _words(
        r"to (?!the\b|a\b|an\b|this\b|that\b|your\b|their\b|its\b|my\b|our\b|his\b|her\b)[a-z]{2,}"
    ),
    "participle clauses": re.compile(r"(?:^|[.!?]\s+|,\s)(?:\w{3,}ing|\w{3,}ed)\b"),
    # Prepositions and adverbs
    "prepositions": _words(_PREPOSITION),
    "adverbs": _words(r"\w{3,}ly"),
    "stranded prepositions": re.compile(rf"\b(?:{_PREPOSITION})(?=[.,;:!?])"),
    "split auxiliaries": _words(rf"(?:{_BE}|has|have|had|do|does|did|{_MODAL}) \w{{3,}}ly \w+"),
    # Degree and connection
    "conjuncts": _words(
        "consequently|conversely|e\\.g|furthermore|hence|however|i\\.e|in addition|in contrast|in particular|instead|likewise|moreover|namely|"
        "nevertheless|nonetheless|on the other hand|otherwise|similarly|therefore|thus|additionally|also"
    ),
    "downtoners": _words(
        "almost|barely|hardly|merely|mildly|nearly|only|partially|partly|practically|scarcely|slightly|somewhat"
    ),
    "hedges": _words("maybe|sort of|kind of|more or less|something like|about|perhaps|rather|quite"),
    "amplifiers": _words(
        "absolutely|completely|entirely|extremely|fully|greatly|highly|perfectly|strongly|thoroughly|totally|utterly|very"
    ),
    "emphatics": _words("for sure|a lot|such an?|just|really|so \\w+|indeed|certainly"),
    # Modality, negation, reduced forms
    "possibility": _words("can|may|might|could"),
    "necessity": _words("must|should|ought|need to|needs to|have to|has to"),
    "prediction": _words("will|would|shall|going to"),
    "seem, appear": _words("seems?|seemed|appears?|appeared"),
    "not": _words(r"not|\w+n['’]t|cannot"),
    "no, neither, nor": _words("no|neither|nor|never|without"),
    "contractions": re.compile(r"\w['’](?:t|s|re|ve|ll|d|m)\b"),
    # Coordination, questions, commands
    "and": _words("and"),
    "clauses joined": re.compile(r", (?:and|but|or|so|yet) "),
    "wh-questions": re.compile(r"(?:^|[.!?]\s+)(?:what|where|when|how|why|who|which)\b[^.!?\n]*\?"),
    "yes-no questions": re.compile(rf"(?:^|[.!?]\s+)(?:{_BE}|do|does|did|has|have|{_MODAL})\b[^.!?\n]*\?"),
    # What sentences begin with
    "pronouns at the start": _starts("it|they|he|she|we|you|i|this|these|that|those"),
    "articles at the start": _starts("a|an|the"),
    "conjunctions at the start": _starts("and|but|or|so|yet"),
    "subordinators at the start": _starts(
        "after|although|as|because|before|if|once|since|though|unless|until|when|whenever|where|whereas|while"
    ),
    "prepositions at the start": _starts(
        "at|by|despite|during|for|from|in|into|of|on|over|through|to|under|with|within|without"
    ),
    "adverbs at the start": _starts(r"\w{3,}ly"),
}
GRAMMAR = tuple(FEATURES)

_TOKEN = re.compile(r"\w+")


def grammar(texts: Sequence[str]) -> Floats:
    """``[S, len(NAMES)]``: the square root of how often each is found a word (its spread then hardly depends on its mean)."""
    rows = [_grammar_row(text[:READ].lower()) for text in texts]
    return np.array(rows, dtype=np.float64).reshape(len(rows), len(GRAMMAR))


@lru_cache(maxsize=4096)
def _grammar_row(text: str) -> tuple[float, ...]:
    words = max(len(_TOKEN.findall(text)), 1)
    return tuple(math.sqrt(len(pattern.findall(text)) / words) for pattern in FEATURES.values())
