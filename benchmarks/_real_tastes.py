"""Tastes of simulated persons about real answers: those that recipes are developed on, and those that are reported."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass

_ITEM = re.compile(r"^[ \t]*(?:[-*•]|\d{1,3}[.)])\s", re.MULTILINE)
_EXAMPLE = re.compile(r"\b(?:for example|such as|for instance|e\.g\.)")
_MAYBE = re.compile(r"\b(?:may|might|could|perhaps|possibly|probably|usually|can)\b")
_FIRST = re.compile(r"\b(?:i|i'm|my|me|we|our)\b")
_SECOND = re.compile(r"\b(?:you|your)\b")
_WARM = re.compile(
    r"\b(?:thanks?|thank you|happy|glad|enjoy|love|wonderful|great|hope|welcome|congratulations)\b"
)
_TWO_SIDED = re.compile(r"\b(?:but|however|while|although|though|whereas)\b")
_RELATIVE = re.compile(r"\b(?:that|which|who)\b")
_REASON = re.compile(r"\b(?:because|since|so that|therefore|due to|as a result)\b")


@dataclass(frozen=True, slots=True)
class Taste:
    """``likes(answer)``; ``words``: what its person says about an answer that they do not like; ``prompt``: what somebody who knew the taste would write
    after each prompt. ``styled``: the style features can say it."""

    likes: Callable[[str], bool]
    words: str
    styled: bool
    prompt: str


def _sentences(text: str) -> list[str]:
    return [one for one in re.split(r"(?<=[.!?])\s+", text.strip()) if one]


def _reading_ease(text: str) -> float:
    """Flesch's: over 60 is plain English, over 70 easy (Flesch 1948). Syllables are runs of vowels, without an e at the end."""
    words = re.findall(r"[a-z']+", text.lower())
    syllables = sum(max(1, len(re.findall(r"[aeiouy]+", re.sub(r"e$", "", word)))) for word in words)
    return (
        206.835 - 1.015 * len(words) / max(1, len(_sentences(text))) - 84.6 * syllables / max(1, len(words))
    )


def _mean_word(text: str) -> float:
    found = [word.strip(".,;:!?\"'()*") for word in text.split()]
    return sum(map(len, found)) / max(1, len(found))


DEVELOPMENT = {
    "short": Taste(lambda t: len(t.split()) <= 50, "Too long.", True, "Answer in at most 50 words."),
    "list": Taste(
        lambda t: len(_ITEM.findall(t)) >= 2,
        "Use bullet points, please.",
        True,
        "Answer with a bulleted list.",
    ),
    "example": Taste(
        lambda t: bool(_EXAMPLE.search(t.lower())), "Give me an example.", False, "Give an example."
    ),
    "plain words": Taste(
        lambda t: _mean_word(t) <= 4.4, "Use simpler words, please.", False, "Use short, simple words."
    ),
    "no side clauses": Taste(
        lambda t: not _RELATIVE.search(t.lower()),
        "No side clauses, please.",
        False,
        "Never say that, which or who.",
    ),
}
"""What settings were chosen on."""

TEST = {
    "says you": Taste(lambda t: bool(_SECOND.search(t.lower())), "Talk to me directly.", True, 'Speak to me directly, as "you".'),
    "one paragraph": Taste(lambda t: not _ITEM.search(t) and "\n" not in t.strip(), "No lists; one paragraph, please.", True, "Answer in one paragraph, without lists."),
    "definite": Taste(lambda t: not _MAYBE.search(t.lower()), "No hedging, please.", True, "Be definite: never say may, might, could or can."),
    "no first person": Taste(lambda t: not _FIRST.search(t.lower()), "Do not speak about yourself.", True, 'Never say "I", "we" or "our".'),
    "reasons": Taste(lambda t: bool(_REASON.search(t.lower())), "Tell me why.", False, "Give a reason, with the word because."),
    "short sentences": Taste(lambda t: len(t.split()) / max(1, len(_sentences(t))) <= 14, "Shorter sentences, please.", False, "Use short sentences of at most 14 words."),
    "ends openly": Taste(lambda t: t.rstrip()[-1:] == "?", "Ask me something at the end.", True, "End with a question to me."),
    "no repeated opening": Taste(lambda t: len({s.split()[0].lower() for s in _sentences(t) if s.split()}) >= 0.8 * len(_sentences(t)), "Vary how sentences begin.", False, "Begin each sentence with another word."),
    "easy to read": Taste(lambda t: _reading_ease(t) >= 65, "Make it easier to read.", False, "Write so that a child of twelve can read it easily."),
    "warm": Taste(lambda t: bool(_WARM.search(t.lower())), "A bit warmer, please.", False, "Be warm and kind."),
    "two sides": Taste(lambda t: bool(_TWO_SIDED.search(t.lower())), "Tell me the other side, too.", False, "Say what speaks against it, too."),
}  # fmt: skip
"""What is reported. The last three were chosen for how often the base pleases (0.14 to 0.33 of its answers), before anything was learned of them; of "reasons" and
"ends openly", which it hardly ever meets, 32 ratings show one answer or none."""
