"""Two answers in fields of their own, and the word for which of them is better."""

from __future__ import annotations

import re

from clawback.extensions.data_sets import lines
from clawback.extensions.data_sets.columns import plain_number
from clawback.extensions.data_sets.entries import BadLine, Columns, Record

_SUFFIXES = (("a", "b"), ("0", "1"), ("1", "2"), ("left", "right"), ("one", "two"), ("first", "second"))
_STEMS = re.compile(
    r"(?:human_ref|response|responses|answer|output|completion|conversation|model_output|candidate|text|reply|option|summary|generation|model|assistant|chat)_?"
)
SCORES = ("score", "rating", "reward", "quality", "stars")
VERDICTS = (
    "winner", "preference", "preferred", "overall_preference", "preference_strength", "human_preference", "choice", "better",
    "better_response_id", "verdict", "comparison", "label", "labels", "selected", "judgment", "judgement", "vote", "pick",
    "preferred_response", "preferred_answer", "best", "chosen", "ranking", "result", "human_label", "annotation",
)  # fmt: skip
_SIGNED = ("overall_preference", "preference_strength")
"""HelpSteer's: from -3, the first is much better, to 3."""
_FILLING = re.compile(
    r"\b(?:is|much|slightly|significantly|strongly|clearly|better|wins|won|prefer|preferred|the)\b|[.!]"
)
_COMPARED = re.compile(r"(\w+) ?([<>=])\2* ?(\w+)")
_TIES = ("tie", "equal", "same", "both", "neither", "draw", "none", "bothbad", "both_bad")


def names_of_duel(data: Record) -> tuple[str, str] | None:
    """Two fields that hold answers and whose names differ in ``_a`` and ``_b``, ``_1`` and ``_2`` …"""
    for name in data:
        for first, second in _SUFFIXES:
            if not name.endswith(first):
                continue
            stem = name[: -len(first)]
            other = f"{stem}{second}"
            if other in data and _STEMS.fullmatch(stem) and all(_is_answer(data[n]) for n in (name, other)):
                if stem.rstrip("_") == "model" and names_of_duel(
                    {k: v for k, v in data.items() if k not in (name, other)}
                ):
                    continue  # these are the models' names
                return name, other
    return None


def _is_answer(value: object) -> bool:
    return (isinstance(value, str) and bool(value.strip())) or (
        isinstance(value, (list, dict)) and bool(value)
    )


def has_duel(data: Record) -> bool:
    data = lines.lowered(data)
    names = names_of_duel(data)
    return names is not None and bool(_verdict_fields(data, names))


def _verdict_fields(data: Record, names: tuple[str, str]) -> list[str]:
    first = _suffixes_of(names)[0]
    fields = [f"winner_model_{first}", f"winner_{first}"] + [name for name in VERDICTS if name not in names]
    fields += [f"{stem}_{first}" for stem in SCORES]
    return [name for name in fields if data.get(name) is not None]


def _suffixes_of(names: tuple[str, str]) -> tuple[str, str]:
    return next((a, b) for a, b in _SUFFIXES if names[0].endswith(a) and names[1].endswith(b))


def verdict(data: Record, names: tuple[str, str], columns: Columns) -> tuple[int, str]:
    """(1: the first answer is better, -1: the second, 0: neither; the field that says so). Raises ``BadLine``."""
    first, second = _suffixes_of(names)
    for stem in ("winner_model", "winner"):
        wins = [_plain(data.get(f"{stem}_{side}")) for side in (first, second)]
        if None not in wins:
            return _sign((wins[0] or 0.0) - (wins[1] or 0.0)), f"{stem}_{first}"
    texts = [str(data[name]).strip() for name in names]
    unclear = ""
    for field in VERDICTS:
        if field in names or (value := data.get(field)) is None:
            continue
        if (
            isinstance(value, str) and value.strip() in texts and texts[0] != texts[1]
        ):  # it repeats the better answer
            return 1 - 2 * texts.index(value.strip()), field
        try:
            winner = winner_in(field, value, names, data, columns)
        except BadLine as error:
            unclear = str(error)
            continue
        if winner is not None:
            return winner, field
    for stem in SCORES:
        scores = [_plain(data.get(f"{stem}_{side}")) for side in (first, second)]
        if None not in scores:
            return _sign((scores[0] or 0.0) - (scores[1] or 0.0)), f"{stem}_{first}"
    if unclear:
        raise BadLine(unclear)
    raise BadLine(f"nothing says which of `{names[0]}` and `{names[1]}` is better")


def _plain(value: object) -> float | None:
    if isinstance(value, bool):
        return float(value)
    try:
        return plain_number(value)
    except BadLine:
        return None


def _sign(value: float) -> int:
    return (value > 0) - (value < 0)


def winner_in(
    field: str, value: object, names: tuple[str, str], data: Record, columns: Columns
) -> int | None:
    """What one value of a verdict says; None where it says nothing."""
    first, second = _suffixes_of(names)
    if isinstance(value, (list, dict)):
        return None
    word = " ".join(_FILLING.sub(" ", str(value).lower()).split()).strip("[]")
    if compared := _COMPARED.fullmatch(word):  # A>B, B>>A, A=B
        word = {"<": compared[3], ">": compared[1], "=": "tie"}[compared[2]]
    if word in _TIES or word.startswith("tie"):
        return 0
    for index, (suffix, ordinal, place) in enumerate(((first, "first", "left"), (second, "second", "right"))):
        model = str(data.get(f"model_{suffix}") or "").lower()
        spellings = {
            names[index],
            f"model_{suffix}",
            f"response_{suffix}",
            f"answer_{suffix}",
            ordinal,
            place,
            f"{ordinal}_answer",
        }
        spellings |= {f"{stem} {suffix}" for stem in ("model", "response", "answer", "option")} | (
            {suffix} if suffix.isalpha() else set()
        )
        spellings |= {names[index].replace("_", ""), f"assistant_{suffix}", f"assistant {suffix}"}
        if word in spellings or (model and word == model):
            return 1 - 2 * index
    plain = _plain(value)
    if plain is None:
        return None
    values = {v for v in (_plain(one) for one in columns.values.get(field, ())) if v is not None} | {plain}
    if min(values) < 0 or field in _SIGNED:
        return -_sign(plain)
    if values <= {0.0, 1.0} and (first == "0" or len(values) == 2):
        if field in ("label", "labels") and first == "a":  # SHP: 1 says that A is better
            return 1 if plain == 1 else -1
        return 1 if plain == 0 else -1
    if values <= {1.0, 2.0} and (first == "1" or len(values) == 2):
        return 1 if plain == 1 else -1
    raise BadLine(f"`{field}` {plain:g} does not say which answer is better")
