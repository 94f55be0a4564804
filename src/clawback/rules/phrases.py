"""Reads a sentence that asks for something which code can see into a check; what it cannot read for certain is "" (a judge decides).

A wrong check is worse than none, so every word of the sentence has to be accounted for: each is a negation, a verb of asking, a thing that can
be counted, a number, a bound, a subject, or one of a few words that change nothing. A sentence with any other word is not read: "no lists
unless I ask", "fewer lists", "I don't mind lists". Negations are counted, and what a negation is about has to be clear.

1. ``tokens`` turns words into classes, longest phrase first (``lexicon.py``). Quoted text is one token.
2. Commas, "and" and "but" separate clauses, unless what they join are things of one kind ("no lists, tables or headings").
3. ``_clause`` reads one clause. A sentence is read only if all of its clauses are.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from clawback.rules.lexicon import FEATURES, LONGEST_PHRASE, NUMBERS, PHRASES, UNITS
from clawback.rules.lexicon import NAMES as LANGUAGES

LONGEST = 240
"""Characters of a sentence; what is longer says more than one thing."""
MOST_TOKENS = 60

_QUOTED = re.compile(r"\"([^\"\n]{1,60})\"|(?<!\w)'([^'\n]{1,60})'(?!\w)")
_TOKEN = re.compile(r"\x00\d+|\d{1,3}(?:,\d{3})+|\d+(?:-\d+)?|[^\W\d_]+(?:['-][^\W\d_]+)*|[,;:.!?]|\S")
NOT_WORDS = frozenset(("limit", "count", "order", "choice"))
"""What stands after "the word" and is not the word that is meant."""
_ENDS = frozenset(".!;:?")
_STRAIGHT = str.maketrans("“”„«»‘’", '"""""\'\'')


class _Unread(Exception):
    """The sentence is not read."""


@dataclass(frozen=True, slots=True)
class Token:
    """One word, or several that mean one thing. ``kind`` is a class of ``lexicon``; ``values`` are what it names."""

    kind: str
    values: tuple[str, ...] = ()
    joined: str = ""
    """How several values were joined: ``and`` or ``or``."""


def parse(text: str) -> str:
    """The check (``checks``) that a sentence asks for; "" where code cannot see it, or the sentence is not understood.

    >>> parse("Never use more than eighty words"), parse("no bullet lists please"), parse("I don't mind lists")
    ('words <= 80', 'bullets = no', '')
    """
    if not text.strip() or len(text) > LONGEST:
        return ""
    try:
        results = [check for sentence in _sentences(text) for check in _sentence(sentence)]
    except _Unread:
        return ""
    return "; ".join(dict.fromkeys(results)) if not _contradict(results) else ""


def _contradict(results: Sequence[str]) -> bool:
    """Whether one clause asks for what another forbids."""
    there = set(results)
    return any(check.endswith(" = no") and check.removesuffix("no") + "yes" in there for check in there)


# ------------------------------------------------------------------------------------------------ words → tokens


def _sentences(text: str) -> list[list[Token]]:
    """Tokens of each sentence; one that ends in a question mark has to be a request."""
    quotes: list[str] = []

    def quoted(match: re.Match[str]) -> str:
        quotes.append(" ".join((match[1] or match[2]).split()).strip(",;:").rstrip("."))
        return f" \x00{len(quotes) - 1} "

    plain = _QUOTED.sub(quoted, text.replace("\x00", " ").translate(_STRAIGHT))
    words = [word if word == "I" else word.lower() for word in _TOKEN.findall(plain)]
    if len(words) > MOST_TOKENS or "\n" in text.strip():
        raise _Unread
    results: list[list[Token]] = []
    start = 0
    for position in range(len(words) + 1):
        if position == len(words) or words[position] in _ENDS:
            piece = words[start:position]
            if position < len(words) and words[position] == "?" and not _request(piece):
                raise _Unread
            if piece[:1] == ["not"]:  # "not using lists" tells what an answer does
                raise _Unread
            if piece:
                results.append(_tokens(piece, quotes))
            start = position + 1
    return results


def _request(words: Sequence[str]) -> bool:
    """Whether a question asks to do something ("could you …?")."""
    return tuple(words[:2]) in {(modal, "you") for modal in ("can", "could", "would")}


def _tokens(words: list[str], quotes: Sequence[str]) -> list[Token]:
    words = _without_leaving(words)
    results: list[Token] = []
    position = 0
    while position < len(words):
        size, tokens = _next(words, position, quotes)
        results += [token for token in tokens if token.kind != "filler"]
        position += size
    return _merged(_ranges(results))


def _without_leaving(words: list[str]) -> list[str]:
    """ "Leave the emoji out" says "no emoji"."""
    if "leave" in words and "out" in words[words.index("leave") :]:
        first, last = words.index("leave"), len(words) - 1 - words[::-1].index("out")
        return [*words[:first], "no", *words[first + 1 : last], *words[last + 1 :]]
    return words


def _next(words: Sequence[str], position: int, quotes: Sequence[str]) -> tuple[int, list[Token]]:
    """The longest phrase that begins there: (its words, what it means). Raises ``_Unread`` for an unknown word."""
    word = words[position]
    if word.startswith("\x00"):
        return 1, [Token("quote", (_quotation(quotes[int(word[1:])]),))]
    for size in range(min(LONGEST_PHRASE, len(words) - position), 0, -1):
        kinds = PHRASES.get(" ".join(words[position : position + size]), ())
        if kinds == (("word noun",),):
            return _named_word(words, position, size)
        if kinds:
            return size, [Token(kind, tuple(values)) for kind, *values in kinds]
    if (number := _number(words, position))[0]:
        return number[0], [Token("number", number[1])]
    if word in LANGUAGES:
        return 1, [Token("language", (LANGUAGES[word],))]
    raise _Unread


def _quotation(text: str) -> str:
    if not text or '"' in text:
        raise _Unread
    return text


def _named_word(words: Sequence[str], position: int, size: int) -> tuple[int, list[Token]]:
    """ "the word however": the next word is meant literally. Before a quotation it says nothing."""
    after = words[position + size :]
    if after and after[0].startswith("\x00"):
        return size, []
    if words[position] == "the" and len(after) == 1 and len(after[0]) > 2 and after[0] not in NOT_WORDS:
        return size + 1, [Token("quote", (after[0],))]
    if words[position : position + size] == ["word"]:
        return size, [Token("unit", ("words",))]
    raise _Unread


def _number(words: Sequence[str], position: int) -> tuple[int, tuple[str, ...]]:
    """(its words, the number) of a number in digits or in words, or of "50-100"; (0, ()) where none begins there."""
    if words[position][0].isdigit():
        bounds = words[position].replace(",", "").split("-")
        if any(len(bound) > 6 for bound in bounds):
            raise _Unread
        return 1, tuple(bounds)
    total, size = _below_hundred(words, position)
    if position + size < len(words) and words[position + size] == "hundred":
        total, size = max(total, 1) * 100, size + 1
        skipped = int(position + size < len(words) and words[position + size] == "and")
        rest, more = _below_hundred(words, position + size + skipped)
        if more:
            total, size = total + rest, size + skipped + more
    return (size, (str(total),)) if size else (0, ())


def _below_hundred(words: Sequence[str], position: int) -> tuple[int, int]:
    """(number, its words) of "eighty", "eighty-one" or "eighty one"."""
    parts = " ".join(words[position : position + 2]).replace("-", " ").split()
    if not parts or parts[0] not in NUMBERS:
        return 0, 0
    tens, joined = NUMBERS[parts[0]], "-" in words[position]
    if tens >= 20 and len(parts) > 1 and 0 < NUMBERS.get(parts[1], 0) < 10:
        return tens + NUMBERS[parts[1]], 1 if joined else 2
    return (tens, 1) if not joined else (0, 0)


def _ranges(tokens: Sequence[Token]) -> list[Token]:
    """ "between 50 and 100", "50 to 100" as one number with two bounds."""
    results = list(tokens)
    for position in range(len(results) - 2):
        first, middle, last = results[position : position + 3]
        if first.kind == last.kind == "number" and middle.kind in ("to", "and"):
            is_range = position > 0 and results[position - 1].kind == "between"
            if is_range == (middle.kind == "and"):
                both = Token("number", first.values + last.values)
                return [*results[: position - is_range], both, *results[position + 3 :]]
    return results


def _merged(tokens: Sequence[Token]) -> list[Token]:
    """Things of one kind with commas, "and" or "or" between them become one token."""
    results: list[Token] = []
    position = 0
    while position < len(tokens):
        token = tokens[position]
        position += 1
        if token.kind in ("quote", "feature"):
            while (more := _joined(tokens, position, token.kind)) is not None:
                steps, joined, values = more
                if token.joined and joined and token.joined != joined:
                    raise _Unread
                token = Token(token.kind, token.values + values, token.joined or joined)
                position += steps
        results.append(token)
    return results


def _joined(tokens: Sequence[Token], position: int, kind: str) -> tuple[int, str, tuple[str, ...]] | None:
    """(tokens, how, values) of a further thing of that kind."""
    steps, joined = 0, ""
    while position + steps < len(tokens) and tokens[position + steps].kind in ("comma", "and", "or"):
        if tokens[position + steps].kind != "comma":
            joined = tokens[position + steps].kind
        steps += 1
    if not steps or position + steps >= len(tokens) or tokens[position + steps].kind != kind:
        return None
    after = tokens[position + steps + 1].kind if position + steps + 1 < len(tokens) else ""
    if not joined and after not in ("comma", "and", "or"):
        return None
    return steps + 1, joined, tokens[position + steps].values


# ------------------------------------------------------------------------------------------------ tokens → clauses


def _sentence(tokens: Sequence[Token]) -> list[str]:
    """The checks of a sentence. Raises ``_Unread``."""
    results: list[str] = []
    clause: list[Token] = []
    open_negation = False
    for token in (*tokens, Token("comma")):
        if token.kind not in ("comma", "and", "but"):
            clause.append(token)
            continue
        if clause:
            # "Never use lists and write more than 80 words": what "never" reaches is not certain.
            if open_negation and not any(token.kind in ("no", "stop") for token in clause):
                raise _Unread
            results += _clause(clause)
        open_negation = token.kind == "and" and any(token.kind == "not" for token in clause)
        clause = []
    return results


DENIALS = ("no", "not", "stop", "hate")
THINGS = ("quote", "feature", "number", "unit", "language")


def _clause(tokens: list[Token]) -> list[str]:
    """The checks of one clause. Raises ``_Unread``."""
    kinds = [token.kind for token in tokens]
    _check_subject(kinds)
    denials = sum(kind in DENIALS for kind in kinds)
    if (
        denials
        and "all" in kinds
        and kinds.index("all") > min(kinds.index(kind) for kind in kinds if kind in DENIALS)
    ):
        raise _Unread  # "don't always use lists" is no ban
    things = [token for token in tokens if token.kind in THINGS]
    if denials > 1 or not things or {"or", "unread", "between"} & {*kinds}:
        raise _Unread
    if {"start", "end", "at the end"} & {*kinds}:
        return _edge(kinds, things, bool(denials))
    if "number" in kinds:
        return _quantity(tokens, bool(denials))
    if len(things) != 1 or {"limit", "bound", "to", "exactly"} & {*kinds}:
        raise _Unread
    [thing] = things
    if thing.kind == "quote":
        return _says(thing, kinds, bool(denials))
    if thing.kind == "language":
        if denials or "in" not in kinds:
            raise _Unread
        return [f"language = {thing.values[0]}"]
    return _feature(thing, kinds, bool(denials))


def _check_subject(kinds: Sequence[str]) -> None:
    """A statement about an answer is no wish: "you use lists", "the answer has no list"."""
    first, there = next((kind for kind in kinds if kind != "all"), ""), {*kinds}
    asks = {"verb", "say", "start", "end", "limit"} & there
    if ("you" in there or (first in ("subject", "unit", "feature") and asks)) and "modal" not in there:
        raise _Unread
    if ("you" in there and first != "you") or ("I" in there and first != "I"):
        raise _Unread
    if "modal" in there and first not in ("you", "subject", "unit", "feature"):
        raise _Unread
    wishes = {"wish", "liking", "hate"} & there
    if (first == "I") != bool(wishes):
        raise _Unread


def _says(thing: Token, kinds: Sequence[str], denied: bool) -> list[str]:
    """Phrases that must be said, or must not."""
    if not denied and ("say" not in kinds or thing.joined == "or"):
        raise _Unread
    if "not" in kinds and not {"say", "verb", "wish", "liking"} & {*kinds}:
        raise _Unread
    return [f'says "{text}" = {"no" if denied else "yes"}' for text in thing.values]


def _feature(thing: Token, kinds: Sequence[str], denied: bool) -> list[str]:
    """Things that must be there, or must not."""
    if thing.kind == "unit" or "say" in kinds or ("ask" in kinds and thing.values != ("question",)):
        raise _Unread
    if not denied and (thing.joined == "or" or "the" in kinds or not {"verb", "wish", "ask"} & {*kinds}):
        raise _Unread
    results = [FEATURES[name].absent if denied else FEATURES[name].present for name in thing.values]
    if "" in results:
        raise _Unread
    return results


def _edge(kinds: Sequence[str], things: Sequence[Token], denied: bool) -> list[str]:
    """What an answer starts or ends with."""
    if len(things) != 1 or {"to", "the", "limit", "bound", "liking"} & {*kinds}:
        raise _Unread
    [thing] = things
    at_start = "start" in kinds
    if thing.kind == "feature" and thing.values == ("question",) and not at_start:
        return [f"ends with question = {'no' if denied else 'yes'}"]
    if thing.kind != "quote" or (len(thing.values) > 1 and not denied) or "at the end" in kinds:
        raise _Unread
    where = "starts with" if at_start else "ends with"
    return [f'{where} "{text}" = {"no" if denied else "yes"}' for text in thing.values]


def _quantity(tokens: Sequence[Token], denied: bool) -> list[str]:
    """A bound on something that can be counted. Raises ``_Unread``."""
    kinds = [token.kind for token in tokens]
    positions = [position for position, kind in enumerate(kinds) if kind == "number"]
    bounds = [token.values[0] for token in tokens if token.kind == "bound"]
    if (
        len(positions) != 1
        or len(bounds) > 1
        or {"quote", "language", "say", "the", "stop", "hate"} & {*kinds}
    ):
        raise _Unread
    name = _unit(tokens, positions[0])
    if "ask" in kinds and name != "questions":
        raise _Unread
    numbers = [int(value) for value in tokens[positions[0]].values]
    if len(numbers) == 2:
        if denied or bounds or numbers[0] >= numbers[1]:
            raise _Unread
        return [f"{name} >= {numbers[0]}", f"{name} <= {numbers[1]}"]
    if ("to" in kinds) > ("limit" in kinds) or ("limit" in kinds and not bounds and "to" not in kinds):
        raise _Unread
    compare = bounds[0] if bounds else "<=" if "limit" in kinds else "="
    if compare == ">" and not denied and not {"verb", "wish", "limit", "modal"} & {*kinds}:
        raise _Unread  # "more than 80 words!" is a complaint
    if denied:
        if compare not in ("<", ">"):
            raise _Unread
        compare = {"<": ">=", ">": "<="}[compare]
    if compare == "=" and not _exact(name, numbers[0], kinds):
        raise _Unread
    return [_bounded(name, compare, numbers[0])]


def _exact(name: str, number: int, kinds: Sequence[str]) -> bool:
    """Whether a number without a bound can be meant exactly. "In 80 words" means about 80."""
    if "exactly" in kinds or (number == 1 and name in ("sentences", "paragraphs", "words")):
        return True
    return (
        number <= 10
        and name not in ("words", "sentence words", "word letters", "characters")
        and "verb" in kinds
    )


def _bounded(name: str, compare: str, number: int) -> str:
    if compare in ("<", ">"):
        compare, number = ("<=", number - 1) if compare == "<" else (">=", number + 1)
    if number <= 0:
        raise _Unread
    if compare == ">=" and number == 1:
        return f"{name} = yes"
    if compare == "=" and number == 1 and name in ("sentences", "paragraphs"):
        compare = "<="
    return f"{name} {compare} {number}"


OF_SENTENCES = {("words", "sentences"): "sentence words", ("words", "short sentences"): "sentence words", ("letters", "words"): "word letters"}  # fmt: skip
"""(what is counted, in each of what) → the measure."""


def _unit(tokens: Sequence[Token], position: int) -> str:
    """The measure that is counted: the unit after the number, of a plural subject that may stand before it."""
    things = [(i, token) for i, token in enumerate(tokens) if token.kind in ("unit", "feature")]
    after = [(i, token) for i, token in things if i > position]
    subjects = [token for i, token in things if i < position]
    if len(after) != 1 or len(subjects) > 1 or len(after[0][1].values) > 1:
        raise _Unread
    index, token = after[0]
    if any(tokens[i].kind != "bound" for i in range(position + 1, index)):
        raise _Unread
    unit = token.values[0] if token.kind == "unit" else UNITS[token.values[0]]
    if subjects:
        unit = OF_SENTENCES.get((unit, subjects[0].values[0]), "") if subjects[0].kind == "unit" else ""
    if not unit or unit in ("letters", "short sentences"):
        raise _Unread
    return unit
