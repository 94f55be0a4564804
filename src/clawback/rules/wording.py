"""What may become a rule: one plain sentence about answers that gives no orders to anybody else and quotes nobody.

A rule that a model proposed was written by something that has read foreign text. What is refused here is never stored; what passes is still shown to
the person before it goes into any live prompt (``release.screening``).
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable, Sequence

from clawback.feedback.rule_consent import WORD

SHORTEST, LONGEST = 6, 200
"""Characters of a rule."""
WORDS = 32
QUOTED = 5
"""Words in a row that a rule may not share with an answer or a question: that is quoting, and may be private."""

_SENTENCE_ENDS = re.compile(r"[.!?](?=\s+\S)")
_MARKS = re.compile(r"^(?:[-*•>]|\d{1,3}[.)]|[a-z][.)])\s+")
_ADDRESS = re.compile(
    r"https?://|www\.|[\w.]+@[\w.]+|[A-Za-z0-9+/_=-]{40,}|[/\\][\w.-]+[/\\]|\b(?:curl|wget|sudo|bash|eval|password|credential|api[ _-]?key|token)s?\b",
    re.IGNORECASE,
)
_GAMES = re.compile(
    r"\b(?:rat(?:e|ed|es|ing|ings)|thumbs?|stars?|score[sd]?|upvotes?|judges?|graders?|evaluators?|reward(?:ed|s)?|classifier|feedback"
    r"|(?:system|previous|prior|above|hidden) (?:prompt|instruction|message|rule)s?|ignore|disregard|override|bypass|jailbreak|secret(?:ly)?|pretend|you are now)\b",
    re.IGNORECASE,
)


def tidy(text: str) -> str:
    """One line, without a list's mark, with a full stop at the end."""
    line = _MARKS.sub("", " ".join(unicodedata.normalize("NFC", text).split())).strip().strip('"“”').strip()
    return line if not line or line[-1] in ".!?" else f"{line}."


def objection(sentence: str, material: Sequence[Iterable[tuple[str, ...]]] = ()) -> str:
    """Why a sentence is no rule; "" where nothing speaks against it.

    Args:
        material: runs of words (``runs``) of texts that it must not quote.
    """
    words = WORD.findall(sentence.casefold())
    if not sentence:
        return "it is empty"
    if len(sentence) > LONGEST:
        return f"it has {len(sentence)} characters (at most {LONGEST})"
    if len(sentence) < SHORTEST or not 2 <= len(words) <= WORDS:
        return "it is too short or too long for a rule"
    if _SENTENCE_ENDS.search(sentence):
        return "it is more than one sentence"
    if (
        any(unicodedata.category(c) in ("Cc", "Cf", "Co", "Cn", "Cs", "Zl", "Zp") for c in sentence)
        or "<" in sentence
    ):
        return "it holds signs that nobody sees"
    plain = unicodedata.normalize("NFKC", sentence)
    if _ADDRESS.search(plain):
        return "it names an address, a command or a secret"
    if _GAMES.search(plain):
        return "it speaks of ratings, of who judges, or of other instructions"
    there = {tuple(words[i : i + QUOTED]) for i in range(len(words) - QUOTED + 1)}
    if any(not there.isdisjoint(known) for known in material):
        return "it quotes an answer or a question"
    return ""


def runs(text: str) -> frozenset[tuple[str, ...]]:
    """Every ``QUOTED`` words in a row."""
    words = WORD.findall(text.casefold())
    return frozenset(tuple(words[i : i + QUOTED]) for i in range(len(words) - QUOTED + 1))
