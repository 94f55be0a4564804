"""Parses remarks: "too long", "no emoji, please", "be formal" → which features should increase or decrease (``style_features.NAMES``).

A remark states what a rating leaves to be inferred. The most common remarks are covered, in English only. Any other is left
to the algorithms that read hints with the model itself (``opd``, ``combined``).
"""

from __future__ import annotations

import re

from clawback.rewards.style_features import EMOJI

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
