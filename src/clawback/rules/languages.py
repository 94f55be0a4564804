"""Tells the language of a text by its script, or by its most common words.

Counting function words is the baseline of language identification (Grefenstette 1995). It needs no model, and tells the languages below apart on
texts of some ten words or more; about a shorter text nothing is said.
"""

from __future__ import annotations

import re
from collections import Counter

LEAST = 8
"""Words below which nothing is said."""
SHARE = 0.08
"""Share of a text's words that have to be function words of its language."""
READ = 4000

_WORD = re.compile(r"[^\W\d_]+")
_COMMON = {
    "en": "the of and to in is that it for was on are with as be this have from or by not you at which but they we can an if will",
    "de": "der die das und ist in zu den mit von nicht ein eine es ich sie auf für im dem des auch sich als an wie wird oder sind kann",
    "fr": "le la les de des et est un une que pour dans qui sur pas avec vous il au du en ce ou par plus sont nous je cette aux",
    "es": "el la los las de y que en un una es por con para no se del al lo como más su pero son o este puede también muy hay",
    "it": "il di che e la in un per è non sono una con del della le si da dei al come gli nel anche più lo questo alla può ma",
    "pt": "o de que e do da em um para é com não uma os no se na por mais as dos como mas ao das pode são ou você também",
    "nl": "de het een en van is in te dat op voor met zijn niet aan er om ook als bij door naar wordt maar je kan ze deze of dit",
}
_FUNCTION = {name: frozenset(words.split()) for name, words in _COMMON.items()}
_SCRIPTS = {
    "ja": r"[\u3040-\u30ff]", "ko": r"[\uac00-\ud7af]", "ru": r"[\u0400-\u04ff]", "ar": r"[\u0600-\u06ff]", "el": r"[\u0370-\u03ff]",
    "he": r"[\u0590-\u05ff]", "hi": r"[\u0900-\u097f]", "th": r"[\u0e00-\u0e7f]", "zh": r"[\u3400-\u9fff]",
}  # fmt: skip
_OF_SCRIPT = {name: re.compile(pattern) for name, pattern in _SCRIPTS.items()}
NAMES = {
    "english": "en", "german": "de", "french": "fr", "spanish": "es", "italian": "it", "portuguese": "pt", "dutch": "nl", "japanese": "ja",
    "korean": "ko", "russian": "ru", "arabic": "ar", "greek": "el", "hebrew": "he", "hindi": "hi", "thai": "th", "chinese": "zh",
}  # fmt: skip
"""English name → code of every language that is known."""


def language_of(text: str) -> str:
    """The code of the language; "" where it cannot be told."""
    text = text[:READ].lower()
    letters = sum(map(str.isalpha, text))
    for name, pattern in _OF_SCRIPT.items():
        # Japanese has Han signs beside kana, so a few kana are enough to tell it from Chinese.
        if len(pattern.findall(text)) > (0.1 if name == "ja" else 0.5) * max(letters, LEAST):
            return name
    words = Counter(_WORD.findall(text))
    count = sum(words.values())
    if count < LEAST:
        return ""
    hits = sorted(((sum(words[w] for w in common), name) for name, common in _FUNCTION.items()), reverse=True)
    (most, name), (next_most, _) = hits[:2]
    different = len(_FUNCTION[name] & words.keys())
    return name if different >= 2 and most >= SHARE * count and most > next_most else ""
