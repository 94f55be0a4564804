"""Grammatical features of an English text: tense, voice, persons, subordination, negation, modality, degree, …, as rates a word.

They are those of Biber 1988 ("Variation across Speech and Writing", appendix II), the common set of register studies, as far as closed classes of words and
endings show them without a tagger. His lists of places, times and verbs of speech and thought are left out: they are about content. What sentences
begin with is counted as by style(1) of GNU Diction. In another language nothing is found, and what never varies is no feature.
"""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]

READ = 8000
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
NAMES = tuple(FEATURES)

_WORD = re.compile(r"\w+")


def grammar(texts: Sequence[str]) -> Floats:
    """``[S, len(NAMES)]``: the square root of how often each is found a word (its spread then hardly depends on its mean)."""
    rows = [_row(text[:READ].lower()) for text in texts]
    return np.array(rows, dtype=np.float64).reshape(len(rows), len(NAMES))


@lru_cache(maxsize=4096)
def _row(text: str) -> tuple[float, ...]:
    words = max(len(_WORD.findall(text)), 1)
    return tuple(math.sqrt(len(pattern.findall(text)) / words) for pattern in FEATURES.values())
