"""Fields that chat programs name differently: ids, times, thumbs, pictures."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from clawback import scales
from clawback.extensions.data_sets.entries import Record, dicts, moment
from clawback.records import Feedback

IDS = ("id", "uuid", "messageId", "message_id", "_id")
STAMPS = (
    "created_at", "createdAt", "create_time", "timestamp", "created", "send_date", "date", "updated_at", "inserted_at", "datetime_utc",
)  # fmt: skip


def first(data: Record, names: Sequence[str]) -> Any:
    """The first of these fields that has a value; None without."""
    return next((data[name] for name in names if data.get(name) not in (None, "")), None)


def stamp(data: Record, names: Sequence[str] = STAMPS) -> float:
    return moment(first(data, names))


def opinion_in(value: object, at: float = 0.0, person: str = "") -> list[Feedback]:
    """A thumb, a score or a word, with what stands beside it; [] for what is none."""
    inner: Record = value if isinstance(value, Mapping) else {"rating": value}
    details = inner.get("details")
    score = details.get("rating") if isinstance(details, Mapping) else None
    sign = first(inner, ("rating", "type", "value", "score", "vote"))
    tags = (
        inner.get("tags")
        if isinstance(inner.get("tags"), list) and not inner.get("reason") and "details" not in inner
        else []
    )
    tag = inner.get("tag")
    named = tag.get("key") or tag.get("label") if isinstance(tag, Mapping) else tag
    words = [inner.get("reason"), *(tags or []), named, inner.get("comment"), inner.get("text")]
    note = ": ".join(
        dict.fromkeys(str(w).replace("_", " ").strip() for w in words if isinstance(w, str) and w.strip())
    )
    if isinstance(score, (int, float)) and not isinstance(score, bool) and 1 <= score <= 10:
        plain = scales.value_of(score, scales.TEN)
        return [
            Feedback(
                0, "rating", plain, note, created_at=at, person=person, score=float(score), scale=scales.TEN
            )
        ]
    if isinstance(sign, bool):
        return [Feedback(0, "rating", 1.0 if sign else -1.0, note, created_at=at, person=person)]
    if isinstance(sign, (int, float)) and sign in (1, -1):
        return [Feedback(0, "rating", float(sign), note, created_at=at, person=person)]
    if isinstance(sign, str) and (plain_sign := scales.sign_of(sign)) is not None:
        return [Feedback(0, "rating", plain_sign, note, created_at=at, person=person)]
    return []


def picture_parts(words: str, files: object) -> object:
    """The text, with the pictures that lie beside it."""
    shown = [
        f["url"]
        for f in dicts(files)
        if f.get("type") == "image" and str(f.get("url", "")).startswith("data:image/")
    ]
    if not shown:
        return words
    return [
        *({"type": "image_url", "image_url": {"url": url}} for url in shown),
        *([{"type": "text", "text": words}] if words else []),
    ]
