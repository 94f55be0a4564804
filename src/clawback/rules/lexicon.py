"""The words that ``phrases`` knows, by what they do in a sentence; and which language a text is in.

Kinds: ``no`` ``not`` ``stop`` ``hate`` deny; ``verb`` ``say`` ``ask`` ``start`` ``end`` ``limit`` are what is to be done; ``wish`` and ``liking`` are the
person's; ``I`` ``you`` ``subject`` ``modal`` tell a wish from a statement; ``all`` may not be denied; ``bound`` compares; ``feature`` and ``unit`` are what is counted; ``filler`` changes nothing;
``unread`` stops the reading.

The language follows from the script, or from the most common words. Counting function words is the baseline of language identification (Grefenstette
1995). It tells the languages below apart on texts of some ten words or more; about a shorter text nothing is said.
"""

from __future__ import annotations

import re
from collections import Counter
from typing import NamedTuple

from clawback.feedback import news

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


Kind = tuple[str, ...]
"""A class, and the values that it carries."""


class Feature(NamedTuple):
    """What is asked for where it is wanted, and where it is not; "" where that cannot be checked."""

    present: str
    absent: str
    unit: str = ""
    """The measure that counts it, for "at most three commas"."""
    names: tuple[str, ...] = ()


def _counted(measure: str, *names: str) -> Feature:
    return Feature(f"{measure} = yes", f"{measure} = no", measure, names)


def _there(measure: str, *names: str) -> Feature:
    return Feature(f"{measure} = yes", f"{measure} = no", "", names)


FEATURES: dict[str, Feature] = {
    "list": _there("list", "list", "lists", "lists of any kind", "any kind of list"),
    "bullets": Feature(
        "bullets = yes", "bullets = no", "list items",
        ("bullets", "bullet points", "bullet point", "bullet-points", "bullet list", "bullet lists", "bulleted list", "bulleted lists",
         "bullet point list", "bullet point lists", "bullet-point lists"),
    ),
    "numbered list": _there("numbered list", "numbered list", "numbered lists", "ordered list", "ordered lists"),
    "items": Feature("", "", "list items", ("list items", "items")),
    "headings": _counted("headings", "headings", "heading", "headers", "header", "section headings", "subheadings"),
    "table": _there("table", "table", "tables"),
    "bold": _counted("bold", "bold text", "bold words", "bold type", "bold formatting", "boldface", "in bold"),
    "code block": _counted("code block", "code block", "code blocks"),
    "links": _counted("links", "links", "link", "urls", "url"),
    "emoji": _counted("emoji", "emoji", "emojis"),
    "numbers": Feature("numbers = yes", "digits = no", "numbers", ("numbers", "a number", "any number", "one number", "at least one number")),
    "digits": _counted("digits", "digits"),
    "capitals": _counted("capitals", "capital letters", "uppercase letters", "upper-case letters", "capitals"),
    "lower case": Feature("capitals = no", "", "", ("lowercase", "all lowercase", "lower case", "all lower case", "lowercase letters only")),
    "first person": _there("first person", "first person", "the first person", "first-person"),
    "second person": _there("second person", "second person", "the second person"),
    "apology": _there("apology", "apologies", "an apology", "apologise", "apologize", "apologising", "apologizing"),
    "contractions": _counted("contractions", "contractions"),
    "exclamation marks": _counted("exclamation marks", "exclamation marks", "exclamation mark", "exclamation points", "exclamation point"),
    "question": _counted("questions", "questions", "question", "question marks"),
    "commas": _counted("commas", "commas", "comma"),
    "semicolons": _counted("semicolons", "semicolons", "semicolon", "semi-colons"),
    "colons": _counted("colons", "colons"),
    "em dashes": _counted("em dashes", "em dashes", "em dash", "em-dashes"),
    "brackets": _counted("brackets", "brackets"),
    "parentheses": _counted("parentheses", "parentheses"),
    "quotation marks": _counted("quotation marks", "quotation marks"),
    "ellipses": _counted("ellipses", "ellipses", "ellipsis"),
}  # fmt: skip

UNITS = {name: feature.unit for name, feature in FEATURES.items()}

_ONES = (
    "zero",
    *news.NUMBERS[1:],
    "thirteen",
    "fourteen",
    "fifteen",
    "sixteen",
    "seventeen",
    "eighteen",
    "nineteen",
)
_TENS = ["twenty", "thirty", "forty", "fifty", "sixty", "seventy", "eighty", "ninety"]
NUMBERS = {name: number for number, name in enumerate(_ONES)} | {name: 10 * number for number, name in enumerate(_TENS, 2)}  # fmt: skip

_ANSWERS = ("answer", "response", "reply")
_MANY = ("answers", "responses", "replies")

_WORDS: dict[Kind, str] = {
    ("comma",): ",",
    ("and",): "and|as well as",
    ("or",): "or|nor",
    ("but",): "but",
    ("no",): "no|without|without any|zero|neither|no more",
    ("not",): "never|not|don't|do not|dont|please don't|never ever",
    ("stop",): "stop|avoid|skip|drop|omit|ban|ditch|get rid of|refrain from|steer clear of|stay away from|do away with|do without|leave out|cut out"
    "|avoiding|quit",
    ("hate",): "hate|dislike|detest|can't stand|cannot stand",
    ("verb",): "use|using|write|writing|give|giving|include|including|add|adding|have|contain|make|create|produce|provide|insert|be|putting"
    "|to read|to see|answer using|reply using|respond using|writing in|containing",
    ("ask",): "ask|asking",
    ("all",): "always|all|every|every time|each time",
    ("say",): "say|saying|mention|mentioning",
    ("start",): "start|starting|begin|beginning|open|opening",
    ("end",): "end|ending|finish|finishing|close|closing|conclude",
    ("at the end",): "at the end|at the end of your answers|at the end of your answer|at the end of an answer",
    ("limit",): "limit|restrict|cap|keep|keep it|keep them|stay",
    ("wish",): "want|want you to|would like|would like you to|would love|would prefer",
    ("liking",): "like|love|prefer",
    ("I",): "I",
    ("you",): "you",
    ("modal",): "should|must|shall|ought to",
    ("in",): "in",
    ("to",): "to",
    ("the",): "the",
    ("between",): "between",
    ("exactly",): "exactly|precisely",
    ("bound", "<="): "at most|at the most|no more than|not more than|max|max.|maximum|a maximum of|maximum of|up to|within|no longer than|not longer than"
    "|or less|or fewer|or under|or shorter|tops|at maximum",
    ("bound", ">="): "at least|no less than|no fewer than|not less than|a minimum of|minimum of|minimum|min|min.|or more|or longer|no shorter than",
    ("bound", "<"): "fewer than|less than|under|below|shorter than",
    ("bound", ">"): "more than|over|above|exceed|exceeding|longer than|beyond",
    ("number", "1"): "a single|only one|just one|only a single|single",
    ("unit", "words"): "words|words long|words in length",
    ("unit", "sentences"): "sentence|sentences|sentences long",
    ("unit", "short sentences"): "short sentences",
    ("unit", "paragraphs"): "paragraph|paragraphs|paragraphs long",
    ("unit", "characters"): "characters|characters long",
    ("unit", "letters"): "letters|letters long",
    ("unit", "lines"): "lines|lines long",
    ("word noun",): "the word|the words|the phrase|the term|the expression|word",
    ("filler",): "please|thanks|thank you|ever|a|an|any|your|as|of|with|me|to me|for me|at all|again|from now on|in future|in the future"
    "|you to|it|per answer|in total|can you|could you|would you|in your writing|anymore|any more|kindly",
    ("unread",): "question me|question my|question your|be bold|don't have to|do not have to|not have to|never have to|the list|the number|the question|the table"
    "|the heading|the link|the code block|my answers|my answer|any more than|never question|don't question|do not question|not question",
}  # fmt: skip


def _phrases() -> dict[str, tuple[Kind, ...]]:
    """Phrase → what it stands for, in order."""
    phrases: dict[str, tuple[Kind, ...]] = {}
    for kind, words in _WORDS.items():
        phrases |= dict.fromkeys(words.split("|"), (kind,))
    for name, feature in FEATURES.items():
        phrases |= dict.fromkeys(feature.names, (("feature", name),))
    for answer, many in zip(_ANSWERS, _MANY, strict=True):
        singular = (
            f"{determiner} {answer}" for determiner in ("your", "every", "each", "any", "the", "an", "a")
        )
        plural = (f"{determiner}{many}" for determiner in ("", "your ", "all ", "all your ", "all of your "))
        for phrase in (*singular, *plural):
            phrases[phrase] = (("subject",),)
            phrases[f"in {phrase}"] = (
                ("all" if phrase.split()[0] in ("all", "every", "each") else "filler",),
            )
        phrases |= {f"{verb} in": (("verb",), ("in",)) for verb in (answer, "respond")}
        phrases |= {
            f"{verb} {where}": (("verb",),)
            for verb in (answer, "respond")
            for where in ("with", "as", "without")
        }
        phrases |= {f"{verb} without": (("verb",), ("no",)) for verb in (answer, "respond")}
    for short, phrase in (
        ("i'd like", "would like"),
        ("i'd like you to", "would like you to"),
        ("i'd prefer", "would prefer"),
        ("i'd love", "would love"),
    ):
        phrases[short] = (("I",), *phrases[phrase])
    for short in ("shouldn't", "mustn't", "should not", "must not", "should never", "must never"):
        phrases[short] = (("modal",), ("not",))
    phrases["can't be"] = phrases["cannot be"] = (("unread",),)
    for verb in ("use", "using", "write in", "writing in", "write"):
        phrases[f"{verb} bold"] = (("verb",), ("feature", "bold"))
    phrases["say sorry"] = phrases["saying sorry"] = (("say",), ("quote", "sorry"))
    phrases["stick to"] = (("limit",), ("to",))
    return phrases


PHRASES = _phrases()
LONGEST_PHRASE = max(len(phrase.split()) for phrase in PHRASES)
