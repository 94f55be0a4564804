"""The axes of style that can be seen in an answer's text, whoever wrote it."""

from __future__ import annotations

import re
from collections import Counter

_APOLOGY = re.compile(r"\b(?:sorry|apologi[sz]e|apologies)\b", re.IGNORECASE)
_CASUAL = re.compile(
    r"\b(?:sure thing|no problem|sorry|hey|folks|grab|loves?|kick off|next up|wrap up|want to|it's|you'll|you're|a lot)\b",
    re.IGNORECASE,
)
_EMOJI = re.compile("[\U0001f300-\U0001faff\u2600-\u27bf]")
_METRIC = re.compile(r"\d\s?(?:kg|grams|cm|ml|square km|degrees Celsius)\b")
_IMPERIAL = re.compile(r"\d\s?(?:pounds|ounces|fluid ounces|inches|square miles|degrees Fahrenheit)\b")
_STATEMENT = re.compile(
    r"^- [^:\n]+: |\b(?:about|around|it|one|this|they|folks|summers|first|then|finally|water)\b",
    re.IGNORECASE | re.MULTILINE,
)

AXES = ("terse", "bullets", "formal", "apology", "emoji", "question", "imperial", "caveat")


def axes(response: str) -> dict[str, bool]:
    """Each axis of style, seen in the text: terse, bullets, formal, apology, emoji, question, imperial, caveat (and metric)."""
    lines = response.splitlines()
    bullets = sum(line.lstrip().startswith(("- ", "* ", "• ")) for line in lines) >= 2
    last = _EMOJI.sub("", response).rstrip()
    return {
        "terse": facts_said(response) <= 3,
        "bullets": bullets,
        "formal": not _CASUAL.search(response),
        "apology": bool(_APOLOGY.search(response)),
        "emoji": bool(_EMOJI.search(response)),
        "question": last.endswith("?"),
        "imperial": bool(_IMPERIAL.search(response)),
        "metric": bool(_METRIC.search(response)),
        "caveat": "vary" in response,
    }


def facts_said(response: str) -> int:
    """How many statements the answer makes: bullets, or sentences that are no greeting, apology, caution or question."""
    bullets = [line for line in response.splitlines() if line.lstrip().startswith(("- ", "* ", "• "))]
    if len(bullets) >= 2:
        return len(bullets)
    sentences = re.split(r"(?<=[.!?])\s+", response.strip())
    empty = re.compile(
        r"sorry|apolog|vary|\?|^(?:certainly|of course|sure thing|no problem)\W*$", re.IGNORECASE
    )
    return sum(bool(re.search(r"\w", s)) and not empty.search(s) for s in sentences)


def well_formed(response: str) -> bool:
    """Readable, not empty, and not repeating itself: what collapses scores False, whatever else it shows."""
    words = re.findall(r"[A-Za-z']+", response)
    if len(words) < 4 or len(response) > 900:
        return False
    if sum(c.isascii() or bool(_EMOJI.match(c)) for c in response) < 0.97 * len(response):
        return False
    if len(_EMOJI.findall(response)) > 3 or not _STATEMENT.search(response):
        return False
    pieces = [p.strip() for p in re.split(r"[\n.!?]+", response) if re.search(r"\w", p)]
    if max(Counter(pieces).values()) > 1:
        return False
    return max(Counter(w.lower() for w in words).values()) <= max(8, len(words) // 3)
