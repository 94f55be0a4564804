"""Screens learned prompts: what they must never say, and what the person must see before it goes live (docs/decisions/0006).

Two different questions, both about the text alone, both asked of each sentence:

1. **Does it game the ratings?** A prompt that asks for ratings, hides what it says, mentions who judges it, or holds answers instead of advice scores
   well and teaches nothing. ``alarms`` names each such sentence; the gate refuses the prompt, however its answers are graded.
2. **Who wrote it?** A prompt is learned from turns, and turns hold text of strangers: a web page, a tool, a message in a group. A model
   that reads them may be told what to write (prompt injection). So a sentence is *known* only if it is one of our own templates, or what the owner said in
   their own words about an answer, or was live before, or was accepted. What invited raters, files, people in a chat, agents and MCP clients wrote is as
   strange as a web page. ``unknown`` lists the others: they go live only if the person sees and accepts them.

No list of patterns finds every trick, so the second question is the one to rely on. Where a trick and a legitimate wish are hard to tell apart
the prompt is refused, and a person can still put it live by hand.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable, Sequence
from functools import lru_cache
from typing import TYPE_CHECKING

from clawback.feedback.provenance import in_own_words, shown
from clawback.feedback.rule_consent import wording

if TYPE_CHECKING:
    from clawback.records import Feedback, Sample
    from clawback.store import Store

Run = tuple[str, ...]

LONGEST = 8_000
"""Characters of a learned prompt. It is sent with every request of the agent."""
SHINGLE = 7
"""Words in a row that a prompt may not share with an answer that was rated: that is quoting, no advice."""
ASKED = 5
"""The same, with a question."""

PRAISE = "it asks for ratings or praise"
_NOT = r"(?<!not )(?<!n't )(?<!never )(?<!without )(?<!avoid )(?<!no )"
_GAMES: tuple[tuple[str, re.Pattern[str]], ...] = (
    (
        PRAISE,
        re.compile(
            rf"{_NOT}\b(?:(?:ask|invite|remind|urge|beg|encourage|request|prompt|get)\w*\b[^.\n]{{0,80}}\b(?:rat(?:e|ing|ings)|thumbs?|stars?|feedback|praise|score|upvote|like)\b"
            r"|thumbs?[ -]?up|five[ -]stars?|5[ -]stars?|10 ?/ ?10|upvot\w+|high(?:er|est)? (?:rating|score|mark)s?|(?:good|top|full|positive) (?:rating|score|mark|feedback)s?"
            r"|(?:rate|score|mark|judge) (?:this|it|me|your|the|as|every|all)\b[^.\n]{0,40}\b(?:good|high\w*|best|well|answer|response|excellent|perfect|positive\w*)"
            r"|(?:flatter|compliment|praise)\w*\b)",
            re.IGNORECASE,
        ),
    ),
    (
        "it speaks of who judges it",
        re.compile(
            r"\b(?:reward (?:model|function|head|signal)|rubric|grad(?:er|ers|ing)|evaluat(?:or|ors|ion)|judge(?:s|d)? (?:model|will|by|as)|the judge\b|critic(?:'s)?\b(?! (?:of|on))"
            r"|held[- ]?(?:out|back)|classifier|test (?:set|case|cases|questions)|scor(?:ed|ing) (?:by|on|against|as)|optimi[sz]er|maximi[sz]e (?:the |your )?(?:reward|score)|"
            r"expected (?:answer|label|output)s?|ground truth|correct labels?)",
            re.IGNORECASE,
        ),
    ),
    (
        "it hides what it says, or overrides what was said before",
        re.compile(
            r"\b(?:(?:do not|don't|never) (?:reveal|mention|tell|disclose|show|repeat|quote|admit|acknowledge|let)\b[^.\n]{0,60}\b(?:instruction|prompt|rule|message|section|sentence|this|these|them|know|see)s?"
            r"|(?:ignore|disregard|forget|override|bypass)\b[^.\n]{0,40}\b(?:previous|prior|above|earlier|other|all|any|system|developer|safety|instruction|rule|guideline)s?"
            r"|keep (?:this|these|it) (?:secret|hidden|private|to yourself)|secretly|covertly|without (?:telling|informing|the user knowing|asking)|you are now\b|new instructions?:|system prompt)",
            re.IGNORECASE,
        ),
    ),
    (
        "it carries text that a reader does not see or cannot read",
        re.compile(r"<!--|<(?:script|style|span|div|img|iframe|meta|system)\b|\bdata:[a-z]+/|[A-Za-z0-9+/_=-]{80,}|\n{6,}|[ \t]{40,}|\\u[0-9a-f]{4}|&#x?[0-9a-f]+;", re.IGNORECASE),
    ),
)  # fmt: skip
_ORDER = re.compile(r"https?://|\b(?:curl|wget|base64|eval|rm -rf|sudo|exfiltrat\w+|api[ _-]?key|access token|password|credential)s?\b", re.IGNORECASE)  # fmt: skip
_SPLIT = re.compile(r"(?<=[.!?:;])[\"')\]]*\s+|\n+")
_MARKS = re.compile(r"^(?:[-*•#>\s]|\d{1,3}[.)]\s)+")
_WORDS = re.compile(r"[^\W_]+(?:'[^\W_]+)?")
_TOKENS = re.compile(rf"{_WORDS.pattern}|[^\w\s.,;:!?'\"’‘“”„«»()\-–—…]+|_+")
"""Words, and runs of signs that are no ordinary punctuation."""
_SMALL = frozenset(
    [
        "a",
        "an",
        "the",
        "of",
        "to",
        "in",
        "on",
        "at",
        "for",
        "and",
        "or",
        "but",
        "is",
        "are",
        "was",
        "were",
        "be",
        "been",
        "do",
        "does",
        "did",
        "it",
        "its",
        "this",
        "that",
        "these",
        "those",
        "with",
        "as",
        "by",
        "from",
        "i",
        "you",
        "he",
        "she",
        "we",
        "they",
        "me",
        "my",
        "your",
        "his",
        "her",
        "our",
        "their",
        "what",
        "which",
        "who",
        "when",
        "where",
        "why",
        "how",
        "can",
        "could",
        "should",
        "would",
        "will",
        "shall",
        "may",
        "might",
        "not",
        "no",
        "yes",
        "if",
        "then",
        "than",
        "so",
        "about",
        "please",
        "tell",
        "give",
    ]
)


def sentences(text: str) -> list[str]:
    """The pieces of a prompt that can stand alone: sentences and lines, without the marks of lists and headings.

    >>> sentences("## Tone\\n- Be brief. No emoji!")
    ['Tone', 'Be brief.', 'No emoji!']
    """
    pieces = (_MARKS.sub("", piece).strip() for piece in _SPLIT.split(text.replace("\r\n", "\n")))
    return [piece for piece in pieces if piece]


def literal(sentence: str) -> str:
    """By what a sentence is known again: its words and all its signs but for ordinary punctuation; signs alone as they stand.

    >>> literal("Be brief, please.") == literal("be brief please"), literal("Be brief 🔥") == literal("Be brief")
    (True, False)
    """
    plain = unicodedata.normalize("NFKC", sentence).casefold()
    if not _WORDS.search(plain):
        return " ".join(plain.split())
    return " ".join(_TOKENS.findall(plain))


def alarms(text: str, rated: Sequence[tuple[str, str]] = ()) -> tuple[str, ...]:
    """What is wrong with a prompt, a sentence each; () for nothing.

    Args:
        rated: (question, answer) of what the person rated or wrote in an answer's place: a prompt must not quote them.
    """
    found: list[str] = []
    if len(text) > LONGEST:
        found.append(f"the prompt has {len(text)} characters (at most {LONGEST})")
    found += tricks(text)
    if quoted := _quotes(text, rated):
        found.append(f"it pastes an answer or a question in: “{_shown(quoted)}”")
    return tuple(found)


def tricks(text: str) -> list[str]:
    """The alarms that need nothing but the text: what is hidden in it, what games, what gives orders that are no advice."""
    found: list[str] = []
    if hidden := sorted({_name(c) for c in text if _strange(c)}):
        found.append(f"it holds characters that nobody sees: {', '.join(hidden[:3])}")
    for what, pattern in _GAMES:
        # Look-alike letters are read as what they look like, a line's break as a space: a pattern must not be dodged by them.
        for place in (text, " ".join(unicodedata.normalize("NFKC", text).split())):
            if match := pattern.search(place):
                found.append(f"{what}: “{_shown(match[0])}”")
                break
    if match := _ORDER.search(text):
        found.append(f"it names an address, a command or a secret: “{_shown(match[0])}”")
    return found


def unknown(text: str, known: Iterable[str]) -> list[str]:
    """The sentences of a prompt that are not among ``known``, each once."""
    there = {literal(one) for one in known}
    return [one for one in dict.fromkeys(sentences(text)) if literal(one) not in there or _strange(one)]


def known(store: Store, templates: Iterable[str] = ()) -> list[str]:
    """Every sentence that may go live without being shown: our own, what the owner said about answers, what they said yes to.

    A remark counts whole and by its sentences. Words of others (``feedback.provenance``) are not the owner's, and what is longer than a remark is something
    that they pasted.
    """
    # Needs numpy, without which going back must work.
    from clawback.rewards.instructions import ASKED, LONGEST_REMARK

    said = [f.text.strip() for f in _remarks(store) if in_own_words(f) and len(f.text) <= LONGEST_REMARK]
    ours = [sentence for pair in ASKED.values() for sentence in pair]
    headings = ["Role", "Tone", "Constraints", "Examples", "Format"]
    remarks = [piece for text in said for piece in _forms(text)]
    made = [piece for whole in (*ours, *templates) for piece in (whole, *sentences(whole))]
    return [*headings, *made, *remarks, *store.accepted_sentences()]


def _remarks(store: Store) -> list[Feedback]:
    return [f for f in store.feedback() if f.kind in ("critique", "rating", "preference") and f.text.strip()]


def _forms(remark: str) -> list[str]:
    """A remark in both ways in which a prompt may hold it, each whole and by its sentences."""
    from clawback.rewards.instructions import of_remark

    return [piece for form in (remark, of_remark(remark)) for piece in (form, *sentences(form))]


def authors(store: Store, sentences_: Iterable[str]) -> dict[str, list[str]]:
    """Sentence → who wrote it in a remark, for those that are in one: shown to the person who is asked for a yes."""
    wanted = {literal(one): one for one in sentences_}
    found: dict[str, list[str]] = {}
    for given in _remarks(store):
        text = given.text.strip()
        for piece in dict.fromkeys(_forms(text)):
            if (one := wanted.get(literal(piece))) is not None and shown(given) not in found.setdefault(
                one, []
            ):
                found[one].append(shown(given))
    return found


def quotable(samples: Sequence[Sample]) -> list[tuple[str, str]]:
    """(question, answer) of rated turns and corrections: what ``alarms`` must not find in a prompt."""
    from clawback.records import Turn

    return [(Turn("", s.messages, s.response).prompt, s.response) for s in samples]


def solicits(answer: str) -> bool:
    """Whether an answer asks its reader for a rating or for praise."""
    return bool(_GAMES[0][1].search(answer))


def _quotes(text: str, rated: Sequence[tuple[str, str]]) -> str:
    """A piece of the prompt that was said or asked before; "" for none."""
    words = wording(text).split()
    said, asked, short = _pieces(tuple(rated))
    for size, pieces in ((SHINGLE, said), (ASKED, asked)):
        for i in range(len(words) - size + 1):
            if (piece := tuple(words[i : i + size])) in pieces and len(set(piece) - _SMALL) >= 2:
                return " ".join(piece)
    for sentence in sentences(text):
        plain = wording(sentence)
        content = set(plain.split()) - _SMALL
        for question, answer in short:
            # "If asked for the capital of France, say Paris": two words of the question and the whole of a short answer.
            if f" {answer} " in f" {plain} " and len(content & question) >= 2:
                return sentence
    return ""


@lru_cache(maxsize=2)
def _pieces(rated: tuple[tuple[str, str], ...]) -> tuple[set[Run], set[Run], list[tuple[set[str], str]]]:
    """Runs of words of the answers and of the questions, and short answers with the words of their question: the same for many prompts."""
    said = {run for _, answer in rated for run in _runs(wording(answer).split(), SHINGLE)}
    asked = {run for question, _ in rated for run in _runs(wording(question).split(), ASKED)}
    short = []
    for question, answer in rated:
        words = wording(answer).split()
        if 0 < len(words) < SHINGLE and set(words) - _SMALL:
            short.append((set(wording(question).split()) - _SMALL - set(words), " ".join(words)))
    return said, asked, short


def _runs(words: list[str], size: int) -> set[Run]:
    return {tuple(words[i : i + size]) for i in range(len(words) - size + 1)}


def _strange(text: str) -> bool:
    """Whether it holds a character that is not shown: format, private use and control, but for a line's end, a tab and what joins emoji."""
    return any(
        (unicodedata.category(c) in ("Cf", "Co", "Cn", "Cs") and c not in "\u200d\ufe0f")
        or (unicodedata.category(c) == "Cc" and c not in "\n\t\r")
        or unicodedata.category(c) in ("Zl", "Zp")
        or 0xFE00 <= ord(c) <= 0xFE0E
        for c in text
    )  # fmt: skip


def _name(char: str) -> str:
    return unicodedata.name(char, f"U+{ord(char):04X}").lower()


def _shown(text: str) -> str:
    """A piece of it that can be printed: one line, nothing that is not seen."""
    plain = "".join("\ufffd" if _strange(c) else c for c in " ".join(text.split()))
    return plain if len(plain) <= 80 else plain[:79] + "…"
